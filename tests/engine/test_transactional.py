"""A transactional handler: its own writes and the settle commit together, or neither does."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from conditions import until
from holdfast import Again, Retry, State, current_task
from holdfast.errors import StoreUnavailable
from holdfast.outcomes import Later
from holdfast.store import Change
from holdfast.task import Event
from holdfast.telemetry.events import SettleRefused, TaskSettled
from holdfast.testing.recorder import Recorder


@pytest.mark.req("TASK-78")
async def test_a_transactional_handlers_work_and_the_settle_commit_together(app, ledger):
    seen_inside: list[tuple[list[str], State]] = []

    @app.task(transactional=True)
    async def book(connection, entry: str) -> str:
        await ledger.write(connection, entry)
        seen_inside.append((await ledger.entries(), (await handle.task()).state))
        return f"booked {entry}"

    handle = await book.enqueue("100 EUR")
    async with app.node() as node:
        assert await handle.result(timeout=10) == "booked 100 EUR"
        await node.drained(10)

    # Neither could be seen before the other.
    assert seen_inside == [([], State.PROCESSING)]
    assert await ledger.entries() == ["100 EUR"]


@pytest.mark.req("TASK-78")
async def test_an_exception_rolls_both_back_then_retry_and_error_are_recorded(app, ledger):
    @app.task(transactional=True, retry=Retry(attempts=2, delay=0.01))
    async def book(connection, entry: str) -> None:
        await ledger.write(connection, f"{entry} {current_task().attempt}")
        raise ValueError("not today")

    async with app.node() as node:
        handle = await book.enqueue("lost")
        await node.drained(10)

    task = await handle.task()
    assert (task.state, task.attempts, task.deliveries) == (State.ERROR, 2, 2)
    assert "not today" in task.error
    assert await ledger.entries() == []


class Listening:
    """The real bus, with a note of every trigger."""

    def __init__(self, bus, published) -> None:
        self._bus = bus
        self._published = published

    def __getattr__(self, name):
        return getattr(self._bus, name)

    def publish(self, triggers):
        self._published.extend(trigger.version for trigger in triggers)
        self._bus.publish(triggers)


async def test_a_transactional_handler_may_ask_to_be_repeated_and_is_heard_at_once(
    make_app, ledger
):
    published: list[int] = []
    app = await make_app(wrap_bus=lambda bus: Listening(bus, published))

    @app.task(transactional=True)
    async def book(connection) -> Again | None:
        await ledger.write(connection, f"run {current_task().deliveries}")
        return Again() if current_task().deliveries < 3 else None

    async with app.node() as node:
        handle = await book.enqueue()
        await handle.result(timeout=10)
        await node.drained(10)

    assert published == [1, 3, 5]
    assert await ledger.entries() == ["run 1", "run 2", "run 3"]


class Superseding:
    """The real store, in which somebody cancels a task just before its transaction begins."""

    def __init__(self, store) -> None:
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    @asynccontextmanager
    async def transaction(self, task, *, node):
        await self._store.change([Change(task.id, Event.CANCELLED)])  # and nobody tells the node
        async with self._store.transaction(task, node=node) as transaction:
            yield transaction


@pytest.mark.req("TASK-78", "TASK-20")
async def test_a_transactional_handler_that_was_superseded_leaves_nothing(make_app, ledger):
    app = await make_app(wrap_store=Superseding)

    @app.task(transactional=True)
    async def book(connection) -> None:
        await ledger.write(connection, "never")

    with Recorder(app.events) as heard:
        async with app.node() as node:
            handle = await book.enqueue()
            refused = await heard.until(SettleRefused)
            await until(lambda: node.in_flight == 0)

    assert (refused.task, refused.version) == (handle.id, 2)
    assert await ledger.entries() == []
    assert not heard.all(TaskSettled)
    assert await handle.state() is State.CANCELLED


async def test_the_time_limit_of_a_transactional_handler_rolls_its_writes_back(app, ledger):
    @app.task(transactional=True, time_limit=0.1)
    async def book(connection) -> None:
        await ledger.write(connection, "late")
        await asyncio.Event().wait()

    @app.task(transactional=True)
    async def quick(connection) -> None:
        await ledger.write(connection, "quick")

    async with app.node() as node:
        handle = await book.enqueue()
        await node.drained(10)
        assert "time limit of 0.1 s" in (await handle.task()).error
        await (await quick.enqueue()).result(timeout=10)

    assert await ledger.entries() == ["quick"]


async def test_a_result_that_cannot_be_written_rolls_the_work_back(app, ledger):
    @app.task(transactional=True)
    async def book(connection, how: str) -> object:
        await ledger.write(connection, how)
        return float("nan") if how == "nan" else Later()

    async with app.node() as node:
        handles = [await book.enqueue("nan"), await book.enqueue("later")]
        await node.drained(10)

    assert [await handle.state() for handle in handles] == [State.ERROR] * 2
    assert await ledger.entries() == []


async def test_a_store_that_fails_at_the_commit_is_not_the_handlers_failure(make_app, ledger):
    class Failing:
        """The real store, whose first transaction breaks when the handler is done."""

        def __init__(self, store) -> None:
            self._store = store
            self.failures = 1

        def __getattr__(self, name):
            return getattr(self._store, name)

        def transaction(self, task, *, node):
            return Broken(self._store.transaction(task, node=node), self)

    class Broken:
        def __init__(self, context, store) -> None:
            self._context = context
            self._store = store

        async def __aenter__(self):
            return await self._context.__aenter__()

        async def __aexit__(self, kind, error, trace):
            if error is None and self._store.failures:
                self._store.failures -= 1
                lost = StoreUnavailable("the connection was lost: nothing was written")
                await self._context.__aexit__(type(lost), lost, None)
                raise lost
            return await self._context.__aexit__(kind, error, trace)

    app = await make_app(wrap_store=Failing)

    @app.task(transactional=True)  # no retries of its own
    async def book(connection) -> int:
        await ledger.write(connection, "once")
        return current_task().attempt

    async with app.node() as node:
        handle = await book.enqueue()

        assert await handle.result(timeout=10) == 1
        await node.drained(10)
    assert await ledger.entries() == ["once"]
