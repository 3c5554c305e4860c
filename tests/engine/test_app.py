"""The app as users meet it: policies by kind, wrong use, and what must not break a node."""

from __future__ import annotations

import asyncio
import threading

import pytest

from conditions import until
from holdfast import Holdfast, Retry, State
from holdfast.booking import Full
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.testing.apps import fresh, opened


class Once:
    """A retry policy of one's own: every error once more, at once."""

    def delay_s(self, error, *, attempt, rng):
        return 0.0 if attempt == 1 else None

    def gives_up(self, error):
        return False


class OneAtATime:
    """A booking policy of one's own."""

    def __init__(self) -> None:
        self.running = self.most = 0

    def book(self, trigger, *, now):
        if self.running:
            return Full()
        self.running += 1
        self.most = max(self.most, self.running)
        return None

    def free(self, trigger):
        self.running -= 1


class Third:
    """A sharding policy of one's own."""

    def partition(self, *, partitions, number, ordering_key):
        return 3


@pytest.mark.req("TASK-62")
async def test_retries_booking_and_sharding_are_objects_given_in_code_and_replaceable(store_url):
    app = fresh(store_url)
    booking = OneAtATime()
    attempts: list[int] = []

    @app.task(retry=Once(), booking=booking, sharding=Third())
    async def own(number: int) -> None:
        attempts.append(number)
        await asyncio.sleep(0.01)
        raise ValueError("always")

    @app.task(retry=Retry(attempts=1))
    async def usual(number: int) -> None:
        attempts.append(number)

    async with opened(app), app.node() as node:
        handles = [await own.enqueue(number) for number in range(4)]
        others = [await usual.enqueue(number) for number in range(10, 14)]
        await until(lambda: len(attempts) == 12)
        await node.drained(10)
        tasks = [await handle.task() for handle in handles]

        assert sorted(attempts) == [*sorted([0, 1, 2, 3] * 2), 10, 11, 12, 13]
        assert booking.most == 1 and booking.running == 0
        assert {task.partition for task in tasks} == {3}
        assert {task.state.name for task in tasks} == {"ERROR"}
        assert len({(await handle.task()).partition for handle in others}) == 4


async def test_a_listener_that_raises_stops_nothing(store_url, caplog):
    app = fresh(store_url)

    @app.task
    async def answer() -> int:
        return 42

    def bad(event: object) -> None:
        raise RuntimeError("a listener's own mistake")

    async with opened(app), app.node():
        stop = app.events.listen(bad)
        handle = await answer.enqueue()
        assert await handle.result(timeout=5) == 42
        stop()
    assert "a listener of events failed" in caplog.text


async def test_a_handle_made_from_an_id_answers_the_same_result(store_url):
    app = fresh(store_url)

    @app.task
    async def answer() -> int:
        return 42

    async with opened(app), app.node("default"):
        handle = await answer.enqueue()

        assert await app.handle(handle.id).result(timeout=5) == 42


def test_a_retry_that_is_no_policy_is_refused_when_it_is_registered(tmp_path):
    app = Holdfast(f"sqlite:///{tmp_path / 'app.db'}")

    with pytest.raises(ConfigurationError, match="retry= takes a policy"):

        @app.task(retry=5)
        async def wrong() -> None: ...


async def test_what_sync_methods_opened_can_be_closed_inside_of_a_loop(tmp_path):
    app = Holdfast(f"sqlite:///{tmp_path / 'app.db'}")

    @app.task
    async def nothing() -> None: ...

    await asyncio.to_thread(nothing.enqueue_sync)
    app.close_sync()


@pytest.mark.parametrize("file", [":memory:", "app.db"])
async def test_all_loops_of_a_process_share_one_sqlite_store(tmp_path, file):
    others = set(threading.enumerate())  # a test before this one may have left some that still end
    app = Holdfast(f"sqlite:///{file if file == ':memory:' else tmp_path / file}")

    @app.task
    async def nothing() -> None: ...

    here, there = await asyncio.gather(nothing.enqueue(), asyncio.to_thread(nothing.enqueue_sync))

    assert await app.get(there.id) == await there.task()
    assert await asyncio.to_thread(here.state_sync) is State.SUBMITTED
    ours = set(threading.enumerate()) - others
    writers = [one for one in ours if one.name == "holdfast-writer"]
    await app.close()
    await asyncio.to_thread(app.close_sync)
    assert len(writers) == 1 and not writers[0].is_alive()


async def test_a_store_that_cannot_be_opened_says_so_to_every_loop(tmp_path):
    app = Holdfast(f"sqlite:///{tmp_path / 'missing' / 'app.db'}")

    @app.task
    async def nothing() -> None: ...

    here, there = await asyncio.gather(
        nothing.enqueue(), asyncio.to_thread(nothing.enqueue_sync), return_exceptions=True
    )

    await asyncio.to_thread(app.close_sync)
    assert isinstance(here, StoreUnavailable) and isinstance(there, StoreUnavailable)
    assert "the file cannot be made" in str(here) and "the file cannot be made" in str(there)


@pytest.mark.parametrize("wrong", [{"fairness_key": ""}, {"ordering_key": ""}], ids=str)
def test_an_empty_key_is_refused_before_anything_is_written(tmp_path, wrong):
    app = Holdfast(f"sqlite:///{tmp_path / 'a.db'}")

    @app.task
    async def add(number: int) -> None: ...

    with pytest.raises(ConfigurationError, match="a key is not empty"):
        add.options(**wrong)
