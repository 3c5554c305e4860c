"""The role of `Insight`: what people ask about tasks that do not run, on the search thread."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

from holdfast.insight import (
    COUNTED_MAX,
    LOOKED_AT_MAX,
    SAMPLE,
    Busy,
    Elder,
    Health,
    Line,
    Standing,
    Tokens,
    Troubles,
)
from holdfast.stores.sqlite import rows
from holdfast.stores.sqlite.rows import SECOND, moment
from holdfast.stores.sqlite.statements import as_list, run
from holdfast.stores.sqlite.threads import Threads
from holdfast.task import State, Task, TaskId, lane_of

_LAST = (2**63 - 1, 2**63 - 1)  # a level above all


class InsightRole(Threads):
    async def health(self) -> Health:
        """See `holdfast.insight.Insight`.  A file has neither dead rows nor vacuum to hold up."""
        return Health({})

    async def standing(self, id: TaskId) -> Standing | None:
        found: Standing | None = await self._browse(lambda db, now: _standing(db, now, id))
        return found

    async def waiting_kinds(self) -> list[tuple[str, str]]:
        params = {"partitions": self.partitions, "limit": SAMPLE}
        found: list[tuple[str, str]] = await self._browse(
            lambda db, now: run(db, "waiting_kinds", **params)
        )
        return found

    async def troubles(self) -> Troubles:
        row = await self._browse(lambda db, now: run(db, "troubles", now=now, limit=COUNTED_MAX)[0])
        return Troubles(*row)


def _standing(db: sqlite3.Connection, now: int, id: TaskId) -> Standing | None:
    row = run(db, "get", ids=as_list([id]))
    if not row:
        return None
    task = rows.task(row[0])
    weight, arrived = next(iter(run(db, "standing", id=id)), (1.0, 0))
    owners = {holding[0]: holding for holding in run(db, "holdings", queue=task.queue)}
    _, owner, _, _, *position = owners.get(task.partition, (0, None, 0, None, 0, 0))
    found = Standing(
        task=task,
        now=moment(now),
        weight=weight,
        is_known=bool(owners),
        owner=owner,
        is_read=(arrived, id) <= tuple(position),
    )
    if task.state is not State.SUBMITTED:
        return found
    tokens = run(db, "standing_tokens", queue=task.queue, key=task.fairness_key or "")
    return replace(
        found,
        line=_line(db, found),
        elder=_elder(db, task),
        running=[
            Busy._make(row)
            for row in run(db, "standing_running", queue=task.queue, limit=COUNTED_MAX)
        ],
        tokens={(name, key): Tokens(left, (now - at) / SECOND) for name, key, left, at in tokens},
    )


def _line(db: sqlite3.Connection, found: Standing) -> Line:
    task = found.task
    where: dict[str, Any] = {
        "queue": task.queue,
        "partition": task.partition,
        "priority": task.priority,
    }
    column = where | {"kind": task.kind}
    place = {"id": task.id, "version": task.version, "looked_at": LOOKED_AT_MAX}
    lane, level = "", None
    for name in (lane_of(task), ""):
        if level := next(iter(run(db, "standing_place", **column, **place, lane=name)), None):
            lane = name
            break
    theirs = {"owner": found.owner, "limit": COUNTED_MAX}
    ((sooner,),) = run(db, "standing_sooner", **where, **theirs)
    if level is None and not found.is_read:
        return Line(sooner=sooner)
    pass_, seq = level or _LAST
    wanted = {"lane": lane, "pass": pass_, "seq": seq, "key": task.fairness_key}
    before, of_key = run(db, "standing_before", **column, **theirs, **wanted)[0]
    if level is None and before < COUNTED_MAX:  # not behind so many: it is in nobody's line
        return Line(sooner=sooner)
    return Line(lane=lane, before=before, before_of_key=of_key, sooner=sooner)


def _elder(db: sqlite3.Connection, task: Task) -> Elder | None:
    where = {"queue": task.queue, "ordering_key": task.ordering_key}
    found = run(db, "standing_sibling", **where) or run(db, "standing_elder", **where, id=task.id)
    return Elder(found[0][0], State(found[0][1])) if found else None
