"""What users hold in their hands: a task definition, its options, and a handle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar

import msgspec

from holdfast.client import Client, is_settled
from holdfast.errors import (
    ConfigurationError,
    DuplicateTask,
    ResultTimeout,
    TaskNotDone,
    UnknownTask,
)
from holdfast.handler import Handler, Registry
from holdfast.payload import opened
from holdfast.policy import Seconds, Sharding, Spread, Unique, seconds
from holdfast.schedule import Schedule
from holdfast.schedules import Schedules
from holdfast.store import Answer, Store
from holdfast.task import Enqueued, Key, NewTask, State, Task, TaskId, clamped_priority
from holdfast.telemetry import carrier
from holdfast.timing import Timing

if TYPE_CHECKING:
    from holdfast.telemetry.tracing import Send, Tracing

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

OnDuplicate = Literal["existing", "error"]
FAIRNESS_KEY_BYTES_MAX = 64
POLL_S, POLL_S_MAX = 0.01, 0.25


class Gate(Protocol):
    """What definitions and handles ask of the app that they belong to."""

    registry: Registry
    tracing: Tracing | None
    schedules: Schedules

    async def store(self) -> Store: ...
    async def close(self) -> None: ...
    def close_sync(self) -> None: ...
    def client_now(self) -> Client | None: ...
    async def client(self) -> Client: ...
    def require_queue(self, queue: str) -> str: ...
    def call(self, work: Any) -> Any: ...
    def partition(self, sharding: Sharding, ordering_key: str | None, partitions: int) -> int: ...
    def partition_sync(self, sharding: Sharding, ordering_key: str | None) -> int: ...
    async def enqueue_within(self, connection: Any, tasks: list[NewTask]) -> list[Enqueued]: ...
    def enqueue_within_sync(self, connection: Any, tasks: list[NewTask]) -> list[Enqueued]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything about an enqueue that is not an argument of the handler."""

    queue: str | None = None
    priority: int | None = None
    delay: Seconds | None = None
    at: datetime | None = None
    fairness_key: str | None = None
    weight: float = 1.0
    ordering_key: str | None = None
    unique: Unique | str | None = None
    external_id: str | None = None
    external_id_period: Seconds | None = None
    on_duplicate: OnDuplicate | None = None
    metadata: Mapping[str, Any] | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    within: Any = None

    def __post_init__(self) -> None:
        if self.delay is not None and self.at is not None:
            raise ConfigurationError("give delay= or at=, not both")
        if self.at is not None and self.at.tzinfo is None:
            raise ConfigurationError("at= needs a time zone, such as datetime.now(UTC) + …")
        if self.delay is not None and seconds(self.delay) < 0:
            raise ConfigurationError("delay= must not be negative")
        if self.unique is not None and self.external_id is not None:
            raise ConfigurationError("a task has a unique key or an external id, not both")
        if "" in (self.fairness_key, self.ordering_key):
            raise ConfigurationError("a key is not empty: leave it out, or give None")
        if self.fairness_key and len(self.fairness_key.encode()) > FAIRNESS_KEY_BYTES_MAX:
            raise ConfigurationError(
                f"a fairness key has at most {FAIRNESS_KEY_BYTES_MAX} bytes: {self.fairness_key!r}"
            )

    @property
    def duplicates_raise(self) -> bool:
        if self.on_duplicate is not None:
            return self.on_duplicate == "error"
        return isinstance(self.unique, Unique) and self.unique.on_duplicate == "error"

    @property
    def is_for_one_task(self) -> bool:
        """Whether something is said that makes no sense for many tasks."""
        one = (self.delay, self.at, self.unique, self.external_id, self.on_duplicate, self.within)
        return any(value is not None for value in one)

    def key(self, kind: str) -> Key | None:
        if self.external_id is not None:
            period = self.external_id_period
            return Key("external", self.external_id, None if period is None else seconds(period))
        if self.unique is None:
            return None
        unique = Unique(self.unique) if isinstance(self.unique, str) else self.unique
        period = unique.period
        return Key(f"kind:{kind}", unique.key, None if period is None else seconds(period))

    def metadata_bytes(self) -> bytes | None:
        found: dict[str, Any] = {**(self.metadata or {}), **self.given_trace()}
        if any(str(name).startswith(("holdfast.", "holdfast:")) for name in found):
            raise ConfigurationError(
                "metadata under names that begin with 'holdfast.' or 'holdfast:' is Holdfast's own"
            )
        if not found:
            return None
        try:
            return msgspec.json.encode(found)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ConfigurationError(f"metadata cannot be written as JSON: {error}") from None

    def given_trace(self) -> dict[str, str]:
        """The trace context that the caller gave."""
        values = {name: getattr(self, name) for name in carrier.GIVEN}
        return {name: value for name, value in values.items() if value is not None}


NO_OPTIONS = Options()


class Handle(Generic[R_co]):
    """A task that was enqueued.  `created` is False when its key belonged to an older one."""

    __slots__ = ("_gate", "_handler", "created", "id")

    def __init__(self, gate: Gate, handler: Handler | None, id: TaskId, created: bool) -> None:
        self._gate = gate
        self._handler = handler
        self.id = id
        self.created = created

    def __repr__(self) -> str:
        return f"Handle(id={self.id}, created={self.created})"

    async def task(self) -> Task:
        """The task as it is now; UnknownTask when it does not exist (any more)."""
        task = await (await self._gate.client()).get(self.id)
        if task is None:
            raise UnknownTask(f"no task has the id {self.id}; it may have been cleaned away")
        return task

    async def state(self) -> State:
        return (await self.task()).state

    async def result(self, timeout: Seconds | None = None) -> R_co:  # noqa: ASYNC109
        """Wait for the end and answer the handler's result.

        TaskNotDone when it ended otherwise; ResultTimeout when it takes longer, and it goes on.
        """
        try:
            async with asyncio.timeout(None if timeout is None else seconds(timeout)):
                task = await self._ended()
        except TimeoutError:
            raise ResultTimeout(
                f"task {self.id} did not finish within {seconds(timeout or 0):g} s; it goes on"
            ) from None
        if task.state is not State.DONE:
            last = (task.error or "no message").strip().splitlines()[-1]
            raise TaskNotDone(
                f"task {self.id} ended in {task.state.name}: {last}",
                state=task.state.name,
                error=task.error,
            )
        handler = self._handler or self._gate.registry.get(task.kind)
        if task.result is None or handler is None:
            return None  # type: ignore[return-value]
        return handler.result.decode(opened(task.result))  # type: ignore[no-any-return]

    async def cancel(self) -> Answer:
        """Cancel it; a running attempt is stopped."""
        return await (await self._gate.client()).cancel(self.id)

    def state_sync(self) -> State:
        return self._gate.call(self.state())  # type: ignore[no-any-return]

    def result_sync(self, timeout: Seconds | None = None) -> R_co:
        return self._gate.call(self.result(timeout))  # type: ignore[no-any-return]

    async def _ended(self) -> Task:
        wait_s = POLL_S
        while not is_settled((task := await self.task()).state):
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, POLL_S_MAX)
        return task


class Enqueuer(Generic[P, R]):
    """Enqueues one kind with given options.  Wrong arguments raise before anything is written."""

    def __init__(self, gate: Gate, handler: Handler, options: Options) -> None:
        self._gate = gate
        self.handler = handler
        self._options = options

    @property
    def chosen(self) -> Options:  # what was given as options(…)
        return self._options

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Add a task; durable when it returns, or with your transaction when `within` is given."""
        sealed = self.handler.arguments.seal(args, kwargs)
        client = self._gate.client_now() or await self._gate.client()
        task = self._new(sealed, self._partition(client))
        if self._options.within is None and self._gate.tracing is None:
            return self._handle(await client.enqueue(task))
        (enqueued,) = await self._add(client, [task])
        return self._handle(enqueued)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """The same from sync code; with `within`, on your connection and thread."""
        if self._options.within is None:
            return self._gate.call(self.enqueue(*args, **kwargs))  # type: ignore[no-any-return]
        sealed = self.handler.arguments.seal(args, kwargs)
        sharding, key = self.handler.sharding, self._options.ordering_key
        task = self._new(sealed, self._gate.partition_sync(sharding, key))
        with self._sending([task]) as (tasks, send):
            (enqueued,) = self._gate.enqueue_within_sync(self._options.within, tasks)
            if send is not None:
                send.sent([enqueued.id])
        return self._handle(enqueued)

    async def enqueue_many(self, calls: Iterable[tuple[Any, ...]]) -> list[Handle[R]]:
        """Add one task for each tuple of arguments, all in one transaction."""
        sealed = [self.handler.arguments.seal(args, {}) for args in calls]
        client = await self._gate.client()
        tasks = [self._new(payload, self._partition(client)) for payload in sealed]
        return [self._handle(one) for one in await self._add(client, tasks)]

    async def _add(self, client: Client, tasks: list[NewTask]) -> list[Enqueued]:
        with self._sending(tasks) as (tasks, send):
            if self._options.within is not None:
                enqueued = await self._gate.enqueue_within(self._options.within, tasks)
            elif len(tasks) == 1:
                enqueued = [await client.enqueue(tasks[0])]
            else:
                enqueued = await client.enqueue_many(tasks)
            if send is not None:
                send.sent([one.id for one in enqueued])
        return enqueued

    @contextmanager
    def _sending(self, tasks: list[NewTask]) -> Iterator[tuple[list[NewTask], Send | None]]:
        """The tasks with the trace context of their enqueue, if the app is traced."""
        tracing = self._gate.tracing
        if tracing is None or not tasks:
            yield tasks, None
            return
        queue, kind = tasks[0].queue, self.handler.kind
        given = self._options.given_trace()
        with tracing.send(queue, kind, count=len(tasks), given=given) as send:
            if send is not None:
                metadata = carrier.with_trace(tasks[0].metadata, send.trace)  # alike for all
                tasks = [replace(task, metadata=metadata) for task in tasks]
            yield tasks, send

    def schedule(self, name: str, timing: Timing, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Let the task run at these times, with these arguments: say so where it is defined.

        Kept in the store under this name when a node of the app starts, once for all nodes.
        """
        self._gate.schedules.declare(name, self._scheduled(name, timing, args, kwargs))

    async def put_schedule(
        self, name: str, timing: Timing, /, *args: P.args, **kwargs: P.kwargs
    ) -> Schedule:
        """The same at run time, for a schedule that is not known when the program is written.

        It replaces the one of this name.  ConfigurationError for a timing without any slot ahead.
        """
        return await self._gate.schedules.put(self._scheduled(name, timing, args, kwargs))

    def _scheduled(
        self, name: str, timing: Timing, args: Any, kwargs: Any
    ) -> Callable[[int], Schedule]:
        """Builds the schedule, once it is known how many partitions there are."""
        options, handler = self._options, self.handler
        if options.is_for_one_task:
            raise ConfigurationError(
                "a schedule fires many tasks: of the options it takes queue, priority, "
                "fairness_key, weight, ordering_key and metadata"
            )
        common = {n: v for n, v in self._in_common.items() if n not in ("delay_s", "due_at", "key")}
        payload = handler.arguments.seal(args, kwargs)
        schedule = Schedule(name=name, timing=timing, payload=payload, **common)

        def build(partitions: int) -> Schedule:
            if type(handler.sharding) is Spread:
                return schedule
            key = options.ordering_key
            chosen = self._gate.partition(handler.sharding, key, partitions)
            return replace(schedule, partition=chosen)

        return build

    def _partition(self, client: Client) -> int:
        sharding, key = self.handler.sharding, self._options.ordering_key
        return self._gate.partition(sharding, key, client.partitions)

    def _new(self, payload: bytes, partition: int) -> NewTask:
        return NewTask(partition=partition, payload=payload, **self._in_common)

    @cached_property
    def _in_common(self) -> dict[str, Any]:
        """What all tasks that are enqueued from here have in common."""
        handler, options = self.handler, self._options
        priority = handler.priority if options.priority is None else options.priority
        return {
            "queue": self._gate.require_queue(options.queue) if options.queue else handler.queue,
            "kind": handler.kind,
            "priority": clamped_priority(priority),
            "delay_s": 0.0 if options.delay is None else seconds(options.delay),
            "due_at": options.at,
            "fairness_key": options.fairness_key,
            "weight": options.weight,
            "ordering_key": options.ordering_key,
            "metadata": options.metadata_bytes(),
            "key": options.key(handler.kind),
        }

    def _handle(self, enqueued: Enqueued) -> Handle[R]:
        if not enqueued.created and self._options.duplicates_raise:
            raise DuplicateTask(
                f"task {enqueued.id} has this key already; nothing was added",
                existing=enqueued.id,
            )
        return Handle(self._gate, self.handler, enqueued.id, enqueued.created)


class TaskDefinition(Enqueuer[P, R]):
    """A function that can be enqueued.  Called directly, it just runs."""

    def __init__(self, gate: Gate, handler: Handler) -> None:
        super().__init__(gate, handler, NO_OPTIONS)
        update_wrapper(self, handler.function)

    @property
    def app(self) -> Gate:
        """The app that it belongs to."""
        return self._gate

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler.function(*args, **kwargs)

    def options(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay: Seconds | None = None,
        at: datetime | None = None,
        fairness_key: str | None = None,
        weight: float = 1.0,
        ordering_key: str | None = None,
        unique: Unique | str | None = None,
        external_id: str | None = None,
        external_id_period: Seconds | None = None,
        on_duplicate: OnDuplicate | None = None,
        metadata: Mapping[str, Any] | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
        within: Any = None,
    ) -> Enqueuer[P, R]:
        """The same kind with other options; they never mix with the handler's arguments."""
        options = Options(
            queue=queue,
            priority=priority,
            delay=delay,
            at=at,
            fairness_key=fairness_key,
            weight=weight,
            ordering_key=ordering_key,
            unique=unique,
            external_id=external_id,
            external_id_period=external_id_period,
            on_duplicate=on_duplicate,
            metadata=metadata,
            traceparent=traceparent,
            tracestate=tracestate,
            within=within,
        )
        return Enqueuer(self._gate, self.handler, options)
