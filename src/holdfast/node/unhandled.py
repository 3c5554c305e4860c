"""Tasks of one queue for which this node has no handler, though it owns their partitions."""

from __future__ import annotations

from collections.abc import Container

from holdfast.clock import Clock
from holdfast.dispatch.intake import Intake
from holdfast.store import Store
from holdfast.task import TaskId

BATCH_MAX = 1_000


class Unhandled:
    """Others may run them; when nobody can for long enough, a person looks."""

    def __init__(
        self, queue: str, intake: Intake, store: Store, *, clock: Clock, wait_s: float
    ) -> None:
        self._queue = queue
        self._intake = intake
        self._store = store
        self._clock = clock
        self._wait_s = wait_s
        self._since: dict[TaskId, float] = {}

    async def park(self, kinds: Container[str]) -> None:
        """Wait for a deploy to arrive, then park what none of these kinds covers."""
        now = self._clock.seconds()
        late: dict[str, dict[TaskId, int]] = {}
        for id, trigger in self._intake.unhandled.items():
            since = self._since.setdefault(id, now)
            if trigger.kind not in kinds and now - since >= self._wait_s:
                late.setdefault(trigger.kind, {})[id] = trigger.version
        for kind, tasks in late.items():
            text = f"no node that serves queue {self._queue!r} has a handler for kind {kind!r}"
            await self._store.park(tasks, text)
            for id in tasks:
                self._intake.unhandled.pop(id, None)
                self._forget(id, tasks[id])

    async def forget_handled(self) -> None:
        """What another node has run for us, or somebody changed, need not be kept any longer."""
        ids = list(self._intake.unhandled)[:BATCH_MAX]
        if not ids:
            return
        found = await self._store.get(ids)
        for id in ids:
            trigger = self._intake.unhandled.get(id)
            if trigger is None or (id in found and found[id].version == trigger.version):
                continue
            del self._intake.unhandled[id]
            self._forget(id, trigger.version)

    def _forget(self, id: TaskId, version: int) -> None:
        self._since.pop(id, None)
        self._intake.finished(id, version)
