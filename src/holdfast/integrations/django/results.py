"""A task of ours as the TaskResult that Django's users know."""

from __future__ import annotations

import builtins
import re
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from holdfast.handler import Handler
from holdfast.integrations.django.calls import task_at
from holdfast.integrations.django.flavour import InvalidTask, base
from holdfast.payload import opened
from holdfast.task import State, Task

NOBODY = "unknown"  # a worker whose name was not kept
NO_EXCEPTION = "holdfast.errors.TaskNotDone"  # parked or ended without an exception of the task's

_STATUS = {
    State.WAITING: "READY",
    State.SUBMITTED: "READY",
    State.PROCESSING: "RUNNING",
    State.DONE: "SUCCESSFUL",
    State.ERROR: "FAILED",
    State.FAILED: "FAILED",
    State.CANCELLED: "FAILED",
}
_RAISED = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*)(?::|$)")


def local(moment: datetime | None) -> datetime | None:
    """The moment as Django's other times are: without a zone when USE_TZ is off."""
    if moment is None or settings.USE_TZ:
        return moment
    naive: datetime = timezone.make_naive(moment)
    return naive


def new_result(task: Any, **fields: Any) -> Any:
    """A TaskResult of this task, with what is not given unset."""
    given: dict[str, Any] = {
        "status": base.TaskResultStatus.READY,
        "enqueued_at": None,
        "started_at": None,
        "finished_at": None,
        "last_attempted_at": None,
        "errors": [],
        "worker_ids": [],
    }
    return base.TaskResult(task=task, **(given | fields))


def as_called(path: str, **asked: Any) -> Any:
    """The Task at the path, with what this call of it asked for; LookupError."""
    found = task_at(path)
    try:
        return found.using(**asked)
    except InvalidTask as error:
        raise LookupError(f"{path!r} does not fit its backend any more: {error}") from error


def result_of(task: Task, handler: Handler, *, backend: str) -> Any:
    """The task's TaskResult; LookupError when its function is not there any more.

    Only the last error is kept, and only the last worker.  When it began to run is known while
    it runs and once it is done.
    """
    call = handler.arguments.named(task.payload)
    django_task = as_called(
        call["path"],
        backend=backend,
        queue_name=task.queue,
        priority=call["priority"],
        run_after=local(task.due_at) if task.state is State.WAITING else None,
    )
    kept = handler.result.decode(opened(task.result)) if task.result is not None else {}
    tried_at = local(_tried_at(task, handler, kept))
    result = new_result(
        django_task,
        id=str(task.id),
        status=base.TaskResultStatus[_STATUS[task.state]],
        enqueued_at=local(task.enqueued_at),
        started_at=tried_at if task.deliveries == 1 else None,
        finished_at=local(task.finished_at),
        last_attempted_at=tried_at,
        args=call["args"],
        kwargs=call["kwargs"],
        backend=backend,
        errors=[task_error(task.error)] if task.error else [],
        worker_ids=workers(task.deliveries, task.node),
    )
    set_fields(result, _return_value=kept.get("value"))
    return result


def _tried_at(task: Task, handler: Handler, kept: dict[str, Any]) -> datetime | None:
    """When its last run began: kept with a result, and known of one that runs now."""
    if "began_at" in kept:
        return datetime.fromisoformat(kept["began_at"])
    if task.state is State.PROCESSING and task.deadline_at is not None:
        return task.deadline_at - timedelta(seconds=handler.deadline.seconds)
    return None


def workers(deliveries: int, node: str | None) -> list[str]:
    """One name for each attempt, because Django counts attempts by them."""
    return [NOBODY] * (deliveries - 1) + [node or NOBODY] if deliveries else []


def set_fields(result: Any, **values: Any) -> None:
    """Change a TaskResult that a task or a receiver holds already, as Django's own backends do."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def task_error(text: str) -> Any:
    """The stored text of an error as a TaskError, with the path of its class."""
    return base.TaskError(exception_class_path=exception_path(text), traceback=text)


def exception_path(text: str) -> str:
    """The class in a traceback: the first line after the last frame that is not indented."""
    lines = text.splitlines()
    if lines and "Exception Group Traceback" in lines[0]:
        lines = [line[4:] for line in lines if line.startswith("  | ")]
    frames = [n for n, line in enumerate(lines) if line.startswith('  File "')]
    after = lines[frames[-1] :] if frames else lines
    raised = next((line for line in after if line and not line[0].isspace()), "")
    match = _RAISED.match(raised)
    if match is None:
        return NO_EXCEPTION
    if "." in match[1]:
        return match[1]
    return f"builtins.{match[1]}" if hasattr(builtins, match[1]) else NO_EXCEPTION
