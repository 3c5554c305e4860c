"""What a node tells of its pace, and what `holdfast top` makes of it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.cli.frames import Frame, SlowKind
from holdfast.ids import NodeId
from holdfast.node.pace import KINDS_MAX, Pace
from holdfast.store import Member
from holdfast.task import Event, Grabbed, Outcome, TaskId
from holdfast.testing.clock import VirtualClock
from holdfast.worker.settler import Ended

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def ended(kind: str, ran_s: float, event: Event = Event.SUCCEEDED) -> Ended:
    task = Grabbed(TaskId(1), 2, kind, b"", 1, 1, 5, "mail", 0, None, 1.0, None, None, NOW)
    return Ended(task, Outcome(TaskId(1), 2, event), ran_s)


def member(pace: object, *, is_alive: bool = True) -> Member:
    facts = {} if pace is None else {"pace": pace}
    return Member(NodeId("n"), ("mail",), (), is_alive, facts=facts)


def test_a_pace_counts_what_left_and_begins_anew_when_told():
    clock = VirtualClock()
    pace = Pace(clock)
    pace.add("mail", [ended("send", 1.0), ended("send", 3.0), ended("poll", 0.5, Event.REPEATED)])
    clock.advance(10)

    first, second = pace.told(), pace.told()

    assert (first["over_s"], first["out"]) == (10, {"mail": 2})
    assert first["kinds"] == {
        "send": {"attempts": 2, "sum_s": 4.0, "max_s": 3.0},
        "poll": {"attempts": 1, "sum_s": 0.5, "max_s": 0.5},
    }
    assert (second["out"], second["kinds"]) == ({}, {})


def test_only_the_slowest_kinds_are_told():
    pace = Pace(VirtualClock())
    pace.add("mail", [ended(f"kind {n}", n) for n in range(30)])

    assert list(pace.told()["kinds"]) == [f"kind {n}" for n in range(29, 29 - KINDS_MAX, -1)]


def test_top_adds_up_the_live_nodes_that_tell():
    first = {"over_s": 10, "out": {"mail": 50}, "kinds": {}}
    send = {"attempts": 3, "sum_s": 3.0, "max_s": 2.0}
    second = {"over_s": 5, "out": {"mail": 10}, "kinds": {"send": send, "poll": send}}
    third = {"over_s": 5, "out": {}, "kinds": {"send": {"attempts": 1, "sum_s": 5, "max_s": 5}}}
    members = [member(each) for each in (first, second, third, None)]
    frame = Frame(NOW, [], [*members, member(second, is_alive=False)], [], [])

    assert frame.out("mail") == pytest.approx(7)
    assert frame.slow() == [SlowKind("send", 4, 2.0, 5.0), SlowKind("poll", 3, 1.0, 2.0)]
    assert Frame(NOW, [], members[3:], [], []).out("mail") is None
