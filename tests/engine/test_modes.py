"""Where handlers run: on the loop, in threads, in processes, in batches."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from random import Random

import pytest

from conditions import until
from engine import in_processes
from engine.in_processes import own
from holdfast import Again, FixedSlots, Retry, State, current_task
from holdfast.errors import TaskNotDone
from holdfast.telemetry.events import AttemptFailed, TaskGrabbed, TaskSettled
from holdfast.testing.faults import FaultyStore


async def test_a_handler_knows_its_own_task(app):
    seen = []

    @app.task(queue="mail", priority=3)
    async def look() -> None:
        seen.append(current_task())

    handle = await look.options(
        metadata={"note": 1}, traceparent="00-1", ordering_key="o", fairness_key="f"
    ).enqueue()
    async with app.node() as node:
        await node.drained(10)

    (current,) = seen
    assert (current.id, current.version, current.attempt, current.deliveries) == (
        handle.id,
        2,
        1,
        1,
    )
    assert (current.kind, current.queue, current.priority) == ("look", "mail", 3)
    assert (current.key, current.fairness_key) == ("o", "f")
    assert current.metadata == {"note": 1, "traceparent": "00-1"}
    assert current.enqueued_at == (await handle.task()).enqueued_at
    with pytest.raises(LookupError):
        current_task()


async def test_a_sync_handler_runs_in_a_thread_and_knows_its_task(app):
    @app.task
    def work() -> tuple[bool, int]:
        return threading.current_thread() is threading.main_thread(), current_task().id

    async with app.node():
        handle = await work.enqueue()

        assert await handle.result(timeout=10) == (False, handle.id)


# ── time limits ───────────────────────────────────────────────────────────────────────────


@pytest.mark.req("TASK-88")
async def test_after_a_time_limit_the_engine_settles_retries_and_goes_on(app, heard):
    """The deadline of an attempt does not break the engine's own store work after it."""

    @app.task(time_limit=0.05, retry=Retry(attempts=2, delay=0.01))
    async def slow() -> None:
        await asyncio.Event().wait()

    @app.task
    async def quick() -> str:
        return "fine"

    async with app.node() as node:
        handle = await slow.enqueue()
        with pytest.raises(TaskNotDone, match=r"time limit of 0\.05 s"):
            await handle.result(timeout=10)
        await until(lambda: node.in_flight == 0)

        assert len(heard.all(AttemptFailed)) == 2
        assert await (await quick.enqueue()).result(timeout=10) == "fine"


async def test_an_overdue_thread_is_recorded_at_once_and_keeps_its_slot_until_it_returns(app):
    let_go = threading.Event()

    @app.task(time_limit=0.05)
    def slow() -> None:
        let_go.wait(20)

    async with app.node(slots_threads=1) as node:
        try:
            handle = await slow.enqueue()
            with pytest.raises(TaskNotDone, match="time limit"):
                await handle.result(timeout=10)

            assert node.in_flight == 1
        finally:
            let_go.set()
        await until(lambda: node.in_flight == 0)


class SlowToSettle(FaultyStore):
    """Outcomes reach the store only when they may."""

    may_settle = asyncio.Event()

    async def settle(self, *args, **options):
        await self.may_settle.wait()
        return await self.real.settle(*args, **options)


@pytest.mark.req("TASK-88")
async def test_an_overdue_thread_that_returned_keeps_its_slot_until_its_outcome_is_recorded(
    make_app,
):
    """In the store its task is still running: limits over all nodes count it."""
    may_settle = SlowToSettle.may_settle = asyncio.Event()
    app = await make_app(wrap_store=lambda store: SlowToSettle(store, rng=Random(1)))
    returned = threading.Event()

    @app.task(time_limit=0.05, retry=Retry(attempts=1))
    def slow() -> None:
        time.sleep(0.2)
        returned.set()

    async with app.node(slots_threads=1) as node:
        await slow.enqueue()
        await until(returned.is_set)
        await asyncio.sleep(0.1)

        assert node.in_flight == 1
        may_settle.set()
        await until(lambda: node.in_flight == 0)


async def test_a_retry_never_overlaps_the_overdue_thread_before_it(app):
    let_go = threading.Event()
    running, most = 0, 0
    guard = threading.Lock()

    @app.task(time_limit=0.05, retry=Retry(attempts=2, delay=0))
    def slow() -> str:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        if current_task().attempt == 1:
            let_go.wait(20)
        with guard:
            running -= 1
        return "second"

    @app.task
    def other() -> str:
        return "meanwhile"

    async with app.node(slots_threads=4) as node:
        handle = await slow.enqueue()
        async with asyncio.timeout(10):
            while await handle.state() is not State.SUBMITTED:
                await asyncio.sleep(0.01)
        assert await (await other.enqueue()).result(timeout=10) == "meanwhile"
        let_go.set()

        assert await handle.result(timeout=10) == "second"
        assert most == 1
        await node.drained(10)


# ── processes ─────────────────────────────────────────────────────────────────────────────


async def test_a_process_handler_runs_in_another_process_and_knows_its_task(app):
    pid, note = own(app, in_processes.pid), own(app, in_processes.attempt_and_note)
    async with app.node(slots_processes=1):
        elsewhere = await (await pid.enqueue()).result(timeout=30)
        again = await (await pid.enqueue()).result(timeout=30)
        noted = await note.options(metadata={"note": "n"}).enqueue()

        assert elsewhere != os.getpid()
        assert again == elsewhere  # it is kept
        assert await noted.result(timeout=30) == (1, "n")


async def test_a_killed_process_takes_only_its_own_attempt(app):
    die, pid = own(app, in_processes.die), own(app, in_processes.pid)
    async with app.node(slots_processes=1) as node:
        killed = await die.enqueue()
        with pytest.raises(TaskNotDone, match=r"SIGKILL, peak memory (at most )?\d+ MB"):
            await killed.result(timeout=30)

        assert await (await pid.enqueue()).result(timeout=30) != os.getpid()
        await until(lambda: node.in_flight == 0)


async def test_a_process_that_overruns_its_time_limit_is_killed(app):
    hang, pid = own(app, in_processes.hang, time_limit=0.1), own(app, in_processes.pid)
    async with app.node(slots_processes=1) as node:
        handle = await hang.enqueue()
        with pytest.raises(TaskNotDone, match="its process was killed"):
            await handle.result(timeout=30)

        assert await (await pid.enqueue()).result(timeout=30) != os.getpid()
        await until(lambda: node.in_flight == 0)


async def test_what_a_process_handler_says_and_raises_reaches_the_node(app):
    give_up_on = (in_processes.Odd,)
    say = own(app, in_processes.say, retry=Retry(attempts=1, give_up_on=give_up_on))
    async with app.node(slots_processes=1) as node:
        handles = {
            what: await say.enqueue(what) for what in ("odd", "give up", "after", "again", "gone")
        }
        await node.drained(60)

    assert await handles["after"].result() == "after 1"
    assert await handles["again"].result() == "again 1"
    odd = await handles["odd"].task()
    assert odd.state is State.FAILED  # by its class, which the policy of the node names
    assert "1 and 2" in odd.error and "in say" in odd.error
    assert await handles["give up"].state() is State.FAILED
    assert len(await (await app.store()).get([handles["gone"].id])) == 0


async def test_a_process_handler_that_a_child_cannot_find_says_what_to_do(app):
    def hidden() -> None: ...

    task = app.task(mode="process")(hidden)
    async with app.node(slots_processes=1):
        handle = await task.enqueue()

        with pytest.raises(TaskNotDone, match="at the top of its module"):
            await handle.result(timeout=30)


# ── batches ───────────────────────────────────────────────────────────────────────────────


async def test_a_batch_handler_takes_many_tasks_in_one_call(app):
    calls: list[list[int]] = []

    @app.batch_task(max=10)
    async def add(numbers: list[int]) -> None:
        calls.append(numbers)

    handles = await add.enqueue_many([(number,) for number in range(25)])
    async with app.node() as node:
        await node.drained(10)

    assert sorted(number for call in calls for number in call) == list(range(25))
    assert max(len(call) for call in calls) <= 10
    assert {await handle.state() for handle in handles} == {State.DONE}


async def test_a_batch_handler_is_not_taken_for_the_attempt_whose_end_made_room(app):
    current = []

    @app.batch_task(max=10)
    async def work(numbers: list[int]) -> None:
        try:
            current.append(current_task().kind)
        except LookupError:
            current.append(None)

    @app.task
    async def first() -> None:
        await work.enqueue(1)

    await first.enqueue()
    async with app.node(booking=FixedSlots(1)) as node:
        await node.drained(10)

    assert current == [None]


async def test_when_a_batch_raises_all_its_tasks_have_failed_and_are_retried(app):
    calls: list[list[int]] = []

    @app.batch_task(max=10, retry=Retry(attempts=2, delay=0), time_limit=5)
    async def add(numbers: list[int]) -> None:
        calls.append(numbers)
        if len(calls) == 1:
            raise ConnectionError("once")

    handles = await add.enqueue_many([(1,), (2,), (3,)])
    async with app.node() as node:
        await node.drained(10)

    assert sorted(calls[0]) == sorted(number for call in calls[1:] for number in call)
    tasks = [await handle.task() for handle in handles]
    assert {(task.state, task.attempts) for task in tasks} == {(State.DONE, 1)}


async def test_a_batch_may_ask_to_be_repeated(app):
    calls = 0

    @app.batch_task(max=10)
    async def add(numbers: list[int]) -> None:
        nonlocal calls
        calls += 1
        return Again() if calls == 1 else None  # type: ignore[return-value]

    await add.enqueue_many([(1,), (2,)])
    async with app.node() as node:
        await node.drained(10)

    assert calls == 2


async def test_cancelling_one_task_of_a_batch_leaves_the_others_alone(app, heard):
    let_go = asyncio.Event()

    @app.batch_task(max=10)
    async def add(numbers: list[int]) -> None:
        await let_go.wait()

    handles = await add.enqueue_many([(1,), (2,), (3,)])
    async with app.node() as node:
        await heard.until(TaskGrabbed, count=3)
        await handles[0].cancel()
        let_go.set()
        await node.drained(10)

    assert [await handle.state() for handle in handles] == [
        State.CANCELLED,
        State.DONE,
        State.DONE,
    ]
    assert {event.task for event in heard.all(TaskSettled)} == {h.id for h in handles[1:]}


async def test_a_repeated_task_keeps_the_weight_of_its_key(app):
    calls = 0

    @app.task
    async def poll() -> None:
        nonlocal calls
        calls += 1
        return Again() if calls == 1 else None  # type: ignore[return-value]

    async with app.node() as node:
        bus, published = node._bus, []
        publish = bus.publish
        bus.publish = lambda triggers: (published.extend(triggers), publish(triggers))
        await poll.options(fairness_key="acme", weight=2.5).enqueue()
        await node.drained(10)

    assert [(t.version, t.fairness_key, t.weight) for t in published][-1] == (3, "acme", 2.5)
