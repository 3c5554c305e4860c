"""A world in which one backlog lives: a store, its owners one after the other, and faults.

A history is made from a seed.  Its steps come in any order and leave calls half done: an append
may be chosen, landed, or ended; a read asked for, made, or ended.  Steps that are not possible now
do nothing.  A takeover is the intake's own, so that an owner starts as it does in a node.
"""

from __future__ import annotations

from collections.abc import Callable

from histories.columns import EVERYTHING, History
from histories.steps import Steps
from holdfast.ids import NodeId
from holdfast.store import Entry, Loaded, Record

LENGTH = 100  # steps
ROUNDS_MAX = 2_000

STEPS = {  # how often each is tried
    "write": 6,
    "land": 5,
    "append_ends": 5,
    "read_starts": 5,
    "read_is_made": 5,
    "read_ends": 5,
    "take": 7,
    "decide": 8,
    "trim": 2,
    "resize": 1,
    "unload": 0.5,
    "crash": 0.7,
    "late": 1,
}


class World(Steps):
    """One history: `play` yields the store calls, and fails when a promise is broken."""

    def __init__(
        self,
        seed: int,
        *,
        queue: str = "default",
        length: int = LENGTH,
        crash_at: int | None = None,
    ) -> None:
        """`crash_at` is a step before which the owner crashes, whatever else happens."""
        super().__init__(seed, queue=queue)
        self.length = length
        self.crash_at = crash_at
        self.late_records: list[Record] = []  # what old owners have still on their way
        self.late_grabs: list[Entry] = []

    def play(self) -> History:
        """The whole history, until everything is dispatched."""
        yield from self.take_over()
        steps: dict[str, Callable[[], History | None]] = {n: getattr(self, n) for n in STEPS}
        names = self.rng.choices(list(STEPS), list(STEPS.values()), k=self.length)
        for number, name in enumerate(names):
            if number == self.crash_at:
                yield from self.crash()
            made = steps[name]()
            if made is not None:
                yield from made
            self.check()
        yield from self.drain()

    # owners ───────────────────────────────────────────────────────────────────────────────────

    def take_over(self) -> History:
        """A new owner: only the store is left of the one before."""
        node = NodeId(f"node-{self.epoch}")
        taken = yield ("claim", self.epoch, node)
        while self.fault() == "after":  # nobody heard the answer: the epoch is seen, and raised
            taken = yield ("claim", taken, node)
        self.epoch = taken
        loaded: Loaded = yield ("load",)
        self.own(loaded)

    def crash(self) -> History:
        """Memory is lost; what was on its way may still arrive, under the old epoch."""
        self.trail.append(("crash",))
        self.late_grabs += [entry for entry in self.flying if self.rng.random() < 0.5]
        if self.window.appending and not self.window.has_landed and self.rng.random() < 0.7:
            self.late_records.append(self.record)
        elif self.backlog.trim() is not None and self.rng.random() < 0.5:
            self.late_records.append(self.trimming())
        return self.take_over()

    def late(self) -> History | None:
        """A write or a grab of an old owner arrives; a grab needs no ownership."""
        if self.late_grabs:
            entry = self.late_grabs.pop()
            self.trail.append(("late grab", entry))
            self.ledger.grab(entry.trigger)
        return self.land_late(self.late_records.pop(0)) if self.late_records else None

    def land_late(self, record: Record) -> History:
        self.trail.append(("late", *record.entries))
        fenced = self.fenced(record)
        counts = yield ("record", fenced)
        assert counts == (fenced.epoch == self.epoch), "the epoch is the fence, and nothing else"
        if counts:
            self.wrote(record.entries)
            for above, to in record.trims.values():
                self.ledger.deleted(above, to)
                self.window.deleted(to)

    def fenced(self, record: Record) -> Record:
        """The late write as it reaches the store: under the epoch in which it was made."""
        return record

    # the end ──────────────────────────────────────────────────────────────────────────────────

    def drain(self) -> History:
        """No more faults: everything that is stored is dispatched."""
        self.faults = 0.0
        for _ in range(ROUNDS_MAX):
            if not self.window.appending and self.unwritten:
                self.choose(list(self.unwritten.values())[:6])
            yield from self.late() or ()
            yield from self.land() or ()
            self.append_ends()
            self.read_starts()
            yield from self.read_is_made() or ()
            self.read_ends()
            self.take()
            self.decide()
            self.check()
            if self.backlog.is_empty:
                self.unwritten |= self.held
                self.held = {}
            late = self.late_records or self.late_grabs
            if self.backlog.is_empty and not (self.unwritten or self.flying or late):
                break
        assert self.backlog.is_empty, "the backlog stands still"
        assert not self.ledger.page(self.backlog.ack_level, 1), "A stays behind"
        yield from self.trim() or ()
        self.ledger.check_end((yield ("levels", EVERYTHING)))
