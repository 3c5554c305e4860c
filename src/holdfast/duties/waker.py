"""The waker: when a waiting task's time has come, it is submitted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from holdfast.clock import Clock
from holdfast.duties.duty import AT_ONCE
from holdfast.store import Agenda
from holdfast.task import Trigger

POLL_S = 5.0
BATCH_MAX = 1_000


class Waker:
    """Submits due tasks of one queue's partitions; sleeps until the next due time it knows."""

    name = "waker"

    def __init__(
        self,
        agenda: Agenda,
        queue: str,
        *,
        partitions: Callable[[], Collection[int]],
        hear: Callable[[Sequence[Trigger]], None],
        clock: Clock,
        poll_s: float = POLL_S,
    ) -> None:
        self._agenda = agenda
        self._queue = queue
        self._partitions = partitions
        self._hear = hear
        self._clock = clock
        self._poll_s = poll_s

    async def run_once(self) -> float:
        partitions = self._partitions()
        if not partitions:
            return self._poll_s
        due = await self._agenda.submit_due(self._queue, partitions, limit=BATCH_MAX)
        if due.triggers:
            self._hear(due.triggers)
        if len(due.triggers) >= BATCH_MAX:
            return AT_ONCE
        if due.next_due_at is None:
            return self._poll_s
        wait_s = (due.next_due_at - self._clock.now()).total_seconds()
        return min(max(wait_s, 0.001), self._poll_s)
