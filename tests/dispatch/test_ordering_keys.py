"""Tasks of one ordering key run one at a time, in the order of their insert."""

from __future__ import annotations

import asyncio

import pytest

from conditions import until
from holdfast import FixedSlots, Retry, State, current_task
from holdfast.dispatch.limits import Limits
from holdfast.testing.apps import fresh, opened

QUICK = Limits(idle_wait_s=0.3)


@pytest.mark.req("TASK-94")
async def test_a_retrying_head_blocks_its_key_and_no_other(store_url):
    app = fresh(store_url)
    done: list[tuple[str, int]] = []
    failures = iter([True, True])
    running = 0

    @app.task(retry=Retry(attempts=5, delay=0.2))
    async def step(key: str, number: int) -> None:
        nonlocal running
        running += key == "a"
        assert running <= 1
        await asyncio.sleep(0.01)
        running -= key == "a"
        if key == "a" and number == 1 and next(failures, False):
            raise ValueError("again")
        done.append((key, number))

    async with opened(app), app.node(limits=QUICK, tick_s=0.1) as node:
        for number in range(1, 6):
            await step.options(ordering_key="a").enqueue("a", number)
            await step.options(ordering_key="b").enqueue("b", number)
        await until(lambda: len(done) == 10)
        await node.drained(10)

    assert [n for key, n in done if key == "a"] == [1, 2, 3, 4, 5]
    assert [n for key, n in done if key == "b"] == [1, 2, 3, 4, 5]
    assert done.index(("b", 5)) < done.index(("a", 1))


@pytest.mark.parametrize("on_error", ["block", "skip"])
@pytest.mark.req("TASK-94")
async def test_an_error_blocks_its_key_by_default_or_is_skipped_by_choice(store_url, on_error):
    app = fresh(store_url)
    done: list[int] = []

    @app.task(on_error=on_error)
    async def step(number: int) -> None:
        if number == 1 and not done:
            raise ValueError("a person has to look")
        done.append(number)

    async with opened(app), app.node(limits=QUICK, tick_s=0.1) as node:
        first = await step.options(ordering_key="a").enqueue(1)
        second = await step.options(ordering_key="a").enqueue(2)
        async with asyncio.timeout(10):
            while await first.state() is not State.ERROR:
                await asyncio.sleep(0.01)
        if on_error == "skip":
            await until(lambda: done == [2])
        else:
            await asyncio.sleep(1.0)  # several second looks
            assert done == [] and await second.state() is State.SUBMITTED
            done.append(0)  # the person has looked
            client = await app.client()
            await client.resume(first.id)
            await until(lambda: done == [0, 1, 2])
            await node.drained(10)


@pytest.mark.req("TASK-94")
async def test_an_elder_of_lower_priority_runs_before_its_younger_siblings(store_url):
    app = fresh(store_url)
    done: list[int] = []

    @app.task
    async def step(number: int) -> None:
        done.append(number)

    @app.task
    async def other(number: int) -> None:
        done.append(number)

    async with opened(app):
        for number in range(20):
            kind = other if number % 3 else step
            await kind.options(ordering_key="a", priority=9 - number % 10).enqueue(number)
        async with app.node(limits=QUICK, tick_s=0.1) as node:
            await node.drained(10)

    assert done == list(range(20))


async def test_a_retry_that_stands_behind_its_younger_sibling_runs_first(store_url):
    """Keys of fairness give the retry a later pass; nothing else moves the queue on."""
    app = fresh(store_url)
    done: list[int] = []

    @app.task(retry=Retry(attempts=9, delay=0.05))
    async def step(number: int, failures: int = 0) -> None:
        if current_task().attempt <= failures:
            raise ValueError("again")
        done.append(number)

    async with opened(app), app.node(limits=QUICK, tick_s=0.1, slots_async=1) as node:
        for number in range(4):
            failures = 4 if number == 1 else 0
            keyed = step.options(ordering_key="a", fairness_key=f"tenant {number % 2}")
            await keyed.enqueue(number, failures)
        await node.drained(10)

    assert done == [0, 1, 2, 3]


async def test_a_younger_sibling_waits_for_an_elder_whose_kind_has_no_room(store_url):
    app = fresh(store_url)
    done: list[str] = []
    may_end = asyncio.Event()

    @app.task(booking=FixedSlots(1))
    async def narrow(name: str) -> None:
        if name == "first":
            await may_end.wait()
        done.append(name)

    @app.task
    async def wide(name: str) -> None:
        done.append(name)

    async with opened(app), app.node(limits=QUICK, tick_s=0.1) as node:
        await narrow.enqueue("first")
        await until(lambda: node.in_flight == 1)
        await narrow.options(ordering_key="a").enqueue("elder")
        await wide.options(ordering_key="a", priority=0).enqueue("younger")
        await wide.enqueue("another")
        await until(lambda: done == ["another"])
        await asyncio.sleep(0.3)
        assert done == ["another"]
        may_end.set()
        await node.drained(10)

    assert done == ["another", "first", "elder", "younger"]
