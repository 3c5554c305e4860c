"""A slot is booked before the grab and freed after the settle, in every ending."""

from __future__ import annotations

import asyncio
import threading
import tomllib

import pytest

from conditions import until
from holdfast import AllOf, FixedSlots, Holdfast, PerKey, PerKind, Retry, State
from holdfast.dispatch.limits import Limits
from holdfast.outcomes import Later
from holdfast.store import Change
from holdfast.task import Event, Trigger
from holdfast.telemetry.events import (
    AttemptFailed,
    BugFound,
    GrabLost,
    SettleRefused,
    StoreFailed,
    TaskGrabbed,
    TaskSettled,
)
from holdfast.testing.recorder import Recorder


class Logged:
    """A booking policy that writes down what it is asked."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def book(self, trigger, *, now):
        self._log.append("book")

    def free(self, trigger):
        self._log.append("free")


class LoggedStore:
    """The real store, with a look at when it is asked to grab and settle."""

    def __init__(self, store, log: list[str]) -> None:
        self._store = store
        self._log = log

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def grab(self, *args, **named):
        self._log.append("grab")
        return await self._store.grab(*args, **named)

    async def settle(self, *args, **named):
        settled = await self._store.settle(*args, **named)
        self._log.append("settled")
        return settled


class Thief:
    """A store whose tasks are cancelled by somebody else just before each grab."""

    def __init__(self, store) -> None:
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def grab(self, triggers, **named):
        await self._store.change([Change(t.id, Event.CANCELLED) for t in triggers])
        return await self._store.grab(triggers, **named)


class Gauge:
    """How many are in at once, and the most there ever were."""

    def __init__(self) -> None:
        self.now, self.most = 0, 0

    async def stay(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.002)
        self.now -= 1


@pytest.mark.req("TASK-51")
async def test_a_slot_is_booked_before_the_grab_and_freed_after_the_settle(make_app):
    log: list[str] = []
    app = await make_app(wrap_store=lambda store: LoggedStore(store, log))

    @app.task
    async def work() -> None:
        log.append("run")

    async with app.node(booking=Logged(log)) as node:
        await work.enqueue()
        await until(lambda: "free" in log)
        await node.drained(10)

    assert log == ["book", "grab", "run", "settled", "free"]


@pytest.mark.req("TASK-17", "TASK-18")
async def test_a_lost_grab_is_ignored_and_frees_its_slot(make_app):
    app = await make_app(wrap_store=Thief)
    ran, slots = [], FixedSlots(3)

    @app.task
    async def work(number: int) -> None:
        ran.append(number)

    with Recorder(app.events) as heard:
        handles = await work.enqueue_many([(number,) for number in range(10)])
        async with app.node(booking=slots) as node:
            await heard.until(GrabLost, count=10)
            await node.drained(10)
            assert (slots.taken, node.in_flight) == (0, 0)

    assert ran == []
    assert not heard.all(AttemptFailed) + heard.all(BugFound) + heard.all(StoreFailed)
    tasks = [await handle.task() for handle in handles]
    assert {(task.state, task.error) for task in tasks} == {(State.CANCELLED, None)}


@pytest.mark.req("TASK-52")
@pytest.mark.parametrize("ending", ["success", "exception", "time-out", "completion", "lost grab"])
async def test_the_slot_is_freed_in_every_ending(make_app, ending):
    app = await make_app(wrap_store=Thief if ending == "lost grab" else None)
    slots, laters = FixedSlots(2), []

    @app.task(time_limit=0.05 if ending == "time-out" else None)
    async def work() -> Later[None] | None:
        if ending == "exception":
            raise ValueError
        if ending == "time-out":
            await asyncio.Event().wait()
        if ending == "completion":
            laters.append(Later())
            return laters[-1]
        return None

    with Recorder(app.events) as heard:
        async with app.node(booking=slots) as node:
            await asyncio.gather(*(work.enqueue() for _ in range(2)))
            if ending == "completion":
                await until(lambda: len(laters) == 2)
                assert (slots.taken, node.in_flight) == (2, 2)
                assert [later.done() for later in laters] == [True, True]
            await heard.until(GrabLost if ending == "lost grab" else TaskSettled, count=2)
            await node.drained(10)

            assert (slots.taken, node.in_flight) == (0, 0)


class LateTrigger:
    """A store that is asked what is left just as a trigger comes again, long after its task."""

    def __init__(self, store) -> None:
        self._store = store
        self.late = None

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def find(self, filter):
        found = await self._store.find(filter)
        if self.late is not None:
            self.late()
            self.late = None
            await asyncio.sleep(0)  # its slot is booked, its grab under way
        return found


async def test_drained_waits_for_a_trigger_that_came_late_and_for_nothing(make_app):
    stores: list[LateTrigger] = []
    app = await make_app(wrap_store=lambda store: stores.append(LateTrigger(store)) or stores[0])
    slots = FixedSlots(2)

    @app.task
    async def work() -> None:
        pass

    async with app.node(booking=slots) as node:
        handle = await work.enqueue()
        await node.drained(10)
        task = await handle.task()
        trigger = Trigger(task.id, 1, task.queue, 0, task.kind, task.priority)
        stores[0].late = lambda: node._dispatchers[task.queue].hear([trigger])
        await node.drained(10)

        assert stores[0].late is None
        assert (slots.taken, node.in_flight) == (0, 0)


@pytest.mark.req("TASK-60")
@pytest.mark.parametrize("mode", ["async", "thread"])
async def test_a_completion_reported_twice_frees_once_and_settles_once(app, heard, mode):
    laters: list[Later[str]] = []
    slots = FixedSlots(1)

    def work_in_thread() -> Later[str]:
        laters.append(Later())
        return laters[-1]

    async def work() -> Later[str]:
        return work_in_thread()

    task = app.task(name="work")(work if mode == "async" else work_in_thread)
    async with app.node(booking=slots) as node:
        handle = await task.enqueue()
        await until(lambda: len(laters) == 1)
        assert await handle.state() is State.PROCESSING
        answers: list[bool] = []
        reporters = [
            threading.Thread(target=lambda: answers.append(laters[0].done("first")))
            for _ in range(2)
        ]
        for reporter in reporters:
            reporter.start()

        assert await handle.result(timeout=10) == "first"
        for reporter in reporters:
            reporter.join()
        assert sorted(answers) == [False, True]
        assert laters[0].failed(ValueError("too late")) is False
        await until(lambda: slots.taken == 0)
        assert len(heard.all(TaskSettled)) == 1
        assert (await handle.task()).version == 3
        await node.drained(10)


async def test_a_completion_may_report_a_failure_and_has_the_time_limit_of_the_handler(app):
    laters: list[Later[None]] = []

    @app.task(time_limit=0.1)
    async def work() -> Later[None]:
        laters.append(Later())
        return laters[-1]

    async with app.node() as node:
        failing, late = await work.enqueue(), await work.enqueue()
        await until(lambda: len(laters) == 2)
        first = laters[0]
        first.failed(ConnectionError("the other side said no"))
        await node.drained(10)

    errors = {(await handle.task()).error.splitlines()[-1] for handle in (failing, late)}
    assert any("the other side said no" in error for error in errors)
    assert any("time limit of 0.1 s" in error for error in errors)
    assert laters[1].done() is False


@pytest.mark.req("TASK-53")
async def test_a_limit_of_n_is_reached_and_never_exceeded(app):
    gauge = Gauge()

    @app.task
    async def work() -> None:
        await gauge.stay()

    await work.enqueue_many([()] * 300)
    async with app.node(booking=FixedSlots(7)) as node:
        await node.drained(30)

    assert gauge.most == 7


@pytest.mark.req("TASK-55")
async def test_a_nested_policy_keeps_and_reaches_all_three_limits(app):
    every, payouts, partners = Gauge(), Gauge(), {f"p{n}": Gauge() for n in range(5)}

    @app.task
    async def payout(partner: str) -> None:
        async with asyncio.TaskGroup() as group:
            for gauge in (every, payouts, partners[partner]):
                group.create_task(gauge.stay())

    @app.task
    async def mail() -> None:
        await every.stay()

    for partner in partners:
        await payout.options(fairness_key=partner).enqueue_many([(partner,)] * 40)
    await mail.enqueue_many([()] * 200)
    policy = AllOf(FixedSlots(30), PerKind({"payout": AllOf(FixedSlots(15), PerKey(3))}))
    async with app.node(booking=policy) as node:
        await node.drained(60)

    assert (every.most, payouts.most) == (30, 15)
    assert max(gauge.most for gauge in partners.values()) == 3
    assert policy.taken == 0


@pytest.mark.req("TASK-59")
async def test_a_freed_slot_wakes_every_queue_and_partition_that_shares_it(app):
    ran: list[str] = []
    let_go = asyncio.Event()

    @app.task(queue="first")
    async def hold() -> None:
        await let_go.wait()

    @app.task(queue="second")
    async def wait(name: str) -> None:
        ran.append(name)

    # Nothing but the freed slot can wake anybody up within the test.
    quiet = {"limits": Limits(idle_wait_s=60), "tick_s": 60.0, "lease_s": 200.0, "duties": False}
    async with app.node(slots_async=1, **quiet) as node:
        await hold.enqueue()
        await until(lambda: node.in_flight == 1)
        for number in range(4):  # each on a partition of its own
            await wait.enqueue(f"w{number}")
        await until(lambda: node.looked_ahead == 4)
        assert ran == []
        let_go.set()

        await until(lambda: len(ran) == 4, timeout_s=5)
        await until(lambda: node.in_flight == 0)


@pytest.mark.req("TASK-63")
async def test_policies_can_be_built_from_configuration_by_a_layer_on_top(app):
    text = """
    [flaky]
    attempts = 3
    delay = 0.01
    slots = 2
    [steady]
    attempts = 1
    slots = 4
    """
    settings = tomllib.loads(text)
    gauges, attempts = {"flaky": Gauge(), "steady": Gauge()}, {"flaky": 0, "steady": 0}

    def configured(app: Holdfast, kind: str):
        asked = {k: v for k, v in settings[kind].items() if k != "slots"}

        @app.task(name=kind, retry=Retry(**asked))
        async def work() -> None:
            attempts[kind] += 1
            await gauges[kind].stay()
            raise ValueError

        return work

    tasks = [configured(app, kind) for kind in settings]
    booking = PerKind({kind: FixedSlots(asked["slots"]) for kind, asked in settings.items()})
    async with app.node(booking=booking) as node:
        for task in tasks:
            await task.enqueue_many([()] * 20)
        await node.drained(30)

    assert attempts == {"flaky": 60, "steady": 20}
    assert (gauges["flaky"].most, gauges["steady"].most) == (2, 4)


@pytest.mark.req("TASK-20")
@pytest.mark.parametrize("mode", ["async", "thread"])
async def test_an_attempt_whose_task_was_resumed_cannot_overwrite_the_newer_state(app, heard, mode):
    let_go = threading.Event()
    started: list[int] = []

    def work_in_thread() -> str:
        started.append(1)
        if len(started) == 1:
            let_go.wait(20)
            return "old"
        return "new"

    async def work() -> str:
        started.append(1)
        if len(started) > 1:
            return "new"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "old"  # an attempt that does not even notice that it was stopped
        return "never"

    task = app.task(name="work")(work if mode == "async" else work_in_thread)
    client = await app.client()
    async with app.node() as node:
        handle = await task.enqueue()
        await heard.until(TaskGrabbed)
        await until(lambda: len(started) == 1)
        assert (await client.resume(handle.id, force=True)).name == "OK"
        let_go.set()

        assert await handle.result(timeout=10) == "new"
        await until(lambda: node.in_flight == 0)
        ended = await handle.task()
        assert (ended.state, ended.version, ended.attempts) == (State.DONE, 5, 0)
        assert len(heard.all(TaskSettled)) == 1
        if mode == "async":
            assert [(e.task, e.version) for e in heard.all(SettleRefused)] == [(handle.id, 2)]
        await node.drained(10)


@pytest.mark.req("ALL-9")
async def test_every_count_returns_to_zero_when_the_system_is_idle(app):
    slots, keys = FixedSlots(50), PerKey(5)

    @app.task(retry=Retry(attempts=2, delay=0.01))
    async def work(number: int) -> None:
        if number % 3 == 0:
            raise ValueError

    @app.task(time_limit=0.01)
    def thread(number: int) -> None:
        threading.Event().wait(0.03 if number % 2 else 0)

    async with app.node(booking=AllOf(slots, keys)) as node:
        for key in ("a", "b", None):
            await work.options(fairness_key=key).enqueue_many([(n,) for n in range(100)])
        await thread.enqueue_many([(n,) for n in range(20)])
        await node.drained(30)
        await until(lambda: node.is_idle)

        counts = (node.in_flight, node.looked_ahead, slots.taken, keys.taken)
        assert counts == (0, 0, 0, 0)
