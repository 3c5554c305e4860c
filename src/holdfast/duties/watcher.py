"""The watcher: counts what waits, and raises incidents that a person should look at.

One node looks at all queues, every half minute, and says what it saw as one event: metrics and
dashboards live on that.  An incident is raised when something has become worse than what was told
already:

    error       tasks of a queue are in ERROR, more than before
    stuck       tasks of a queue have been past their deadline for minutes, and nothing helped
    unserved    tasks of a queue wait, and no live node serves it

What was told stands in a log of the ring, one record for each change, written by compare-and-set.
So an incident is raised once in the whole cluster, also when the watcher changes in between; and
the log is the history of incidents.  If the node dies after the record and before it has told
anybody, the incident is in the log only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from holdfast.clock import Clock
from holdfast.ids import NodeId
from holdfast.ring import RingRecord
from holdfast.store import Store
from holdfast.telemetry.events import Events, IncidentRaised, QueueSurvey, Surveyed

EVERY_S = 30.0
COUNT_MAX = 10_000
STUCK_S = 300.0  # past its deadline for so long: it did not heal by itself
UNSERVED_S = 60.0  # a deploy may take a moment
LOG = "incidents"
KEPT = 100


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong now, with its extent."""

    kind: str
    queue: str
    count: int

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.queue}"

    @property
    def text(self) -> str:
        tasks = "1 task" if self.count == 1 else f"{self.count:,} tasks"
        what = f"{tasks} of queue {self.queue!r}"
        match self.kind:
            case "error":
                return f"{what} in ERROR: holdfast error list"
            case "stuck":
                return f"{what} past the deadline: holdfast task list --stuck"
        return f"{what} waiting, but no live node serves it"


class Watcher:
    """Looks every half minute.  Its memory is in the log, so it may move from node to node."""

    name = "watcher"

    def __init__(
        self,
        store: Store,
        node: NodeId,
        *,
        served: Callable[[], Collection[str]],
        clock: Clock,
        events: Events,
        every_s: float = EVERY_S,
        stuck_s: float = STUCK_S,
        unserved_s: float = UNSERVED_S,
    ) -> None:
        self._store = store
        self._node = node
        self._served = served
        self._clock = clock
        self._events = events
        self._every_s = every_s
        self._patience_s = {"error": 0.0, "stuck": stuck_s, "unserved": unserved_s}
        self._since: dict[str, float] = {}  # troubles that are there, from when on

    async def run_once(self) -> float:
        surveys = await self._store.survey(count_max=COUNT_MAX)
        health = await self._store.health()
        self._events.emit(
            Surveyed(
                self._node,
                tuple(surveys),
                tuple(sorted(health.dead_rows.items())),
                health.oldest_snapshot_s,
                health.oldest_snapshot_pid,
            )
        )
        await self._tell(self._lasting(troubles(surveys, self._served())))
        return self._every_s

    def _lasting(self, found: list[Trouble]) -> list[Trouble]:
        """Those that have been there for as long as theirs may last by itself."""
        now = self._clock.seconds()
        self._since = {one.name: self._since.get(one.name, now) for one in found}
        return [one for one in found if now - self._since[one.name] >= self._patience_s[one.kind]]

    async def _tell(self, lasting: list[Trouble]) -> None:
        latest = await self._store.ring_latest(LOG)
        told: dict[str, int] = _body(latest).get("told", {})
        now = {one.name: one.count for one in lasting}
        worse = [one for one in lasting if one.count > told.get(one.name, 0)]
        # What ends may be raised again; what becomes less is remembered as that.
        if now == told:
            return
        body = json.dumps({"told": now, "raised": [one.text for one in worse]}).encode()
        record = RingRecord(latest.number + 1, self._node, body)
        if not await self._store.ring_append(LOG, record):
            return  # another watcher was faster, and tells it
        for one in worse:
            self._events.emit(IncidentRaised(one.kind, one.text, one.count))
        await self._store.ring_rotate(LOG, kept=KEPT)


def troubles(surveys: Collection[QueueSurvey], served: Collection[str]) -> list[Trouble]:
    """What is wrong with the queues now."""
    found = []
    for one in surveys:
        if one.error:
            found.append(Trouble("error", one.queue, one.error))
        if one.stuck:
            found.append(Trouble("stuck", one.queue, one.stuck))
        if one.submitted and one.queue not in served:
            found.append(Trouble("unserved", one.queue, one.submitted))
    return found


def _body(record: RingRecord) -> dict[str, Any]:
    return json.loads(record.body) if record.body else {}
