"""The listeners of this process, which every bus asks first.

A trigger is handed from one listener of its queue to the next, until one of them has use for
it; what is left goes on to whoever carries it further.  Each listener is called on the loop on
which it subscribed: directly when that is the loop we are on, else by a call from outside.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from holdfast.bus import WAKER, Hear
from holdfast.task import Trigger
from holdfast.telemetry.events import BugFound, Events, TriggersDropped

UNSENT_MAX = 100_000

Beyond = Callable[[str, Sequence[Trigger]], None]
"""Called, on any thread, with a queue and the triggers of it that nobody here had use for."""


class Subscription(NamedTuple):
    queues: frozenset[str]
    hear: Hear
    loop: asyncio.AbstractEventLoop


class Listeners:
    """Who listens in this process.  `offer` may be called from any thread."""

    def __init__(self, beyond: Beyond, *, events: Events, unsent_max: int = UNSENT_MAX) -> None:
        self._beyond = beyond
        self._events = events
        self._unsent_max = unsent_max
        self._unsent = 0  # triggers on their way from one thread to another
        self._counting = threading.Lock()
        self._subscriptions: tuple[Subscription, ...] = ()

    @property
    def queues(self) -> frozenset[str]:
        return frozenset().union(*(one.queues for one in self._subscriptions))

    def add(self, queues: Collection[str], hear: Hear) -> None:
        """Call `hear` on the running loop from now on."""
        one = Subscription(frozenset(queues), hear, asyncio.get_running_loop())
        # The tuple is replaced, never changed: an offer under way on another thread keeps its own.
        self._subscriptions = (*self._subscriptions, one)

    def remove(self, hear: Hear) -> None:
        self._subscriptions = tuple(one for one in self._subscriptions if one.hear != hear)

    def clear(self) -> None:
        self._subscriptions = ()

    def offer(self, triggers: Sequence[Trigger]) -> None:
        """Hand the triggers to the listeners of their queues, the rest to `beyond`."""
        if len(triggers) == 1 and not self._subscriptions and triggers[0].due_at is None:
            self._beyond(triggers[0].queue, triggers)  # a program that only enqueues
            return
        for queue, batch in _by_queue(triggers).items():
            self._pass_on(queue, batch, self._of(queue), self._beyond)

    def hear(self, queue: str, triggers: Sequence[Trigger]) -> None:
        """Hand over what came from outside; it goes no further.  No triggers: all are rung."""
        if triggers:
            self._pass_on(queue, triggers, self._of(queue), _nowhere)
            return
        for one in self._of(queue):
            self._pass_on(queue, (), [one], _nowhere)

    def _of(self, queue: str) -> list[Subscription]:
        return [one for one in self._subscriptions if queue in one.queues]

    def _pass_on(
        self, queue: str, batch: Sequence[Trigger], line: list[Subscription], beyond: Beyond
    ) -> None:
        here = _running_loop()
        for place, one in enumerate(line):
            if one.loop is not here:
                self._send_over(queue, batch, line[place:], beyond)
                return
            batch = self._heard(one, queue, batch)
            if not batch:
                return
        if batch:
            beyond(queue, batch)

    def _heard(self, one: Subscription, queue: str, batch: Sequence[Trigger]) -> Sequence[Trigger]:
        if one not in self._subscriptions:
            return batch  # gone since the call was scheduled
        try:
            return one.hear(queue, batch)
        except Exception as error:  # publishing never fails: the commit is long done
            self._events.emit(BugFound(f"a listener of {queue} failed: {error!r}"))
            return ()

    def _send_over(
        self, queue: str, batch: Sequence[Trigger], line: list[Subscription], beyond: Beyond
    ) -> None:
        """Go on along the line on the loop of its first listener."""
        with self._counting:
            is_full = self._unsent + len(batch) > self._unsent_max
            if not is_full:
                self._unsent += len(batch)
        if is_full:
            self._events.emit(TriggersDropped(len(batch)))
            return

        def there() -> None:
            with self._counting:
                self._unsent -= len(batch)
            self._pass_on(queue, batch, line, beyond)

        try:
            line[0].loop.call_soon_threadsafe(there)
        except RuntimeError:  # that loop is closed, and its listener with it
            with self._counting:
                self._unsent -= len(batch)
            self._pass_on(queue, batch, line[1:], beyond)


def _by_queue(triggers: Sequence[Trigger]) -> dict[str, list[Trigger]]:
    found: dict[str, list[Trigger]] = {}
    for trigger in triggers:
        queue = trigger.queue if trigger.due_at is None else WAKER
        found.setdefault(queue, []).append(trigger)
    return found


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _nowhere(queue: str, triggers: Sequence[Trigger]) -> None:
    """What nobody has use for is dropped: its owner finds the task by itself."""
