"""A handler: the code that runs a kind, and the policies that go with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from holdfast.booking import Booking
from holdfast.errors import ConfigurationError, UnknownKind, UnknownQueue
from holdfast.payload import Arguments, Codec
from holdfast.policy import Deadline, RetryPolicy, Sharding

Mode = Literal["async", "thread", "process"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """What the app knows of one kind.  Registered once, before a node starts."""

    kind: str
    queue: str
    function: Callable[..., Any]
    mode: Mode
    arguments: Arguments
    result: Codec
    retry: RetryPolicy
    sharding: Sharding
    priority: int
    booking: Booking | None = None  # on top of the node's slots
    transactional: bool = False
    batch_max: int | None = None  # set: one call takes a list of tasks
    time_limit_s: float | None = None
    deadline: Deadline = field(default_factory=Deadline)
    skips_errors: bool = False  # ordering key: do not wait for an elder in ERROR
    turns: float = 1.0  # served so often while other kinds of its priority are served once


class Registry:
    """All handlers of an app, by kind."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._wraps: list[Callable[[Handler], Handler]] = []

    def wrap(self, around: Callable[[Handler], Handler]) -> None:
        """Put `around` every handler, also those that come later.

        Nodes that start from now on run what it answers; a task that is called directly does not.
        """
        self._wraps.append(around)
        for kind, handler in self._handlers.items():
            self._handlers[kind] = around(handler)

    def add(self, handler: Handler) -> None:
        if handler.kind in self._handlers:
            other = self._handlers[handler.kind].function
            raise ConfigurationError(
                f"two handlers for kind {handler.kind!r}: {_where(other)} and "
                f"{_where(handler.function)}; give one of them another name="
            )
        for around in self._wraps:
            handler = around(handler)
        self._handlers[handler.kind] = handler

    def get(self, kind: str) -> Handler | None:
        return self._handlers.get(kind)

    def require(self, kind: str) -> Handler:
        """The handler of the kind, or UnknownKind with the nearest name."""
        handler = self._handlers.get(kind)
        if handler is None:
            raise UnknownKind(_unknown("kind", kind, self._handlers))
        return handler

    def require_queue(self, queue: str) -> str:
        if queue not in self.queues:
            raise UnknownQueue(_unknown("queue", queue, self.queues))
        return queue

    @property
    def queues(self) -> list[str]:
        return sorted({handler.queue for handler in self._handlers.values()})

    def kinds(self, queues: Iterable[str]) -> list[str]:
        """The kinds that a node of these queues can run."""
        wanted = set(queues)
        return sorted(h.kind for h in self._handlers.values() if h.queue in wanted)

    def __iter__(self) -> Any:
        return iter(self._handlers.values())


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none'}"
    return f"unknown {what} {name!r}; {hint}"


def _where(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
