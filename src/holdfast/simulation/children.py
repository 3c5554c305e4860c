"""Simulated pool processes: each lives and dies with its node, or of what it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

from holdfast.handler import Handler
from holdfast.simulation.world import here
from holdfast.task import Grabbed
from holdfast.worker import alone, processes, verdict, wire
from holdfast.worker.child import _raised, _run_transactional
from holdfast.worker.running import call, ended_later
from holdfast.worker.verdict import ProcessLost, TimeLimitExceeded

START_S = 0.4  # mean
STARTS_MAX = 2  # whatever machine this is: a seed gives the same history everywhere
FAULT_SHARE = 0.08

_IN_CHILD: ContextVar[bool] = ContextVar("holdfast_child", default=False)


class Crashed(BaseException):
    """The pool process ends at once."""


def crash() -> None:
    """End the process that this code runs in: its pool process, or the whole node."""
    if _IN_CHILD.get():
        raise Crashed
    process = here()
    assert process is not None, "a handler runs in a process"
    process.crash()


class SimulatedChild:
    """A pool process as its node sees it: see `holdfast.worker.spawned`."""

    pid = None

    def __init__(self) -> None:
        self.is_alive = True
        self.attempts = 0

    @classmethod
    async def start(cls, *, listens: bool) -> Self:
        rng = _rng()
        await asyncio.sleep(rng.expovariate(1 / START_S))
        if rng.random() < FAULT_SHARE:
            if rng.random() < 0.5:
                raise OSError("simulated: no more processes")
            raise ProcessLost("SIGKILL", has_started=False)
        return cls()

    def prepare(self, modules: Sequence[str]) -> None:
        wire.order(_unframed(wire.framed(wire.Prepare(list(modules)))))

    async def ask(
        self, order: wire.Order, handler: Handler, *, started: Callable[[], None]
    ) -> wire.Reply:
        self.attempts += 1
        heard = wire.order(_unframed(wire.framed(order)))
        assert isinstance(heard, wire.Order), "what was sent"
        rng = _rng()
        if rng.random() < FAULT_SHARE:
            self.is_alive = False
            raise ProcessLost("SIGTERM", last_words="Terminated", has_started=False)
        if rng.random() < FAULT_SHARE:
            return wire.Reply(wire.NotFound(_raised(LookupError("simulated: an older program"))))
        started()
        inside = _IN_CHILD.set(True)
        try:
            async with asyncio.timeout(handler.time_limit_s) as limit:
                answer = await _attempt(heard, handler)
        except TimeoutError:
            assert limit.expired(), "an attempt answers what it raises"
            raise TimeLimitExceeded("ran longer than its time limit") from None
        except Crashed:
            raise ProcessLost("SIGSEGV", last_words="Fatal Python error") from None
        finally:
            _IN_CHILD.reset(inside)
        has_left = rng.random() < FAULT_SHARE
        reply: wire.Reply = wire.reply(_unframed(wire.framed(wire.Reply(answer, has_left))))
        return reply

    def end(self) -> None:
        self.is_alive = False


async def _attempt(order: wire.Order, handler: Handler) -> wire.Answer:
    task = order.task
    try:
        arguments = handler.arguments.unseal(task.payload)
        if handler.transactional:
            store = _process().store
            return await _run_transactional(store, handler, order, arguments)
        return wire.Ended(verdict.of_result(task, handler, await _result(task, handler, arguments)))
    except (asyncio.CancelledError, Crashed):
        raise
    except BaseException as error:
        return _raised(error)


async def _result(task: Grabbed, handler: Handler, arguments: Any) -> Any:
    args, kwargs = arguments
    if handler.mode == "async":
        return await ended_later(call(handler, args, kwargs))
    loop: Any = asyncio.get_running_loop()
    loop.spent_s = 0.0
    try:
        return call(handler, args, kwargs)
    finally:
        await asyncio.sleep(loop.spent_s)


def _unframed(frame: bytes) -> bytes:
    head, body = frame[: wire.LENGTH_BYTES], frame[wire.LENGTH_BYTES :]
    assert wire.length(head) == len(body), "one frame"
    return body


def _process() -> Any:
    process = here()
    assert process is not None, "a pool belongs to a process"
    return process


def _rng() -> Any:
    return _process().rng


@contextmanager
def simulated_children() -> Iterator[None]:
    """Inside, pools start simulated processes, whatever program this is."""
    pools: Any = processes
    programs: Any = alone
    real = pools.Child, pools.STARTS_MAX, programs._main_module
    pools.Child, pools.STARTS_MAX, programs._main_module = SimulatedChild, STARTS_MAX, lambda: None
    try:
        yield
    finally:
        pools.Child, pools.STARTS_MAX, programs._main_module = real
