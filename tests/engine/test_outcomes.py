"""What a handler returns or raises is what becomes of its task."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from conditions import until
from holdfast import (
    Again,
    CancelTask,
    GiveUp,
    Gone,
    ParkInError,
    Retry,
    RetryAfter,
    State,
    current_task,
)
from holdfast.errors import DuplicateTask, TaskNotDone, UnknownTask


async def test_a_result_comes_back_as_its_own_type(app):
    @app.task
    async def double(numbers: list[int]) -> dict[str, tuple[int, ...]]:
        return {"doubled": tuple(2 * number for number in numbers)}

    async with app.node():
        handle = await double.enqueue([1, 2])

        assert await handle.result(timeout=10) == {"doubled": (2, 4)}


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (GiveUp("card expired"), State.FAILED),
        (ParkInError("who is this?"), State.ERROR),
        (CancelTask("obsolete"), State.CANCELLED),
        (ValueError("no more attempts"), State.ERROR),
        (SystemExit("a handler is not the program"), State.ERROR),
        (StopIteration("an odd one"), State.ERROR),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
@pytest.mark.parametrize("mode", ["async", "thread"])
async def test_what_a_handler_raises_names_the_end_of_its_task(app, said, state, mode):
    async def speak() -> None:
        raise said

    def speak_in_thread() -> None:
        raise said

    task = app.task(name="speak")(speak if mode == "async" else speak_in_thread)
    async with app.node() as node:
        handle = await task.enqueue()
        with pytest.raises(TaskNotDone) as ended:
            await handle.result(timeout=10)
        await until(lambda: node.in_flight == 0)

        assert await handle.state() is state
        assert str(said) in ended.value.error


@pytest.mark.req("TASK-79")
async def test_retries_wait_twice_as_long_each_time_and_end_in_error(app):
    started: list[float] = []

    @app.task(retry=Retry(attempts=4, delay=0.1, factor=2.0, delay_max=0.3))
    async def fail() -> None:
        started.append(asyncio.get_running_loop().time())
        raise ConnectionError(f"attempt {current_task().attempt}")

    async with app.node() as node:
        handle = await fail.enqueue()
        await until(lambda: len(started) == 4)
        await node.drained(10)

    waits = [after - before for before, after in pairwise(started)]
    for wait, expected in zip(waits, [0.1, 0.2, 0.3], strict=True):  # the third is capped
        assert expected - 0.01 <= wait < expected + 1.0
    task = await handle.task()
    assert (task.state, task.attempts, len(started)) == (State.ERROR, 4, 4)
    assert "attempt 4" in task.error


@pytest.mark.req("TASK-79")
async def test_without_a_retry_time_a_failed_task_goes_to_error(app):
    class Never:
        def delay_s(self, error, *, attempt, rng):
            return None

        def gives_up(self, error):
            return False

    @app.task(retry=Never())
    async def fail() -> None:
        raise ValueError

    async with app.node() as node:
        handle = await fail.enqueue()
        await until(lambda: node.is_idle)
        await node.drained(10)

        assert await handle.state() is State.ERROR


async def test_only_errors_of_the_named_types_are_retried_and_some_give_up_at_once(app):
    ran: list[str] = []

    @app.task(retry=Retry(attempts=3, delay=0, on=(OSError,), give_up_on=(PermissionError,)))
    async def fail(how: str) -> None:
        ran.append(how)
        raise {"os": OSError, "value": ValueError, "permission": PermissionError}[how](how)

    async with app.node() as node:
        handles = [await fail.enqueue(how) for how in ("os", "value", "permission")]
        await node.drained(10)

    assert [await handle.state() for handle in handles] == [
        State.ERROR,
        State.ERROR,
        State.FAILED,
    ]
    assert sorted(ran) == ["os", "os", "os", "permission", "value"]


@pytest.mark.req("TASK-80")
async def test_commit_and_retry_repeats_the_task_and_may_reset_its_attempts(app):
    seen: list[tuple[int, int]] = []

    @app.task(retry=Retry(attempts=3, delay=0))
    async def work(reset: bool) -> str | Again:
        seen.append((current_task().deliveries, current_task().attempt))
        if len(seen) == 1:
            raise ConnectionError("once")
        return Again(reset_attempts=reset) if len(seen) == 2 else "done"

    for reset, attempt in ((False, 2), (True, 1)):
        seen.clear()
        async with app.node():
            handle = await work.enqueue(reset)

            assert await handle.result(timeout=10) == "done"
        # The failure was attempt 1; the repeat is no failure, and forgets it when asked to.
        assert seen == [(1, 1), (2, 2), (3, attempt)]


@pytest.mark.req("TASK-80")
async def test_a_repeat_waits_for_its_delay(app):
    started: list[float] = []

    @app.task
    async def work() -> Again | None:
        started.append(asyncio.get_running_loop().time())
        return Again(delay=timedelta(seconds=0.2)) if len(started) == 1 else None

    async with app.node() as node:
        handle = await work.enqueue()
        await until(lambda: len(started) == 2)
        await node.drained(10)

    assert started[1] - started[0] >= 0.19
    assert await handle.state() is State.DONE


@pytest.mark.req("TASK-80")
async def test_done_and_delete_leaves_no_row(app):
    @app.task
    async def vanish() -> Gone:
        return Gone()

    async with app.node() as node:
        handle = await vanish.enqueue()
        await until(lambda: node.in_flight == 0)
        await node.drained(10)

    with pytest.raises(UnknownTask):
        await handle.task()
    assert sum((await (await app.store()).counts()).values()) == 0


async def test_a_handler_may_choose_its_own_retry_that_counts_or_does_not(app):
    attempts: list[int] = []

    @app.task
    async def later() -> str:
        attempts.append(current_task().attempt)
        if len(attempts) < 3:
            raise RetryAfter(0.01, "busy", counts=len(attempts) == 1)
        return "at last"

    async with app.node():
        handle = await later.enqueue()

        assert await handle.result(timeout=10) == "at last"
    assert attempts == [1, 2, 2]


async def test_a_result_that_cannot_be_written_parks_the_task_and_says_so(app):
    @app.task
    async def strange() -> object:
        return float("nan")

    async with app.node() as node:
        handle = await strange.enqueue()
        await node.drained(10)

        assert await handle.state() is State.ERROR
        assert "the handler ran, but its result" in (await handle.task()).error


async def test_an_error_text_that_no_database_takes_is_recorded_all_the_same(app):
    @app.task
    async def odd(which: int) -> str:
        if which == 0:
            raise ValueError("a NUL \0, half a character \ud800, postgresql://me:secret@host/db")
        return "fine"

    async with app.node() as node:
        handles = [await odd.enqueue(which) for which in (0, 1)]

        assert await handles[1].result(timeout=10) == "fine"
        await node.drained(10)
        error = (await handles[0].task()).error
        assert "a NUL \\0" in error
        assert "secret" not in error


async def test_a_cancellation_of_the_handlers_own_making_is_a_failure_not_a_repeat(app):
    ran = 0

    @app.task
    async def confused() -> None:
        nonlocal ran
        ran += 1
        raise asyncio.CancelledError

    async with app.node() as node:
        handle = await confused.enqueue()
        await node.drained(10)

        assert (await handle.state(), ran) == (State.ERROR, 1)


async def test_a_policy_that_raises_parks_the_task_and_frees_its_slot(app):
    class Broken:
        def delay_s(self, error, *, attempt, rng):
            raise ZeroDivisionError("in the policy")

        def gives_up(self, error):
            return False

    @app.task(retry=Broken())
    async def fail() -> None:
        raise ValueError("in the handler")

    async with app.node() as node:
        handle = await fail.enqueue()
        await node.drained(10)

        task = await handle.task()
        assert task.state is State.ERROR
        assert "in the handler" in task.error and "in the policy" in task.error
        assert node.in_flight == 0


async def test_a_duplicate_names_the_task_that_has_the_key(app):
    @app.task
    async def work() -> None: ...

    first = await work.options(unique="k").enqueue()
    second = await work.options(unique="k").enqueue()
    with pytest.raises(DuplicateTask) as refused:
        await work.options(unique="k", on_duplicate="error").enqueue()

    assert (second.id, second.created) == (first.id, False)
    assert refused.value.existing == first.id
