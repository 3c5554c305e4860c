"""Bugs that are planted on purpose: the checkers of the histories have to find each of them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from histories.columns import ModelColumn, drive
from histories.lanes import LaneWorld
from histories.world import World
from holdfast.dispatch import columns, intake
from holdfast.dispatch.backlog import Backlog, Merge
from holdfast.dispatch.intake import Partition
from holdfast.dispatch.lanes import Item, Lanes, lane_of
from holdfast.dispatch.stored import StoredLanes
from holdfast.store import Column, Entry, Level, Record, Tail

SEEDS_MAX = 2_000
LAST = 2**62  # no seq is higher


class PinOff(Backlog):
    """A moves while levels are chosen and written."""

    def ack(self, level: Level) -> None:
        super().ack(level)
        self._advance()


class MergedPastTheEnd(Backlog):
    """What was written above R is merged, though more is stored in between."""

    def _mergeable(self, entries: list[Entry]) -> list[Entry]:
        return entries


class AckOverADrop(Backlog):
    """Acks above a trigger that was dropped are kept: A passes the dropped one."""

    def _overflow(self, offered: list[Entry]) -> Merge:
        acked = [level for level in self._order if level not in self._open]
        merge = super()._overflow(offered)
        kept = [level for level in acked if level in self._dropped_acks]
        for level in kept:
            del self._dropped_acks[level]
        self._order.extend(sorted(kept))
        return merge


class ReadLevelCollapsing(Backlog):
    """R falls back to A when memory is empty, also when A is pinned."""

    def ack(self, level: Level) -> None:
        super().ack(level)
        if not self._open:
            self._read_level = self._ack_level


class WrongTie(Backlog):
    """Where to read on is told by the pass alone: the rest of that pass is skipped."""

    def start_read(self) -> tuple[Level, int]:
        (pass_, _), limit = super().start_read()
        self._asked = (Level(pass_, LAST), limit)
        return self._asked


class LaneForgotten(StoredLanes):
    """A takeover does not look for lanes."""

    def found(self, partition: Partition, column: Column, tail: Tail) -> None:
        pass


class AckedTooSoon(StoredLanes):
    """A trigger leaves the line before it is durable in its lane."""

    def _spill(self, item: Item) -> None:
        super()._spill(item)
        self._intake._leave(item.trigger.id, item.trigger.version)


class TrimmedTooFar(StoredLanes):
    """What has been read of a lane is deleted, dispatched or not."""

    def trims(self, now: float) -> dict[tuple[int, Column], tuple[Level, Level]]:
        lanes = {place: self._lanes[place] for place in self._acked if place in self._lanes}
        return {place: (Level(0, 0), lane.read_level) for place, lane in lanes.items()}


class NewerFirst(Lanes):
    """What comes from the line does not wait for the stored part of its lane."""

    def divert(self, item: Item) -> None:
        self.resume(lane_of(item.trigger), item)


class EpochUnchecked(World):
    """The late write of an old owner lands, as if its epoch were the newest."""

    def fenced(self, record: Record) -> Record:
        return replace(record, epoch=self.epoch)


def failure_of(world: World | LaneWorld) -> str | None:
    """What the checkers say about this history."""
    try:
        drive(world.play(), ModelColumn())
    except AssertionError as error:
        return str(error)
    return None


def first_caught(make: type[World] | type[LaneWorld] = World) -> tuple[int, str]:
    """The first seed whose history fails, and what the checkers said."""
    for seed in range(SEEDS_MAX):
        if (failure := failure_of(make(seed))) is not None:
            return seed, failure
    pytest.fail(f"not caught in {SEEDS_MAX} histories")


def assert_passes_unpatched(until: int, make: type[World] | type[LaneWorld] = World) -> None:
    for seed in range(until + 1):
        assert failure_of(make(seed)) is None, f"seed {seed} fails without the bug too"


@pytest.mark.whole
@pytest.mark.parametrize(
    ("planted", "symptoms"),
    [
        (PinOff, "A jumped over|written at or below A"),
        (MergedPastTheEnd, "not in memory|A jumped over"),
        (AckOverADrop, "not in memory|A jumped over"),
        (ReadLevelCollapsing, "again after its ack|R fell below A|read at or below A"),
        (WrongTie, "not in memory|A jumped over"),
    ],
    ids=["pin off", "merge past the end", "ack over a drop", "read level collapsing", "wrong tie"],
)
def test_a_planted_bug_of_the_window_is_caught(planted, symptoms, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(intake, "Backlog", planted)
        seed, failure = first_caught()

    assert re.search(symptoms, failure), f"seed {seed}"
    assert_passes_unpatched(seed)


@pytest.mark.whole
def test_a_missing_fence_is_caught():
    seed, failure = first_caught(EpochUnchecked)

    symptoms = "two triggers got the level|not in memory|A jumped over|holds more|but not stored"
    assert re.search(symptoms, failure), f"seed {seed}"
    assert_passes_unpatched(seed)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("planted", "symptoms"),
    [
        (LaneForgotten, "never dispatched"),
        (AckedTooSoon, "in no backlog|never dispatched"),
        (TrimmedTooFar, "in no backlog"),
    ],
    ids=["lane forgotten", "acked too soon", "trimmed too far"],
)
def test_a_planted_bug_of_the_lanes_is_caught(planted, symptoms, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(intake, "StoredLanes", planted)
        seed, failure = first_caught(LaneWorld)

    assert re.search(symptoms, failure), f"seed {seed}: {failure}"
    assert_passes_unpatched(seed, LaneWorld)


@pytest.mark.whole
def test_a_lane_out_of_order_is_caught(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(columns, "Lanes", NewerFirst)
        seed, failure = first_caught(LaneWorld)

    assert re.search("went first", failure), f"seed {seed}: {failure}"
    assert_passes_unpatched(seed, LaneWorld)
