"""What a return or an exception means for the task."""

from __future__ import annotations

import math
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from holdfast.handler import Handler
from holdfast.outcomes import (
    Again,
    CancelTask,
    GiveUp,
    Gone,
    ParkInError,
    RetryAfter,
)
from holdfast.payload import Arguments, Codec, opened
from holdfast.policy import Retry, Spread
from holdfast.task import Event
from holdfast.testing.build import a_grabbed
from holdfast.worker import verdict

RNG = Random(0)


def a_handler(**fields: Any) -> Handler:
    def work() -> Any: ...

    given: dict[str, Any] = {
        "kind": "mail",
        "queue": "default",
        "function": work,
        "mode": "async",
        "arguments": Arguments("mail", work, bytes_max=1000),
        "result": Codec(Any),
        "sharding": Spread(),
        "retry": Retry(),
        "priority": 5,
    }
    return Handler(**(given | fields))


def judged(error: BaseException, *, attempt: int = 1, **fields: Any):
    task = a_grabbed(version=4, attempt=attempt)
    return verdict.of_error(task, a_handler(**fields), error, rng=RNG)


def test_a_result_is_sealed_and_the_version_is_that_of_the_grab():
    outcome = verdict.of_result(a_grabbed(version=4), a_handler(), {"a": [1]})

    assert (outcome.id, outcome.version, outcome.event) == (1, 4, Event.SUCCEEDED)
    assert opened(outcome.result) == b'{"a":[1]}'
    assert verdict.of_result(a_grabbed(), a_handler(), None).result is None


def test_done_and_delete_keeps_no_row():
    assert verdict.of_result(a_grabbed(), a_handler(), Gone()).keep is False


@pytest.mark.parametrize(
    ("again", "event", "delay_s", "resets"),
    [
        (Again(), Event.REPEATED, 0.0, False),
        (Again(delay=timedelta(minutes=1)), Event.RETRIED, 60.0, False),
        (Again(delay=math.inf, reset_attempts=True), Event.RETRIED, verdict.DELAY_S_MAX, True),
        (Again(delay=-5), Event.REPEATED, 0.0, False),
    ],
    ids=str,
)
def test_commit_and_retry_counts_no_failure(again, event, delay_s, resets):
    outcome = verdict.of_result(a_grabbed(), a_handler(), again)

    assert (outcome.event, outcome.delay_s, outcome.resets) == (event, delay_s, resets)
    assert outcome.counts is False


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (GiveUp("x"), Event.GIVEN_UP),
        (ParkInError("x"), Event.PARKED),
        (CancelTask("x"), Event.CANCELLED),
        (RetryAfter(0), Event.REPEATED),
        (RetryAfter(9), Event.RETRIED),
        (PermissionError("x"), Event.GIVEN_UP),
        (OSError("x"), Event.RETRIED),
        (ValueError("x"), Event.PARKED),
        (SystemExit(1), Event.PARKED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_exception_has_its_event(error, event):
    retry = Retry(attempts=5, on=OSError, give_up_on=PermissionError)

    assert judged(error, retry=retry).event is event


def test_after_the_last_attempt_the_task_is_parked():
    retry = Retry(attempts=3, delay=2)

    assert judged(ValueError(), attempt=2, retry=retry).delay_s == 4.0
    assert judged(ValueError(), attempt=3, retry=retry).event is Event.PARKED


@pytest.mark.parametrize("answer", [math.nan, "soon", object()], ids=["nan", "a word", "no number"])
def test_a_policy_with_an_impossible_answer_parks_the_task_and_says_why(answer):
    class Odd:
        def delay_s(self, error, *, attempt, rng):
            return answer

        def gives_up(self, error):
            return False

    outcome = judged(ValueError("the handler's own"), retry=Odd())

    assert outcome.event is Event.PARKED
    assert "the handler's own" in outcome.error
    assert "the retry policy failed" in outcome.error


def test_an_error_text_shows_frames_but_no_local_values_and_no_passwords():
    def fails() -> None:
        card = "4111" * 4
        raise ValueError(f"no card of {len(card)} digits at postgresql://me:s3cret@db/x")

    try:
        fails()
    except ValueError as error:
        text = verdict.error_text(error)

    assert "in fails" in text and "ValueError: no card of 16 digits" in text
    assert "4111411141114111" not in text
    assert "postgresql://me:***@db/x" in text.splitlines()[-1]


def test_an_error_text_can_be_kept_by_every_store():
    text = verdict.error_text(ValueError("\0 \ud800 " + "x" * 100_000))

    assert len(text) <= verdict.ERROR_CHARS_MAX + 2
    assert "\0" not in verdict.storable("a\0b") and verdict.storable("a\0b") == "a\\0b"
    assert verdict.storable("\ud800").encode() == b"\\ud800"


def test_an_error_whose_own_text_raises_is_still_described():
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "Rude" in verdict.error_text(Rude())


def test_what_was_not_the_tasks_fault_counts_no_attempt():
    handed_back = verdict.handed_back(a_grabbed())
    postponed = verdict.postponed(a_grabbed(), OSError("the store"))

    assert (handed_back.event, handed_back.counts) == (Event.REPEATED, False)
    assert (postponed.event, postponed.counts) == (Event.RETRIED, False)
    assert postponed.delay_s > 0


@pytest.mark.parametrize(
    "result", [object(), math.nan, {1: 2, "1": 3}], ids=["an object", "nan", "doubled names"]
)
def test_a_result_that_cannot_be_written_is_not_run_again(result):
    outcome = verdict.of_result(a_grabbed(), a_handler(retry=Retry(attempts=5)), result)

    assert outcome.event is Event.PARKED
    assert outcome.error.startswith("the handler ran, but its result")
