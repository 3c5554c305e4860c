"""The worker's side: handlers that run a Django task, and tell Django's signals about it."""

from __future__ import annotations

from random import Random
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections

from holdfast.app import Holdfast
from holdfast.clock import SystemClock
from holdfast.integrations.django.flavour import api, base, normalize_json, signals
from holdfast.integrations.django.options import Options
from holdfast.integrations.django.results import (
    as_called,
    local,
    new_result,
    set_fields,
    task_error,
    workers,
)
from holdfast.outcomes import HandlerSays, ParkInError, RetryAfter
from holdfast.policy import RetryPolicy
from holdfast.tasks import TaskDefinition
from holdfast.telemetry.events import NodeStarted
from holdfast.worker.context import current_task
from holdfast.worker.verdict import error_text


class Runner:
    """Runs the tasks of one backend, in threads or on the loop, as their functions want."""

    def __init__(self, app: Holdfast, options: Options) -> None:
        self._backend = options.alias
        self._retry = options.retry
        self._time_limit = options.time_limit
        self._node: str | None = None
        self._app = app
        app.events.listen(self._hear, every_task=False)

    def register(self, queue: str) -> tuple[TaskDefinition[..., Any], TaskDefinition[..., Any]]:
        """The two kinds of a queue: of functions, and of coroutine functions."""

        def run(path: str, args: list[Any], kwargs: dict[str, Any], priority: int = 0) -> Any:
            return self._run(self._attempt(path, args, kwargs, priority))

        async def run_async(
            path: str, args: list[Any], kwargs: dict[str, Any], priority: int = 0
        ) -> Any:
            return await self._run_async(self._attempt(path, args, kwargs, priority))

        policies: dict[str, Any] = {"retry": self._retry, "time_limit": self._time_limit}
        return (
            self._app.task(name=f"django.{queue}", queue=queue, **policies)(run),
            self._app.task(name=f"django.{queue}.async", queue=queue, **policies)(run_async),
        )

    def _attempt(
        self, path: str, args: list[Any], kwargs: dict[str, Any], priority: int
    ) -> Attempt:
        current = current_task()
        try:
            task = as_called(
                path, backend=self._backend, queue_name=current.queue, priority=priority
            )
        except LookupError as error:
            raise ParkInError(str(error)) from None
        result = new_result(
            task,
            id=str(current.id),
            enqueued_at=local(current.enqueued_at),
            args=args,
            kwargs=kwargs,
            backend=self._backend,
            worker_ids=workers(current.deliveries, self._node),
        )
        return Attempt(result, current.attempt, self._retry)

    @staticmethod
    def _run(attempt: Attempt) -> Any:
        close_old_connections()
        try:
            attempt.begin()
            try:
                value = normalize_json(attempt.task.call(*attempt.args, **attempt.kwargs))
            except Exception as error:
                attempt.fail(error)
                raise
            return attempt.succeed(value)
        finally:
            close_old_connections()

    @staticmethod
    async def _run_async(attempt: Attempt) -> Any:
        # A thread of its own for what the task asks of Django's sync parts, as a request has.
        async with ThreadSensitiveContext():
            try:
                await sync_to_async(attempt.begin)()
                try:
                    value = normalize_json(
                        await attempt.task.acall(*attempt.args, **attempt.kwargs)
                    )
                except Exception as error:
                    await sync_to_async(attempt.fail)(error)
                    raise
                return await sync_to_async(attempt.succeed)(value)
            finally:
                await sync_to_async(connections.close_all)()

    def _hear(self, event: object) -> None:
        if isinstance(event, NodeStarted):
            self._node = event.node


class Attempt:
    """One run of a task, as Django's signals hear of it."""

    def __init__(self, result: Any, number: int, retry: RetryPolicy) -> None:
        self.result = result
        self.task = result.task
        self._number = number
        self._retry = retry
        self._clock = SystemClock()
        self._began_at = self._clock.now()

    @property
    def args(self) -> list[Any]:
        context = [base.TaskContext(task_result=self.result)] if self.task.takes_context else []
        return context + list(self.result.args)

    @property
    def kwargs(self) -> dict[str, Any]:
        return dict(self.result.kwargs)

    def begin(self) -> None:
        now = local(self._began_at)
        started_at = now if self.result.attempts == 1 else None
        set_fields(
            self.result,
            status=base.TaskResultStatus.RUNNING,
            started_at=started_at,
            last_attempted_at=now,
        )
        self._send("task_started")

    def succeed(self, value: Any) -> dict[str, Any]:
        """The run is over; answers what is kept of it."""
        self._finish("SUCCESSFUL", _return_value=value)
        return {"value": value, "began_at": self._began_at.isoformat()}

    def fail(self, error: Exception) -> None:
        """The run failed; Django hears of an end when there is no other run."""
        self.result.errors.append(task_error(error_text(error)))
        if self._repeats(error):
            set_fields(self.result, status=base.TaskResultStatus.READY)
        else:
            self._finish("FAILED")

    def _repeats(self, error: Exception) -> bool:
        if isinstance(error, HandlerSays):
            return isinstance(error, RetryAfter)
        if self._retry.gives_up(error):
            return False
        return self._retry.delay_s(error, attempt=self._number, rng=Random(0)) is not None

    def _finish(self, status: str, **fields: Any) -> None:
        set_fields(
            self.result,
            status=base.TaskResultStatus[status],
            finished_at=local(self._clock.now()),
            **fields,
        )
        self._send("task_finished")

    def _send(self, name: str) -> None:
        # A receiver that raises is no reason to run the task again, nor to lose its result.
        sender = type(api.task_backends[self.result.backend])
        getattr(signals, name).send_robust(sender, task_result=self.result)
