"""A world in which keys are held and released: what waits goes to lanes, in memory and stored.

The books, the intake and the table are the node's own; the world is the store of the tasks, the
dispatcher that takes and grabs, and whoever pauses and limits.  A history is made from a seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from histories.columns import COLUMN, PARTITION, History
from histories.keepers import Keeper, Ticks
from histories.ledger import LaneLedger
from histories.steps import FAULTS, FAULTS_IN_A_STORM, shown
from holdfast.booking import Full
from holdfast.dispatch.lanes import lane_of
from holdfast.dispatch.limits import Limits
from holdfast.ids import NodeId
from holdfast.store import Arrivals, Cursor, Record
from holdfast.task import TaskId, Trigger

KEYS = ("a", "b", "c", None)
ORDERED = {"x": "a", "y": "b"}  # ordering keys, and whose they are
SLOTS = 5
ROUNDS_MAX = 500

LENGTH = 120  # steps
STEPS = {  # how often each is tried
    "enqueue": 6,
    "append": 5,
    "read_early": 1,
    "read_exact": 2,
    "read_levels": 5,
    "trim": 2,
    "land": 14,
    "hear": 14,
    "take": 9,
    "decide": 7,
    "finish": 7,
    "hold": 4,
    "release": 1,
    "look_again": 0.7,
    "crash": 1,
    "change_owner": 0.8,
    "late": 1,
}


class LaneWorld:
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
        self.rng = rng = Random(seed)
        self.queue = queue
        self.length = length
        self.crash_at = crash_at
        self.is_calm = seed % 3 == 0 and crash_at is None  # nothing goes wrong: all stays in order
        self.faults = 0.0 if self.is_calm else FAULTS if seed % 5 else FAULTS_IN_A_STORM
        window = rng.randint(2, 4)
        self.limits = Limits(
            look_ahead=rng.choice((24, 60)),
            window=window,
            reload_at=rng.randrange(window),
            lane_window=rng.randint(1, 4),
            lanes_loaded=rng.randint(2, 8),
            lane_trim_s=rng.choice((0.0, 5.0)),
            spill_s=0.0,
            page=rng.randint(2, 8),
            append_max=rng.choice((4, 50)),
            trim_count=rng.randint(1, 10),
            trim_s=20.0,
        )
        self.clock = Ticks()
        self.keeper: Keeper | None = None
        self.ledger = LaneLedger()
        self.numbers = count(1)
        self.epoch = 0
        self.held: set[str | None] = set()  # keys that are paused
        self.flying: list[Trigger] = []  # their grab is on its way
        self.running: list[Trigger] = []
        self.late_records: list[Record] = []  # what old owners have still on their way
        self.late_grabs: list[Trigger] = []
        self.skipped: set[TaskId] = set()
        self.since = 0  # arrivals before this number may come in any order
        self.last_of: dict[str, int] = {}  # by lane: the arrival taken last
        self.drawn: Counter[str] = Counter()  # what happened to stored lanes
        self.trail: list[tuple[Any, ...]] = []

    def told(self) -> str:
        """What happened so far, one step a line."""
        return "\n".join(" ".join(map(shown, step)) for step in self.trail)

    def play(self) -> History:
        """The whole history, until everything is dispatched."""
        for _ in range(self.rng.randint(0, 12)):
            self.enqueue()  # before anybody owns the partition
        self.hold()
        yield from self.begin()
        weights = dict(STEPS) if not self.is_calm else {**STEPS, "crash": 0, "change_owner": 0}
        steps: dict[str, Callable[[], History | None]] = {n: getattr(self, n) for n in STEPS}
        names = self.rng.choices(list(weights), list(weights.values()), k=self.length)
        for number, name in enumerate(names):
            if number == self.crash_at:
                yield from self.crash()
            self.clock.at += 1.0
            yield from steps[name]() or ()
        yield from self.drain()

    # owners ───────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> History:
        """A new process: only the store is left of the one before."""
        self.keeper = Keeper(self.queue, self.limits, self.clock)
        self.flying, self.running = [], []
        yield from self.take_over()

    def take_over(self) -> History:
        self.disturb()
        self.epoch = yield ("claim", self.epoch, NodeId(f"node-{self.epoch}"))
        loaded = yield ("load",)
        self.trail.append(("owner", self.epoch, *sorted(c.lane for c in loaded.columns)))
        self.drawn["taken over"] += any(column.lane for column in loaded.columns)
        self.keeper.intake.take(loaded, self.epoch)

    def crash(self) -> History:
        """Memory is lost; what was on its way may still arrive, under the old epoch."""
        self.trail.append(("crash",))
        self.drawn["crashed"] += bool(self.keeper.intake.stored)
        call = self.keeper.call
        if call and call[0] == "record" and not self.keeper.answer and self.rng.random() < 0.7:
            self.late_records.append(call[1])
        self.keeper.end()
        self.late_grabs += [trigger for trigger in self.flying if self.rng.random() < 0.5]
        for trigger in self.running:
            self.again(trigger)  # whoever finds that the node has ended submits it again
        return self.begin()

    def change_owner(self) -> History:
        """The partition is lost and taken again, by the same process."""
        self.trail.append(("change owner",))
        self.keeper.intake.lose(PARTITION)
        return self.take_over()

    def late(self) -> History | None:
        """A write or a grab of an old owner arrives; a grab needs no ownership."""
        if self.late_grabs:
            trigger = self.late_grabs.pop()
            if self.ledger.grab(trigger):
                self.again(trigger)
        return self.land_late(self.late_records.pop(0)) if self.late_records else None

    def land_late(self, record: Record) -> History:
        counts = yield ("record", self.fenced(record))
        if counts:
            self.ledger.recorded(record)
        assert not counts, "the epoch is the fence"

    def fenced(self, record: Record) -> Record:
        return record

    def disturb(self) -> None:
        """From now on, what was enqueued before proves nothing about the order."""
        self.since = next(self.numbers)
        self.last_of.clear()

    # tasks ────────────────────────────────────────────────────────────────────────────────────

    def enqueue(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            ordering_key = self.rng.choice(list(ORDERED)) if self.rng.random() < 0.2 else None
            key = ORDERED[ordering_key] if ordering_key else self.rng.choice(KEYS)
            arrived = next(self.numbers)
            priority, kind, _ = COLUMN
            self.submit(
                Trigger(
                    TaskId(arrived), 1, self.queue, PARTITION, kind, priority, key, 1.0,
                    ordering_key, None, arrived,
                )
            )  # fmt: skip

    def submit(self, trigger: Trigger) -> None:
        """The task is committed; the hint comes over the bus, or is lost."""
        self.trail.append(("enqueue", trigger.id, trigger.version, lane_of(trigger)))
        self.ledger.submit(trigger)
        if self.keeper is None:
            return
        is_heard = self.is_calm or self.rng.random() < 0.8
        if not is_heard or self.keeper.intake.hear([trigger._replace(arrived=0)]):
            self.disturb()  # what found no room is as good as lost
        if trigger.id in self.keeper.intake.known:
            self.skipped.add(trigger.id)

    def again(self, trigger: Trigger) -> None:
        """An attempt has ended, and the task is to run once more."""
        newer = trigger._replace(version=trigger.version + 2, arrived=next(self.numbers))
        self.submit(newer)

    # calls of the books ───────────────────────────────────────────────────────────────────────

    def append(self) -> None:
        self.keeper.start("append")

    def read_early(self) -> None:
        self.keeper.start("read_early")

    def read_exact(self) -> None:
        self.keeper.start("read_exact")

    def read_levels(self) -> None:
        self.keeper.start("read_levels")

    def trim(self) -> None:
        self.keeper.start("trim")

    def land(self) -> History | None:
        """The call on its way reaches the store."""
        keeper = self.keeper
        if keeper.call is None or keeper.answer is not None:
            return None
        if self.rng.random() < self.faults:
            self.trail.append(("fails", keeper.call[0]))
            self.disturb()
            return self.land_and_fail() if self.rng.random() < 0.5 else keeper.fail()
        return self.answer()

    def land_and_fail(self) -> History:
        yield from self.answer()
        self.keeper.fail()

    def answer(self) -> History:
        call = self.keeper.call
        assert call is not None
        if call[0] == "arrivals":
            self.keeper.answer = (self.arrivals(*call[1:]),)
            return
        answer = yield call
        self.keeper.answer = (answer,)
        if call[0] == "record":
            (_, record) = call
            assert answer == (record.epoch == self.epoch), "the epoch is the fence, nothing else"
            self.trail.append(("record" if answer else "refused", *record.entries))
            if answer:
                self.ledger.recorded(record)
                self.drawn["spilled"] += any(entry.lane for entry in record.entries)
                self.drawn["trimmed"] += any(column.lane for column in record.trims)
        else:
            self.drawn["read"] += bool(call[1].column.lane)
            self.trail.append(("read", call[1].column.lane, *answer))

    def arrivals(self, cursor: Cursor, limit: int, exact: bool) -> Arrivals:
        rows = self.ledger.above(cursor.position)
        self.trail.append(("arrivals", *(trigger.id for trigger in rows[:limit])))
        return Arrivals(rows[:limit], self.ledger.horizon)

    def hear(self) -> None:
        self.keeper.hear()

    # dispatching ──────────────────────────────────────────────────────────────────────────────

    def book(self, trigger: Trigger) -> Full | None:
        busy = {one.ordering_key for one in (*self.flying, *self.running)} - {None}
        if trigger.fairness_key in self.held or trigger.ordering_key in busy:
            return Full(key_only=True)
        return Full() if len(self.flying) + len(self.running) >= SLOTS else None

    def take(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            item = self.keeper.table.take(self.book)
            if item is None:
                return
            trigger = item.trigger
            self.trail.append(("take", trigger.id, lane_of(trigger)))
            versions = {(one.id, one.version) for one in (*self.flying, *self.running)}
            assert (trigger.id, trigger.version) not in versions, "the same version, taken twice"
            self.flying.append(trigger)
            self.take_in_order(trigger)

    def take_in_order(self, trigger: Trigger) -> None:
        """First come, first dispatched within a key, while nothing goes wrong.

        Those that skipped the backlog prove nothing: once written, a window that is too small for
        them drops some and not others.
        """
        row = self.ledger.waiting.get(trigger.id)
        is_stale = row is None or row.version != trigger.version
        arrived = trigger.id if trigger.version == 1 else 0  # a task is numbered as it arrived
        if arrived > self.since and trigger.id not in self.skipped and not is_stale:
            lane = lane_of(trigger)
            assert arrived > self.last_of.get(lane, 0), f"a younger trigger of {lane} went first"
            self.last_of[lane] = arrived

    def decide(self) -> None:
        """A grab that is on its way ends, in any order."""
        if not self.flying:
            return
        trigger = self.flying.pop(self.rng.randrange(len(self.flying)))
        intake = self.keeper.intake
        is_won = self.ledger.grab(trigger)
        self.trail.append(("won" if is_won else "lost", trigger.id))
        intake.decided(trigger.id, trigger.version)
        if is_won:
            intake.known[trigger.id] = max(trigger.version + 1, intake.known.get(trigger.id, 0))
            self.running.append(trigger)
        else:
            self.free(trigger)

    def finish(self) -> None:
        """An attempt ends; now and then the task is to run again."""
        if self.running:
            trigger = self.running.pop(self.rng.randrange(len(self.running)))
            self.trail.append(("finish", trigger.id))
            self.free(trigger)
            if self.rng.random() < 0.1:
                self.again(trigger)

    def free(self, trigger: Trigger) -> None:
        self.keeper.intake.finished(trigger.id, trigger.version + 1)
        self.keeper.table.freed()
        if trigger.ordering_key is not None:
            self.let_go_on(trigger.ordering_key)

    # keys ─────────────────────────────────────────────────────────────────────────────────────

    def hold(self) -> None:
        key = self.rng.choice(KEYS)
        self.trail.append(("hold", key))
        self.held.add(key)

    def release(self) -> None:
        if self.held:
            key = self.rng.choice(sorted(self.held, key=str))
            self.trail.append(("release", key))
            self.held.discard(key)
            self.let_go_on(key)

    def look_again(self) -> None:
        """The second look: whoever was refused is asked once more."""
        self.keeper.table.freed()
        for key in self.keeper.table.keys_held:
            self.let_go_on(key)

    def let_go_on(self, key: str | None) -> None:
        is_stored = self.keeper.intake.stored.released(self.keeper.table.release(key))
        self.drawn["released"] += is_stored

    # the end ──────────────────────────────────────────────────────────────────────────────────

    def drain(self) -> History:
        """No more faults, and everybody may go on: everything is dispatched."""
        self.faults = 0.0
        self.held.clear()
        for _ in range(ROUNDS_MAX):
            self.clock.at += 30.0
            yield from self.late() or ()
            for name in ("append", "read_exact", "read_levels", "trim"):
                self.keeper.start(name)
                while self.keeper.call is not None:
                    yield from self.land() or ()
                    self.hear()
            self.look_again()
            self.take()
            while self.flying:
                self.decide()
            self.finish_for_good()
            if self.is_over:
                break
        self.ledger.check_end()
        intake = self.keeper.intake
        assert self.is_over, "it stands still"
        left = (intake.known, intake.places, intake.partitions[PARTITION].spilling)
        assert not any(left), f"left in memory: {left}"

    def finish_for_good(self) -> None:
        while self.running:
            self.free(self.running.pop())

    @property
    def is_over(self) -> bool:
        intake = self.keeper.intake
        partition = intake.partitions[PARTITION]
        return not (
            self.ledger.waiting
            or self.flying
            or self.late_records
            or self.late_grabs
            or len(self.keeper.table)
            or partition.unwritten
            or intake.stored
            or any(not backlog.is_empty for backlog in partition.columns.values())
        )
