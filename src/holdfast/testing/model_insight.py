"""The model's insight: why a task does not run, in its simplest true form."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from holdfast.clock import Clock
from holdfast.insight import Busy, Elder, Health, Line, Standing, Tokens, Troubles
from holdfast.store import START, ZERO, Column, Mark, Position
from holdfast.task import State, Task, TaskId, lane_of
from holdfast.testing.model_partitions import Partition


class ModelInsight:
    _clock: Clock
    _tasks: dict[TaskId, Task]
    _weights: dict[TaskId, float]
    _arrived: Counter[TaskId]
    _queues: dict[str, list[Partition]]
    _buckets: dict[tuple[str, str, str], tuple[float, datetime]]

    def _in_state(self, state: State) -> list[Task]:
        raise NotImplementedError

    async def health(self) -> Health:
        return Health({})

    async def standing(self, id: TaskId) -> Standing | None:
        if (task := self._tasks.get(id)) is None:
            return None
        row = self._queues[task.queue][task.partition] if task.queue in self._queues else None
        position = row.position if row else START
        facts: dict[str, Any] = {
            "task": task,
            "now": self._clock.now(),
            "weight": self._weights[id],
            "is_known": row is not None,
            "owner": row.owner if row else None,
            "is_read": Position(self._arrived[id], id) <= position,
        }
        if task.state is not State.SUBMITTED:
            return Standing(**facts)
        running = [one for one in self._in_state(State.PROCESSING) if one.queue == task.queue]
        return Standing(
            **facts,
            line=self._line_of(task, facts["owner"]),
            elder=self._elder_of(task),
            running=[Busy(t.id, t.kind, t.fairness_key, t.node) for t in running],  # type: ignore[arg-type]
            tokens={
                (name, key): Tokens(left, (self._clock.now() - at).total_seconds())
                for (queue, name, key), (left, at) in self._buckets.items()
                if queue == task.queue and key in ("", task.fairness_key or "")
            },
        )

    async def waiting_kinds(self) -> list[tuple[str, str]]:
        return sorted({(task.queue, task.kind) for task in self._in_state(State.SUBMITTED)})

    async def troubles(self) -> Troubles:
        now = self._clock.now()
        running = self._in_state(State.PROCESSING)
        stuck = sum(task.deadline_at is not None and task.deadline_at < now for task in running)
        return Troubles(len(self._in_state(State.ERROR)), stuck)

    def _line_of(self, task: Task, owner: str | None) -> Line:
        rows = self._queues.get(task.queue, [])
        theirs = [
            row
            for number, row in enumerate(rows)
            if number == task.partition or (owner and row.owner == owner)
        ]
        sooner = sum(
            self._may_run(row, column, level)
            for row in theirs
            for column, line in row.lines.items()
            if column.priority < task.priority
            for level in line
        )
        for lane in (lane_of(task), ""):
            column = Column(task.priority, task.kind, lane)
            row = rows[task.partition] if rows else Partition()
            mine = [
                level
                for level, one in row.lines.get(column, {}).items()
                if one.id == task.id and self._may_run(row, column, level)
            ]
            if not mine:
                continue
            before = [
                row.lines[column][level].fairness_key
                for row in theirs
                for level in row.lines.get(column, {})
                if level < mine[0] and self._may_run(row, column, level)
            ]
            of_key = before.count(task.fairness_key)
            return Line(lane=lane, before=len(before), before_of_key=of_key, sooner=sooner)
        return Line(sooner=sooner)

    def _may_run(self, row: Partition, column: Column, level: Any) -> bool:
        trigger = row.lines[column][level]
        task = self._tasks.get(trigger.id)
        is_above = level > row.marks.get(column, Mark(ZERO)).ack_level
        wanted = (State.SUBMITTED, trigger.version)
        return is_above and task is not None and (task.state, task.version) == wanted

    def _elder_of(self, task: Task) -> Elder | None:
        key = (task.queue, task.ordering_key)
        line = [one for one in self._tasks.values() if (one.queue, one.ordering_key) == key]
        if task.ordering_key is None:
            return None
        runs = [one for one in line if one.state is State.PROCESSING]
        elders = [
            one
            for one in sorted(line, key=lambda one: one.id)
            if one.id < task.id
            and (
                one.state in (State.SUBMITTED, State.ERROR)
                or (one.state is State.WAITING and one.deliveries > 0)
            )
        ]
        found = [*runs, *elders]
        return Elder(found[0].id, found[0].state) if found else None
