"""Retry policies: how long to wait, and when to stop."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.policy import NO_RETRY, Deadline, Retention, Retry, Spread, seconds

RNG = Random(0)


def waits(retry: Retry, count: int) -> list[float | None]:
    return [retry.delay_s(ValueError(), attempt=n, rng=RNG) for n in range(1, count + 1)]


@pytest.mark.req("TASK-79")
def test_the_wait_after_failure_n_is_delay_times_factor_to_the_n_minus_1():
    assert waits(Retry(attempts=6, delay=1.5, factor=3), 6) == [1.5, 4.5, 13.5, 40.5, 121.5, None]


@pytest.mark.req("TASK-79")
def test_the_wait_is_capped_at_a_day_unless_told_otherwise():
    assert waits(Retry(attempts=99, delay=80_000), 3) == [80_000, 86_400, 86_400]
    assert waits(Retry(attempts=99, delay=1, delay_max=3), 4) == [1, 2, 3, 3]


@pytest.mark.req("TASK-79")
@pytest.mark.parametrize("attempt", [1_000, 10**6, 10**9])
def test_no_number_of_failures_overflows(attempt):
    retry = Retry(attempts=10**10, delay=1e300, factor=1e300, delay_max=timedelta(hours=1))

    assert retry.delay_s(ValueError(), attempt=attempt, rng=RNG) == 3600.0


@given(
    attempt=some.integers(1, 10**6),
    delay=some.floats(0, 1e9),
    factor=some.floats(0.001, 1e6),
    cap=some.floats(0, 1e6),
    jitter=some.floats(0, 0.99),
)
def test_every_wait_is_within_the_cap_and_its_jitter(attempt, delay, factor, cap, jitter):
    retry = Retry(attempts=10**7, delay=delay, factor=factor, delay_max=cap, jitter=jitter)

    wait_s = retry.delay_s(ValueError(), attempt=attempt, rng=Random(1))

    assert wait_s is not None and 0 <= wait_s <= cap * (1 + jitter)


def test_the_default_is_one_attempt():
    assert NO_RETRY == Retry(attempts=1) == Retry()
    assert NO_RETRY.delay_s(ValueError(), attempt=1, rng=RNG) is None


def test_jitter_spreads_by_its_fraction_both_ways():
    retry = Retry(attempts=9, delay=10, jitter=0.5)
    rng = Random(3)

    spread = [retry.delay_s(ValueError(), attempt=1, rng=rng) for _ in range(500)]

    assert 5 <= min(spread) < 6 and 14 < max(spread) <= 15


def test_only_named_errors_are_repeated_and_some_give_up():
    retry = Retry(attempts=5, on=(OSError, KeyError), give_up_on=PermissionError)

    assert retry.delay_s(ConnectionError(), attempt=1, rng=RNG) == 1.0
    assert retry.delay_s(ValueError(), attempt=1, rng=RNG) is None
    assert retry.delay_s(PermissionError(), attempt=1, rng=RNG) is None
    assert retry.gives_up(PermissionError()) and not retry.gives_up(OSError())


@pytest.mark.parametrize(
    "wrong",
    [{"attempts": 0}, {"delay": -1}, {"factor": 0}, {"jitter": 1}, {"jitter": -0.1}],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused_at_once(wrong):
    with pytest.raises(ValueError, match="Retry needs"):
        Retry(**wrong)


def test_durations_are_seconds_or_timedeltas_and_the_defaults_are_those_of_the_table():
    assert seconds(timedelta(minutes=2)) == seconds(120) == 120.0
    assert seconds(Deadline().processing) == 3600
    assert Retention().finished == timedelta(days=30)
    assert Retry().factor == 2.0 and seconds(Retry().delay_max) == 86_400


def test_tasks_without_a_key_are_spread_in_turn_and_those_of_one_key_stay_together():
    def partition(number: int, key: str | None = None) -> int:
        return Spread().partition(partitions=4, number=number, ordering_key=key)

    assert [partition(number) for number in range(9)] == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    homes = {key: {partition(number, key) for number in range(9)} for key in map(str, range(50))}
    assert all(len(found) == 1 for found in homes.values())
    assert set().union(*homes.values()) == {0, 1, 2, 3}


def test_a_key_has_the_same_partition_in_every_release():
    key = Spread().partition(partitions=16, number=3, ordering_key="invoice-7")

    assert key == 12, "where a key lives is stored: tasks of it may be waiting there"


@pytest.mark.parametrize("wrong", [{"processing": 0}, {"processing": -1}, {"stuck": "shrug"}])
def test_a_deadline_that_makes_no_sense_is_refused_at_once(wrong):
    with pytest.raises(ValueError, match="Deadline needs"):
        Deadline(**wrong)


def test_a_deadline_may_be_short_and_is_told_in_seconds():
    assert Deadline(0.25, "retry").seconds == 0.25
