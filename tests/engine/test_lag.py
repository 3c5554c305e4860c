"""Who held the loop up is known by name: on the loop, in a thread, or nobody at all."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing

from holdfast.clock import SystemClock
from holdfast.node.lag import Attempt, LoopWatch
from holdfast.telemetry.events import Events, LagMeasured, LoopBlocked
from holdfast.telemetry.logs import log_events
from holdfast.testing.recorder import Recorder


class Running:
    """Attempts as a worker has them."""

    def __init__(self) -> None:
        self.events = Events()
        self.heard = Recorder(self.events)
        self.attempts: list[Attempt] = []
        self.watch = LoopWatch(lambda: self.attempts, clock=SystemClock(), events=self.events)

    def start(self, kind: str, work: Callable[[], Awaitable[None]], mode: str = "async") -> None:
        self.attempts.append(Attempt(asyncio.ensure_future(work()), kind, mode))

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Running]:
        keeping = asyncio.create_task(self.watch.keep())
        await self.heard.until(LagMeasured)
        try:
            yield self
        finally:
            tasks = [keeping, *(one.attempt for one in self.attempts)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def for_ever() -> None:
    await asyncio.Event().wait()


async def block() -> None:
    await asyncio.sleep(0)
    time.sleep(1.5)  # noqa: ASYNC251


def hold_the_interpreter() -> None:
    """A call into C that lets no other thread run, for two seconds or so."""
    size = 5_000_000
    began = time.thread_time()
    sum(range(size))
    sum(range(int(size * 2.0 / (time.thread_time() - began))))


async def test_a_handler_that_blocks_the_loop_is_named_and_not_those_who_wait():
    async with Running().watched() as running:
        for _ in range(5):
            running.start("patient", for_ever)
        running.start("blocker", block)

        blocked = await running.heard.until(LoopBlocked, timeout_s=30)

        assert blocked.kinds == ("blocker",)
        assert 1.0 <= blocked.seconds < 3.0
        assert blocked.others == 5
        lag = await running.heard.until(LagMeasured, where=lambda e: e.seconds >= 1.0)
        assert running.watch.lag_s >= lag.seconds - 0.001


async def test_a_handler_that_computes_in_c_is_seen_when_its_call_returns():
    async def compute() -> None:
        hold_the_interpreter()

    async with Running().watched() as running:
        running.start("patient", for_ever)
        running.start("cruncher", compute)

        assert (await running.heard.until(LoopBlocked, timeout_s=30)).kinds == ("cruncher",)


async def test_a_thread_that_holds_the_interpreter_is_named():
    async with Running().watched() as running:
        running.start("patient", for_ever)
        running.start("threaded", for_ever, mode="thread")
        thread = threading.Thread(target=hold_the_interpreter)
        thread.start()

        blocked = await running.heard.until(LoopBlocked, timeout_s=30)

        thread.join()
        assert blocked.kinds == ("threaded",)


async def test_nobody_is_blamed_for_a_pause_of_the_whole_process():
    """As after SIGSTOP: the loop stood still, and nothing was computed."""
    async with Running().watched() as running:
        running.start("threaded", for_ever, mode="thread")
        asyncio.get_running_loop().call_soon(time.sleep, 1.5)

        assert (await running.heard.until(LoopBlocked, timeout_s=30)).kinds == ()


async def test_the_lag_is_told_once_a_second_and_is_small_on_an_idle_loop():
    async with Running().watched() as running:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await running.heard.until(LagMeasured, count=3)

        assert loop.time() - before >= 1.9
        assert not running.heard.all(LoopBlocked)


def test_the_thread_of_a_watch_ends_with_its_loop_however_that_ended():
    before = set(threading.enumerate())
    watch = LoopWatch(list, clock=SystemClock(), events=Events())
    with closing(asyncio.new_event_loop()) as loop:
        keeping = loop.create_task(watch.keep())
        loop.run_until_complete(asyncio.sleep(0.01))
        (thread,) = set(threading.enumerate()) - before

    thread.join(5)

    assert not thread.is_alive() and not keeping.done()
    keeping._log_destroy_pending = False  # its node was killed, so to say


def test_a_log_line_names_kind_and_duration_and_what_to_do(caplog):
    events = Events()
    stop = log_events(events)

    events.emit(LoopBlocked(15.24, ("crunch",), 200))
    events.emit(LoopBlocked(2.0, (), 3))
    stop()

    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith("a handler of kind crunch held the interpreter for 15.2 s")
    assert "200 others waited" in first
    assert 'mode="process"' in first
    assert second == "this process stood still for 2.0 s, 3 others waited"
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert caplog.records[0].kinds == ("crunch",)
