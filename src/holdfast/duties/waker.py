"""The waker: when a waiting task's time has come, it is submitted.

Delays, retries, timers and sleeps are all one thing here, a `due_at` on a WAITING row; so there is
one place where lateness comes from.  One node wakes the tasks of all queues.  It sleeps until the
next due time that it knows, is told when a sooner one is heard of, and looks every `poll_s`
whatever happened: a lost hint makes a task `poll_s` late at most.  Whether a time has come is the
store's judgement alone, so no task is ever early, however wrong this machine's clock is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from holdfast.clock import Clock
from holdfast.duties.duty import AT_ONCE
from holdfast.store import Agenda
from holdfast.task import Trigger

POLL_S = 5.0
BATCH_MAX = 1_000
TOO_SOON_S = 0.001  # the rest after a look that came before the store's time ...
TOO_SOON_S_MAX = 0.5  # ... doubling up to this: our clock may run ahead of the store's


class Waker:
    """Submits due tasks; sleeps until the next due time it knows."""

    name = "waker"

    def __init__(
        self,
        agenda: Agenda,
        *,
        publish: Callable[[Sequence[Trigger]], object],
        clock: Clock,
        poll_s: float = POLL_S,
    ) -> None:
        self._agenda = agenda
        self._publish = publish
        self._clock = clock
        self._poll_s = poll_s
        self._too_soon_s = TOO_SOON_S
        self._next_look_at: datetime | None = None  # None: at the next poll

    async def run_once(self) -> float:
        """Submit one batch, the oldest first; at once again when there may be more.

        If we die after the submit, the triggers are lost and the owners' arrivals find the tasks.
        """
        due = await self._agenda.submit_due(limit=BATCH_MAX)
        self._next_look_at = due.next_due_at
        if due.triggers:
            self._publish(due.triggers)
        if len(due.triggers) >= BATCH_MAX:
            return AT_ONCE
        if due.next_due_at is None:
            return self._poll_s
        wait_s = (due.next_due_at - self._clock.now()).total_seconds()
        return min(self._rest_s(wait_s, has_submitted=bool(due.triggers)), self._poll_s)

    def is_sooner(self, due_at: datetime) -> bool:
        """Whether the next look would come too late for this time."""
        if self._next_look_at is not None and self._next_look_at <= due_at:
            return False
        return (due_at - self._clock.now()).total_seconds() < self._poll_s

    def _rest_s(self, wait_s: float, *, has_submitted: bool) -> float:
        """Until the next due time; if that has passed for us but not for the store, ever longer.

        Without this, a clock that is ten seconds fast would ask the store ten thousand times.
        """
        if wait_s > TOO_SOON_S or has_submitted:
            self._too_soon_s = TOO_SOON_S
            return max(wait_s, TOO_SOON_S)
        rest_s, self._too_soon_s = self._too_soon_s, min(self._too_soon_s * 2, TOO_SOON_S_MAX)
        return rest_s
