"""The alarm: when to ask again those whom a booking policy refused.

A policy may name the time from which there will be room.  However many it refuses, there is one
timer, set to the earliest of these times: when it rings, all that are due are asked, and nobody
else.  Whoever is refused anew names a new time, which counts instead of the old one.

A refusal without a time waits until a slot is freed.  Should nobody free one, a second timer asks
everybody once the idle wait is over.

Nothing here is durable: if the process dies, the next owner asks its own policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import count

from holdfast.booking import Full
from holdfast.clock import Clock
from holdfast.dispatch.passes import Key
from holdfast.task import Trigger, lane_of

REST_S = 0.005  # between two rings, also for a policy that names times of the past
OUTDATED_MAX = 64  # times that count no more, kept beside as many as count

Place = tuple[str, str | None]  # the kind, and its lane when only that was refused
DueNow = Callable[[Collection[Key], bool], None]


class Alarm:
    """Who was refused until when, in one queue."""

    def __init__(
        self, due: DueNow, waited: Callable[[], None], *, clock: Clock, idle_wait_s: float
    ) -> None:
        """`due` hears the keys whose time has come, and whether that of a whole kind has.

        `waited` is called when somebody was refused without a time an idle wait ago, or less.
        """
        self._clock = clock
        self._idle_wait_s = idle_wait_s
        self._due = due
        self._waited = waited
        self._loop = asyncio.get_running_loop()
        self._until: dict[Place, datetime] = {}
        # By time; an entry whose time is no longer that of its place is out of date.
        self._times: list[tuple[datetime, int, Place, Key]] = []
        self._number = count()
        self._timer: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._rest_until = 0.0

    def set(self, trigger: Trigger, full: Full) -> None:
        """This trigger was refused: its kind, or its key alone, is asked again in time."""
        until = full.until
        if until is None:
            if self._idle is None:
                self._idle = self._loop.call_later(self._idle_wait_s, self._ring_idle)
            return
        place = (trigger.kind, lane_of(trigger) if full.key_only else None)
        if self._until.get(place) == until:
            return
        self._until[place] = until
        key = trigger.fairness_key if trigger.ordering_key is None else trigger.ordering_key
        entry = (until, next(self._number), place, key)
        heappush(self._times, entry)
        if self._times[0] is entry:
            self._arm()
        elif len(self._times) > 2 * len(self._until) + OUTDATED_MAX:
            self._times = [one for one in self._times if self._until.get(one[2]) == one[0]]
            heapify(self._times)

    def cancel(self) -> None:
        """Nobody is asked any more."""
        for timer in (self._timer, self._idle):
            if timer is not None:
                timer.cancel()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._times:
            wait_s = (self._times[0][0] - self._clock.now()).total_seconds()
            at = max(self._loop.time() + wait_s, self._rest_until)
            self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        # By the clock that the policy is told: the loop's own may be a little ahead of it.
        now = self._clock.now()
        self._rest_until = self._loop.time() + REST_S
        keys: set[Key] = set()
        is_kind_due = False
        while self._times and self._times[0][0] <= now:
            until, _, place, key = heappop(self._times)
            if self._until.get(place) == until:
                del self._until[place]
                if place[1] is None:
                    is_kind_due = True
                else:
                    keys.add(key)
        self._arm()
        if keys or is_kind_due:
            self._due(keys, is_kind_due)

    def _ring_idle(self) -> None:
        self._idle = None
        self._waited()
