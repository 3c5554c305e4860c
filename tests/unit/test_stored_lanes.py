"""Lanes that go on in the store: written when they stand in the way, read when they may go on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from holdfast.booking import Full
from holdfast.dispatch.backlog import Backlog
from holdfast.dispatch.intake import Intake
from holdfast.dispatch.limits import Limits
from holdfast.dispatch.stored import Pace
from holdfast.dispatch.table import TriggerTable
from holdfast.store import START, Column, Entry, Level, Loaded, Tail
from holdfast.task import Trigger
from holdfast.testing.build import a_trigger

MAIN = Column(5, "mail")
LANE = Column(5, "mail", "fa")


class Rig:
    """An intake of one partition, a store of the simplest kind, and keys that are held."""

    def __init__(self, **limits: Any) -> None:
        self.limits = Limits(**({"look_ahead": 24, "window": 4, "reload_at": 1} | limits))
        self.table = TriggerTable(rng=Random(0), size_max=self.limits.look_ahead)
        self.intake = Intake("q", self.table, self.limits, handles=lambda kind: True)
        self.lanes = self.intake.stored
        self.rows: dict[Column, dict[Level, Entry]] = defaultdict(dict)
        self.held: set[str | None] = set()
        self.own()

    def own(self) -> None:
        tails = {c: Tail(max(rows), "a") for c, rows in self.rows.items() if rows}
        self.partition = self.intake.take(Loaded(0, START, {}, tails, []), epoch=1)

    def write(self, triggers: Sequence[Trigger] = ()) -> None:
        """Append what is given, or what waits to be written."""
        written = triggers or list(self.partition.unwritten.values())
        self.partition.unwritten.clear()
        if not written:
            return
        parts = self.intake.choose([(self.partition, written)])[0]
        for column, _, entries in parts:
            self.rows[column].update((entry.level, entry) for entry in entries)
        self.intake.merge(self.intake.appended(self.partition, parts, early=False))

    def read(self) -> list[Column]:
        """Read what is wanted; answers the lanes that were read."""
        for column, backlog in self.partition.columns.items():
            if backlog.wants_read:
                self._read(column, backlog)
        found = self.lanes.to_read()
        for number, column, backlog in found:
            self._read(column, backlog)
            self.lanes.was_read(number, column)
        return [column for _, column, _ in found]

    def _read(self, column: Column, backlog: Backlog) -> None:
        above, limit = backlog.start_read()
        rows = self.rows[column]
        found = [rows[level] for level in sorted(rows) if level > above]
        self.intake.merge([(backlog, backlog.read(found[:limit]))])

    def serve(self, most: int = 10**6) -> list[int]:
        """Take what may go on, and decide it at once."""
        ids = []
        while len(ids) < most and (item := self.table.take(self._book)) is not None:
            ids.append(item.trigger.id)
            self.intake.decided(item.trigger.id, 1)
            self.intake.finished(item.trigger.id, 1)
        return ids

    def release(self, key: str) -> bool:
        self.held.discard(key)
        return self.lanes.released(self.table.release(key))

    def _book(self, trigger: Trigger) -> Full | None:
        keys = {trigger.fairness_key, trigger.ordering_key}
        return Full(key_only=True) if keys & self.held else None


def clogged(**limits: Any) -> Rig:
    """A window full of one key that may not go on; those of another one stand behind it."""
    rig = Rig(**limits)
    rig.held = {"a"}
    rig.write([a_trigger(id, fairness_key="a") for id in range(1, 13)])
    rig.write([a_trigger(id, fairness_key="b") for id in range(13, 16)])
    return rig


def spilled(**limits: Any) -> Rig:
    """The same after the key has gone to its lane, but for its last three: they harm nobody."""
    rig = clogged(**limits)
    for now in range(20):
        rig.serve()
        rig.lanes.spill(float(now))
        rig.write()
        rig.read()
    return rig


# ── writing ───────────────────────────────────────────────────────────────────────────────────


def test_a_key_that_waits_does_not_keep_others_from_being_read():
    rig = clogged()
    served = []
    for now in range(20):
        served += rig.serve()
        rig.lanes.spill(float(now))
        rig.write()
        rig.read()

    assert served == [13, 14, 15] and rig.partition.columns[MAIN].at_end
    assert [entry.trigger.id for entry in rig.rows[LANE].values()] == list(range(1, 10))
    assert sorted(item.trigger.id for item in rig.table.waiting()) == [10, 11, 12]
    done = rig.rows[MAIN][rig.partition.columns[MAIN].ack_level]
    assert done.trigger.id == 9, "what stands in the lane is decided in the line"


def test_nothing_is_written_while_others_can_still_be_read():
    rig = Rig()
    rig.held = {"a"}
    rig.write([a_trigger(1, fairness_key="a"), a_trigger(2, fairness_key="b")])
    assert rig.serve() == [2]

    assert rig.lanes.spill(0.0) is None

    assert not rig.partition.unwritten and not rig.lanes


def test_a_spill_that_helped_nobody_comes_later_and_later_up_to_a_bound():
    pace, limits, waits = Pace(), Limits(spill_s=0.05, spill_s_max=1.0), []
    for _ in range(8):
        pace.spilled(10.0, 5, limits)
        waits.append(pace.wait_s)
        assert pace.at == 10.0 + pace.wait_s

    assert waits == [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    pace.spilled(20.0, 6, limits)
    assert (pace.wait_s, pace.at) == (0.0, 20.0), "somebody was served meanwhile"


def test_a_spill_says_when_to_ask_again_and_writes_nothing_before():
    rig = Rig(spill_s=0.5, spill_s_max=4.0)
    rig.held = {"a"}
    rig.write([a_trigger(id, fairness_key="a") for id in range(1, 41)])
    waits = []
    for now in (100.0, 100.0, 100.0, 100.25, 100.5):
        rig.serve()
        waits.append((rig.lanes.spill(now), bool(rig.partition.unwritten)))
        rig.write()
        rig.read()

    assert waits == [(0.0, True), (0.5, True), (0.5, False), (0.25, False), (1.0, True)]


def test_what_is_being_written_to_its_lane_is_written_once():
    rig = clogged()
    rig.serve()
    rig.lanes.spill(0.0)
    written = dict(rig.partition.unwritten)
    assert set(rig.partition.spilling) == set(written) and written

    rig.write()

    assert not rig.partition.spilling
    assert {e.trigger.id for e in rig.rows[LANE].values()} == set(written)


# ── reading ───────────────────────────────────────────────────────────────────────────────────


def test_a_lane_whose_key_may_not_go_on_is_not_read_and_holds_nothing_in_memory():
    rig = spilled()

    assert rig.read() == []
    assert (len(rig.lanes), bool(rig.lanes)) == (1, True)
    assert rig.lanes.lane(rig.partition, LANE).loaded == 0


def test_a_released_lane_is_read_as_far_as_memory_allows_and_keeps_its_order():
    rig = spilled(lane_window=4)
    assert rig.release("a") and rig.lanes.wants_turn

    served = []
    for _ in range(20):
        rig.read()
        assert len(rig.table) <= 4 + 3
        served += rig.serve(most=2)

    assert served == list(range(1, 13))


def test_lanes_without_anything_stored_are_no_reason_to_read():
    rig = spilled()

    assert not rig.lanes.released([("mail", "fother"), ("other", "fa")])
    assert not rig.lanes.wants_turn


def test_what_comes_of_the_key_meanwhile_waits_behind_the_stored_part():
    rig = spilled()
    rig.write([a_trigger(20, fairness_key="a")])
    rig.release("a")

    served = []
    for _ in range(20):
        rig.read()
        served += rig.serve()

    assert served == [*range(1, 13), 20]


def test_many_lanes_are_not_read_all_at_once():
    rig = Rig(lane_window=4, lanes_loaded=8, look_ahead=60)
    keys = [f"k{number}" for number in range(5)]
    rig.held = set(keys)
    rig.write([a_trigger(id, fairness_key=keys[id % 5]) for id in range(1, 51)])
    for now in range(30):
        rig.serve()
        rig.lanes.spill(float(now))
        rig.write()
        rig.read()
    assert len(rig.lanes) == 5
    for key in keys:
        rig.release(key)

    assert len(rig.read()) == 2, "eight triggers, four of each lane"
    served: list[int] = []
    for _ in range(40):
        served += rig.serve()
        rig.read()

    assert sorted(served) == list(range(1, 51))


def test_lanes_that_may_not_go_on_leave_memory_when_all_together_have_too_much():
    rig = spilled(lane_window=12, lanes_loaded=6)
    rig.release("a")
    rig.read()
    assert rig.serve(most=1) == [1]
    rig.held.add("a")
    assert rig.serve() == []
    lane = rig.lanes.lane(rig.partition, LANE)
    assert lane.loaded == 8

    rig.intake.merge(rig.lanes.unload())

    assert lane.loaded == 0 and len(rig.table) == 3
    assert rig.release("a")
    rig.read()
    assert rig.serve() == list(range(2, 13))


def test_a_few_in_lanes_stay_in_memory():
    rig = spilled(lane_window=12, lanes_loaded=11)
    rig.release("a")
    rig.read()
    assert rig.serve(most=1) == [1]
    rig.held.add("a")
    rig.serve()

    assert rig.lanes.unload() == []


# ── what was dispatched is deleted ────────────────────────────────────────────────────────────


def drained() -> Rig:
    rig = spilled(lane_trim_s=2.0)
    rig.release("a")
    for _ in range(20):
        rig.read()
        rig.serve()
    return rig


def test_what_was_dispatched_of_a_lane_is_deleted_and_then_the_lane_is_forgotten():
    rig = drained()

    trims = rig.lanes.trims(100.0)

    ((place, (above, to)),) = trims.items()
    assert place == (0, LANE) and above < min(rig.rows[LANE]) and to == max(rig.rows[LANE])
    assert rig.lanes
    rig.lanes.trimmed(place, to)
    assert not rig.lanes and rig.lanes.trims(200.0) == {}


def test_lanes_are_trimmed_at_a_pace_and_again_when_it_failed():
    rig = drained()
    trims = rig.lanes.trims(100.0)
    rig.lanes.trim_failed(trims)

    assert rig.lanes.trims(101.9) == {}
    assert rig.lanes.trims(102.0) == trims


def test_of_a_lane_that_is_half_dispatched_that_half_is_deleted():
    rig = spilled()
    rig.release("a")
    rig.read()
    rig.serve(most=5)

    ((place, (_, to)),) = rig.lanes.trims(100.0).items()
    rig.lanes.trimmed(place, to)

    assert [rig.rows[LANE][level].trigger.id for level in sorted(rig.rows[LANE])][4:5] == [
        rig.rows[LANE][to].trigger.id
    ]
    assert rig.lanes and rig.serve() == list(range(6, 13))


# ── owners come and go ────────────────────────────────────────────────────────────────────────


def test_lanes_are_lost_with_their_partition_and_found_by_whoever_takes_it():
    rig = spilled()
    rig.intake.lose(0)
    assert not rig.lanes and len(rig.table) == 0
    assert not rig.release("a")
    rig.rows.pop(MAIN)

    rig.own()

    assert rig.lanes.wants_turn
    served = []
    for _ in range(20):
        rig.read()
        served += rig.serve()
    assert served == list(range(1, 10))


@pytest.mark.parametrize("now", [0.0, 1e6])
def test_without_lanes_there_is_nothing_to_do(now):
    rig = Rig()

    assert rig.lanes.spill(now) is None and rig.lanes.trims(now) == {}
    assert rig.lanes.unload() == [] and rig.lanes.to_read() == []
