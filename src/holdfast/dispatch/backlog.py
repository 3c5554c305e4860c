"""The window of one column: which of its stored triggers are in memory, and how far it has got.

The stored backlog of a column may hold millions of triggers; memory holds a bounded window of
it.  Two levels bound the window, and everything here serves one invariant:

    stored:   deleted      decided        known here          only in the store
            ───────────┤ ─────────────┤ ─────────────────┤ ──────────────────────▶ level
                    deleted          ack               read
                    level           level A           level R

    INV-1  Memory holds exactly the undone triggers in (A, R].
    INV-2  Everything at or below A has been decided; nothing is ever written or read there.
    INV-3  Not at the end, nothing loaded and no read under way: then a read is wanted.

A write may land below R, because a level is chosen by fairness and not by time.  It is merged
into the window, and what no longer fits leaves memory from the far end, never the store.  R then
falls back to the last level kept, so a later read finds the rest again.

While levels are chosen and written, A is pinned: it must not run past a level that is already
promised to a trigger but not yet known here.  A write that ends during a read waits for that
read, because nobody can tell whether the read saw it; until then the pin holds.

Nothing here is durable.  If the process dies, the next owner starts from the mark that was
persisted last, an older A at worst: triggers are offered again, none is lost, and the version of
the grab stops the repeated ones.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from holdfast.dispatch.passes import Passes
from holdfast.store import ZERO, Counters, Entry, Level, Mark
from holdfast.task import Trigger

DROPPED_ACKS_MAX = 256
NEW = Mark(ZERO)

_new: Any = tuple.__new__  # a named tuple, in half the time
_level: Callable[[Entry], Level] = itemgetter(0)

PassFor = Callable[[Trigger], int]


class Merge(NamedTuple):
    """What a write or a read changes for the trigger table."""

    offered: list[Entry]  # new in memory: put them into the table
    dropped: list[Entry]  # no longer in memory, highest first: take them out of the table


class Backlog:
    """The in-memory window of one column of one partition."""

    def __init__(
        self,
        mark: Mark = NEW,
        *,
        passes: Passes,
        highest: Level = ZERO,
        batch_max: int = 1000,
        reload_at: int = 100,
        lane: str = "",
        shift: int | None = None,
        base: int = 0,
    ) -> None:
        """Start from what a takeover found: the mark, and the highest level stored.

        `highest` is only asked whether it lies above the ack level; reads find the true end.
        `passes` gives turns to the keys of this column, over all partitions of the node.  A lane
        has the `shift` of its column.  `base` is added to the owner's numbers in the store, so
        that they are never those of an owner before; what that one wrote is shown below 0.
        """
        assert 0 <= reload_at < batch_max, "a read that is wanted has room for one trigger at least"
        self._batch_max = batch_max
        self._reload_at = reload_at
        self._ack_level = mark.ack_level
        self._read_level = mark.ack_level
        self._passes = passes
        self.lane = lane
        self._base = base
        # From the passes of this partition, as they are stored, to those of the node.
        top_pass = max(mark.top_pass, mark.ack_level.pass_)
        self.shift = passes.joined(top_pass) if shift is None else shift
        self._at_end = highest <= mark.ack_level
        self._open: dict[Level, Entry] = {}  # undone triggers in (A, R]
        self._order: deque[Level] = deque()  # levels in (A, R], undone and acked; its last is R
        self._chosen: list[Entry] | None = None  # the append in flight, by level
        self._may_be_read = False  # a read has ended since they were chosen
        self._written: list[Entry] = []  # appended during the read under way, by level
        self._asked: tuple[Level, int] | None = None  # the read under way
        self._missing: Level | None = (
            None  # stored triggers above this may be unknown, even below R
        )
        self._ceiling: Level | None = (
            None  # A stays at or below it until a read has filled that gap
        )
        self._dropped_acks: dict[Level, None] = {}  # oldest first
        # Below the mark the last owner may have left rows, so the first trim has no lower end.
        self._deleted_level = ZERO
        self._acked = 0
        self._acked_before_trim = 0
        self._beyond = 0  # an estimate of what is only in the store; means nothing at the end
        self._is_counted = self._at_end  # nobody has told yet how much a takeover found

    @property
    def ack_level(self) -> Level:
        """A: every trigger at or below it has been decided.  It never moves backwards."""
        return self._ack_level

    @property
    def read_level(self) -> Level:
        """R: the window ends here.  It counts acked triggers too."""
        return self._read_level

    @property
    def at_end(self) -> bool:
        """Whether nothing is stored above the read level."""
        return self._at_end

    @property
    def top_pass(self) -> int:
        """V as this partition counts: the highest pass dispatched, at least that of A."""
        return max(self._passes.top - self.shift, self._ack_level.pass_)

    @property
    def loaded(self) -> int:
        """How many undone triggers are in memory."""
        return len(self._open)

    @property
    def beyond(self) -> int:
        """How many undone triggers are only in the store: 0 at the end, else an estimate."""
        return 0 if self._at_end else self._beyond

    @property
    def wants_count(self) -> bool:
        """Whether the estimate is worth less than a look into the store, see `counted`."""
        return not self._at_end and (not self._is_counted or not self._beyond)

    @property
    def here(self) -> Iterator[Entry]:
        """The undone triggers that are known here: loaded or being written."""
        yield from self._open.values()
        yield from self._written
        # A read may have loaded what is still being written.
        known = set(self._order) if self._chosen else ()
        yield from (entry for entry in self._chosen or () if entry.level not in known)

    @property
    def count(self) -> int:
        """How many triggers are undone: exact at the end, else an estimate; never negative."""
        return sum(1 for _ in self.here) + self.beyond

    @property
    def span(self) -> int:
        """How many triggers lie between A and R, the acked ones included."""
        return len(self._order)

    @property
    def batch_max(self) -> int:
        return self._batch_max

    @property
    def is_busy(self) -> bool:
        """Whether an append or a read is under way."""
        return self._chosen is not None or self._asked is not None

    @property
    def is_empty(self) -> bool:
        """Nothing is stored, in memory or under way: a trigger may skip the backlog."""
        return self._at_end and not self._open and self._chosen is None and self._asked is None

    @property
    def wants_read(self) -> bool:
        """Whether the caller should start a read now."""
        return not self._at_end and self._asked is None and len(self._open) <= self._reload_at

    @property
    def is_stuck(self) -> bool:
        """Whether there is more to read, and no room for it."""
        return not self._at_end and self._asked is None and len(self._open) > self._reload_at

    @property
    def acked_since_trim(self) -> int:
        """Triggers acked since the last delete: the caller trims by their number or by time."""
        return self._acked

    @property
    def mark(self) -> Mark:
        """What to persist.  An older one costs repeated offers, never a trigger."""
        return Mark(self._ack_level, self.top_pass)

    def as_stored(self, passes: Counters) -> dict[str | None, int]:
        """The last passes of keys, to persist, as this partition counts."""
        return {key: last - self.shift for key, last in passes.items()}

    def restore(self, counters: Counters) -> None:
        """Take in the counters that the last owner persisted."""
        self._passes.restore(counters, self.shift)

    def shown(self, entries: Iterable[Entry]) -> list[tuple[Level, Entry, Backlog]]:
        """Levels as the node counts, to be compared with those of other partitions."""
        shift, base = self.shift, self._base
        return [
            (_new(Level, (entry[0][0] + shift, entry[0][1] - base)), entry, self)
            for entry in entries
        ]

    def counted(self, above: Level, count: int) -> None:
        """The store holds so many above this level: stale, unless R is still there."""
        if above == self._read_level and not self._at_end:
            self._beyond = max(self._beyond, count)
            self._is_counted = True

    def resize(self, batch_max: int, reload_at: int) -> Merge:
        """Hold at most so many in memory from now on; what no longer fits leaves it."""
        assert 0 <= reload_at < batch_max, "a read that is wanted has room for one trigger at least"
        self._batch_max, self._reload_at = batch_max, reload_at
        if len(self._open) <= batch_max or self.is_busy:
            return Merge([], [])  # what is under way ends with a merge, which drops the rest
        merge = self._overflow([])
        self._read_level = self._order[-1]
        return merge

    def unload(self) -> Merge:
        """Hold nothing in memory until the next read."""
        if self.is_busy or not self._open:
            return Merge([], [])
        dropped: list[Entry] = []
        while self._order:
            level = self._order.pop()
            entry = self._open.pop(level, None)
            if entry is None:
                self._remember_ack(level)
            else:
                dropped.append(entry)
        self._read_level = self._ack_level
        self._leave_end()
        self._beyond += len(dropped)
        return Merge([], dropped)

    def choose(
        self,
        triggers: Sequence[Trigger],
        next_seq: Callable[[], int],
        pass_for: PassFor | None = None,
    ) -> list[Entry]:
        """Give each trigger a level above A, and pin A until the append has ended.

        The caller writes the entries and then says `appended` or `append_failed`.
        """
        pass_for = pass_for or self._pass_for
        shift, base = self.shift, self._base
        shown = [(pass_for(trigger) + shift, next_seq() - base) for trigger in triggers]
        return self.place(triggers, shown)

    def place(self, triggers: Sequence[Trigger], shown: Sequence[tuple[int, int]]) -> list[Entry]:
        """The same with turns that were taken before: levels as the node counts."""
        assert self._chosen is None, "FAIR-80: one append is in flight per column"
        assert triggers, "an append has at least one trigger"
        floor, lane, shift, base = max(1, self._ack_level.pass_), self.lane, self.shift, self._base
        entries = [
            _new(
                Entry,
                (
                    _new(Level, (p if (p := pass_ - shift) > floor else floor, seq + base)),
                    trigger,
                    lane,
                ),
            )
            for trigger, (pass_, seq) in zip(triggers, shown, strict=True)
        ]
        self._chosen = sorted(entries, key=_level)
        self._may_be_read = False
        assert self._chosen[0].level > self._ack_level, "FAIR-15: new levels lie above A"
        return entries

    def appended(self) -> Merge:
        """The append has committed: merge its triggers and unpin A.

        During a read the answer is empty, and the read's answer brings the triggers.
        """
        assert self._chosen is not None, "an append ends once"
        chosen, self._chosen = self._chosen, None
        if self._asked is not None:
            self._written = sorted([*self._written, *chosen], key=_level)
            return Merge([], [])
        if self._written:  # the read that they waited for has failed
            self._may_be_read = True
            chosen, self._written = sorted([*self._written, *chosen], key=_level), []
        self._beyond += len(chosen)
        merge = self._merge(self._mergeable(chosen), may_be_known=self._may_be_read)
        self._advance()
        return merge

    def append_failed(self) -> None:
        """The append failed, or nobody knows: unpin A, and look in the store for what it wrote."""
        assert self._chosen is not None, "an append ends once"
        lowest = self._chosen[0].level
        self._chosen = None
        self._leave_end()
        gap = Level(lowest.pass_, lowest.seq - 1)
        self._missing = gap if self._missing is None else min(self._missing, gap)
        self._ceiling = gap if self._ceiling is None else min(self._ceiling, gap)
        if not self._written:
            self._advance()

    def start_read(self) -> tuple[Level, int]:
        """The level to read above, and how many triggers to ask for."""
        assert self.wants_read, "FAIR-13: one read at a time, only with room and before the end"
        start = self._read_level
        if self._missing is not None:
            start = min(start, self._missing)
            self._missing = None
        self._asked = (start, self._batch_max - len(self._open))
        return self._asked

    def read(self, entries: Sequence[Entry]) -> Merge:
        """Take in what the store answered, in level order, and what was appended meanwhile."""
        assert self._asked is not None, "a read ends once"
        _, limit = self._asked
        self._asked = None
        self._may_be_read = True
        is_full = len(entries) >= limit
        if is_full and entries[-1].level < self._read_level:
            # A gap was read again, and not to its end: the next read goes on from here.
            last = entries[-1].level
            self._missing = last if self._missing is None else min(self._missing, last)
        # A write that failed during this read may have landed behind it.
        self._at_end = not is_full and self._missing is None
        self._ceiling = self._missing
        fresh: Sequence[Entry] = entries
        if self._written:
            fresh = self._with_written(entries)
        self._beyond = max(self._beyond + len(self._written), len(fresh))
        merge = self._merge(fresh)
        if self._chosen is None:
            self._advance()
        elif self._written:
            # Writers that overlap reads would otherwise pass the pin on from one to the next.
            self._advance(below=self._chosen[0].level)
        self._written = []
        return merge

    def read_failed(self) -> None:
        """The read brought nothing: it is wanted again; what waited for it keeps A pinned."""
        assert self._asked is not None, "a read ends once"
        start, _ = self._asked
        self._asked = None
        if start < self._read_level:
            self._missing = start if self._missing is None else min(self._missing, start)

    def dispatched(self, level: Level) -> None:
        """A trigger of this level was taken: V moves."""
        self._passes.dispatched(level.pass_ + self.shift)

    def ack(self, level: Level) -> None:
        """The grab of the trigger at this level was decided.  In any order; safe to repeat.

        An ack for a trigger that has left memory does nothing: it will be read again, and its grab
        recognises the duplicate.
        """
        if self._open.pop(level, None) is None:
            return
        self._acked += 1
        if self._chosen is None and not self._written:
            self._advance()

    def trim(self) -> tuple[Level, Level] | None:
        """The range (from, to] that may be deleted from the store, or None.

        It ends at A, so it never holds an undone trigger, nor one that is being written.
        """
        if self._deleted_level >= self._ack_level:
            return None
        self._acked_before_trim = self._acked
        return self._deleted_level, self._ack_level

    def trimmed(self, to: Level) -> None:
        """The range up to this level was deleted: the next one starts there."""
        self._deleted_level = max(self._deleted_level, to)
        self._acked -= self._acked_before_trim
        self._acked_before_trim = 0

    def _pass_for(self, trigger: Trigger) -> int:
        """The next turn of the trigger's key."""
        return self._passes.next(trigger.fairness_key, trigger.weight) - self.shift

    def _mergeable(self, entries: list[Entry]) -> list[Entry]:
        """Which of the written entries belong to the window: all at the end, else those below R."""
        if self._at_end:
            return entries
        if entries[0].level > self._read_level:
            return []
        return entries[: bisect_right(entries, self._read_level, key=_level)]

    def _with_written(self, entries: Sequence[Entry]) -> list[Entry]:
        end = max(self._read_level, entries[-1].level) if entries else self._read_level
        found = {entry.level: entry for entry in entries}
        for entry in self._written:
            if self._at_end or entry.level <= end:
                found[entry.level] = entry
        return sorted(found.values(), key=_level)

    def _merge(self, entries: Sequence[Entry], *, may_be_known: bool = True) -> Merge:
        """Put entries, sorted by level, into the window, and drop what no longer fits."""
        if not entries:
            return Merge([], [])
        if may_be_known and entries[0].level <= self._read_level:
            known = set(self._order)
            entries = [e for e in entries if e.level > self._ack_level and e.level not in known]
        offered = self._unacked(entries)
        self._beyond -= len(offered)
        self._open.update((entry.level, entry) for entry in offered)
        self._insert([entry.level for entry in entries])
        dropped: list[Entry] = []
        if len(self._open) > self._batch_max:
            offered, dropped = self._overflow(offered)
        if self._order:
            self._read_level = self._order[-1]
        return Merge(offered, dropped)

    def _unacked(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries without those whose ack was dropped together with them."""
        if not self._dropped_acks:
            return list(entries)
        done = {e.level for e in entries if e.level in self._dropped_acks}
        for level in done:
            del self._dropped_acks[level]
        return [entry for entry in entries if entry.level not in done]

    def _insert(self, levels: list[Level]) -> None:
        order = self._order
        if not levels or not order or levels[0] > order[-1]:
            order.extend(levels)
        elif len(levels) < 8:
            for level in levels:
                insort(order, level)
        else:
            self._order = deque(sorted((*order, *levels)))  # two sorted runs: linear

    def _overflow(self, offered: list[Entry]) -> Merge:
        """Drop from the far end until the batch size holds; A can never pass what was dropped."""
        self._leave_end()
        removed: list[Entry] = []
        while len(self._open) > self._batch_max:
            level = self._order.pop()
            entry = self._open.pop(level, None)
            if entry is None:
                self._remember_ack(level)
            else:
                removed.append(entry)
        self._beyond += len(removed)
        new = {entry.level for entry in offered}
        return Merge(
            [entry for entry in offered if entry.level in self._open],
            [entry for entry in removed if entry.level not in new],
        )

    def _leave_end(self) -> None:
        """From here on there may be more in the store than in memory."""
        if self._at_end:
            self._at_end, self._beyond, self._is_counted = False, 0, True

    def _remember_ack(self, level: Level) -> None:
        self._dropped_acks[level] = None
        if len(self._dropped_acks) > DROPPED_ACKS_MAX:
            del self._dropped_acks[next(iter(self._dropped_acks))]

    def _advance(self, below: Level | None = None) -> None:
        """Move A over everything acked, up to the first undone trigger or the first gap."""
        order, undone, ceiling = self._order, self._open, self._ceiling
        level = None
        while order and order[0] not in undone:
            if ceiling is not None and order[0] > ceiling:
                break
            if below is not None and order[0] >= below:
                break
            level = order.popleft()
        if level is not None:
            self._ack_level = level


Merged = tuple[Backlog, Merge]
