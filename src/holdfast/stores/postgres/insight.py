"""What people ask about tasks that do not run, in bounded statements under the engine's limits."""

from __future__ import annotations

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
    OpenTransaction,
    Standing,
    Tokens,
    Troubles,
)
from holdfast.stores.postgres.connection import Database, Session
from holdfast.stores.postgres.rows import task_of
from holdfast.task import State, Task, TaskId, lane_of

_LAST = (2**63 - 1, 2**63 - 1)  # a level above all


class PostgresInsight:
    """`holdfast.insight.Insight`: the promises are written there."""

    _database: Database

    @property
    def partitions(self) -> int:
        raise NotImplementedError

    async def health(self) -> Health:
        schema = {"schema": self._database.schema}
        dead = dict(await self._database.read("dead_rows", schema))
        oldest = await self._database.read("oldest_snapshot", {})
        return Health(dead, *oldest[0]) if oldest else Health(dead)

    async def standing(self, id: TaskId) -> Standing | None:
        return await self._database.together(lambda session: _standing(session, id))

    async def waiting_kinds(self) -> list[tuple[str, str]]:
        params = {"partitions": self.partitions, "limit": SAMPLE}
        return [(queue, kind) for queue, kind in await self._database.read("waiting_kinds", params)]

    async def troubles(self) -> Troubles:
        return Troubles(*(await self._database.read("troubles", {"limit": COUNTED_MAX}))[0])


async def _standing(session: Session, id: TaskId) -> Standing | None:
    rows = await session.run("get", {"ids": [id]})
    if not rows:
        return None
    task = task_of(rows[0])
    ((now, weight, is_known, owner, is_read, is_open),) = await session.run("standing", {"id": id})
    found = Standing(
        task=task,
        now=now,
        weight=1.0 if weight is None else weight,
        is_known=is_known,
        owner=owner,
        is_read=is_read,
    )
    if task.state is not State.SUBMITTED:
        return found
    elder = await session.run(
        "standing_elder", {"queue": task.queue, "ordering_key": task.ordering_key, "id": id}
    )
    running = await session.run("standing_running", {"queue": task.queue, "limit": COUNTED_MAX})
    tokens = await session.run(
        "standing_tokens", {"queue": task.queue, "key": task.fairness_key or ""}
    )
    open_writers = await session.run("open_writers", {}) if is_open else []
    return replace(
        found,
        line=await _line(session, found),
        elder=Elder(elder[0][0], State(elder[0][1])) if elder else None,
        running=[Busy._make(row) for row in running],
        tokens={(name, key): Tokens._make(rest) for name, key, *rest in tokens},
        held_up_by=[OpenTransaction._make(row) for row in open_writers],
    )


async def _line(session: Session, found: Standing) -> Line:
    task = found.task
    where = _where(task)
    wanted = {"lanes": [lane_of(task), ""], "id": task.id, "version": task.version}
    place = await session.run("standing_place", where | wanted | {"limit": LOOKED_AT_MAX})
    theirs = {"owner": found.owner, "limit": COUNTED_MAX, "looked_at": LOOKED_AT_MAX}
    ((sooner,),) = await session.run("standing_sooner", where | theirs)
    if not place and not found.is_read:
        return Line(sooner=sooner)
    lane, pass_, seq = place[0] if place else ("", *_LAST)
    level = {"lane": lane, "pass": pass_, "seq": seq, "key": task.fairness_key}
    ((before, of_key),) = await session.run("standing_before", where | theirs | level)
    if not place and before < COUNTED_MAX:  # not behind so many: it is in nobody's line
        return Line(sooner=sooner)
    return Line(lane=lane, before=before, before_of_key=of_key, sooner=sooner)


def _where(task: Task) -> dict[str, Any]:
    return {
        "queue": task.queue,
        "partition": task.partition,
        "priority": task.priority,
        "kind": task.kind,
    }
