"""What really happened in a history, kept beside the code under test, and what must hold."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from itertools import count

from holdfast.store import START, ZERO, Column, Entry, Level, Position, Record
from holdfast.task import Trigger

Version = tuple[int, int]  # a task and its version


class Ledger:
    """The task rows, and the entries that should be stored.  It outlives every owner."""

    def __init__(self) -> None:
        self.versions: dict[int, int] = {}  # the task rows: who grabs must name the version
        self.runs: list[Version] = []  # grabs that were won
        self.decided: set[Version] = set()
        self.acknowledged: set[Version] = set()  # appends whose end the owner was told
        self.stored: dict[Level, Entry] = {}

    def enqueue(self, trigger: Trigger) -> None:
        self.versions[trigger.id] = trigger.version

    def grab(self, trigger: Trigger) -> None:
        """A grab wins at the version of the row alone; either way it is decided afterwards."""
        if self.versions[trigger.id] == trigger.version:
            self.versions[trigger.id] += 1
            self.runs.append((trigger.id, trigger.version))
        self.decided.add((trigger.id, trigger.version))

    def wrote(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            assert entry.level not in self.stored, f"two triggers got the level {entry.level}"
            self.stored[entry.level] = entry

    def acknowledge(self, entries: Iterable[Entry]) -> None:
        self.acknowledged.update((e.trigger.id, e.trigger.version) for e in entries)

    def deleted(self, above: Level, to: Level) -> None:
        for level in [level for level in self.stored if above < level <= to]:
            assert self.is_decided(level), f"an undecided trigger was deleted at {level}"
            del self.stored[level]

    def is_decided(self, level: Level) -> bool:
        trigger = self.stored[level].trigger
        return (trigger.id, trigger.version) in self.decided

    def page(self, above: Level, limit: int) -> list[Entry]:
        """What a read must answer."""
        levels = sorted(level for level in self.stored if level > above)
        return [self.stored[level] for level in levels[:limit]]

    def check_end(self, rows: list[Entry]) -> None:
        """Everything has been dispatched: `rows` is what the store holds then."""
        assert rows == self.page(Level(0, 0), len(rows) + len(self.stored)), "the store differs"
        lost = self.acknowledged - self.decided
        assert not lost, f"acknowledged, but never dispatched: {sorted(lost)}"
        left = {id for id, version in self.versions.items() if (id, version - 1) not in self.runs}
        assert not left, f"enqueued, but never dispatched: {sorted(left)}"
        assert len(self.runs) == len(set(self.runs)), "a version ran twice"


class Window:
    """What one owner's window must hold: kept from its calls and answers alone."""

    def __init__(self, ledger: Ledger, ack_level: Level) -> None:
        self.ledger = ledger
        self.memory: dict[Level, Entry] = {}  # offered, neither dropped nor acked
        self.acked: set[Level] = set()
        self.unacked = sorted(level for level in ledger.stored if level > ack_level)
        self.appending: list[Entry] = []  # the append in flight, by turn
        self.has_landed = False  # the store has done with it, one way or the other
        self.written: set[Level] = set()  # appended while a read was under way
        self.failed: set[Level] = set()  # nobody knows whether they were written
        self.ack_level = ack_level
        self.numbers: dict[Level, int] = {}  # the turn in which this owner wrote an entry
        self.last_of: dict[str | None, int] = {}  # by key: the number dispatched last
        self._taken: set[Level] = set()
        self._turns = count()

    def wrote(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            insort(self.unacked, entry.level)

    def deleted(self, to: Level) -> None:
        self.unacked = [level for level in self.unacked if level > to]

    def chose(self, triggers: list[Trigger], entries: list[Entry]) -> None:
        self.appending, self.has_landed = entries, False
        levels = {entry.trigger.id: entry.level for entry in entries}
        for trigger in triggers:
            self.numbers[levels[trigger.id]] = next(self._turns)

    def failed_to_append(self) -> None:
        """From now on these levels prove nothing: neither the order, nor that they are known."""
        for entry in self.appending:
            self.numbers.pop(entry.level, None)
            self.failed.add(entry.level)
        self.appending = []

    def overlapped(self, page: list[Entry]) -> None:
        """A read brings entries of the append in flight, perhaps without those below its start."""
        chosen = {entry.level for entry in self.appending}
        if any(entry.level in chosen for entry in page):
            for level in chosen:
                self.numbers.pop(level, None)

    def take(self, entry: Entry) -> None:
        """First come, first dispatched within a key; not after a crash or an unknown outcome."""
        number = self.numbers.get(entry.level)
        if number is None or entry.level in self._taken:
            return
        self._taken.add(entry.level)
        key = entry.trigger.fairness_key
        assert number > self.last_of.get(key, -1), f"a younger trigger of {key} went first"
        self.last_of[key] = number

    def merge(self, offered: Iterable[Entry], dropped: Iterable[Entry]) -> None:
        for entry in dropped:
            assert self.memory.pop(entry.level) == entry
        for entry in offered:
            level = entry.level
            assert level not in self.memory, f"{level} was offered twice at the same time"
            assert level not in self.acked, f"{level} was offered again after its ack"
            assert self.ledger.stored.get(level) == entry, f"{level} was offered, but not stored"
            self.memory[level] = entry

    def ack(self, level: Level) -> None:
        if self.memory.pop(level, None) is not None:
            assert level in self.unacked, f"{level} was deleted before its ack"
            self.acked.add(level)
            self.unacked.remove(level)

    def check(self, ack_level: Level, read_level: Level, *, at_end: bool) -> None:
        """After every step."""
        assert self.ack_level <= ack_level, "A moved backwards"
        assert ack_level <= read_level, "R fell below A"
        self.ack_level = ack_level
        unacked, memory = self.unacked, self.memory
        low = bisect_right(unacked, ack_level)
        for level in unacked[:low]:
            assert self.ledger.is_decided(level), f"A jumped over the undecided {level}"
        high = bisect_right(unacked, read_level)
        window = unacked[low:high]
        missing = [level for level in window if level not in memory]
        assert len(memory) == len(window) - len(missing), "memory holds more than (A, R]"
        if at_end:
            missing += unacked[high:]
        if missing and (lost := set(missing) - self._unknown()):
            raise AssertionError(f"stored in (A, R], but not in memory: {sorted(lost)}")

    def _unknown(self) -> set[Level]:
        return self.failed | self.written | {entry.level for entry in self.appending}


class LaneLedger:
    """The task rows, and what should be stored of one column and its lanes."""

    def __init__(self) -> None:
        self.waiting: dict[int, Trigger] = {}  # the SUBMITTED rows, by task
        self.submitted: set[Version] = set()
        self.runs: list[Version] = []  # grabs that were won
        self.rows: dict[str, dict[Level, Entry]] = {}  # by lane
        self.ack_level = ZERO  # as it was persisted
        self.position = START
        self.horizon = 1  # above all that has arrived

    def submit(self, trigger: Trigger) -> None:
        self.waiting[trigger.id] = trigger
        self.submitted.add((trigger.id, trigger.version))
        self.horizon = trigger.arrived + 1

    def above(self, position: Position) -> list[Trigger]:
        """The SUBMITTED rows above this position, as they arrived."""
        rows = sorted(self.waiting.values(), key=_position_of)
        return [row for row in rows if _position_of(row) > position]

    def grab(self, trigger: Trigger) -> bool:
        """A grab wins at the version of a SUBMITTED row alone."""
        row = self.waiting.get(trigger.id)
        if row is None or row.version != trigger.version:
            return False
        del self.waiting[trigger.id]
        self.runs.append((trigger.id, trigger.version))
        return True

    def recorded(self, record: Record) -> None:
        """What is durable now: no owner after this one may miss a task."""
        for entry in record.entries:
            rows = self.rows.setdefault(entry.lane, {})
            assert entry.level not in rows, f"two triggers got the level {entry.level}"
            rows[entry.level] = entry
        for column, mark in record.marks.items():
            assert not column.lane, "a lane has no mark"
            assert self.ack_level <= mark.ack_level, "A moved backwards"
            self.ack_level = mark.ack_level
        for column, (above, to) in record.trims.items():
            self._delete(column, above, to)
        self.position = record.position or self.position
        self._check()

    def _delete(self, column: Column, above: Level, to: Level) -> None:
        rows = self.rows.get(column.lane, {})
        self.rows[column.lane] = {x: row for x, row in rows.items() if not above < x <= to}

    def _check(self) -> None:
        stored: set[Version] = set()
        for lane, rows in self.rows.items():
            entries = [e for level, e in rows.items() if lane or level > self.ack_level]
            stored |= {(entry.trigger.id, entry.trigger.version) for entry in entries}
        lost = [
            row.id
            for row in self.waiting.values()
            if _position_of(row) <= self.position and (row.id, row.version) not in stored
        ]
        assert not lost, f"undecided, below P, and in no backlog: {lost}"

    def check_end(self) -> None:
        """Everything has been dispatched."""
        assert not self.waiting, f"enqueued, but never dispatched: {sorted(self.waiting)}"
        assert len(self.runs) == len(set(self.runs)), "a version ran twice"
        assert set(self.runs) == self.submitted


def _position_of(trigger: Trigger) -> Position:
    return Position(trigger.arrived, trigger.id)
