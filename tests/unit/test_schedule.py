"""Which slots of a schedule are due, what becomes of missed ones, and what code may change."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigurationError
from holdfast.outcomes import EndSchedule
from holdfast.schedule import (
    CATCH_UP_MAX,
    LATE_S,
    Fire,
    Schedule,
    ScheduleSlot,
    Unreadable,
    columns_of,
    fire_of,
    merged,
    planned,
    schedule_of,
    slot_of,
    task_of,
)
from holdfast.task import Event, Grabbed, Key, Outcome, TaskId
from holdfast.timing import At, Cron, Every
from holdfast.worker import verdict

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def a_schedule(**changes: Any) -> Schedule:
    fields: dict[str, Any] = {
        "name": "nightly",
        "timing": Every(60),
        "kind": "report",
        "queue": "reports",
        "payload": b"hello",
        "next_at": NOON,
        "version": 7,
    }
    return Schedule(**(fields | changes))


def a_grabbed(metadata: bytes | None) -> Grabbed:
    return Grabbed(
        TaskId(1), 2, "report", b"", 1, 1, 5, "reports", 0, None, 1.0, None, metadata, NOON
    )


def test_a_slot_that_has_come_fires_and_the_next_one_is_named():
    plan = planned(a_schedule(), NOON + timedelta(seconds=0.01))

    assert (plan.slots, plan.missed, plan.next_at) == ([NOON], 0, NOON + MINUTE)


@pytest.mark.parametrize(
    ("catch_up", "fired", "missed"), [("one", [5], 5), ("all", [0, 1, 2, 3, 4, 5], 0)]
)
def test_missed_slots_follow_the_catch_up_policy(catch_up, fired, missed):
    schedule = a_schedule(timing=Every(60, catch_up=catch_up))

    plan = planned(schedule, NOON + 5.5 * MINUTE)

    assert plan.slots == [NOON + n * MINUTE for n in fired]
    assert (plan.missed, plan.next_at) == (missed, NOON + 6 * MINUTE)


@pytest.mark.parametrize(("late_s", "fired"), [(0.1, 1), (LATE_S, 1), (LATE_S + 1, 0)])
def test_without_catch_up_only_a_slot_that_has_just_come_fires(late_s, fired):
    schedule = a_schedule(timing=Every(3600, catch_up="none"))

    plan = planned(schedule, NOON + timedelta(seconds=late_s))

    assert (len(plan.slots), plan.missed) == (fired, 1 - fired)
    assert plan.next_at == NOON + timedelta(hours=1)


@pytest.mark.parametrize("catch_up", ["one", "all", "none"])
@pytest.mark.parametrize(
    "timing", [Every(1), Cron("* * * * * *", "Europe/Berlin")], ids=["every", "cron"]
)
def test_an_outage_of_a_month_is_made_up_for_in_bounds(catch_up, timing):
    schedule = a_schedule(timing=replace(timing, catch_up=catch_up))
    now = NOON + timedelta(days=30, seconds=0.5)

    plan = planned(schedule, now)

    last = NOON + timedelta(days=30)
    count = CATCH_UP_MAX if catch_up == "all" else 1
    assert plan.slots == [last - timedelta(seconds=n) for n in reversed(range(count))]
    assert (plan.missed, plan.next_at) == (CATCH_UP_MAX, last + timedelta(seconds=1))


@given(st.floats(0, 100_000), st.sampled_from(["one", "all", "none"]), st.sampled_from([7.5, 600]))
def test_the_next_slot_only_moves_on_and_no_slot_is_planned_twice(late_s, catch_up, every_s):
    schedule = a_schedule(timing=Every(every_s, NOON, catch_up=catch_up))
    now = NOON + timedelta(seconds=late_s)

    plan = planned(schedule, now)

    assert plan.next_at is not None and plan.next_at > max([now, *plan.slots])
    assert plan.slots == sorted(set(plan.slots)) and all(NOON <= s <= now for s in plan.slots)


def test_a_slot_of_older_rules_fires_once_and_the_present_ones_go_on():
    odd = NOON + timedelta(seconds=17)  # no slot of this timing

    plan = planned(a_schedule(next_at=odd), odd + timedelta(seconds=1))

    assert (plan.slots, plan.next_at) == ([odd], NOON + MINUTE)


def test_a_one_off_time_ends_with_its_fire():
    plan = planned(a_schedule(timing=At(NOON)), NOON)

    assert (plan.slots, plan.next_at) == ([NOON], None)


def test_a_fired_task_knows_its_slot_and_has_a_key_of_its_own():
    schedule = a_schedule(metadata=b'{"tenant":"acme"}', ordering_key="k", priority=2)

    fire = fire_of(schedule, planned(schedule, NOON), partitions=8)

    (task,) = fire.tasks
    assert task.key == Key("schedule", "nightly@2030-01-01T12:00:00+00:00")
    assert slot_of(task.metadata) == ScheduleSlot("nightly", NOON, NOON + MINUTE)
    assert b'"tenant":"acme"' in task.metadata
    assert (task.priority, task.ordering_key, task.queue) == (2, "k", "reports")
    assert (fire.version, fire.last_at, fire.next_at) == (7, NOON, NOON + MINUTE)
    again = task_of(schedule, NOON + MINUTE, None, partitions=8)
    assert again.partition == task.partition, "one ordering key, one partition"


def test_a_task_of_now_has_no_key_and_no_slot():
    task = task_of(a_schedule(partition=3), None, NOON, partitions=8)

    assert (task.key, task.partition) == (None, 3)
    assert slot_of(task.metadata) == ScheduleSlot("nightly", None, NOON)


@pytest.mark.parametrize(
    "metadata",
    [None, b"{}", b'{"holdfast.schedule": 5}', b'["holdfast.schedule"]', b"holdfast.schedule"],
)
def test_metadata_without_a_slot_comes_from_no_schedule(metadata):
    assert slot_of(metadata) is None


# ── what code says ────────────────────────────────────────────────────────────────────────────


def test_a_new_schedule_begins_with_its_next_slot():
    written = merged(None, a_schedule(next_at=None), NOON)

    assert written is not None
    assert (written.version, written.next_at) == (0, NOON + MINUTE)


@pytest.mark.req("TASK-84")
def test_the_same_again_changes_nothing_also_when_it_is_paused_overdue_or_has_ended():
    wanted = a_schedule(version=0, next_at=None)
    for life in (
        {"is_paused": True},
        {"next_at": NOON - MINUTE},
        {"next_at": None},
        {"missed": 5, "last_at": NOON},
        {"partition": 3},
    ):
        assert merged(replace(a_schedule(), **life), wanted, NOON) is None


def test_another_line_starts_anew_and_keeps_what_was():
    known = a_schedule(next_at=None, last_at=NOON, missed=3, is_paused=True)

    written = merged(known, a_schedule(timing=Every(3600), source="code", version=0), NOON)

    assert written is not None
    assert (written.next_at, written.version) == (NOON + timedelta(hours=1), 7)
    assert (written.last_at, written.missed, written.is_paused) == (NOON, 3, True)
    assert written.source == "code"


def test_other_arguments_leave_the_next_slot_alone():
    known = a_schedule(next_at=NOON - MINUTE)

    written = merged(known, a_schedule(payload=b"other", next_at=None, version=0), NOON)

    assert written is not None
    assert (written.payload, written.next_at) == (b"other", NOON - MINUTE)
    ended = merged(replace(known, next_at=None), replace(written, version=0), NOON)
    assert ended is not None and ended.is_ended


def test_a_name_may_have_two_hundred_characters_and_must_have_one():
    assert a_schedule(name="x").name == "x"
    assert len(a_schedule(name="x" * 200).name) == 200


@pytest.mark.parametrize("name", ["", "x" * 201, "two\nlines", "nul\0"])
def test_a_name_that_nobody_can_type_is_refused(name):
    with pytest.raises(ConfigurationError, match="printable characters"):
        a_schedule(name=name)


@pytest.mark.parametrize("timing", ["0 3 * * *", 60, None])
def test_a_timing_of_another_type_is_refused(timing):
    with pytest.raises(ConfigurationError, match="say when by Cron"):
        a_schedule(timing=timing)


def test_a_timing_of_a_newer_holdfast_is_kept_and_not_fired():
    row = columns_of(a_schedule()) | {"timing": '{"moon": "full"}'}

    schedule = schedule_of(list(row.values()))

    assert schedule.timing == Unreadable('{"moon": "full"}')
    assert columns_of(schedule)["timing"] == '{"moon":"full"}'
    assert "unreadable" in schedule.timing.words()
    assert schedule.timing.facts() == {"moon": "full"}
    with pytest.raises(ConfigurationError, match="cannot be read"):
        planned(schedule, NOON)


def test_a_schedule_survives_its_row():
    schedule = a_schedule(
        priority=2, fairness_key="f", weight=2.5, ordering_key="o", metadata=b"{}", partition=4,
        source="code", is_paused=True, last_at=NOON - MINUTE, missed=3,
    )  # fmt: skip

    assert schedule_of(list(columns_of(schedule).values())) == schedule
    assert columns_of(schedule)["paused"] is True


def test_what_nobody_says_of_a_schedule_is_the_plain_case():
    schedule = Schedule(name="s", timing=Every(60), kind="k", queue="q", payload=b"secret")

    assert (schedule.priority, schedule.weight, schedule.is_paused) == (5, 1.0, False)
    assert (schedule.missed, schedule.version, schedule.is_ended) == (0, 0, True)
    assert "secret" not in repr(schedule)
    assert Fire("s", 1, [], None, None).missed == 0


def test_two_schedules_fire_alike_whatever_their_lives_were():
    schedule = a_schedule()

    assert schedule.fires_like(replace(schedule, is_paused=True, missed=4, next_at=None))
    assert not schedule.fires_like(replace(schedule, weight=2.0))
    assert not schedule.fires_like(replace(schedule, timing=Every(61)))


def test_a_change_of_its_source_alone_is_written():
    written = merged(a_schedule(source="run time"), a_schedule(source="code", version=0), NOON)

    assert written is not None and (written.source, written.next_at) == ("code", NOON)


@pytest.mark.parametrize(
    ("slots", "fired", "missed"), [(999, 999, 0), (1_000, 1_000, 0), (1_001, 1_000, 1)]
)
def test_a_thousand_slots_at_most_are_made_up_for(slots, fired, missed):
    schedule = a_schedule(timing=Every(60, catch_up="all"))

    plan = planned(schedule, NOON + (slots - 0.5) * MINUTE)

    assert (len(plan.slots), plan.missed) == (fired, missed)
    assert plan.slots[-1] == NOON + (slots - 1) * MINUTE


def test_of_many_missed_slots_the_latest_may_be_too_late_as_well():
    schedule = a_schedule(timing=Every(3_600, catch_up="none"))

    plan = planned(schedule, NOON + timedelta(hours=3, seconds=31))

    assert (plan.slots, plan.missed) == ([], 4)
    assert fire_of(schedule, plan, partitions=1).last_at is None


def test_tasks_of_a_schedule_without_a_partition_are_spread_over_all():
    schedule = a_schedule()

    found = {task_of(schedule, NOON + n * MINUTE, None, partitions=4).partition for n in range(60)}

    assert found == {0, 1, 2, 3}


# ── what becomes of a fired task ──────────────────────────────────────────────────────────────


def retried(delay_s: float, next_at: datetime | None = NOON) -> Outcome:
    """What becomes of a failure at one minute to twelve, with a retry after so long."""
    task = a_grabbed(task_of(a_schedule(), NOON - MINUTE, next_at, partitions=8).metadata)
    outcome = Outcome(task.id, task.version, Event.RETRIED, delay_s=delay_s, error="Boom: x")
    return verdict.before_next_run(task, outcome, NOON - MINUTE)


@pytest.mark.req("TASK-84")
def test_a_retry_is_used_only_if_it_is_earlier_than_the_next_regular_run():
    assert retried(59.9).event is Event.RETRIED
    for delay_s in (60.0, 3600.0):
        outcome = retried(delay_s)
        assert outcome.event is Event.GIVEN_UP
        assert outcome.error is not None and outcome.error.startswith("Boom: x\n")
        assert "its next regular run comes first, at 2030-01-01T12:00:00" in outcome.error
    assert retried(3600.0, next_at=None).event is Event.RETRIED, "there is no next run"


def test_other_ends_and_other_tasks_are_left_alone():
    task = a_grabbed(task_of(a_schedule(), NOON, NOON, partitions=8).metadata)
    parked = Outcome(task.id, task.version, Event.PARKED, error="x")
    repeated = Outcome(task.id, task.version, Event.REPEATED, error="x")

    assert verdict.before_next_run(task, parked, NOON) is parked
    assert verdict.before_next_run(a_grabbed(None), repeated, NOON) is repeated
    assert verdict.before_next_run(task, repeated, NOON).event is Event.GIVEN_UP


def test_the_end_of_a_schedule_travels_with_the_outcome():
    task = a_grabbed(task_of(a_schedule(), NOON, None, partitions=8).metadata)

    handler: Any = SimpleNamespace(batch_max=None)
    outcome = verdict.of_result(task, handler, EndSchedule())
    plain = verdict.of_result(a_grabbed(None), handler, EndSchedule())

    assert (outcome.event, outcome.ends) == (Event.SUCCEEDED, "nightly")
    assert (plain.event, plain.ends) == (Event.SUCCEEDED, None)
