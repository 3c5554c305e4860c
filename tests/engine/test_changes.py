"""People's wishes: cancel, resume, reschedule, give up; each at a version and an allowed state."""

from __future__ import annotations

import asyncio
import threading

import pytest

from conditions import until
from engine import in_processes
from engine.in_processes import own
from holdfast import Answer, ParkInError, Retry, State
from holdfast.store import Change, Filter, Record
from holdfast.task import MOVES, Event, Outcome, TaskId
from holdfast.telemetry.events import TaskGrabbed, TaskSettled


async def states_of(handles) -> list[State]:
    return [await handle.state() for handle in handles]


@pytest.mark.req("TASK-16")
async def test_every_move_raises_the_version_by_one(app):
    """Through the public API: each move of a task's life, and the version after it."""
    client, versions = await app.client(), []

    @app.task(retry=Retry(attempts=2, delay=3600))
    async def work(fails: bool) -> None:
        if fails:
            raise ValueError

    handle = await work.options(delay=3600).enqueue(True)

    async def note(answer: Answer | None = None) -> None:
        assert answer in (None, Answer.OK)
        task = await handle.task()
        versions.append((task.state.name, task.version))

    await note()
    await note(await client.reschedule(handle.id, delay_s=7200))
    await note(await client.resume(handle.id))
    async with app.node() as node:
        # Grabbed and retried: two moves.
        await until(lambda: node.in_flight == 0)
        async with asyncio.timeout(10):
            while await handle.state() is not State.WAITING:
                await asyncio.sleep(0.01)
        await note()
        # Submitted, grabbed and parked: three.
        await client.resume(handle.id)
        async with asyncio.timeout(10):
            while await handle.state() is not State.ERROR:
                await asyncio.sleep(0.01)
        await note()
    await note(await client.give_up(handle.id))

    assert versions == [
        ("WAITING", 1),
        ("WAITING", 2),
        ("SUBMITTED", 3),
        ("WAITING", 5),
        ("ERROR", 8),
        ("FAILED", 9),
    ]


@pytest.mark.req("TASK-16", "TASK-82")
async def test_a_stale_version_is_refused_by_every_wish(app):
    client = await app.client()

    @app.task
    async def work() -> None: ...

    handle = await work.options(delay=3600).enqueue()
    assert await client.reschedule(handle.id, delay_s=3600, version=1) is Answer.OK

    assert await client.cancel(handle.id, version=1) is Answer.FAILED
    assert await client.resume(handle.id, version=1, force=True) is Answer.FAILED
    assert await client.reschedule(handle.id, delay_s=1, version=1) is Answer.FAILED
    assert await client.give_up(handle.id, version=1) is Answer.FAILED
    task = await handle.task()
    assert (task.state, task.version) == (State.WAITING, 2)


@pytest.mark.req("TASK-82")
async def test_a_wish_needs_a_task_and_an_allowed_state(app, heard):
    client, let_go = await app.client(), asyncio.Event()

    @app.task
    async def work() -> None:
        await let_go.wait()

    handle = await work.enqueue()
    assert await client.resume(handle.id) is Answer.NOT_ALLOWED  # SUBMITTED already
    assert await client.cancel(TaskId(handle.id + 1)) is Answer.NOT_FOUND
    assert await client.resume(TaskId(handle.id + 1)) is Answer.NOT_FOUND
    assert await client.reschedule(TaskId(handle.id + 1), delay_s=1) is Answer.NOT_FOUND
    async with app.node() as node:
        await heard.until(TaskGrabbed)
        assert await client.resume(handle.id, version=2) is Answer.NOT_ALLOWED  # without force
        assert await client.reschedule(handle.id, delay_s=1, version=2) is Answer.NOT_ALLOWED
        let_go.set()
        await node.drained(10)

    assert await handle.state() is State.DONE
    for wish in (client.cancel, client.resume, client.give_up):
        assert await wish(handle.id, version=3) is Answer.NOT_ALLOWED


@pytest.mark.req("TASK-82")
async def test_with_force_a_running_task_is_resumed_and_runs_again(app, heard):
    client, started = await app.client(), []

    @app.task
    async def work() -> str:
        started.append(1)
        if len(started) == 1:
            await asyncio.Event().wait()
        return "second"

    async with app.node() as node:
        handle = await work.enqueue()
        await heard.until(TaskGrabbed)
        assert await client.resume(handle.id, version=2, force=True) is Answer.OK

        assert await handle.result(timeout=10) == "second"
        await until(lambda: node.in_flight == 0)


@pytest.mark.req("TASK-83")
async def test_operators_resume_one_or_all_of_a_kind_and_give_up_others(app):
    client, store = await app.client(), await app.store()
    healed = False

    def broken(kind: str):
        @app.task(name=kind)
        async def work() -> None:
            if not healed:
                raise ParkInError(kind)

        return work

    mail, pay = broken("mail"), broken("pay")
    mails = await mail.enqueue_many([()] * 5)
    pays = await pay.enqueue_many([()] * 3)
    async with app.node() as node:
        await node.drained(10)
        assert set(await states_of(mails + pays)) == {State.ERROR}
        healed = True

        assert await client.give_up(pays[0].id) is Answer.OK  # marked failed
        assert await client.resume(pays[1].id) is Answer.OK  # one
        found = await store.find(Filter(states=[State.ERROR], kinds=["mail"]))
        changed = await client.change([Change(task.id, Event.RESUMED) for task in found])
        assert [done.answer for done in changed] == [Answer.OK] * 5  # all of a kind
        await node.drained(10)

    assert await states_of(mails) == [State.DONE] * 5
    assert await states_of(pays) == [State.FAILED, State.DONE, State.ERROR]


@pytest.mark.req("TASK-83")
async def test_operators_list_tasks_by_several_values_with_a_limit(app):
    store = await app.store()

    def parking(kind: str, queue: str):
        @app.task(name=kind, queue=queue)
        async def work() -> None:
            raise ParkInError

        return work

    kinds = [parking("a", "q1"), parking("b", "q1"), parking("c", "q2")]
    errors = [handle for kind in kinds for handle in await kind.enqueue_many([()] * 4)]
    async with app.node() as node:
        await node.drained(10)
    waiting = [await kind.options(delay=60, fairness_key="t").enqueue() for kind in kinds]

    async def ids(**asked) -> list[int]:
        return [task.id for task in await store.find(Filter(**asked))]

    everything = sorted(handle.id for handle in errors + waiting)
    in_error = [handle.id for handle in errors]
    assert await ids(states=[State.ERROR]) == in_error
    assert await ids(states=[State.ERROR, State.WAITING]) == everything
    assert await ids(states=[State.ERROR], kinds=["a", "c"]) == in_error[:4] + in_error[8:]
    assert await ids(queues=["q2"], states=[State.WAITING]) == [waiting[2].id]
    assert await ids(fairness_keys=["t", "u"]) == [handle.id for handle in waiting]
    first = await ids(states=[State.ERROR], limit=5)
    rest = await ids(states=[State.ERROR], after=TaskId(first[-1]), limit=100)
    assert (first, rest) == (in_error[:5], in_error[5:])


@pytest.mark.req("TASK-83")
async def test_operators_see_which_running_tasks_are_stuck(app, clock, heard):
    store, let_go = await app.store(), asyncio.Event()

    @app.task(deadline=0.05)
    async def stuck() -> None:
        await let_go.wait()

    @app.task(deadline=3600)
    async def slow() -> None:
        await let_go.wait()

    async def past_their_deadline() -> list[int]:
        running = await store.find(Filter(states=[State.PROCESSING], kinds=["stuck", "slow"]))
        return [task.id for task in running if task.deadline_at < clock.now()]

    async with app.node() as node:
        late, _ = await stuck.enqueue(), await slow.enqueue()
        await heard.until(TaskGrabbed, count=2)
        async with asyncio.timeout(5):
            while await past_their_deadline() != [late.id]:
                await asyncio.sleep(0.01)
        let_go.set()
        await node.drained(10)


@pytest.mark.parametrize("mode", ["async", "thread", "process"])
async def test_cancelling_a_running_task_stops_it_and_frees_its_slot(app, heard, mode):
    stopped, let_go = [], threading.Event()

    async def on_the_loop() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("async")

    def in_a_thread() -> None:
        let_go.wait(20)
        stopped.append("thread")

    if mode == "process":
        task = own(app, in_processes.hang)
    else:
        task = app.task(name="work")(on_the_loop if mode == "async" else in_a_thread)
    async with app.node(slots_processes=1) as node:
        handle = await task.enqueue()
        await heard.until(TaskGrabbed)

        assert await handle.cancel() is Answer.OK
        assert await handle.state() is State.CANCELLED
        let_go.set()  # a thread cannot be stopped: it keeps its slot until it returns
        await until(lambda: node.in_flight == 0)
        await node.drained(10)

    assert await handle.state() is State.CANCELLED
    assert stopped == ([] if mode == "process" else [mode])
    assert heard.all(TaskSettled) == []


@pytest.mark.req("ALL-5")
async def test_the_grabbed_version_fences_every_write_of_a_node_that_lost_its_task(app, heard):
    store = await app.store()
    let_go = asyncio.Event()

    @app.task
    async def work() -> None:
        await let_go.wait()

    async with app.node() as node:
        handle = await work.enqueue()
        await heard.until(TaskGrabbed)
        # Every outcome that an old holder could record, at the version before the grab.
        outcomes = [e for (state, e) in MOVES if state is State.PROCESSING]
        settled = {Event.SUCCEEDED, Event.RETRIED, Event.REPEATED, Event.PARKED}
        settled |= {Event.GIVEN_UP, Event.CANCELLED}
        for event in settled & set(outcomes):
            assert await store.settle([Outcome(handle.id, 1, event)], node=node.id) == [False]
        assert await store.park({handle.id: 1}, "late") == []
        task = await handle.task()
        assert (task.state, task.version) == (State.PROCESSING, 2)
        let_go.set()
        await node.drained(10)

        assert await handle.state() is State.DONE


@pytest.mark.req("ALL-5")
async def test_the_epoch_fences_every_backlog_write_of_an_old_owner(app):
    store = await app.store()

    @app.task
    async def work() -> None: ...

    async with app.node() as node:
        await until(lambda: node.is_idle)
        holdings = await store.holdings("default")
        mine = [held for held in holdings if held.owner == node.id]
        old = [Record(partition=held.partition, epoch=held.epoch - 1) for held in mine]

        assert mine
        assert await store.record("default", old) == {held.partition for held in mine}
