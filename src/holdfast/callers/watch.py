"""Waiting for commits that no hook tells us about.

psycopg and sqlite3 say nothing when a transaction commits.  So the tasks' ids are held here, and
a connection of our own is asked which of them are committed.  Asking by id is exact for rolled-
back savepoints too, and a task that our connection sees can be grabbed by anyone.

    added ──2 ms──▶ look ──not yet──▶ look again, doubling to 250 ms ──60 s──▶ forgotten

Where the driver knows whether the transaction is still open (`Probe`), or SQLite whether anybody
has committed (`data_version`), they are asked first, which costs no statement: the store is asked
once, right after the end.  What is forgotten, or lost because the process dies, is found by
arrivals.

SQLite gives the id of a rolled-back task to the next one.  So whoever holds an id last is right,
and a task that is not what its trigger says is somebody else's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum, auto

from holdfast.task import Task, TaskId, Trigger
from holdfast.telemetry.events import Events, StoreFailed, TriggersDropped

FIRST_S, LAST_S = 0.002, 0.250  # the wait before a look
PROBE_S = 0.002  # the wait between two looks that cost no statement, at first
FORGET_S = 60.0
GONE_S = 1.0  # the server may still be committing for a client that has vanished
UNSENT_MAX = 100_000


class Phase(Enum):
    """What the driver says about the transaction."""

    OPEN = auto()  # or a later one of the same connection
    ENDED = auto()  # committed or rolled back, and the server has said so
    GONE = auto()  # the connection is closed: nobody can say


Probe = Callable[[], Phase]
Get = Callable[[Sequence[TaskId]], Awaitable[Mapping[TaskId, Task]]]


def has_ended() -> Phase:
    """The probe for a transaction that is known to be over."""
    return Phase.ENDED


class Held:
    """Triggers that wait for a commit.  Whoever takes them first sends them, nobody else."""

    def __init__(self, triggers: Sequence[Trigger], probe: Probe | None, wait_s: float) -> None:
        self.probe = probe
        self.wait_s = wait_s
        self.added_at = self.look_at = self.probe_at = 0.0
        self.gone_at: float | None = None
        self.seen_version: int | None = None
        self._triggers = {trigger.id: trigger for trigger in triggers}
        self.all_ids = tuple(self._triggers)
        self._taking = threading.Lock()

    @property
    def ids(self) -> list[TaskId]:
        return list(self._triggers)

    @property
    def is_taken(self) -> bool:
        return not self._triggers

    def take(self) -> list[Trigger]:
        """The triggers, once; nothing for everybody who asks later."""
        with self._taking:
            taken, self._triggers = self._triggers, {}
        return list(taken.values())

    def drop(self, id: TaskId) -> None:
        """The task of this id was rolled back: its id belongs to a younger one."""
        with self._taking:
            self._triggers.pop(id, None)

    def are_kept(self, found: Mapping[TaskId, Task]) -> bool:
        """Whether any of the tasks is among those found: then the transaction has committed."""
        return any(_is_of(trigger, found) for trigger in list(self._triggers.values()))


class Watch:
    """Sends triggers once their tasks are visible.  `add` may be called from any thread."""

    def __init__(
        self,
        get: Get,
        publish: Callable[[Sequence[Trigger]], None],
        *,
        loop: asyncio.AbstractEventLoop,
        events: Events,
        data_version: Callable[[], int] | None = None,
        unsent_max: int = UNSENT_MAX,
    ) -> None:
        self._get = get
        self._publish = publish
        self._loop = loop
        self._events = events
        self._data_version = data_version
        self._unsent_max = unsent_max
        self._held: dict[Held, None] = {}  # in the order of their adding
        self._holders: dict[TaskId, Held] = {}
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._is_closed = False

    def add(
        self, triggers: Sequence[Trigger], *, probe: Probe | None = None, wait_s: float = FIRST_S
    ) -> Held:
        """Send these triggers when their tasks are committed; the first look is after `wait_s`."""
        held = Held(triggers, probe, wait_s)
        if probe is None:
            # Added before the commit: until the file has changed, there is nothing to ask.
            held.seen_version = self._version()
        try:
            if asyncio.get_running_loop() is self._loop:
                self._add(held)
                return held
        except RuntimeError:
            pass  # a thread without a loop: hand over
        try:
            self._loop.call_soon_threadsafe(self._add, held)
        except RuntimeError:  # the loop is closed: arrivals find the tasks
            held.take()
        return held

    @property
    def is_waiting(self) -> bool:
        """Whether a caller of this process has added a task and may commit any moment."""
        return bool(self._held)

    async def close(self) -> None:
        """Look one last time and send what is committed; forget the rest.  Safe to repeat."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._looking is not None:
            await asyncio.wait({self._looking})
        last = [held for held in self._held if not held.is_taken]
        if last:
            await self._look(last)
        for held in list(self._held):
            self._forget(held)

    # What follows runs on the loop.

    def _add(self, held: Held) -> None:
        now = self._loop.time()
        if self._is_closed:
            held.take()
            return
        if self._count + len(held.all_ids) > self._unsent_max:
            self._events.emit(TriggersDropped(len(held.take())))
            return
        held.added_at = now
        held.probe_at = now + held.wait_s
        # With a probe the store is asked after the end, and otherwise only to be on the safe side.
        held.look_at = now + (held.wait_s if held.probe is None else LAST_S)
        self._held[held] = None
        self._count += len(held.all_ids)
        for id in held.ids:
            if id in self._holders:
                self._holders[id].drop(id)
            self._holders[id] = held
        self._set_timer(held.probe_at if held.probe else held.look_at)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        for held in [one for one in self._held if one.is_taken or self._is_hopeless(one, now)]:
            self._forget(held)
        version = self._version() if self._held else None
        due = [held for held in self._held if self._is_due(held, now, version)]
        if due and self._looking is None:
            self._looking = self._loop.create_task(self._look(due))
            self._looking.add_done_callback(self._looked)
        if self._looking is None:
            self._wait_on()

    def _looked(self, looking: asyncio.Task[None]) -> None:
        self._looking = None
        self._wait_on()

    def _wait_on(self) -> None:
        if self._held and not self._is_closed:
            self._set_timer(
                min(
                    min(held.look_at, held.probe_at) if held.probe else held.look_at
                    for held in self._held
                )
            )

    def _is_due(self, held: Held, now: float, version: int | None) -> bool:
        """Whether to ask the store about it now."""
        free_look_at = now + max(PROBE_S, min((now - held.added_at) / 50, LAST_S))
        if held.probe is not None and held.probe_at <= now:
            held.probe_at = free_look_at
            phase = held.probe()
            if phase is Phase.ENDED:
                return True
            if phase is Phase.GONE and held.gone_at is None:
                held.gone_at = now
                held.wait_s, held.look_at = FIRST_S, now
        if held.look_at > now:
            return False
        if version is not None and version == held.seen_version:
            held.look_at = free_look_at
            return False
        return True

    async def _look(self, due: list[Held]) -> None:
        """Ask about all of them in one statement."""
        # Asked before the statement: what had ended by then is decided by its answer.
        ended = [held for held in due if held.probe is not None and held.probe() is Phase.ENDED]
        version = self._version()
        asked = due
        try:
            ids = [id for held in asked for id in held.ids]
            found = await self._get(ids) if ids else {}
        except Exception as error:
            self._events.emit(StoreFailed("get", str(error)))
            ended, asked, found = [], [], {}
        for held in asked:
            held.seen_version = version
            if held.are_kept(found):
                self._publish([trigger for trigger in held.take() if _is_of(trigger, found)])
        now = self._loop.time()
        for held in due:
            if held.is_taken or held in ended or self._is_hopeless(held, now):
                self._forget(held)
            else:
                held.wait_s = min(held.wait_s * 2, LAST_S)
                held.look_at = now + held.wait_s

    def _is_hopeless(self, held: Held, now: float) -> bool:
        if held.gone_at is not None and now - held.gone_at > GONE_S:
            return True
        return now - held.added_at > FORGET_S

    def _version(self) -> int | None:
        """The file's version: while it stands still, nothing was committed."""
        try:
            return None if self._data_version is None else self._data_version()
        except Exception:
            return None  # then every look asks

    def _forget(self, held: Held) -> None:
        if held in self._held:
            del self._held[held]
            self._count -= len(held.all_ids)
            for id in held.all_ids:
                if self._holders.get(id) is held:
                    del self._holders[id]
        held.take()


def _is_of(trigger: Trigger, found: Mapping[TaskId, Task]) -> bool:
    task = found.get(trigger.id)
    return task is not None and (task.kind, task.queue, task.partition) == (
        trigger.kind,
        trigger.queue,
        trigger.partition,
    )
