"""Recording outcomes while the store or a value misbehaves."""

from __future__ import annotations

import asyncio

import pytest

from conditions import until
from holdfast import Retry, State
from holdfast.errors import OutcomeUnknown, Refused, StoreUnavailable
from holdfast.task import Event
from holdfast.telemetry.events import BugFound, SettleRefused, StoreFailed, TaskSettled
from holdfast.testing.recorder import Recorder


class Moody:
    """The real store; `mood` is asked before and after each settle."""

    def __init__(self, store, before=None, after=None) -> None:
        self._store = store
        self._before = before
        self._after = after

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def settle(self, outcomes, *, node):
        if self._before is not None:
            self._before(outcomes)
        settled = await self._store.settle(outcomes, node=node)
        if self._after is not None:
            self._after(outcomes)
        return settled


def failing(times: int, error: Exception):
    left = times

    def mood(outcomes) -> None:
        nonlocal left
        if left > 0:
            left -= 1
            raise error

    return mood


async def ran_three(app, heard) -> list[State]:
    @app.task
    async def work(number: int) -> int:
        return number

    async with app.node() as node:
        handles = await work.enqueue_many([(number,) for number in range(3)])
        await heard.until(TaskSettled, count=3)
        await until(lambda: node.in_flight == 0)
        await node.drained(10)
    return [await handle.state() for handle in handles]


async def test_a_settle_that_the_store_could_not_take_is_repeated(make_app):
    mood = failing(2, StoreUnavailable("for a moment"))
    app = await make_app(wrap_store=lambda store: Moody(store, before=mood))
    with Recorder(app.events) as heard:
        assert await ran_three(app, heard) == [State.DONE] * 3

    assert len(heard.all(StoreFailed)) == 2
    assert not heard.all(SettleRefused)


async def test_a_settle_whose_reply_was_lost_counts_as_settled_when_repeated(make_app):
    mood = failing(1, OutcomeUnknown("the connection broke", repeat_is_safe=True))
    app = await make_app(wrap_store=lambda store: Moody(store, after=mood))
    with Recorder(app.events) as heard:
        assert await ran_three(app, heard) == [State.DONE] * 3

    assert len(heard.all(StoreFailed)) == 1
    assert not heard.all(SettleRefused)


@pytest.mark.parametrize("error", [Refused("cannot hold it"), TypeError("a bug of ours")], ids=repr)
async def test_an_outcome_that_no_store_takes_is_parked_and_holds_up_nobody(make_app, error):
    def mood(outcomes) -> None:
        if any(outcome.result and b"poison" in outcome.result for outcome in outcomes):
            raise error

    app = await make_app(wrap_store=lambda store: Moody(store, before=mood))
    together = asyncio.Event()

    @app.task
    async def work(text: str) -> str:
        await together.wait()
        return text

    async with app.node() as node:
        handles = await work.enqueue_many([("fine",), ("poison",), ("too",)])
        await until(lambda: node.in_flight == 3)
        together.set()

        assert await handles[0].result(timeout=10) == "fine"
        assert await handles[2].result(timeout=10) == "too"
        await node.drained(20)
    parked = await handles[1].task()
    assert parked.state is State.ERROR
    assert f"could not be recorded ({type(error).__name__})" in parked.error


async def test_a_listener_that_raises_keeps_no_slot_and_loses_no_task(app):
    ran = 0

    @app.task(retry=Retry(attempts=2, delay=0.01))
    async def work() -> None:
        nonlocal ran
        ran += 1
        if ran == 1:
            raise ValueError

    def listener(event) -> None:
        if type(event).__name__ == "AttemptFailed":
            raise RuntimeError("in the listener")

    heard = Recorder(app.events)
    app.events.listen(listener)
    async with app.node() as node:
        handle = await work.enqueue()

        await handle.result(timeout=10)
        await until(lambda: node.in_flight == 0)
    assert not heard.all(BugFound)
    assert (await handle.task()).attempts == 1
    assert {event.event for event in heard.all(TaskSettled)} == {
        Event.RETRIED.name,
        Event.SUCCEEDED.name,
    }
