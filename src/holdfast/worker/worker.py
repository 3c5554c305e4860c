"""The worker: runs attempts of one queue, each where its kind wants to run."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from holdfast.clock import Clock
from holdfast.handler import Handler, Registry
from holdfast.ids import NodeId
from holdfast.payload import PayloadUnreadable
from holdfast.store import Tasks
from holdfast.task import Grabbed, Outcome, TaskId
from holdfast.telemetry.events import AttemptFailed, Events
from holdfast.worker import verdict
from holdfast.worker.context import enter
from holdfast.worker.processes import ProcessPool
from holdfast.worker.settler import Ended, Settler
from holdfast.worker.verdict import TimeLimitExceeded


class Superseded(Exception):
    """Somebody else has moved the task on: whatever this attempt did must not be recorded."""


class Worker:
    """Starts grabbed tasks and settles them; `finished` frees the slots."""

    def __init__(
        self,
        *,
        node: NodeId,
        store: Tasks,
        registry: Registry,
        threads: ThreadPoolExecutor,
        processes: ProcessPool,
        finished: Callable[[Sequence[TaskId]], None],
        again: Callable[[Sequence[Ended]], None],
        clock: Clock,
        rng: Random,
        events: Events,
    ) -> None:
        self._node = node
        self._store = store
        self._registry = registry
        self._threads = threads
        self._processes = processes
        self._finished = finished
        self._again = again
        self._clock = clock
        self._rng = rng
        self._events = events
        self._settler = Settler(store, node=node, settled=self._settled, events=events)
        self._running: dict[TaskId, tuple[int, asyncio.Task[None]]] = {}
        self._taken_back: set[TaskId] = set()  # cancelled because the store moved them on
        self._loop = asyncio.get_running_loop()

    @property
    def held(self) -> dict[TaskId, int]:
        """The attempts that run here, with the versions of their grabs."""
        return {id: version for id, (version, _) in self._running.items()}

    def start(self, tasks: Sequence[Grabbed]) -> None:
        """Run each task at once: the slots that they need are booked."""
        batches: dict[str, list[Grabbed]] = {}
        for task in tasks:
            handler = self._registry.get(task.kind)
            if handler is None:
                self._end(task, verdict.parked(task, f"no handler for kind {task.kind!r}"), 0.0)
            elif handler.batch_max is not None:
                batches.setdefault(task.kind, []).append(task)
            else:
                attempt = self._loop.create_task(self._attempt(task, handler))
                self._running[task.id] = (task.version, attempt)
        for kind, line in batches.items():
            handler = self._registry.require(kind)
            assert handler.batch_max is not None
            for first in range(0, len(line), handler.batch_max):
                self._start_batch(line[first : first + handler.batch_max], handler)

    def take_back(self, id: TaskId, version: int) -> None:
        """The store has moved the task beyond `version`: stop the attempt, record nothing."""
        running = self._running.get(id)
        if running is not None and running[0] <= version:
            self._taken_back.add(id)
            running[1].cancel()

    async def drained(self, within_s: float) -> None:
        """Let running attempts finish; hand back at once what still runs after `within_s`."""
        attempts = {attempt for _, attempt in self._running.values()}
        if attempts:
            _, late = await asyncio.wait(attempts, timeout=within_s)
            for attempt in late:
                attempt.cancel()
            if late:
                await asyncio.wait(late)
        await self._settler.flushed()

    # ── one attempt ───────────────────────────────────────────────────────────────────────

    async def _attempt(self, task: Grabbed, handler: Handler) -> None:
        started = self._clock.seconds()
        outcome: Outcome | None = None
        try:
            enter(task)
            if handler.transactional:
                await self._run_transactional(task, handler)
                self._leave([task])
                return
            outcome = await self._run(task, handler)
        except PayloadUnreadable as error:
            outcome = verdict.parked(task, f"the payload does not fit the handler: {error}")
        except Superseded:
            self._leave([task])
            return
        except asyncio.CancelledError as error:
            outcome = self._cancelled([task], error)
            if outcome is None:
                return
        except (KeyboardInterrupt, SystemExit) as error:
            outcome = verdict.of_error(task, handler, error, rng=self._rng)
        except BaseException as error:
            outcome = self._failed(task, handler, error)
        self._end(task, outcome, self._clock.seconds() - started)

    async def _run(self, task: Grabbed, handler: Handler) -> Outcome:
        if handler.mode == "process":
            body = await self._processes.run(task, handler)
            return verdict.of_result(task, handler, None)._replace(result=body)
        args, kwargs = handler.arguments.unseal(task.payload)
        if handler.mode == "thread":
            return await self._run_in_thread(task, handler, args, kwargs)
        if handler.time_limit_s is None:
            result = await handler.function(*args, **kwargs)
        else:
            result = await self._limited(handler, handler.function(*args, **kwargs))
        return verdict.of_result(task, handler, result)

    async def _limited(self, handler: Handler, work: Any) -> Any:
        try:
            async with asyncio.timeout(handler.time_limit_s) as limit:
                return await work
        except TimeoutError:
            if limit.expired():
                raise TimeLimitExceeded(
                    f"ran longer than its time limit of {handler.time_limit_s:g} s"
                ) from None
            raise

    async def _run_in_thread(
        self, task: Grabbed, handler: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Outcome:
        context = contextvars.copy_context()
        future = self._loop.run_in_executor(
            self._threads, lambda: context.run(handler.function, *args, **kwargs)
        )
        try:
            return verdict.of_result(
                task, handler, await self._limited(handler, asyncio.shield(future))
            )
        except TimeLimitExceeded as error:
            # A thread cannot be stopped: settle now, keep the slot until it returns.
            outcome = self._failed(task, handler, error)
            self._settler.add(Ended(task, outcome, handler.time_limit_s or 0.0, frees=False))
            await asyncio.wait([future])
            raise Superseded from None

    async def _run_transactional(self, task: Grabbed, handler: Handler) -> None:
        """The handler's writes and the settle commit together, or neither does."""
        args, kwargs = handler.arguments.unseal(task.payload)
        async with self._store.transaction(task, node=self._node) as transaction:
            work = handler.function(transaction.connection, *args, **kwargs)
            outcome = verdict.of_result(task, handler, await self._limited(handler, work))
            if not await transaction.settle(outcome):
                raise Superseded
        self._settler.tell(Ended(task, outcome, 0.0))

    def _failed(self, task: Grabbed, handler: Handler, error: BaseException) -> Outcome:
        outcome = verdict.of_error(task, handler, error, rng=self._rng)
        self._events.emit(AttemptFailed(task.id, task.kind, task.attempt, outcome.error or ""))
        return outcome

    def _cancelled(self, tasks: Sequence[Grabbed], error: BaseException) -> Outcome | None:
        """Stopped from outside: taken back by the store, or handed back at shutdown."""
        if any(task.id in self._taken_back for task in tasks):
            self._leave(tasks)
            return None
        return verdict.handed_back(tasks[0])

    # ── many tasks in one call ────────────────────────────────────────────────────────────

    def _start_batch(self, tasks: list[Grabbed], handler: Handler) -> None:
        attempt = self._loop.create_task(self._attempt_batch(tasks, handler))
        for task in tasks:
            self._running[task.id] = (task.version, attempt)

    async def _attempt_batch(self, tasks: list[Grabbed], handler: Handler) -> None:
        started = self._clock.seconds()
        values, readable = [], []
        for task in tasks:
            try:
                (value,), _ = handler.arguments.unseal(task.payload)
            except PayloadUnreadable as error:
                self._end(task, verdict.parked(task, f"the payload does not fit: {error}"), 0.0)
            else:
                values.append(value)
                readable.append(task)
        if not readable:
            return
        try:
            await self._limited(handler, handler.function(values))
            outcomes = [verdict.of_result(task, handler, None) for task in readable]
        except asyncio.CancelledError as error:
            if self._cancelled(readable, error) is None:
                return
            outcomes = [verdict.handed_back(task) for task in readable]
        except Exception as error:
            outcomes = [self._failed(task, handler, error) for task in readable]
        for task, outcome in zip(readable, outcomes, strict=True):
            self._end(task, outcome, self._clock.seconds() - started)

    # ── the end ───────────────────────────────────────────────────────────────────────────

    def _end(self, task: Grabbed, outcome: Outcome, ran_s: float) -> None:
        self._settler.add(Ended(task, outcome, ran_s))

    def _settled(self, batch: Sequence[Ended]) -> None:
        freed = [ended.task.id for ended in batch if ended.frees]
        for id in freed:
            self._running.pop(id, None)
        self._finished(freed)
        self._again(batch)

    def _leave(self, tasks: Sequence[Grabbed]) -> None:
        """The attempt is over and there is nothing to record."""
        for task in tasks:
            self._running.pop(task.id, None)
            self._taken_back.discard(task.id)
        self._finished([task.id for task in tasks])
