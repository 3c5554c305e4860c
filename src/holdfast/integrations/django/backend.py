"""The backend: Django's tasks, enqueued in Django's transactions."""

from __future__ import annotations

import atexit
import os
import re
import threading
from collections.abc import Iterable
from inspect import iscoroutinefunction, signature
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils import timezone

from holdfast.app import Holdfast
from holdfast.clock import SystemClock
from holdfast.config import Config
from holdfast.errors import UnknownTask
from holdfast.integrations.django.calls import our_priority, path_of
from holdfast.integrations.django.flavour import (
    BaseTaskBackend,
    api,
    exceptions,
    normalize_json,
    signals,
)
from holdfast.integrations.django.options import Options, read_options
from holdfast.integrations.django.results import local, new_result, result_of
from holdfast.integrations.django.running import Runner
from holdfast.task import Task
from holdfast.tasks import TaskDefinition

_ID = re.compile(r"[1-9][0-9]{0,17}")
_programs: dict[str, Program] = {}
_guard = threading.Lock()


class HoldfastBackend(BaseTaskBackend):  # type: ignore[misc]
    """A backend of TASKS.  Django makes one for each thread; they share the app of the process."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._kept: Program | None = None
        self.holdfast_options = read_options(alias, params.get("OPTIONS", {}))
        if not self.queues:
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]: name the queues as QUEUES: a worker has to know them"
            )

    @property
    def holdfast(self) -> Holdfast:
        """The app behind this backend."""
        return self._program.app

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Add the task: inside of `transaction.atomic()` on its database, with that transaction.

        Arguments that the function does not take raise TypeError, and nothing is written.
        """
        self.validate_task(task)
        path = path_of(task)
        args, kwargs = normalize_json(list(args)), normalize_json(dict(kwargs))
        signature(task.func).bind(*([None] if task.takes_context else []), *args, **kwargs)
        handle = (
            self._program.definition(task)
            .options(
                priority=our_priority(task.priority),
                at=_aware(task.run_after),
                within=self._open_transaction,
            )
            .enqueue_sync(path, args, kwargs, task.priority)
        )
        result = new_result(
            task,
            id=str(handle.id),
            enqueued_at=local(SystemClock().now()),
            args=args,
            kwargs=kwargs,
            backend=self.alias,
        )
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The result with this id, committed by whoever enqueued it; TaskResultDoesNotExist."""
        task = self._program.find(str(result_id))
        handler = None if task is None else self.holdfast.registry.get(task.kind)
        if task is None or handler is None or not task.kind.startswith("django."):
            raise exceptions.TaskResultDoesNotExist(result_id)
        try:
            return result_of(task, handler, backend=self.alias)
        except LookupError as error:
            raise exceptions.TaskResultDoesNotExist(f"{result_id}: {error}") from error

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        """What is wrong with the settings: seen by every command of manage.py."""
        yield from super().check(**kwargs)
        try:
            here = self.holdfast_options.config()
        except ImproperlyConfigured as error:
            yield checks.Error(str(error), id="holdfast.E001")
            return
        for other in holdfast_backends():
            same = {*self.queues} & {*other.queues}
            if other.alias < self.alias and same and _is_same(here, other):
                yield checks.Error(
                    f"TASKS[{other.alias!r}] and TASKS[{self.alias!r}] share the queues "
                    f"{', '.join(sorted(same))} of one store",
                    hint="Give each of them QUEUES of its own.",
                    id="holdfast.E002",
                )

    @property
    def _open_transaction(self) -> str | None:
        """The database whose transaction the task becomes part of, if one is open."""
        database = self.holdfast_options.database
        if database is not None and connections[database].in_atomic_block:
            return database
        return None

    @property
    def _program(self) -> Program:
        kept = self._kept
        if kept is None or kept is not _programs.get(self.alias) or kept.pid != os.getpid():
            kept = self._kept = program_of(self.holdfast_options, frozenset(self.queues))
        return kept


class Program:
    """What one process keeps of a backend: the app, with two kinds for each queue."""

    def __init__(self, options: Options, queues: frozenset[str], config: Config) -> None:
        self.made_for = (options, queues, config)
        self.pid = os.getpid()
        self.app = Holdfast(config=config)
        runner = Runner(self.app, options)
        self._definitions = {queue: runner.register(queue) for queue in sorted(queues)}

    def definition(self, task: Any) -> TaskDefinition[..., Any]:
        run, run_async = self._definitions[task.queue_name]
        return run_async if iscoroutinefunction(task.func) else run

    def find(self, id: str) -> Task | None:
        if not _ID.fullmatch(id):
            return None
        try:
            return self.app.call(self.app.get(int(id)))
        except UnknownTask:
            return None


def program_of(options: Options, queues: frozenset[str]) -> Program:
    """The program of this backend, made anew after a fork or a change of the settings."""
    config = options.config()
    with _guard:
        found = _programs.get(options.alias)
        is_ours = found is not None and found.pid == os.getpid()
        if found is not None and is_ours and found.made_for == (options, queues, config):
            return found
        if found is not None and is_ours:
            found.app.close_sync()
        _programs[options.alias] = made = Program(options, queues, config)
        return made


def close_all() -> None:
    """Close what the backends of this process have opened; the next use opens it again."""
    with _guard:
        programs = [one for one in _programs.values() if one.pid == os.getpid()]
        _programs.clear()
    for program in programs:
        program.app.close_sync()


atexit.register(close_all)


def holdfast_backends() -> list[HoldfastBackend]:
    """The backends of TASKS that are Holdfast's."""
    return [one for one in api.task_backends.all() if isinstance(one, HoldfastBackend)]


def _is_same(config: Config, other: HoldfastBackend) -> bool:
    try:
        found = other.holdfast_options.config()
    except ImproperlyConfigured:
        return False  # its own check says so
    return (found.url, found.schema) == (config.url, config.schema)


def _aware(moment: Any) -> Any:
    if moment is None or timezone.is_aware(moment):
        return moment
    return timezone.make_aware(moment)
