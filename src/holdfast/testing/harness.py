"""What the pytest fixture `holdfast` gives to a test: the app on a store and a clock of the test's.

The store is SQLite, by default in memory, and goes by the virtual clock: a due time comes when
the test moves the clock, never by waiting.  Handlers run on a real node, so retries, limits,
ordering keys and outcomes are the real ones.  What a handler itself waits for, such as
`asyncio.sleep`, takes as long as it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.app import Holdfast
from holdfast.clock import Clock, SystemClock
from holdfast.dispatch.limits import Limits
from holdfast.errors import ConfigurationError, WrongArguments
from holdfast.node.node import Node
from holdfast.payload import PayloadUnreadable
from holdfast.policy import seconds
from holdfast.store import Filter, Store
from holdfast.task import State, Task, TaskId
from holdfast.tasks import NO_OPTIONS, Enqueuer, Options
from holdfast.telemetry.events import TaskSettled
from holdfast.testing.clock import VirtualClock

POLL_S = 0.001
LOOKS_MIN = 100  # on a machine that is busy otherwise, half a second may be no time at all
QUIET_S = 0.5  # nothing ran for so long: what is left is limited, paused or behind an elder
# Whatever a node finds at its next poll, such as that a handler moved the clock, comes before that.
LIMITS = Limits(idle_wait_s=0.02)
PAGE = 500
SHOWN_MAX = 20

# What a task in the store tells of the options that it was enqueued with.
_PLAIN = ("queue", "priority", "fairness_key", "ordering_key")
_MATCHED = {*_PLAIN, "delay", "at", "metadata", "traceparent", "tracestate"}


class Harness:
    """One test's hold on the app.  Every method but `run_until_idle` may be called anywhere."""

    def __init__(self, app: Holdfast, clock: VirtualClock) -> None:
        self.app = app
        self.clock = clock
        self._real: Clock = SystemClock()

    # ── running ───────────────────────────────────────────────────────────────────────────

    async def run_until_idle(self, timeout_s: float = 10.0) -> None:
        """Run everything that can run now, and what that enqueues, until nothing can.

        Delayed tasks and retries wait for the clock; limited, paused and blocked tasks stay
        where they are.  `timeout_s` is real time: TimeoutError names what still runs then.
        """
        queues = self.app.registry.queues
        if not queues:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._run(queues)
        except TimeoutError:
            busy = await self._find([State.PROCESSING, State.SUBMITTED])
            raise TimeoutError(
                f"after {timeout_s:g} s of real time these can still run:\n{self._listed(busy)}"
            ) from None

    def run_until_idle_sync(self, timeout_s: float = 10.0) -> None:
        """The same for a test without an event loop."""
        self.app.call(self.run_until_idle(timeout_s))

    async def _run(self, queues: Sequence[str]) -> None:
        settled = 0

        def hear(event: object) -> None:
            nonlocal settled
            settled += isinstance(event, TaskSettled)

        stop = self.app.events.listen(hear)
        try:
            async with self.app.node(
                queues, coordinator="local", drain_s=0.0, limits=LIMITS
            ) as node:
                await self._quiet(node, lambda: settled)
        finally:
            stop()

    async def _quiet(self, node: Node, settled: Callable[[], int]) -> None:
        seen, since, looks = settled(), self._real.seconds(), 0
        while True:
            # Due ones first: between the two looks the waker may submit them, never the reverse.
            if node.is_idle and not await self._is_due() and not await self._is_busy():
                return
            now = self._real.seconds()
            looks += 1
            if node.in_flight or settled() != seen:
                seen, since, looks = settled(), now, 0
            elif now - since >= QUIET_S and looks >= LOOKS_MIN:
                return
            await asyncio.sleep(POLL_S)

    async def _is_busy(self) -> bool:
        return bool(await self._find([State.PROCESSING, State.SUBMITTED], limit=1))

    async def _is_due(self) -> bool:
        """Whether the time of a waiting task has come."""
        now = self.clock.now()
        return any(
            task.due_at is not None and task.due_at <= now
            for task in await self._find([State.WAITING])
        )

    # ── what was enqueued ─────────────────────────────────────────────────────────────────

    def assert_enqueued(self, task: Enqueuer[Any, Any], /, **arguments: Any) -> list[Task]:
        """Some task of this kind was enqueued with these arguments, whatever became of it.

        Options are given as in an enqueue: `assert_enqueued(send.options(queue="mail"), to="a")`.
        Arguments and options that are not named match anything.  Answers all that match.
        """
        found, everything = self._matching(task, arguments)
        if found:
            return found
        options = "".join(f" {name}={value!r}" for name, value in _given(task.chosen).items())
        raise AssertionError(
            f"no task {_call(task.handler.kind, arguments)}{options} was enqueued, but:\n"
            f"{self._listed(everything)}"
        )

    def assert_not_enqueued(self, task: Enqueuer[Any, Any], /, **arguments: Any) -> None:
        """No task of this kind was enqueued with these arguments and options."""
        found, _ = self._matching(task, arguments)
        if found:
            raise AssertionError(f"these tasks were enqueued:\n{self._listed(found)}")

    def _matching(
        self, task: Enqueuer[Any, Any], arguments: dict[str, Any]
    ) -> tuple[list[Task], list[Task]]:
        handler = task.handler
        for name in arguments:
            if name not in handler.arguments.names:
                raise WrongArguments(
                    f"task {handler.kind!r} has no parameter {name!r}; "
                    f"it takes {', '.join(handler.arguments.names) or 'none'}"
                )
        wanted = _given(task.chosen)
        everything = self.app.call(self._find([]))
        found = []
        for one in everything:
            if one.kind != handler.kind:
                continue
            named = handler.arguments.named(one.payload)
            has_arguments = all(named[name] == value for name, value in arguments.items())
            if has_arguments and all(_has(one, name, value) for name, value in wanted.items()):
                found.append(one)
        return found, everything

    async def _find(self, states: Sequence[State], limit: int | None = None) -> list[Task]:
        store: Store = await self.app.store()
        found: list[Task] = []
        after: TaskId | None = None
        while page := await store.find(Filter(states=states, after=after, limit=limit or PAGE)):
            found += page
            after = page[-1].id
            if limit is not None:
                break
        return found

    def _listed(self, tasks: Sequence[Task]) -> str:
        rows = [f"  {self._described(task)}" for task in tasks[:SHOWN_MAX]]
        if len(tasks) > SHOWN_MAX:
            rows.append(f"  … and {len(tasks) - SHOWN_MAX} more")
        return "\n".join(rows) or "  nothing was enqueued"

    def _described(self, task: Task) -> str:
        handler = self.app.registry.get(task.kind)
        try:
            shown = _call(task.kind, handler.arguments.named(task.payload) if handler else {})
        except PayloadUnreadable:
            shown = f"{task.kind}(?)"
        more = [f"queue={task.queue}", f"priority={task.priority}"]
        for name in ("fairness_key", "ordering_key"):
            if (value := getattr(task, name)) is not None:
                more.append(f"{name}={value}")
        if task.state is State.WAITING and task.due_at is not None:
            more.append(f"due_at={task.due_at.isoformat()}")
        return f"{shown}  {' '.join(more)}  {task.state.name}"


@contextmanager
def harness(app: Holdfast, url: str) -> Iterator[Harness]:
    """The app on a store of the test's own; afterwards it is as it was before."""
    if not url.startswith("sqlite:"):
        raise ConfigurationError(
            "the fixture holdfast needs a SQLite address: only there can the clock be moved"
        )
    clock = VirtualClock()
    with app.standing_in(url, clock=clock):
        app.call(app.store())  # now: later the test's own transaction may keep the file locked
        yield Harness(app, clock)


def _call(kind: str, arguments: Mapping[str, Any]) -> str:
    return f"{kind}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def _given(options: Options) -> dict[str, Any]:
    """The options that were named; ConfigurationError for one that no stored task tells of."""
    given = {
        one.name: getattr(options, one.name)
        for one in fields(options)
        if getattr(options, one.name) != getattr(NO_OPTIONS, one.name)
    }
    if unknown := given.keys() - _MATCHED:
        raise ConfigurationError(
            f"{', '.join(sorted(unknown))}= cannot be looked for: "
            f"a task can be found by {', '.join(sorted(_MATCHED))}"
        )
    return given


def _has(task: Task, name: str, value: Any) -> bool:
    if name in _PLAIN:
        return bool(getattr(task, name) == value)
    if name == "at":
        return bool(task.due_at == value)
    if name == "delay":
        return task.due_at == task.enqueued_at + timedelta(seconds=seconds(value))
    metadata = msgspec.json.decode(task.metadata) if task.metadata else {}
    if name == "metadata":
        return all(metadata.get(key) == one for key, one in value.items())
    return bool(metadata.get(name) == value)
