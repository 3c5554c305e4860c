"""The steps of one owner: each is a part of a call, or a call, and tells the checkers of it."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

from histories.columns import COLUMN, PARTITION, History
from histories.ledger import Ledger, Window
from holdfast.dispatch.backlog import Backlog, Merge
from holdfast.dispatch.intake import Intake
from holdfast.dispatch.limits import Limits
from holdfast.dispatch.table import TriggerTable
from holdfast.store import ZERO, Entry, Level, LevelCursor, Loaded, Record
from holdfast.task import TaskId, Trigger

FAULTS = 0.015  # of the calls
FAULTS_IN_A_STORM = 0.2  # in each fifth history
KEYS = {"a": 1.0, "b": 1.0, "c": 4.0, "d": 0.25, None: 1.0}
WEIGHTS = (0.5, 1.0, 2.0)  # a key's own weight times one of these, where a trigger differs
LIMITS = Limits()


class Steps:
    """An owner and its backlog.  Steps that are not possible now do nothing."""

    exempts_overlaps = True
    """Whether the order within an append is free when a read sees the append before it has ended.

    The read may start above one of its triggers and bring a younger one.  The books do one call
    after the other, so there it cannot happen; `test_known_faults` shows it.
    """

    def __init__(self, seed: int, *, queue: str) -> None:
        self.rng = Random(seed)
        self.queue = queue
        self.faults = FAULTS if seed % 5 else FAULTS_IN_A_STORM
        self.ledger = Ledger()
        self.ids = count(1)
        self.epoch = 0
        self.unwritten: dict[int, Trigger] = {}  # by task: no owner was told that it is stored
        self.held: dict[int, Trigger] = {}  # those that are written again only at the end
        self.trail: list[tuple[Any, ...]] = []  # the steps that did something

    def told(self) -> str:
        """What happened so far, one step a line: levels as pass.seq, triggers as level=task+key."""
        return "\n".join(" ".join(map(shown, step)) for step in self.trail)

    def own(self, loaded: Loaded) -> None:
        """Start as an owner does, with nothing but what was loaded."""
        table = TriggerTable(rng=Random(0))
        self.intake = Intake(self.queue, table, LIMITS, handles=lambda _: True)
        partition = self.intake.take(loaded, self.epoch)
        self.base = partition.base
        self.backlog: Backlog = self.intake.backlog(partition, COLUMN)
        self.flying: list[Entry] = []  # taken; their grab is on its way
        self.asked: tuple[Level, int] | None = None  # the read under way
        self.page: list[Entry] | None = None  # its answer, once it was made
        self.found: set[Level] = set()  # failed levels that the page covers
        self.record: Record | None = None  # the append in flight
        self.is_append_lost = False  # it fails, or its reply is lost: when it ends, nobody knows
        self.is_read_lost = False
        self.deleted = ZERO
        self.window = Window(self.ledger, self.backlog.ack_level)
        self.resize()

    def fault(self) -> str | None:
        """What goes wrong with the next call, if anything does."""
        if self.rng.random() >= self.faults:
            return None
        return self.rng.choice(("before", "after", "during"))

    # appends ──────────────────────────────────────────────────────────────────────────────────

    def write(self) -> None:
        """Choose levels for what was not written before, and for some new triggers."""
        if self.window.appending:
            return
        for _ in range(self.rng.randint(1, 6) if self.rng.random() < 0.8 else 0):
            self.enqueue()
        waiting = list(self.unwritten.values())[:6]
        if waiting:
            self.choose(waiting)

    def enqueue(self) -> None:
        """A new task, or one that has run and is to run again."""
        rng = self.rng
        id = next(self.ids)
        if self.ledger.runs and rng.random() < 0.1:
            again = rng.choice(self.ledger.runs)[0]
            id = again if self.has_run(again) else id
        key = rng.choice(list(KEYS))
        weight = KEYS[key] * (rng.choice(WEIGHTS) if rng.random() < 0.1 else 1.0)
        version = self.ledger.versions.get(id, 1)
        priority, kind, _ = COLUMN
        trigger = Trigger(TaskId(id), version, self.queue, PARTITION, kind, priority, key, weight)
        self.ledger.enqueue(trigger)
        self.unwritten[id] = trigger

    def has_run(self, id: int) -> bool:
        """Whether the newest version of the task stands in no backlog yet."""
        version = self.ledger.versions[id]
        acknowledged, runs = self.ledger.acknowledged, self.ledger.runs
        is_waiting = id in self.unwritten or id in self.held or (id, version) in acknowledged
        return not is_waiting and (id, version - 1) in runs

    def choose(self, triggers: list[Trigger]) -> None:
        backlog = self.backlog
        entries = backlog.choose(triggers, lambda: self.base + next(self.intake._seq))
        self.trail.append(("choose", *entries))
        assert min(entries).level > backlog.ack_level, "chosen at or below A"
        self.window.chose(triggers, entries)
        self.record = Record(
            partition=PARTITION, epoch=self.epoch, entries=entries, marks={COLUMN: backlog.mark}
        )

    def land(self) -> History | None:
        """The append in flight reaches the store."""
        if not self.window.appending or self.window.has_landed:
            return None
        return self.append()

    def append(self) -> History:
        window, fault = self.window, self.fault()
        assert min(window.appending).level > self.backlog.ack_level, "written at or below A"
        window.has_landed, self.is_append_lost = True, fault is not None
        if fault == "before":
            self.trail.append(("not landed",))
            return
        counts = yield ("record", self.record)
        assert counts, "the owner's own write was refused"
        self.trail.append(("landed",))
        self.wrote(window.appending)

    def wrote(self, entries: list[Entry]) -> None:
        self.ledger.wrote(entries)
        self.window.wrote(entries)

    def append_ends(self) -> None:
        window = self.window
        if not window.appending or not window.has_landed:
            return
        if self.is_append_lost:
            self.append_fails()
            return
        self.trail.append(("append ends",))
        entries, window.appending = window.appending, []
        self.ledger.acknowledge(entries)
        for entry in entries:
            self.unwritten.pop(entry.trigger.id, None)
        levels = {entry.level for entry in entries}
        window.written = window.written | levels if self.asked else set()
        self.merge(self.backlog.appended())

    def append_fails(self) -> None:
        """Done or not, nobody knows: the triggers will be written once more, soon or late.

        Until then, what was stored after all is the only place of its trigger.
        """
        self.trail.append(("append fails",))
        if self.rng.random() < 0.5:
            for entry in self.window.appending:
                if (trigger := self.unwritten.pop(entry.trigger.id, None)) is not None:
                    self.held[trigger.id] = trigger
        self.window.failed_to_append()
        self.backlog.append_failed()

    # reads ────────────────────────────────────────────────────────────────────────────────────

    def read_starts(self) -> None:
        if self.backlog.wants_read:
            self.asked, self.page = self.backlog.start_read(), None
            above, limit = self.asked
            self.trail.append(("read above", above, limit))
            assert above >= self.backlog.ack_level, "read at or below A"
            assert above >= self.deleted, "read where all was deleted"
            assert 0 < limit <= self.backlog.batch_max

    def read_is_made(self) -> History | None:
        if self.asked is None or self.page is not None:
            return None
        return self.levels()

    def levels(self) -> History:
        above, limit = self.asked
        fault = self.fault()
        self.is_read_lost = fault in ("before", "after")
        self.page = []
        if fault == "before":
            return
        self.page = yield ("levels", LevelCursor(PARTITION, COLUMN, above, limit))
        self.trail.append(("made", *self.page))
        assert self.page == self.ledger.page(above, limit), "the store answered wrongly"
        end = self.page[-1].level if len(self.page) >= limit else None
        self.found = {x for x in self.window.failed if x > above and (not end or x <= end)}
        if fault == "during":
            self.write()
            yield from self.land() or ()
            self.append_ends()

    def read_ends(self) -> None:
        if self.page is None:
            return
        page, self.asked, self.page = self.page, None, None
        if self.is_read_lost:
            self.trail.append(("read fails",))
            self.backlog.read_failed()
            return
        self.trail.append(("read ends",))
        self.window.failed -= self.found
        self.window.written = set()
        if self.exempts_overlaps:
            self.window.overlapped(page)
        self.merge(self.backlog.read(page))

    # dispatching ──────────────────────────────────────────────────────────────────────────────

    def take(self) -> None:
        """Dispatch what comes first."""
        for _ in range(self.rng.randint(1, 3)):
            flying = {entry.level for entry in self.flying}
            waiting = [level for level in self.window.memory if level not in flying]
            if not waiting:
                return
            entry = self.window.memory[min(waiting)]
            self.trail.append(("take", entry))
            self.flying.append(entry)
            self.window.take(entry)
            self.backlog.dispatched(entry.level)

    def decide(self) -> None:
        """A grab that is on its way ends, in any order."""
        if self.flying:
            entry = self.flying.pop(self.rng.randrange(len(self.flying)))
            self.trail.append(("decide", entry))
            self.ledger.grab(entry.trigger)
            self.window.ack(entry.level)
            self.backlog.ack(entry.level)

    # the window ───────────────────────────────────────────────────────────────────────────────

    def resize(self) -> None:
        batch_max = self.rng.randint(1, 8)
        reload_at = self.rng.randrange(batch_max)
        self.trail.append(("resize", batch_max, reload_at))
        self.merge(self.backlog.resize(batch_max, reload_at))

    def unload(self) -> None:
        self.trail.append(("unload",))
        self.merge(self.backlog.unload())

    def merge(self, merge: Merge) -> None:
        self.window.merge(merge.offered, merge.dropped)

    def trim(self) -> History | None:
        return self.delete() if self.backlog.trim() is not None else None

    def trimming(self) -> Record:
        backlog = self.backlog
        passes = self.intake.table.passes(COLUMN.priority, COLUMN.kind)
        return Record(
            partition=PARTITION,
            epoch=self.epoch,
            trims={COLUMN: backlog.trim()},
            marks={COLUMN: backlog.mark},
            counters={COLUMN: backlog.as_stored(passes.busiest(LIMITS.counters_kept))},
        )

    def delete(self) -> History:
        record = self.trimming()
        above, to = record.trims[COLUMN]
        self.trail.append(("trim", above, to))
        assert above == self.deleted and to <= self.backlog.ack_level, "deleted above A"
        fault = self.fault()
        if fault == "before":
            return
        counts = yield ("record", record)
        assert counts, "the owner's own write was refused"
        self.ledger.deleted(above, to)
        self.window.deleted(to)
        if fault is None:
            self.backlog.trimmed(to)
            self.deleted = to

    # checks ───────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        backlog, window = self.backlog, self.window
        window.check(backlog.ack_level, backlog.read_level, at_end=backlog.at_end)
        assert backlog.loaded == len(window.memory)
        if not backlog.at_end and not backlog.loaded and self.asked is None:
            assert backlog.wants_read, "nothing loaded, more stored, and no read: it stands still"


def shown(part: Any) -> str:
    if isinstance(part, Level):
        return f"{part.pass_}.{part.seq}"
    if isinstance(part, Entry):
        return f"{shown(part.level)}={part.trigger.id}{part.trigger.fairness_key or ''}"
    return str(part)
