"""The app: where a program names its store and its tasks.

    app = Holdfast("sqlite:///orders.db")

    @app.task(queue="mail", retry=Retry(attempts=5))
    async def send_email(to: str, subject: str) -> None: ...

Nothing is opened by an import.  The store opens at the first use, once for each event loop;
programs without a loop use a thread with a loop of its own, behind the `…_sync` methods.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from itertools import count
from random import Random
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    cast,
    overload,
)

from holdfast.booking import Booking
from holdfast.bus import Bus
from holdfast.client import Client
from holdfast.clock import Clock, SystemClock
from holdfast.config import Config, load_config
from holdfast.errors import ConfigurationError, UnknownTask
from holdfast.handler import Handler, Mode, Registry
from holdfast.node.compose import make_node
from holdfast.node.node import Node
from holdfast.node.runtimes import Runtimes
from holdfast.node.settings import NodeSettings
from holdfast.outcomes import Later
from holdfast.payload import Arguments, Codec
from holdfast.policy import (
    NO_RETRY,
    Deadline,
    RetryPolicy,
    Seconds,
    Sharding,
    Spread,
    seconds,
)
from holdfast.queues import Queue
from holdfast.schedules import Schedules
from holdfast.store import Store
from holdfast.task import (
    PRIORITY_DEFAULT,
    Enqueued,
    NewTask,
    Task,
    TaskId,
    clamped_priority,
    trigger_of,
)
from holdfast.tasks import Handle, TaskDefinition
from holdfast.telemetry.events import Events, IncidentRaised
from holdfast.telemetry.logs import LOGGER, log_events
from holdfast.transactions import Caller

if TYPE_CHECKING:
    from holdfast.telemetry.metrics import CollectorRegistry, Metrics
    from holdfast.telemetry.tracing import TracerProvider, Tracing

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

DEADLINE = Deadline()
SPREAD = Spread()
TURNS_MAX = 1_000


class Holdfast:
    """One program's tasks, on one store.

    The address comes from the argument, else from HOLDFAST_URL, else from holdfast.toml.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        payload_bytes_max: int | None = None,
        connections_max: int | None = None,
        config: Config | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
        wrap_store: Callable[[Store], Store] | None = None,
        wrap_bus: Callable[[Bus], Bus] | None = None,
    ) -> None:
        """`wrap_store` and `wrap_bus` put something of yours around the real parts: see
        holdfast.testing.faults."""
        self.config = config or load_config(
            {
                "url": url,
                "schema": schema,
                "payload_bytes_max": payload_bytes_max,
                "connections_max": connections_max,
            }
        )
        self.events = Events()
        self.registry = Registry()
        self.tracing: Tracing | None = None
        self.schedules = Schedules(self.store, self.client, events=self.events)
        self._clock = clock or SystemClock()
        self._rng = rng or Random()
        self._wrap_store = wrap_store
        self._wrap_bus = wrap_bus
        self._runtimes = self._no_runtimes()
        self._spread = count(self._rng.getrandbits(16))

    # ── tasks ─────────────────────────────────────────────────────────────────────────────

    @overload
    def task(self, function: Callable[P, Awaitable[Later[R]]], /) -> TaskDefinition[P, R]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> TaskDefinition[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> TaskDefinition[P, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        transactional: Literal[True],
        name: str | None = None,
        queue: str = "default",
        retry: RetryPolicy = NO_RETRY,
        priority: int = PRIORITY_DEFAULT,
        time_limit: Seconds | None = None,
        deadline: Deadline | Seconds = DEADLINE,
        on_error: Literal["block", "skip"] = "block",
        booking: Booking | None = None,
        turns: float = 1.0,
        sharding: Sharding = SPREAD,
    ) -> Callable[[Callable[Concatenate[Any, P], Awaitable[R]]], TaskDefinition[P, R]]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        retry: RetryPolicy = NO_RETRY,
        priority: int = PRIORITY_DEFAULT,
        mode: Mode | None = None,
        time_limit: Seconds | None = None,
        deadline: Deadline | Seconds = DEADLINE,
        on_error: Literal["block", "skip"] = "block",
        booking: Booking | None = None,
        turns: float = 1.0,
        sharding: Sharding = SPREAD,
    ) -> _Decorator: ...
    def task(
        self,
        function: Any = None,
        /,
        *,
        transactional: bool = False,
        name: str | None = None,
        queue: str = "default",
        retry: RetryPolicy = NO_RETRY,
        priority: int = PRIORITY_DEFAULT,
        mode: Mode | None = None,
        time_limit: Seconds | None = None,
        deadline: Deadline | Seconds = DEADLINE,
        on_error: Literal["block", "skip"] = "block",
        booking: Booking | None = None,
        turns: float = 1.0,
        sharding: Sharding = SPREAD,
    ) -> Any:
        """Register a handler.

        Async functions run on the loop, others in a thread, or in a process with mode="process".
        A transactional handler gets the store's connection as first argument: its writes there
        and the settle commit together.  `time_limit` ends one attempt; after `deadline` a task
        that nobody settled counts as stuck.  `on_error` says whether later tasks of the same
        ordering key wait for one that is parked in ERROR.  `booking` limits the kind on top of
        the node's slots; it is served `turns` times while other kinds of its priority are served
        once.  `sharding` chooses the partitions of its tasks.
        """

        def register(function: Any) -> TaskDefinition[Any, Any]:
            handler = self._handler(
                function,
                name=name,
                queue=queue,
                retry=retry,
                priority=clamped_priority(priority),
                mode=mode,
                transactional=transactional,
                time_limit_s=None if time_limit is None else seconds(time_limit),
                deadline=deadline if isinstance(deadline, Deadline) else Deadline(deadline),
                skips_errors=on_error == "skip",
                booking=booking,
                turns=turns,
                sharding=sharding,
            )
            self.registry.add(handler)
            return TaskDefinition(self, handler)

        return register if function is None else register(function)

    def batch_task(
        self,
        *,
        max: int = 100,
        name: str | None = None,
        queue: str = "default",
        retry: RetryPolicy = NO_RETRY,
        priority: int = PRIORITY_DEFAULT,
        time_limit: Seconds | None = None,
        booking: Booking | None = None,
        turns: float = 1.0,
    ) -> Callable[[Callable[[list[T]], Awaitable[None]]], TaskDefinition[[T], None]]:
        """Register a handler that takes up to `max` tasks in one call, as a list of their values.

        Each task is enqueued with one value.  When the call raises, all of them have failed.
        """

        def register(
            function: Callable[[list[T]], Awaitable[None]],
        ) -> TaskDefinition[[T], None]:
            handler = self._handler(
                function,
                name=name,
                queue=queue,
                retry=retry,
                priority=clamped_priority(priority),
                batch_max=max,
                time_limit_s=None if time_limit is None else seconds(time_limit),
                booking=booking,
                turns=turns,
                sharding=SPREAD,
            )
            self.registry.add(handler)
            return TaskDefinition(self, handler)

        return register

    def _handler(
        self,
        function: Callable[..., Any],
        *,
        name: str | None,
        mode: Mode | None = None,
        transactional: bool = False,
        batch_max: int | None = None,
        **policies: Any,
    ) -> Handler:
        is_async = inspect.iscoroutinefunction(function)
        kind = name or function.__name__
        if not hasattr(policies["retry"], "delay_s"):
            raise ConfigurationError(f"task {kind!r}: retry= takes a policy: Retry(attempts=5)")
        turns = policies["turns"]
        if type(turns) not in (int, float) or not 0 < turns <= TURNS_MAX:
            raise ConfigurationError(
                f"task {kind!r}: turns= is a number above 0, at most {TURNS_MAX}; it is {turns!r}"
            )
        if mode is None:
            mode = "async" if is_async else "thread"
        if (mode == "async") != is_async:
            raise ConfigurationError(
                f"task {kind!r}: mode={mode!r} does not fit "
                f"{'an async' if is_async else 'a sync'} function"
            )
        if (transactional or batch_max is not None) and not is_async:
            raise ConfigurationError(f"task {kind!r}: write it as an async function")
        shape = _one_of(kind, function) if batch_max is not None else function
        arguments = Arguments(
            kind,
            shape,
            skip=1 if transactional else 0,
            bytes_max=self.config.payload_bytes_max,
        )
        return Handler(
            kind=kind,
            function=function,
            mode=mode,
            arguments=arguments,
            result=Codec(_result_type(function)),
            transactional=transactional,
            batch_max=batch_max,
            **policies,
        )

    # ── nodes ─────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def node(
        self,
        queues: str | Sequence[str] | None = None,
        *,
        settings: NodeSettings | None = None,
        **changes: Any,
    ) -> AsyncIterator[Node]:
        """A worker inside your program, for as long as the block lasts.

        Serves all queues of the app unless some are named.  `changes` are fields of NodeSettings.
        """
        if isinstance(queues, str):
            queues = [queues]
        names = list(queues) if queues is not None else self.registry.queues
        if not names:
            raise ConfigurationError("this app has no tasks yet: there is nothing to serve")
        for name in names:
            self.registry.require_queue(name)
        runtime = await self._runtimes.get()
        await self.schedules.register()
        node = make_node(
            runtime,
            self.registry,
            names,
            replace(settings or self.config.node, **changes),
            clock=self._clock,
            rng=self._rng,
            events=self.events,
            tracing=self.tracing,
        )
        stop_logging = log_events(self.events, every_task=LOGGER.isEnabledFor(logging.DEBUG))
        try:
            async with node:
                yield node
        finally:
            stop_logging()

    # ── asking after tasks ────────────────────────────────────────────────────────────────

    async def get(self, id: int) -> Task:
        """The task as it is now; UnknownTask when there is none."""
        task = await (await self.client()).get(TaskId(id))
        if task is None:
            raise UnknownTask(f"no task has the id {id}; it may have been cleaned away")
        return task

    def on_incident(self, hook: Callable[[IncidentRaised], None]) -> Callable[[], None]:
        """Call `hook` with each incident that a node of this process raises; call the answer to
        stop.

        One node in the whole cluster is the watcher, so each incident reaches one hook.  The hook
        runs on the node's loop: hand over what takes long.
        """

        def hear(event: object) -> None:
            if isinstance(event, IncidentRaised):
                hook(event)

        return self.events.listen(hear, every_task=False)

    def queue(self, name: str) -> Queue:
        """The queue, to limit, pause or weigh it while nodes run."""
        return Queue(name, self.store)

    def handle(self, id: int) -> Handle[Any]:
        """A handle for a task whose id was kept elsewhere."""
        return Handle(self, None, TaskId(id), created=False)

    # ── telemetry ─────────────────────────────────────────────────────────────────────────

    def metrics(self, registry: CollectorRegistry | None = None) -> Metrics:
        """Count what happens from now on, for Prometheus, in your registry or one of its own."""
        from holdfast.telemetry.metrics import Metrics

        return Metrics(self.events, registry)

    def trace(self, tracer_provider: TracerProvider | None = None) -> None:
        """Make spans of OpenTelemetry for enqueues, and for attempts of nodes that start later.

        Without a provider, the global one of the program is used.
        """
        from holdfast.telemetry.tracing import Tracing

        self.tracing = Tracing(tracer_provider)

    # ── life ──────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        await self._runtimes.get()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close what this event loop opened.  Tasks that were enqueued stay enqueued."""
        await self._runtimes.close()

    def close_sync(self) -> None:
        """Close what the sync methods opened."""
        self._runtimes.close_sync()

    @contextmanager
    def standing_in(self, url: str, *, clock: Clock) -> Iterator[None]:
        """For tests: within the block the app works on another store, by another clock.

        What was open before stays open and is used again afterwards; what the block has opened
        is closed at its end.
        """
        before = self.config, self._clock, self._runtimes
        self.config = replace(self.config, url=url, listen_url=None, pooled=None)
        self._clock = clock
        self._runtimes = self._no_runtimes()
        try:
            yield
        finally:
            opened = self._runtimes
            self.config, self._clock, self._runtimes = before
            opened.close_all()

    async def store(self) -> Store:
        """The open store of this event loop."""
        return (await self._runtimes.get()).store

    # ── what definitions and handles ask for ──────────────────────────────────────────────

    def client_now(self) -> Client | None:  # if this loop has opened one already
        runtime = self._runtimes.here
        return None if runtime is None else runtime.client

    async def client(self) -> Client:
        return (await self._runtimes.get()).client

    def require_queue(self, queue: str) -> str:
        return self.registry.require_queue(queue)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for sync code, on the portal's loop."""
        return self._runtimes.call(work)

    def partition(self, sharding: Sharding, ordering_key: str | None, partitions: int) -> int:
        partition = sharding.partition(
            partitions=partitions, number=next(self._spread), ordering_key=ordering_key
        )
        if not 0 <= partition < partitions:
            raise ConfigurationError(
                f"the sharding policy chose partition {partition} of {partitions}"
            )
        return partition

    def partition_sync(self, sharding: Sharding, ordering_key: str | None) -> int:
        return self.partition(sharding, ordering_key, self._runtimes.any().store.partitions)

    async def enqueue_within(self, connection: Any, tasks: list[NewTask]) -> list[Enqueued]:
        runtime = await self._runtimes.get()
        caller = runtime.caller(connection)
        if not caller.is_async:
            enqueued = caller.run_sync(runtime.store.enqueueing(tasks))
        else:
            enqueued = await caller.run(runtime.store.enqueueing(tasks))
        return _sent(caller, tasks, enqueued)

    def enqueue_within_sync(self, connection: Any, tasks: list[NewTask]) -> list[Enqueued]:
        runtime = self._runtimes.any()
        caller = runtime.caller(connection)
        if caller.is_async:
            raise ConfigurationError("this connection is async: await enqueue() instead")
        return _sent(caller, tasks, caller.run_sync(runtime.store.enqueueing(tasks)))

    def _no_runtimes(self) -> Runtimes:
        return Runtimes(
            self.config.address,
            clock=self._clock,
            rng=self._rng,
            events=self.events,
            wrap_store=self._wrap_store,
            wrap_bus=self._wrap_bus,
        )


class _Decorator:
    """The type of `app.task(…)`: keeps the signature of what it decorates."""

    @overload
    def __call__(self, function: Callable[P, Awaitable[Later[R]]], /) -> TaskDefinition[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> TaskDefinition[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskDefinition[P, R]: ...
    def __call__(self, function: Any, /) -> Any: ...


def _sent(caller: Caller, tasks: list[NewTask], enqueued: list[Enqueued]) -> list[Enqueued]:
    triggers = [trigger_of(t, e) for t, e in zip(tasks, enqueued, strict=True) if e.created]
    if triggers:
        caller.after_commit(triggers)
    return enqueued


def _one_of(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The shape of one task of a batch handler: its list's element."""
    parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    if len(parameters) != 1:
        raise ConfigurationError(f"task {kind!r}: a batch handler takes one parameter, a list")
    (parameter,) = parameters
    element = getattr(parameter.annotation, "__args__", (Any,))[0]

    def one(**values: Any) -> None: ...

    shape = parameter.replace(annotation=element)
    one.__signature__ = inspect.Signature([shape])  # type: ignore[attr-defined]
    one.__annotations__ = {shape.name: element}
    return one


def _result_type(function: Callable[..., Any]) -> Any:
    try:
        hint = inspect.signature(function, eval_str=True).return_annotation
    except NameError as error:
        raise ConfigurationError(
            f"the annotations of {function.__qualname__} cannot be resolved: {error}"
        ) from None
    return Any if hint is inspect.Signature.empty else cast(Any, hint)
