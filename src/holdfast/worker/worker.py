"""The worker: runs attempts of one queue, each where its kind wants to run.

    start ─▶ attempt ─▶ handler ─▶ outcome ─▶ settler ─▶ slot freed
                │ taken back: the store has moved the task on, nothing is recorded
                │ stopped: the node ends, the task is handed back
                └ overdue in a thread: recorded at once, the slot is kept until the thread is free

Every way out of an attempt leads to exactly one call of `finished` for each of its tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from random import Random
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock
from holdfast.handler import Handler, Registry
from holdfast.ids import NodeId
from holdfast.outcomes import Later
from holdfast.payload import PayloadUnreadable
from holdfast.store import Tasks
from holdfast.task import Grabbed, Outcome, TaskId
from holdfast.telemetry.events import AttemptFailed, AttemptTakenBack, BugFound, Events
from holdfast.worker import verdict
from holdfast.worker.context import enter
from holdfast.worker.processes import ProcessPool
from holdfast.worker.running import Run, answered, call, ended_later, in_thread, limited
from holdfast.worker.settler import Ended, Settler
from holdfast.worker.suspects import Suspects
from holdfast.worker.transactional import Recorded, run_in_transaction
from holdfast.worker.verdict import HandlerCancelled, ProcessLost, TimeLimitExceeded

if TYPE_CHECKING:
    from holdfast.telemetry.tracing import Tracing

STOP_S = 5.0  # how long a stopped attempt may take to clean up


class Worker:
    """Starts grabbed tasks and settles them.

    Of what is settled, `ran` hears how long it took, `finished` frees the slots, and `again` hears
    what will run once more, in this order.
    """

    def __init__(
        self,
        *,
        node: NodeId,
        store: Tasks,
        registry: Registry,
        threads: ThreadPoolExecutor,
        processes: ProcessPool,
        suspects: Suspects,
        finished: Callable[[Sequence[TaskId]], None],
        ran: Callable[[Sequence[Ended]], None],
        again: Callable[[Sequence[Ended]], None],
        clock: Clock,
        rng: Random,
        events: Events,
        tracing: Tracing | None = None,
    ) -> None:
        self._node = node
        self._store = store
        self._registry = registry
        self._threads = threads
        self._processes = processes
        self._suspects = suspects
        self._finished = finished
        self._ran = ran
        self._again = again
        self._clock = clock
        self._rng = rng
        self._events = events
        self._tracing = tracing
        self._settler = Settler(store, node=node, settled=self._settled, events=events)
        self._runs: dict[TaskId, Run] = {}
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()

    @property
    def held(self) -> dict[TaskId, int]:
        """The attempts that run here, with the versions of their grabs."""
        return {id: run.version_of(id) for id, run in self._runs.items()}

    @property
    def runs(self) -> list[Run]:
        """The calls of handlers that run here, or wait to be settled."""
        return list(dict.fromkeys(self._runs.values()))

    def start(self, tasks: Sequence[Grabbed]) -> None:
        """Run each task at once: the slots that they need are booked."""
        batches: dict[str, list[Grabbed]] = {}
        now = self._clock.seconds()
        for task in tasks:
            handler = self._registry.get(task.kind)
            if handler is None:
                outcome = verdict.parked(task, f"no handler for kind {task.kind!r}")
                self._settler.add(Ended(task, outcome, 0.0))
            elif handler.batch_max is not None and not task.losses:
                batches.setdefault(task.kind, []).append(task)
            else:
                self._start(Run((task,), now), handler)
        for kind, line in batches.items():
            handler = self._registry.require(kind)
            assert handler.batch_max is not None
            for first in range(0, len(line), handler.batch_max):
                self._start(Run(line[first : first + handler.batch_max], now), handler)

    def take_back(self, id: TaskId, version: int) -> None:
        """The store has moved the task beyond `version`: stop the attempt, record nothing.

        A call for many tasks goes on until none of them is wanted any more.
        """
        run = self._runs.get(id)
        if run is not None and run.version_of(id) <= version and run.take_back(id):
            kind = run.tasks[0].kind
            self._events.emit(AttemptTakenBack(id, run.version_of(id), kind))

    async def drained(self, within_s: float) -> None:
        """Let running attempts end as `ended` does, and wait until the store has their outcomes."""
        await self.ended(within_s)
        await self._settler.flushed()

    async def ended(self, within_s: float) -> None:
        """Let running attempts finish; hand back at once what still runs after `within_s`."""
        runs = {run.attempt: run for run in self._runs.values() if not run.is_abandoned}
        if runs:
            _, late = await asyncio.wait(runs, timeout=within_s)
            for attempt in late:
                runs[attempt].stop()
            if late:
                _, deaf = await asyncio.wait(late, timeout=STOP_S)
                for attempt in deaf:
                    self._abandon(runs[attempt], verdict.handed_back)

    # ── one attempt ───────────────────────────────────────────────────────────────────────

    def _start(self, run: Run, handler: Handler) -> None:
        for task in run.tasks:
            assert task.id not in self._runs, "one attempt of a task at a time on a node"
            self._runs[task.id] = run
        work, name = self._make_sure(run, handler), handler.kind
        # Not in the context of the attempt whose end made room for this one.
        context = self._context.copy()
        if self._loop.get_task_factory() is None:  # what create_task does, in half the time
            run.attempt = asyncio.Task(work, loop=self._loop, name=name, context=context)
        else:
            run.attempt = self._loop.create_task(work, name=name, context=context)

    async def _make_sure(self, run: Run, handler: Handler) -> None:
        """Whatever ends the attempt, its tasks and slots do not stay behind."""
        try:
            is_batch = handler.batch_max is not None and not run.tasks[0].losses
            attempt = self._attempt_batch if is_batch else self._attempt
            if self._tracing is None:
                await attempt(run, handler)
            else:
                with self._tracing.process(handler.kind, run.tasks):
                    await attempt(run, handler)
        except BaseException as error:
            broken = error  # a mistake of ours, or of a listener
            self._abandon(run, lambda task: verdict.postponed(task, broken))
            self._events.emit(BugFound(f"an attempt broke: {error!r}"))

    async def _attempt(self, run: Run, handler: Handler) -> None:
        task = run.tasks[0]
        try:
            run.begin()
            enter(task)
            if task.losses:
                outcome = await self._run_suspect(run, task, handler)
            else:
                outcome = await self._run(run, task, handler)
        except asyncio.CancelledError as error:
            outcome = self._interrupted(run, task, handler, error)
        except BaseException as error:
            outcome = self._failed(task, handler, error)
        self._end(run, task, outcome)

    async def _run_suspect(self, run: Run, task: Grabbed, handler: Handler) -> Outcome | None:
        """Alone, so that it can only harm itself; in the node where that cannot be done."""
        try:
            alone = await self._suspects.run(task, handler)
        except ProcessLost as lost:
            outcome = verdict.poisonous(task, lost)
            self._events.emit(AttemptFailed(task.id, task.kind, task.attempt, outcome.error or ""))
            return outcome
        except Exception as error:
            if verdict.is_meant(handler, error):
                raise
            # It harmed nobody, so it is no suspect any more.  Whether it fails, too, is for the
            # node to see: the process has not run what the program does at its start.
            return verdict.cleared(task, error)
        if alone is None:
            return await self._run(run, task, handler)
        return self._unrecorded(run, task, alone)

    async def _run(self, run: Run, task: Grabbed, handler: Handler) -> Outcome | None:
        if handler.mode == "process":
            return await self._processes.run(task, handler)
        try:
            args, kwargs = handler.arguments.unseal(task.payload)
        except PayloadUnreadable as error:
            return verdict.unreadable(task, error)
        if handler.transactional:
            ended = await run_in_transaction(
                self._store, task, handler, node=self._node, arguments=(args, kwargs)
            )
            return self._unrecorded(run, task, ended)
        if handler.mode == "thread":
            return await self._run_in_thread(run, task, handler, args, kwargs)
        if handler.time_limit_s is None:
            result = await call(handler, args, kwargs)
            if isinstance(result, Later):
                result = await ended_later(result)
        else:
            result = await limited(handler, ended_later(call(handler, args, kwargs)))
        return verdict.of_result(task, handler, result)

    async def _run_in_thread(
        self,
        run: Run,
        task: Grabbed,
        handler: Handler,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Outcome | None:
        thread = in_thread(self._threads, handler.function, args, kwargs)
        try:
            result = await limited(handler, ended_later(answered(asyncio.shield(thread))))
            return verdict.of_result(task, handler, result)
        except TimeLimitExceeded as error:
            if thread.done():
                raise  # it was waiting for somebody's report
            # A thread cannot be stopped: record now, keep the slot until both have ended.
            outcome = self._failed(task, handler, error)
            run.is_recorded, run.recorded = True, asyncio.Event()
            self._settler.add(Ended(task, outcome, self._ran_s(run), frees=False))
        except asyncio.CancelledError:
            if not run.taken_back or run.is_stopped:
                raise
        while not thread.done() and not run.is_stopped:
            await asyncio.wait([thread])
        if run.recorded is not None and not run.is_stopped:
            await run.recorded.wait()
        return None

    def _unrecorded(self, run: Run, task: Grabbed, known: Outcome | Recorded) -> Outcome | None:
        """What is left to record; nothing when the handler's own transaction has tried it."""
        if not isinstance(known, Recorded):
            return known
        ended = Ended(task, known.outcome, self._ran_s(run))
        self._settler.tell(ended, accepted=known.is_accepted)
        if known.is_accepted:
            run.is_recorded = True
            self._settled([ended])
        return None

    # ── many tasks in one call ────────────────────────────────────────────────────────────

    async def _attempt_batch(self, run: Run, handler: Handler) -> None:
        values, readable = [], []
        for task in run.tasks:
            try:
                (value,), _ = handler.arguments.unseal(task.payload)
            except PayloadUnreadable as error:
                self._end(run, task, verdict.unreadable(task, error))
            except Exception as error:
                self._end(run, task, self._failed(task, handler, error))
            else:
                values.append(value)
                readable.append(task)
        outcomes: list[Outcome | None]
        try:
            run.begin()
            result = await limited(handler, handler.function(values)) if values else None
            outcomes = [verdict.of_result(task, handler, result) for task in readable]
        except asyncio.CancelledError as error:
            outcomes = [self._interrupted(run, task, handler, error) for task in readable]
        except BaseException as error:
            outcomes = [self._failed(task, handler, error) for task in readable]
        for task, outcome in zip(readable, outcomes, strict=True):
            self._end(run, task, outcome)

    # ── the end ───────────────────────────────────────────────────────────────────────────

    def _failed(self, task: Grabbed, handler: Handler, error: BaseException) -> Outcome:
        outcome = verdict.of_error(task, handler, error, rng=self._rng)
        if self._tracing is not None:
            self._tracing.failed(error)
        if task.metadata is not None:
            outcome = verdict.before_next_run(task, outcome, self._clock.now())
        self._events.emit(AttemptFailed(task.id, task.kind, task.attempt, outcome.error or ""))
        return outcome

    def _interrupted(
        self, run: Run, task: Grabbed, handler: Handler, error: BaseException
    ) -> Outcome | None:
        """What a cancellation means: taken back, handed back, or the handler's own doing."""
        if task.id in run.taken_back:
            return None
        if run.is_stopped:
            return verdict.handed_back(task)
        own = HandlerCancelled("something that the handler awaited was cancelled")
        own.__cause__ = error
        return self._failed(task, handler, own)

    def _end(self, run: Run, task: Grabbed, outcome: Outcome | None) -> None:
        """Record the outcome; without one there is nothing to record, and the slot is free."""
        if run.is_abandoned or self._runs.get(task.id) is not run:
            return  # handed back without it, or settled in its own transaction
        if outcome is not None and not run.is_recorded:
            self._settler.add(Ended(task, outcome, self._ran_s(run)))
        else:
            del self._runs[task.id]
            self._finished([task.id])

    def _settled(self, batch: Sequence[Ended]) -> None:
        self._ran(batch)
        freed = [ended.task.id for ended in batch if ended.frees]
        for id in freed:
            self._runs.pop(id, None)
        if len(freed) < len(batch):
            self._recorded([ended.task.id for ended in batch if not ended.frees])
        self._finished(freed)
        self._again(batch)

    def _recorded(self, ids: Sequence[TaskId]) -> None:
        """The store has their outcomes; they end when their threads do."""
        for id in ids:
            run = self._runs.get(id)
            if run is not None and run.recorded is not None:
                run.recorded.set()

    def _abandon(self, run: Run, verdict_of: Callable[[Grabbed], Outcome]) -> None:
        """Let go of the run's tasks without it: the handler is deaf, or we made a mistake."""
        for task in run.tasks:
            self._end(run, task, None if task.id in run.taken_back else verdict_of(task))
        run.is_abandoned = True

    def _ran_s(self, run: Run) -> float:
        return self._clock.seconds() - run.started
