"""The fixture `holdfast`: time that is moved, tasks that run now, and what was enqueued."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Again, Holdfast, Retry, State, current_task
from holdfast.errors import ConfigurationError, WrongArguments
from holdfast.testing.harness import Harness, harness

MEMORY = "sqlite:///:memory:"


@pytest.fixture
def app(tmp_path) -> Holdfast:
    return Holdfast(f"sqlite:///{tmp_path / 'mine.db'}")


@pytest.fixture
def rig(app: Holdfast) -> Iterator[Harness]:
    with harness(app, MEMORY) as given:
        yield given


async def test_what_can_run_now_runs_and_what_it_enqueues_runs_too(app, rig):
    ran = []

    @app.task
    async def first(name: str) -> None:
        ran.append(name)
        await second.enqueue(name)

    @app.task(queue="other")
    def second(name: str) -> None:
        ran.append(name.upper())

    await first.enqueue("ada")
    await rig.run_until_idle()

    assert ran == ["ada", "ADA"]


def test_a_test_without_a_loop_runs_the_same(app, rig):
    ran = []

    @app.task
    async def first(name: str) -> None:
        ran.append(name)
        await second.enqueue(name)

    @app.task
    def second(name: str) -> None:
        third.enqueue_sync(name)

    @app.task
    def third(name: str) -> None:
        ran.append(name.upper())

    first.enqueue_sync("ada")
    rig.run_until_idle_sync()

    assert ran == ["ada", "ADA"]


async def test_an_hour_of_delay_passes_when_the_clock_is_moved_and_not_before(app, rig):
    ran = []

    @app.task
    async def remind(name: str) -> None:
        ran.append(name)

    await remind.options(delay=3600).enqueue("delay")
    await remind.options(at=rig.clock.now() + timedelta(hours=2)).enqueue("at")
    began = time.perf_counter()
    rig.clock.advance(3599)
    await rig.run_until_idle()
    assert ran == []
    rig.clock.advance(timedelta(seconds=1))
    await rig.run_until_idle()
    assert ran == ["delay"]
    rig.clock.travel_to(rig.clock.now() + timedelta(hours=1))
    await rig.run_until_idle()
    assert ran == ["delay", "at"]
    assert time.perf_counter() - began < 2


async def test_ten_retries_with_growing_delays_run_as_the_clock_is_moved(app, rig):
    attempts = []

    @app.task(retry=Retry(attempts=11, delay=1))
    async def flaky() -> None:
        attempts.append(current_task().attempt)
        raise ConnectionError

    handle = await flaky.enqueue()
    await rig.run_until_idle()
    for number in range(10):
        assert await handle.state() is State.WAITING
        rig.clock.advance(2**number - 0.5)
        await rig.run_until_idle()
        assert len(attempts) == number + 1
        rig.clock.advance(0.5)
        await rig.run_until_idle()

    assert attempts == list(range(1, 12))
    assert await handle.state() is State.ERROR


async def test_the_store_goes_by_the_clock_of_the_test(app, rig):
    rig.clock.travel_to(datetime(2024, 2, 29, 12, tzinfo=UTC))

    @app.task
    async def leap() -> None: ...

    handle = await leap.enqueue()
    await rig.run_until_idle()

    task = await handle.task()
    assert task.enqueued_at == task.finished_at == datetime(2024, 2, 29, 12, tzinfo=UTC)


async def test_a_paused_queue_is_idle_and_its_tasks_stay(app, rig):
    ran = []

    @app.task
    async def add(number: int) -> None:
        ran.append(number)

    await app.queue("default").pause()
    handle = await add.enqueue(1)
    await rig.run_until_idle()
    assert ran == [] and await handle.state() is State.SUBMITTED

    await app.queue("default").resume()
    await rig.run_until_idle()
    assert ran == [1]


async def test_a_rate_limit_lets_on_what_the_clock_allows(app, rig):
    ran = []

    @app.task
    async def call(number: int) -> None:
        ran.append(number)

    await app.queue("default").limit("api", rate=1, burst=2)
    for number in range(4):
        await call.enqueue(number)
    await rig.run_until_idle()
    assert len(ran) == 2
    rig.clock.advance(1)
    await rig.run_until_idle()
    assert len(ran) == 3


async def test_a_handler_that_moves_the_clock_makes_due_tasks_run(app, rig):
    ran = []

    @app.task
    async def wait() -> None:
        rig.clock.advance(60)

    @app.task
    async def later() -> None:
        ran.append("later")

    await later.options(delay=60).enqueue()
    await wait.enqueue()
    await rig.run_until_idle()

    assert ran == ["later"]


async def test_what_never_ends_is_named_when_the_real_time_is_over(app, rig):
    @app.task
    async def forever(name: str) -> Again:
        return Again()

    handle = await forever.enqueue("ada")
    with pytest.raises(TimeoutError, match=r"can still run:\n  forever\(name='ada'\)"):
        await rig.run_until_idle(timeout_s=0.3)
    await handle.cancel()


async def test_an_app_without_tasks_is_idle(rig):
    await rig.run_until_idle()


# ── what was enqueued ─────────────────────────────────────────────────────────────────────────


async def test_a_task_is_found_by_its_arguments_whatever_became_of_it(app, rig):
    @app.task(queue="mail")
    async def send(to: str, subject: str = "hello", *, copies: int = 1) -> None: ...

    await send.enqueue("ada")
    await send.options(delay=60).enqueue("bob", copies=2)
    await rig.run_until_idle()

    (found,) = rig.assert_enqueued(send, to="ada")
    assert found.state is State.DONE
    assert len(rig.assert_enqueued(send, subject="hello")) == 2
    rig.assert_enqueued(send, to="bob", copies=2)
    rig.assert_not_enqueued(send, to="bob", copies=1)
    with pytest.raises(AssertionError) as raised:
        rig.assert_enqueued(send, to="eve")
    due = rig.clock.now() + timedelta(seconds=60)
    assert str(raised.value) == (
        "no task send(to='eve') was enqueued, but:\n"
        "  send(to='ada', subject='hello', copies=1)  queue=mail priority=5  DONE\n"
        "  send(to='bob', subject='hello', copies=2)  queue=mail priority=5 "
        f"due_at={due.isoformat()}  WAITING"
    )


OPTIONS = {
    "queue": ("mail", "other"),
    "priority": (2, 3),
    "fairness_key": ("ada", "bob"),
    "ordering_key": ("one", "two"),
    "delay": (60, 61),
    "at": (datetime(2100, 1, 1, tzinfo=UTC), datetime(2100, 1, 2, tzinfo=UTC)),
    "metadata": ({"user": 1}, {"user": 2}),
    "traceparent": ("00-a-b-01", "00-a-c-01"),
}


@pytest.mark.parametrize("name", OPTIONS)
async def test_a_task_is_found_by_its_options_written_as_they_are_enqueued(app, rig, name):
    right, wrong = OPTIONS[name]

    @app.task
    async def send(to: str) -> None: ...

    for queue in ("mail", "other"):
        app.task(name=queue, queue=queue)(lambda: None)

    await send.options(**{name: right}).enqueue("ada")

    rig.assert_enqueued(send.options(**{name: right}), to="ada")
    rig.assert_not_enqueued(send.options(**{name: wrong}), to="ada")
    with pytest.raises(AssertionError, match=f"no task send.* {name}=.* was enqueued, but:"):
        rig.assert_enqueued(send.options(**{name: wrong}))
    with pytest.raises(AssertionError, match=r"these tasks were enqueued:\n  send\(to='ada'\)"):
        rig.assert_not_enqueued(send.options(**{name: right}))


def test_nothing_enqueued_says_so(app, rig):
    @app.task
    def send(to: str) -> None: ...

    with pytest.raises(AssertionError, match="nothing was enqueued"):
        rig.assert_enqueued(send)


def test_a_name_that_is_no_argument_or_no_findable_option_is_a_mistake_of_the_test(app, rig):
    @app.task
    def send(to: str) -> None: ...

    with pytest.raises(WrongArguments, match="no parameter 'too'; it takes to"):
        rig.assert_not_enqueued(send, too="ada")
    with pytest.raises(ConfigurationError, match="unique= cannot be looked for"):
        rig.assert_not_enqueued(send.options(unique="a"))


# ── around the test ───────────────────────────────────────────────────────────────────────────


async def test_the_app_is_as_it_was_before_and_its_own_store_saw_nothing(app, tmp_path):
    @app.task
    async def send(to: str) -> None: ...

    mine = await send.enqueue("mine")
    with harness(app, MEMORY) as rig:
        await send.enqueue("tested")
        await asyncio.to_thread(send.enqueue_sync, "tested")
        assert len(rig.assert_enqueued(send, to="tested")) == 2
        rig.assert_not_enqueued(send, to="mine")

    assert (await mine.task()).payload.endswith(b'{"to":"mine"}')
    await app.close()
    db = sqlite3.connect(tmp_path / "mine.db")
    assert db.execute("SELECT count(*) FROM holdfast_task").fetchone() == (1,)
    db.close()


def test_what_a_closed_loop_has_left_open_is_closed(app):
    before = threading.active_count()

    @app.task
    async def send(to: str) -> None: ...

    with harness(app, MEMORY) as rig:
        asyncio.run(send.enqueue("ada"))
        asyncio.run(rig.run_until_idle())
        rig.assert_enqueued(send, to="ada")

    assert threading.active_count() == before


def test_code_that_enqueues_in_its_own_transaction_is_tested_on_its_own_file(app, tmp_path):
    ran = []

    @app.task
    def confirm(order: int) -> None:
        ran.append(order)

    db = sqlite3.connect(tmp_path / "test.db")
    db.execute("CREATE TABLE orders (id INTEGER)")
    with harness(app, f"sqlite:///{tmp_path / 'test.db'}") as rig:
        with db:
            db.execute("INSERT INTO orders VALUES (1)")
            confirm.options(within=db).enqueue_sync(1)
        with pytest.raises(LookupError), db:
            confirm.options(within=db).enqueue_sync(2)
            raise LookupError
        rig.assert_enqueued(confirm, order=1)
        rig.assert_not_enqueued(confirm, order=2)
        rig.run_until_idle_sync()
    db.close()

    assert ran == [1]


def test_a_clock_that_cannot_be_moved_is_refused(app):
    with (
        pytest.raises(ConfigurationError, match="only there can the clock be moved"),
        harness(app, "postgresql://localhost/app"),
    ):
        pass


def test_the_clock_takes_no_steps_back_and_no_time_without_a_zone(rig):
    with pytest.raises(ValueError, match="does not run backwards"):
        rig.clock.advance(-1)
    with pytest.raises(ValueError, match="needs a time zone"):
        rig.clock.travel_to(datetime(2030, 1, 1))
