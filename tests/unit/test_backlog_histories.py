"""The window under random histories: against a reference, and with a crash at any step."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.dispatch.backlog import Merge
from holdfast.store import ZERO, Entry, Level, Mark
from holdfast.testing.build import a_trigger
from unit.backlog_steps import new_backlog

BATCH_MAX, RELOAD_AT = 4, 2


class Stored:
    """The stored backlog of one column, and the mark that was persisted last."""

    def __init__(self) -> None:
        self.rows: list[Entry] = []  # by level
        self.mark = Mark(ZERO)

    def append(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            insort(self.rows, entry)

    def above(self, level: Level, limit: int) -> list[Entry]:
        start = bisect_right(self.rows, level, key=lambda row: row.level)
        return self.rows[start : start + limit]

    def between(self, after: Level, to: Level) -> list[Entry]:
        return [row for row in self.rows if after < row.level <= to]

    def delete(self, after: Level, to: Level, mark: Mark) -> None:
        gone = self.between(after, to)
        self.rows = [row for row in self.rows if row not in gone]
        self.mark = mark

    @property
    def highest(self) -> Level:
        return self.rows[-1].level if self.rows else ZERO


class DropAndReread:
    """The reference: a write below R drops all memory above it, and reads do the rest."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.memory: list[Entry] = []
        self.read_level = ZERO
        self.at_end = False

    def write(self, entries: list[Entry]) -> None:
        self.stored.append(entries)
        lowest = min(entry.level for entry in entries)
        self.at_end = False
        if lowest < self.read_level:
            self.memory = [entry for entry in self.memory if entry.level < lowest]
            self.read_level = Level(lowest.pass_, lowest.seq - 1)

    def take(self) -> Entry | None:
        if len(self.memory) <= RELOAD_AT and not self.at_end:
            found = self.stored.above(self.read_level, BATCH_MAX)
            self.memory += found
            self.at_end = len(found) < BATCH_MAX
            self.read_level = found[-1].level if found else self.read_level
        return self.memory.pop(0) if self.memory else None


class Merging:
    """The backlog under test, with a store that answers at once."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.backlog = new_backlog(batch_max=BATCH_MAX, reload_at=RELOAD_AT)
        self.memory: list[Entry] = []
        self.reads = 0

    def choose(self, passes: list[int], seq: count[int]) -> list[Entry]:
        triggers = [a_trigger(id=pass_) for pass_ in passes]
        return self.backlog.choose(triggers, seq.__next__, lambda trigger: trigger.id)

    def write(self, entries: list[Entry]) -> None:
        self.stored.append(entries)
        self.merge(self.backlog.appended())

    def take(self) -> Entry | None:
        if self.backlog.wants_read:
            self.reads += 1
            self.merge(self.backlog.read(self.stored.above(*self.backlog.start_read())))
        if not self.memory:
            return None
        entry = self.memory.pop(0)
        self.backlog.dispatched(entry.level)
        self.backlog.ack(entry.level)
        return entry

    def merge(self, merge: Merge) -> None:
        for entry in merge.dropped:
            self.memory.remove(entry)
        self.memory = sorted([*self.memory, *merge.offered])


WRITE = st.lists(st.integers(1, 30), min_size=1, max_size=6)
TAKE = st.none()


@pytest.mark.req("FAIR-23")
@given(st.lists(WRITE | TAKE, max_size=60))
@settings(max_examples=300, deadline=None)
def test_merging_gives_the_same_order_as_drop_and_reread(history):
    merging, reference, seq = Merging(Stored()), DropAndReread(Stored()), count(1)

    orders: tuple[list[Level], list[Level]] = ([], [])
    for step in [*history, *[None] * 400]:
        if step is not None:
            entries = merging.choose(step, seq)
            merging.write(entries)
            reference.write(entries)
            continue
        for order, line in zip(orders, (merging, reference), strict=True):
            if (entry := line.take()) is not None:
                order.append(entry.level)

    assert orders[0] == orders[1]
    assert len(orders[0]) == sum(len(step) for step in history if step is not None)
    assert merging.backlog.is_empty


class World:
    """A store, an owner and its backlog; every step may be the last one before a crash.

    Steps that are not possible now do nothing, so that any list of steps is a history.
    """

    def __init__(self) -> None:
        self.stored = Stored()
        self.seq = count(1)
        self.ids = count(1)
        self.decided: set[int] = set()  # tasks whose grab was won: a second grab is refused
        self.runs: list[int] = []
        self.acknowledged: set[int] = set()  # tasks whose append the owner was told of
        self.offers = 0
        self.own()

    def own(self) -> None:
        """Take over: a crash loses everything but the store."""
        stored = self.stored
        self.backlog = new_backlog(
            stored.mark, highest=stored.highest, batch_max=BATCH_MAX, reload_at=RELOAD_AT
        )
        self.memory: dict[Level, Entry] = {}  # offered, not dropped, not acked
        self.flying: list[Entry] = []  # taken, their grab is on its way
        self.acked: set[Level] = set()
        self.appending: list[Entry] = []  # the append in flight
        self.has_landed = False
        self.written: list[Entry] = []  # appended during the read under way
        self.failed: set[Level] = set()  # nobody knows whether they were written
        self.page: list[Entry] | None = None  # the answer of the read under way, once it was made
        self.asked: tuple[Level, int] | None = None
        self.deleted = ZERO
        self.ack_level_before = stored.mark.ack_level

    # steps ────────────────────────────────────────────────────────────────────────────────────

    def choose(self, n: int) -> None:
        if self.appending:
            return
        triggers = [a_trigger(id=next(self.ids)) for _ in range(n % 3 + 1)]
        base = self.backlog.ack_level.pass_
        entries = self.backlog.choose(
            triggers, self.seq.__next__, lambda trigger: base + (n * trigger.id * 7) % 12
        )
        assert all(entry.level > self.backlog.ack_level for entry in entries)  # FAIR-5
        self.appending, self.has_landed = entries, False

    def land(self, n: int) -> None:
        if self.appending and not self.has_landed:
            self.stored.append(self.appending)
            self.has_landed = True

    def append_returns(self, n: int) -> None:
        if not self.appending:
            return
        self.land(n)
        self.acknowledged |= {entry.trigger.id for entry in self.appending}
        self.written = [*self.written, *self.appending] if self.asked else []
        self.appending = []
        self.merge(self.backlog.appended())

    def append_fails(self, n: int) -> None:
        if self.appending:
            self.failed |= {entry.level for entry in self.appending}
            self.appending = []
            self.backlog.append_failed()

    def read_starts(self, n: int) -> None:
        if self.backlog.wants_read:
            self.asked, self.page = self.backlog.start_read(), None
            assert self.asked[0] >= self.backlog.ack_level  # FAIR-5
            assert self.asked[0] >= self.deleted  # FAIR-28
            assert 0 < self.asked[1] <= BATCH_MAX

    def read_is_made(self, n: int) -> None:
        if self.asked is not None and self.page is None:
            self.page = self.stored.above(*self.asked)

    def read_returns(self, n: int) -> None:
        if self.asked is None:
            return
        self.read_is_made(n)
        assert self.page is not None
        self.asked, self.written = None, []
        self.merge(self.backlog.read(self.page))

    def read_fails(self, n: int) -> None:
        if self.asked is not None:
            self.asked = None
            self.backlog.read_failed()

    def take(self, n: int) -> None:
        waiting = sorted(self.memory.keys() - {entry.level for entry in self.flying})
        if waiting:
            self.flying.append(self.memory[waiting[0]])
            self.backlog.dispatched(waiting[0])

    def decide(self, n: int) -> None:
        if not self.flying:
            return
        entry = self.flying.pop(n % len(self.flying))
        if entry.trigger.id not in self.decided:
            self.decided.add(entry.trigger.id)
            self.runs.append(entry.trigger.id)
        self.backlog.ack(entry.level)
        if self.memory.pop(entry.level, None):
            self.acked.add(entry.level)

    def trim(self, n: int) -> None:
        if (span := self.backlog.trim()) is not None:
            doomed = self.stored.between(*span)
            assert all(row.trigger.id in self.decided for row in doomed)  # FAIR-26
            self.stored.delete(*span, self.backlog.mark)
            self.backlog.trimmed(span[1])
            self.deleted = span[1]

    def persist(self, n: int) -> None:
        self.stored.mark = self.backlog.mark

    def crash(self, n: int) -> None:
        self.own()

    # checks ───────────────────────────────────────────────────────────────────────────────────

    def merge(self, merge: Merge) -> None:
        self.offers += len(merge.offered)
        for entry in merge.dropped:
            assert self.memory.pop(entry.level) == entry
        for entry in merge.offered:
            assert entry.level not in self.memory, "FAIR-47: offered twice at the same time"
            assert entry.level not in self.acked, "FAIR-44: offered again after its ack"
            self.memory[entry.level] = entry

    def check(self) -> None:
        backlog, rows = self.backlog, self.stored.rows
        ack_level, read_level = backlog.ack_level, backlog.read_level
        assert self.ack_level_before <= ack_level <= read_level  # FAIR-6
        self.ack_level_before = ack_level
        below = rows[: bisect_left(rows, (ack_level[0], ack_level[1] + 1), key=lambda r: r.level)]
        assert all(row.trigger.id in self.decided for row in below)  # FAIR-4
        assert backlog.loaded == len(self.memory) <= BATCH_MAX
        undone = {row.level for row in self.stored.between(ack_level, read_level)} - self.acked
        assert self.memory.keys() <= undone  # FAIR-9
        unknown = {entry.level for entry in [*self.appending, *self.written]} | self.failed
        assert undone - self.memory.keys() <= unknown  # FAIR-9
        if not backlog.at_end and not backlog.loaded and self.asked is None:
            assert backlog.wants_read  # FAIR-51
        if backlog.is_empty:
            assert all(row.trigger.id in self.decided for row in rows)

    def play(self, steps: Iterable[tuple[str, int]]) -> None:
        for step, n in steps:
            getattr(self, step)(n)
            self.check()

    def drain(self) -> None:
        """Let everything under way end, and then all that is stored be dispatched."""
        self.play([("append_returns", 0), ("read_returns", 0)])
        for _ in range(2000):
            self.play([("read_starts", 0), ("read_returns", 0), ("take", 0), ("decide", 0)])
            if self.backlog.is_empty:
                break
        self.play([("trim", 0)])
        assert self.backlog.is_empty, "the backlog stands still"
        stored = {row.trigger.id for row in self.stored.rows}
        assert self.acknowledged | stored <= self.decided, "a trigger was lost"
        assert not self.stored.above(self.backlog.ack_level, 1)
        assert len(self.runs) == len(set(self.runs))


STEPS = {  # how often each is tried
    "choose": 3,
    "land": 2,
    "append_returns": 3,
    "append_fails": 1,
    "read_starts": 4,
    "read_is_made": 2,
    "read_returns": 3,
    "read_fails": 1,
    "take": 3,
    "decide": 3,
    "trim": 1,
    "persist": 1,
}
SEEDS = st.integers(0, 2**32)


def a_history(seed: int, length: int, **more: int) -> list[tuple[str, int]]:
    """Steps from a seed: lists that Hypothesis draws itself are too short to fill the window."""
    rng, weights = Random(seed), STEPS | more
    steps = rng.choices(list(weights), list(weights.values()), k=length)
    return [(step, rng.randrange(12)) for step in steps]


@pytest.mark.req("FAIR-9", "FAIR-51")
@given(SEEDS)
@settings(max_examples=150, deadline=None)
def test_the_window_is_exact_and_never_stands_still_after_any_step(seed):
    world = World()

    world.play(a_history(seed, 150, crash=1))

    world.drain()


@pytest.mark.req("FAIR-4", "FAIR-5")
@given(SEEDS)
@settings(max_examples=150, deadline=None)
def test_all_at_or_below_the_ack_level_is_decided_and_nothing_is_written_or_read_there(seed):
    world = World()

    world.play(a_history(seed, 150))  # the checks of every step hold FAIR-4, its asserts FAIR-5

    world.drain()


@pytest.mark.req("FAIR-7")
@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_a_crash_after_any_step_repeats_offers_and_loses_no_trigger(seed):
    history = a_history(seed, 60)
    for length in range(len(history) + 1):
        world = World()
        world.play(history[:length])

        world.crash(0)

        world.drain()


@pytest.mark.req("FAIR-7")
def test_a_new_owner_with_an_older_ack_level_offers_again_what_was_dispatched():
    world = World()
    world.play([("choose", 2), ("append_returns", 0), ("persist", 0)])
    world.play([("take", 0), ("decide", 0), ("take", 0), ("decide", 0)])
    assert world.offers == 3 and world.runs == [1, 2]

    world.crash(0)
    world.drain()

    assert world.offers == 6, "all three again"
    assert world.runs == [1, 2, 3], "and each ran once"
