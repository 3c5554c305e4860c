"""From the enqueue to the end: kinds, queues, keys, payloads, priorities, shutdown."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast.node.node
from conditions import until
from holdfast import Again, FixedSlots, Retry, State, current_task
from holdfast.dispatch.limits import Limits
from holdfast.errors import ConfigurationError, StoreUnavailable, UnknownQueue
from holdfast.store import Filter
from holdfast.telemetry.events import TaskEnqueued, TaskGrabbed, TriggersPublished

MEGABYTE = 1024 * 1024


class Listening:
    """The real bus, with a look at the store when a trigger is published."""

    def __init__(self, bus, published) -> None:
        self._bus = bus
        self._published = published

    def __getattr__(self, name):
        return getattr(self._bus, name)

    def publish(self, triggers):
        self._published.extend(triggers)
        self._bus.publish(triggers)


class Committed:
    """The real store, which says when an insert of its own was committed."""

    def __init__(self, store, log) -> None:
        self._store = store
        self._log = log

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def enqueue(self, tasks):
        assert not self._log, "nothing is triggered before the commit"
        enqueued = await self._store.enqueue(tasks)
        self._log.append("committed")
        return enqueued


@pytest.mark.req("TASK-12")
async def test_a_task_added_outside_a_transaction_gets_one_and_is_triggered_after_it(make_app):
    log: list = []
    app = await make_app(
        wrap_store=lambda store: Committed(store, log),
        wrap_bus=lambda bus: Listening(bus, log),
    )

    @app.task
    async def work() -> None: ...

    handle = await work.enqueue()

    assert await handle.state() is State.SUBMITTED  # committed: another connection sees it
    committed, trigger = log
    assert committed == "committed"
    assert (trigger.id, trigger.version) == (handle.id, 1)
    async with app.node(duties=False):
        assert await handle.result(timeout=4) is None


@pytest.mark.req("TASK-38")
async def test_after_one_hit_the_search_starts_again_from_the_top(app):
    """Each task is handed to a thread at once; the next search sees what has come meanwhile."""
    order: list[str] = []
    gates = {name: threading.Event() for name in ("first", "second")}

    @app.task
    def work(name: str) -> str:
        order.append(name)
        if name in gates:
            gates[name].wait(20)
        return threading.current_thread().name

    async with app.node(slots_threads=1) as node:
        first = await work.options(priority=5).enqueue("first")
        await until(lambda: order == ["first"])
        await work.options(priority=7).enqueue("last")
        await work.options(priority=5).enqueue("second")
        await until(lambda: node.looked_ahead == 2)
        gates["first"].set()
        await until(lambda: order == ["first", "second"])  # one hit: the slot is full again
        await work.options(priority=0).enqueue("urgent")  # came after "last", starts before it
        await until(lambda: node.looked_ahead == 2)
        gates["second"].set()
        await node.drained(10)

    assert order == ["first", "second", "urgent", "last"]
    assert (await first.result()).startswith("holdfast-handler")


@pytest.mark.req("TASK-65")
async def test_two_handlers_for_one_kind_are_a_configuration_error_at_the_start(app):
    @app.task(name="mail")
    async def one() -> None: ...

    with pytest.raises(ConfigurationError, match="two handlers for kind 'mail'"):

        @app.task(name="mail", queue="elsewhere")
        async def two() -> None: ...


@pytest.mark.req("TASK-65")
async def test_an_unknown_queue_is_an_error_that_names_the_nearest(app):
    @app.task(queue="mails")
    async def work() -> None: ...

    with pytest.raises(UnknownQueue, match="did you mean 'mails'"):
        async with app.node(["mail"]):
            pass
    with pytest.raises(UnknownQueue, match="did you mean 'mails'"):
        await work.options(queue="mail").enqueue()
    assert sum((await (await app.store()).counts()).values()) == 0


@pytest.mark.req("TASK-65", "TASK-34")
async def test_without_a_handler_a_task_goes_to_error_after_a_wait_that_can_be_set(make_app):
    producer, consumer = await make_app(), await make_app()
    assert consumer.config.node.unknown_kind_wait_s == 300  # five minutes by default

    @producer.task(name="new_kind")
    async def new_kind() -> None: ...

    @consumer.task(name="old_kind")
    async def old_kind() -> str:
        return "runs on"

    handles = await new_kind.enqueue_many([()] * 3)
    async with consumer.node(unknown_kind_wait_s=0.3, tick_s=0.05) as node:
        started = asyncio.get_running_loop().time()
        assert await (await old_kind.enqueue()).result(timeout=10) == "runs on"
        async with asyncio.timeout(10):
            while {await handle.state() for handle in handles} != {State.ERROR}:
                await asyncio.sleep(0.01)
        waited_s = asyncio.get_running_loop().time() - started
        await until(lambda: node.is_idle)

        assert waited_s >= 0.25
        assert (node.in_flight, node.looked_ahead) == (0, 0)
        assert (
            "no node that serves queue 'default' has a handler" in (await handles[0].task()).error
        )


@pytest.mark.req("TASK-34")
async def test_a_booking_policy_that_raises_harms_only_its_own_kind(app):
    class Wrong:
        def book(self, trigger, *, now):
            if trigger.kind == "wrong":
                raise ZeroDivisionError("in the policy")

        def free(self, trigger):
            pass

    @app.task
    async def wrong() -> None: ...

    @app.task
    async def right() -> str:
        return "fine"

    async with app.node(booking=Wrong()) as node:
        bad = await wrong.options(priority=0).enqueue()

        assert await (await right.enqueue()).result(timeout=10) == "fine"
        async with asyncio.timeout(10):
            while await bad.state() is not State.ERROR:
                await asyncio.sleep(0.01)
        await until(lambda: node.is_idle)
        assert (node.in_flight, node.looked_ahead) == (0, 0)


@pytest.mark.req("TASK-77")
@pytest.mark.parametrize("how", ["unique", "external_id"])
def test_500_keys_twice_from_10_threads_give_500_attempts_and_500_duplicates(store_url, how):
    from holdfast.testing.apps import fresh, migrate

    asyncio.run(migrate(store_url))
    app = fresh(store_url)
    ran: list[int] = []

    @app.task
    async def work(number: int) -> None:
        ran.append(number)

    def add(number: int) -> bool:
        return work.options(**{how: f"key {number}"}).enqueue_sync(number).created

    async def drain() -> None:
        async with app.node() as node:
            await node.drained(30)
        await app.close()

    try:
        with ThreadPoolExecutor(10) as threads:
            created = list(threads.map(add, [*range(500), *range(500)]))
        asyncio.run(drain())
    finally:
        app.close_sync()

    assert (created.count(True), created.count(False)) == (500, 500)
    assert sorted(ran) == list(range(500))


@pytest.mark.req("TASK-81")
async def test_priorities_are_clamped_and_the_lower_number_goes_first(app):
    order: list[str] = []

    @app.task
    async def work(name: str) -> None:
        order.append(name)

    @app.task(priority=-7)
    async def urgent() -> None:
        order.append("urgent")

    given = {"low": 99, "nine": 9, "default": None, "four": 4, "zero": 0, "high": -3}
    handles = {}
    for name, priority in given.items():
        handles[name] = await work.options(priority=priority).enqueue(name)
    first = await urgent.enqueue()
    async with app.node(booking=FixedSlots(1), order="arrival") as node:
        await node.drained(10)

    stored = {name: (await handle.task()).priority for name, handle in handles.items()}
    assert stored == {"low": 9, "nine": 9, "default": 5, "four": 4, "zero": 0, "high": 0}
    assert (await first.task()).priority == 0
    assert order == ["zero", "high", "urgent", "four", "default", "low", "nine"]


@pytest.mark.req("TASK-85")
@pytest.mark.parametrize("content", ["text", "noise"])
async def test_a_payload_of_11_megabytes_works(app, content):
    text = "holdfast" * (11 * MEGABYTE // 8)
    if content == "noise":  # nothing that a compressor could use
        text = os.urandom(11 * MEGABYTE * 3 // 8).hex()[: 11 * MEGABYTE * 3 // 4]
        text += os.urandom(11 * MEGABYTE // 8).hex()
    assert len(text) >= 11 * MEGABYTE

    @app.task
    async def work(text: str) -> tuple[int, int]:
        return len(text), hash(text)

    async with app.node():
        handle = await work.enqueue(text)

        assert await handle.result(timeout=60) == (len(text), hash(text))


@pytest.mark.req("TASK-86")
async def test_a_graceful_shutdown_finishes_what_runs_and_leaves_the_rest_to_others(make_app):
    app = await make_app()
    let_go, started, finished = asyncio.Event(), [], []
    slots = FixedSlots(2)

    @app.task
    async def work(number: int) -> None:
        started.append((number, current_task().attempt))
        if len(started) <= 2:
            await let_go.wait()
        finished.append(number)

    handles = await work.enqueue_many([(number,) for number in range(6)])
    async with app.node(booking=slots, tick_s=0.1) as first:
        await until(lambda: len(started) == 2)
        stopping = asyncio.get_running_loop().call_later(0.2, let_go.set)
    # The block is left: the two that ran have finished, and nothing new was grabbed.
    assert stopping.when() <= asyncio.get_running_loop().time()
    assert (len(started), len(finished), first.in_flight) == (2, 2, 0)
    states = [await handle.state() for handle in handles]
    assert sorted(state.name for state in states) == ["DONE"] * 2 + ["SUBMITTED"] * 4

    async with app.node() as second:
        await second.drained(10)
    assert sorted(finished) == list(range(6))
    assert {attempt for _, attempt in started} == {1}


@pytest.mark.req("TASK-86")
async def test_what_does_not_end_in_time_is_handed_back_at_once_and_counts_no_failure(app):
    started = []

    @app.task
    async def slow() -> str:
        started.append(current_task().attempt)
        if len(started) == 1:
            await asyncio.Event().wait()
        return "elsewhere"

    async with app.node(drain_s=0.05):
        handle = await slow.enqueue()
        await until(lambda: len(started) == 1)
    task = await handle.task()
    assert (task.state, task.version, task.attempts) == (State.SUBMITTED, 3, 0)

    async with app.node():
        assert await handle.result(timeout=10) == "elsewhere"
    assert started == [1, 1]


class Away:
    """The real store; `fails` names the calls that fail, and `hangs` lets every call wait."""

    def __init__(self, store) -> None:
        self._store = store
        self.fails: set[str] = set()
        self.hangs = False
        self.gone_on = asyncio.Event()

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args, **named):
            if self.hangs:
                await self.gone_on.wait()
            if name in self.fails:
                raise StoreUnavailable(f"the answer of {name} was lost")
            return await found(*args, **named)

        return call

    def come_back(self) -> None:
        self.fails, self.hangs = set(), False
        self.gone_on.set()


@pytest.mark.req("TASK-86")
async def test_a_good_bye_that_fails_takes_no_time_from_the_attempts(make_app):
    stores: list[Away] = []
    app = await make_app(wrap_store=lambda store: stores.append(Away(store)) or stores[-1])
    running = asyncio.Event()

    @app.task
    async def slow() -> str:
        running.set()
        await asyncio.sleep(0.3)
        return "ended"

    async with app.node(drain_s=10):
        handle = await slow.enqueue()
        await running.wait()
        for store in stores:
            store.fails = {"look", "renew", "allot", "end"}
    for store in stores:
        store.come_back()

    assert (await handle.task()).state is State.DONE
    assert await handle.result(timeout=1) == "ended"


@pytest.mark.req("TASK-86")
async def test_with_the_store_away_a_node_that_leaves_stops_its_attempts(make_app, monkeypatch):
    monkeypatch.setattr(holdfast.node.node, "LEAVING_S", 0.3)
    stores: list[Away] = []
    app = await make_app(wrap_store=lambda store: stores.append(Away(store)) or stores[-1])
    running, stopped = asyncio.Event(), []

    @app.task
    async def endless() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)  # it cleans up
            stopped.append(True)
            raise

    try:
        async with app.node(drain_s=0.1):
            handle = await endless.enqueue()
            await running.wait()
            for store in stores:
                store.hangs = True
        assert stopped == [True], "and not when its loop ends"
    finally:
        for store in stores:
            store.come_back()
    task = await until_state(handle, State.SUBMITTED)
    assert task.attempts == 0, "handed back as soon as the store is there again"


async def until_state(handle, state):
    """The task, as soon as it is in this state."""
    async with asyncio.timeout(10):
        while (task := await handle.task()).state is not state:
            await asyncio.sleep(0.02)
    return task


@pytest.mark.req("ALL-6")
async def test_delays_retries_and_repeats_wait_by_one_mechanism_with_one_accuracy(app):
    """All of them are WAITING rows with a due time; how late they start is measured once."""
    loop = asyncio.get_running_loop()
    due: dict[str, float] = {}
    late: dict[str, float] = {}
    waiting: list[tuple[str, State, bool]] = []

    def arrived(name: str) -> None:
        late[name] = loop.time() - due[name]

    @app.task(retry=Retry(attempts=2, delay=0.3))
    async def retried() -> None:
        if current_task().attempt == 1:
            due["retry"] = loop.time() + 0.3
            raise ValueError
        arrived("retry")

    @app.task
    async def repeated() -> Again | None:
        if current_task().deliveries == 1:
            due["repeat"] = loop.time() + 0.3
            return Again(delay=0.3)
        arrived("repeat")
        return None

    @app.task
    async def delayed() -> None:
        arrived("delay")

    async with app.node() as node:
        handles = [await retried.enqueue(), await repeated.enqueue()]
        due["delay"] = loop.time() + 0.3
        handles.append(await delayed.options(delay=0.3).enqueue())
        await until(lambda: len(due) == 3)
        async with asyncio.timeout(5):
            while len(waiting) < 3 and not late:
                tasks = [await handle.task() for handle in handles]
                waiting = [(t.kind, t.state, t.due_at is not None) for t in tasks]
                if any(t.state is not State.WAITING for t in tasks):
                    waiting = []
        await until(lambda: len(late) == 3)
        await node.drained(10)

    assert {row[1:] for row in waiting} == {(State.WAITING, True)}
    for name, lateness in late.items():
        assert -0.01 <= lateness < 1.0, name


async def test_a_waiting_task_runs_with_a_handler_that_gained_a_default(make_app):
    before, after = await make_app(), await make_app()

    @before.task(name="mail")
    async def old(to: str) -> str:
        return to

    @after.task(name="mail")
    async def new(to: str, subject: str = "hello", *, copies: int = 1) -> str:
        return f"{to} {subject} {copies}"

    handle = await old.enqueue("me")
    async with after.node():
        assert await handle.result(timeout=10) == "me hello 1"


async def test_a_task_that_no_longer_fits_goes_to_error_and_names_the_field(make_app):
    before, after = await make_app(), await make_app()

    @before.task(name="mail", retry=Retry(attempts=5, delay=0))
    async def old(to: str) -> None: ...

    @after.task(name="mail", retry=Retry(attempts=5, delay=0))
    async def new(to: int, subject: str) -> None: ...

    handle = await old.enqueue("me")
    async with after.node() as node:
        await node.drained(10)

    task = await handle.task()
    assert (task.state, task.deliveries) == (State.ERROR, 1)  # no retry would make it fit
    assert "$.to" in task.error or "`subject`" in task.error


async def test_events_tell_the_story_of_a_task(app, heard):
    @app.task
    async def work() -> None: ...

    async with app.node() as node:
        handle = await work.enqueue()
        await node.drained(10)

    kinds = [type(event).__name__ for event in heard.heard if getattr(event, "task", 0)]
    assert kinds == ["TaskEnqueued", "TaskGrabbed", "TaskSettled"]
    assert heard.all(TaskEnqueued)[0].task == heard.all(TaskGrabbed)[0].task == handle.id
    assert len(heard.all(TriggersPublished)) <= 1


async def test_a_delayed_task_is_not_waited_for_and_not_run(app):
    @app.task
    async def work() -> None: ...

    handle = await work.options(delay=3600).enqueue()
    async with app.node(limits=Limits(idle_wait_s=1.0)) as node:
        await node.drained(10)

    assert await handle.state() is State.WAITING
    store = await app.store()
    assert len(await store.find(Filter(states=[State.WAITING]))) == 1
