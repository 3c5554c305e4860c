"""The bus beside one SQLite file: memory within the process, `data_version` between processes.

Triggers of this process reach its listeners directly.  Another process has no channel to us but
the file: its commits change `data_version`, which is looked at while somebody listens, and rings
the doorbell.  There is a look every millisecond while others use the file, and one every 5 ms while
only we write: a look of a busy process costs it a turn of the interpreter's lock.  When nobody else
has written for two seconds, the kernel is asked to tell of writes to the log, and four looks a
second are left; where it cannot, the looks become fewer, down to fifty a second.

Looks are the safety net.  A process that has committed triggers for others also touches the log,
and where the kernel tells of that, their listeners are rung at once; at most once in a millisecond,
because under load a look finds many at once.

Commits of our own change it as well, and their triggers come directly.  So a change rings at the
second look after the commit, unless a commit of our own has explained it by then; then it
rings a tenth of a second later, once for however many, because somebody else may have committed
in the same moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from holdfast.bus import Hear
from holdfast.buses.inotify import FileWatch, touch, watch
from holdfast.buses.listeners import UNSENT_MAX, Listeners
from holdfast.clock import Clock, SystemClock
from holdfast.task import Trigger
from holdfast.telemetry.events import Events, StoreFailed, TriggersPublished

LOOK_S = 0.001
LOOK_SELDOM_S = 0.005  # while we write ourselves
RESTS = ((30.0, 0.02), (10.0, 0.01), (2.0, LOOK_SELDOM_S))  # nobody else wrote for so long: rest
EXPECTED_S = 0.01  # how long a change waits that a caller of this process may explain
LATE_S = 0.1  # how long a change waits that a commit of our own explains
WATCHED_AFTER_S = 2.0  # of quiet: then the kernel's word is enough ...
WATCHED_S = 0.25  # ... and a look every now and then
VISIBLE_S, LOOK_WRITTEN_S = 0.1, 0.002  # after a write, until it is committed
BACK_OFF_S = 1.0  # after a look that failed
CLOCK = SystemClock()
TOUCH_S = 0.001  # the shortest time between two touches, or between two rings for them


class SQLiteBus:
    """Rings when the file was changed by others.

    `data_version` answers the pragma of that name; `own_commits` counts the commits of this
    process, as far as somebody counts them.  Neither may wait.  `log_path` is the file that every
    commit writes to: where the kernel tells of that, a quiet bus hardly looks.
    """

    def __init__(
        self,
        data_version: Callable[[], int],
        *,
        events: Events,
        own_commits: Callable[[], int] | None = None,
        log_path: str | None = None,
        clock: Clock = CLOCK,
        unsent_max: int = UNSENT_MAX,
    ) -> None:
        self._data_version = data_version
        self._own_commits = own_commits
        self.is_expecting: Callable[[], bool] = lambda: False  # a caller's commit in this process
        self._published = 0
        self._events = events
        self._listeners = Listeners(self._beyond, events=events, unsent_max=unsent_max)
        self._looking: asyncio.Task[None] | None = None
        self._log_path = log_path
        self._clock = clock
        self._file: FileWatch | None = None
        self._written = asyncio.Event()
        self._written_at = float("-inf")
        self._touched_at = self._rang_at = float("-inf")
        self._seen: int | None = None  # the version of the last look

    def publish(self, triggers: Sequence[Trigger]) -> None:
        if not triggers:
            return
        self._published += 1
        self._listeners.offer(triggers)
        if self._events.wanted:
            self._events.emit(TriggersPublished(len(triggers)))

    async def subscribe(self, queues: Collection[str], hear: Hear) -> None:
        self._listeners.add(queues, hear)
        if self._looking is None:
            self._file = None if self._log_path is None else watch(self._log_path)
            if self._file is not None:
                asyncio.get_running_loop().add_reader(self._file.fileno(), self._hear_file)
            # The first look is taken before we return: whatever commits later rings.
            self._seen = self._version(None)
            self._looking = asyncio.create_task(self._look(self._ours()))

    async def unsubscribe(self, hear: Hear) -> None:
        self._listeners.remove(hear)
        if not self._listeners.queues:
            await self._stop()

    async def close(self) -> None:
        self._listeners.clear()
        await self._stop()

    async def _stop(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        file, self._file = self._file, None
        if file is not None:
            asyncio.get_running_loop().remove_reader(file.fileno())
            file.close()

    async def _look(self, ours: tuple[int, int]) -> None:
        loop = asyncio.get_running_loop()
        ring_at, changed_at = float("inf"), loop.time()
        is_changed = is_writing = False
        while True:
            quiet_s = 0.0 if is_changed else loop.time() - changed_at
            if is_writing:
                await asyncio.sleep(LOOK_SELDOM_S)
            else:
                await self._rest(quiet_s, at_most_s=max(0.0, ring_at - loop.time()))
            before, ours = ours, self._ours()
            is_writing = ours != before
            if is_changed:  # since the look before: by now we know whether it was us
                late_s = LATE_S if ours != before else EXPECTED_S if self.is_expecting() else 0.0
                ring_at = min(ring_at, loop.time() + late_s)
                if ours == before:
                    changed_at = loop.time()  # by somebody else
            found = self._version(self._seen)
            if found is None:
                await asyncio.sleep(BACK_OFF_S)
            is_changed = found is not None and found != self._seen
            if is_changed and ours != before:
                ring_at, is_changed = loop.time() + LATE_S, False
            self._seen = found
            if ring_at <= loop.time():
                ring_at = float("inf")
                self._ring()

    async def _rest(self, quiet_s: float, *, at_most_s: float) -> None:
        """Until the next look; when it is quiet and the kernel tells of writes, until one."""
        if self._file is None or quiet_s < WATCHED_AFTER_S:
            await asyncio.sleep(min(_rest_s(quiet_s), at_most_s))
            return
        loop = asyncio.get_running_loop()
        # What is written becomes visible a moment later, when it is on the disk.
        if loop.time() - self._written_at < VISIBLE_S:
            await asyncio.sleep(LOOK_WRITTEN_S)
            return
        self._written.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(WATCHED_S, at_most_s)):
                await self._written.wait()

    def _hear_file(self) -> None:
        assert self._file is not None
        is_touched, now = self._file.drain(), self._clock.seconds()
        self._written_at = asyncio.get_running_loop().time()
        self._written.set()
        # Our own touch is heard here too, and SQLite's own: whatever else happened, a look finds.
        may_ring = now - max(self._touched_at, self._rang_at) > TOUCH_S
        if is_touched and may_ring and not self.is_expecting():
            found = self._version(self._seen)
            if found != self._seen:
                self._rang_at, self._seen = now, found  # the next look need not ring for it
                self._ring()

    def _ours(self) -> tuple[int, int]:
        """What changes when this process commits."""
        return self._published, 0 if self._own_commits is None else self._own_commits()

    def _version(self, seen: int | None) -> int | None:
        """The file's version, or None: it could not be read, so the next look rings."""
        try:
            return self._data_version()
        except Exception as error:
            if seen is not None:
                self._events.emit(StoreFailed("data_version", str(error)))
            return None

    def _beyond(self, queue: str, triggers: Sequence[Trigger]) -> None:
        """Another process may own them: it is told that there is something to read."""
        now = self._clock.seconds()
        if self._log_path is not None and now - self._touched_at > TOUCH_S:
            self._touched_at = now
            touch(self._log_path)

    def _ring(self) -> None:
        for queue in self._listeners.queues:
            self._listeners.hear(queue, ())


def _rest_s(quiet_s: float) -> float:
    return next((rest_s for since_s, rest_s in RESTS if quiet_s > since_s), LOOK_S)
