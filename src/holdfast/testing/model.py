"""The store in its simplest true form: what every real store must agree with.

Everything is a dictionary, every verb runs without a pause, so each call is a transaction by
itself.  It keeps the promises of `holdfast.store`, except that nothing survives the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import StoreUnavailable
from holdfast.ids import NodeId
from holdfast.sql.query import Script
from holdfast.store import (
    Answer,
    Arrivals,
    Change,
    Changed,
    Cursor,
    Due,
    Filter,
    Grab,
    Overdue,
    Running,
)
from holdfast.task import (
    FINAL,
    HOT,
    MOVES,
    WISHES,
    Enqueued,
    Event,
    Grabbed,
    Key,
    NewTask,
    Outcome,
    State,
    Task,
    TaskId,
    Trigger,
    clamped_priority,
)
from holdfast.telemetry.events import QueueSurvey
from holdfast.testing.model_insight import ModelInsight
from holdfast.testing.model_partitions import ModelPartitions
from holdfast.testing.model_rings import ModelRings
from holdfast.testing.model_rules import ModelRules
from holdfast.testing.model_schedules import ModelSchedules


class ModelStore(ModelRules, ModelRings, ModelSchedules, ModelPartitions, ModelInsight):
    def __init__(self, *, clock: Clock) -> None:
        ModelPartitions.__init__(self, clock=clock)
        ModelRules.__init__(self, clock=clock)
        ModelRings.__init__(self)
        ModelSchedules.__init__(self, clock=clock)
        self._tasks: dict[TaskId, Task] = {}
        self._weights: dict[TaskId, float] = {}
        self._arrived: Counter[TaskId] = Counter()
        self._losses: Counter[TaskId] = Counter()
        self._last_number = 0  # ids and arrivals are counted together
        self._call_number: int | None = None  # shared by all that one call submits again
        self._keys: dict[tuple[str, str], tuple[TaskId, datetime | None]] = {}

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def migrate(self) -> int:
        return 1

    async def durability(self) -> dict[str, str]:
        return {"survives": "nothing"}

    # Tasks

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        return [self._enqueue(task) for task in tasks]

    def enqueueing(self, tasks: Sequence[NewTask]) -> Script[list[Enqueued]]:
        yield from ()
        return [self._enqueue(task) for task in tasks]

    def _enqueue(self, new: NewTask) -> Enqueued:
        now = self._clock.now()
        if new.key and (older := self._holder(new.key, now)):
            return older
        due_at = new.due_at or now + timedelta(seconds=new.delay_s)
        state = State.WAITING if due_at > now else State.SUBMITTED
        self._last_number += 1
        self._call_number = self._last_number
        names = (
            "queue",
            "partition",
            "kind",
            "payload",
            "fairness_key",
            "ordering_key",
            "metadata",
        )
        task = Task(
            id=TaskId(self._last_number),
            state=state,
            version=1,
            priority=clamped_priority(new.priority),
            enqueued_at=now,
            due_at=due_at if state is State.WAITING else None,
            **{name: getattr(new, name) for name in names},
        )
        self._weights[task.id] = new.weight
        self._keep(task)
        if new.key:
            period_s = new.key.period_s
            until = None if period_s is None else now + timedelta(seconds=period_s)
            self._keys[new.key.scope, new.key.name] = task.id, until
        return Enqueued(task.id, state, True, _due_of(task))

    def _holder(self, key: Key, now: datetime) -> Enqueued | None:
        """A key with a period is taken until its end, even when its task was not kept."""
        id, until = self._keys.get((key.scope, key.name), (TaskId(0), None))
        if until is not None and until <= now:
            return None
        if task := self._tasks.get(id):
            return Enqueued(id, task.state, False, _due_of(task))
        return None if until is None else Enqueued(id, State.DONE, False, None)

    def _keep(self, task: Task) -> Task:
        self._tasks[task.id] = task
        if task.state is State.SUBMITTED:
            if self._call_number is None:
                self._last_number += 1
                self._call_number = self._last_number
            self._arrived[task.id] = self._call_number
        return task

    def _moved(self, task: Task, event: Event, **fields: Any) -> Task:
        moved = replace(task.moved(event), **({"node": None, "deadline_at": None} | fields))
        is_final = moved.state in FINAL
        return self._keep(replace(moved, finished_at=self._clock.now()) if is_final else moved)

    def _trigger(self, task: Task) -> Trigger:
        weight, arrived = self._weights[task.id], self._arrived[task.id]
        return Trigger(**_facts(Trigger, task, due_at=None, weight=weight, arrived=arrived))

    def _grabbed(self, task: Task) -> Grabbed:
        weight, attempt = self._weights[task.id], task.attempts + 1
        losses = self._losses[task.id]
        return Grabbed(**_facts(Grabbed, task, weight=weight, attempt=attempt, losses=losses))

    async def grab(
        self,
        triggers: Sequence[Trigger],
        *,
        node: NodeId,
        deadlines_s: Mapping[str, float],
        epochs: Mapping[int, int],
        skip_errors_of: Collection[str] = (),
        shares: Collection[int] = (),
        repeat: bool = False,
    ) -> Grab:
        has_shares, answer = self._holds_shares(shares, node), Grab([])
        named = {trigger.id for trigger in triggers}
        for id, version in sorted({(trigger.id, trigger.version) for trigger in triggers}):
            task = self._tasks.get(id)
            if task is not None and repeat and self._is_held(task, version, node):
                answer.tasks.append(self._grabbed(task))
            elif not has_shares:
                answer.undecided.append(id)
                continue
            if task is None or (task.state, task.version) != (State.SUBMITTED, version):
                continue
            if task.ordering_key is not None:
                if self._rows(task.queue)[task.partition].epoch != epochs.get(task.partition):
                    continue
                if self._is_blocked(task, task.kind in skip_errors_of):
                    answer.blocked.append(id)
                    continue
            seconds = deadlines_s.get(task.kind)
            deadline_at = seconds and self._clock.now() + timedelta(seconds=seconds)
            fields = {"deliveries": task.deliveries + 1, "deadline_at": deadline_at or None}
            answer.tasks.append(
                self._grabbed(self._moved(task, Event.GRABBED, node=node, **fields))
            )
        for blocked in {self._key_of(id): id for id in answer.blocked}.values():
            elder = min(self._waiting_before(self._tasks[blocked]), default=blocked)
            if elder not in named:
                answer.elders.append(self._trigger(self._tasks[elder]))
        return answer

    def _is_held(self, task: Task, version: int, node: NodeId) -> bool:
        return (task.state, task.version, task.node) == (State.PROCESSING, version + 1, node)

    def _key_of(self, id: TaskId) -> tuple[str, str | None]:
        return self._tasks[id].queue, self._tasks[id].ordering_key

    def _waiting_before(self, task: Task) -> list[TaskId]:
        key = (task.queue, task.ordering_key)
        return [
            one.id
            for one in self._tasks.values()
            if one.state is State.SUBMITTED and one.id < task.id and self._key_of(one.id) == key
        ]

    def _is_blocked(self, task: Task, skip_errors: bool) -> bool:
        key = (task.queue, task.ordering_key)
        line = [one for one in self._tasks.values() if (one.queue, one.ordering_key) == key]
        return any(
            one.state is State.PROCESSING or (one.id < task.id and _holds_up(one, skip_errors))
            for one in line
        )

    async def settle(self, outcomes: Sequence[Outcome], *, node: NodeId) -> list[bool]:
        self._call_number = None
        return [self._settle(one, node) or self._was_settled(one, node) for one in outcomes]

    def _settle(self, outcome: Outcome, node: NodeId) -> bool:
        task = self._tasks.get(outcome.id)
        if not task or (task.state, task.version) != (State.PROCESSING, outcome.version):
            return False
        fields: dict[str, Any] = {"node": node, "error": outcome.error or task.error}
        if (target := MOVES[task.state, outcome.event]) in FINAL:
            fields |= {"result": outcome.result, "deadline_at": task.deadline_at}
        else:
            due_at = self._clock.now() + timedelta(seconds=outcome.delay_s)
            attempts = 0 if outcome.resets else task.attempts + outcome.counts
            fields |= {"due_at": due_at if target is State.WAITING else None, "attempts": attempts}
            self._losses[task.id] *= not outcome.forgives
        self._moved(task, outcome.event, **fields)
        self._end_schedule(outcome.ends)
        if outcome.event is Event.SUCCEEDED and not outcome.keep:
            self._forget([task.id])
        return True

    def _was_settled(self, outcome: Outcome, node: NodeId) -> bool:
        if (task := self._tasks.get(outcome.id)) is None:
            return outcome.event is Event.SUCCEEDED and not outcome.keep
        wanted = (outcome.version + 1, MOVES[State.PROCESSING, outcome.event], node)
        return (task.version, task.state, task.node) == wanted

    @asynccontextmanager
    async def transaction(self, task: Grabbed, *, node: NodeId) -> AsyncIterator[ModelTransaction]:
        transaction = ModelTransaction(self._tasks)
        yield transaction
        self._call_number = None
        for outcome in transaction.outcomes:
            if not self._settle(outcome, node):
                raise StoreUnavailable("the task has moved on: nothing was settled")

    async def change(self, changes: Sequence[Change]) -> list[Changed]:
        return [self._change(wish) for wish in changes]

    def _change(self, wish: Change) -> Changed:
        self._call_number = None
        if (task := self._tasks.get(wish.id)) is None:
            return Changed(Answer.NOT_FOUND)
        if wish.version not in (None, task.version):
            return Changed(Answer.FAILED)
        needs_force = task.state is State.PROCESSING and wish.event is Event.RESUMED
        is_allowed = wish.event in WISHES and (task.state, wish.event) in MOVES
        if not is_allowed or (needs_force and not wish.force):
            return Changed(Answer.NOT_ALLOWED)
        fields: dict[str, Any] = {"error": wish.error or task.error}
        if wish.event is Event.RESCHEDULED:
            fields["due_at"] = self._clock.now() + timedelta(seconds=wish.delay_s)
        moved = self._moved(task, wish.event, **fields)
        self._losses[task.id] = 0
        is_told = moved.state is State.SUBMITTED or task.state is State.PROCESSING
        return Changed(Answer.OK, self._trigger(moved) if is_told else None)

    async def get(self, ids: Sequence[TaskId]) -> dict[TaskId, Task]:
        return {id: self._tasks[id] for id in ids if id in self._tasks}

    # Arrivals and takeovers

    async def arrivals(
        self, queue: str, cursors: Sequence[Cursor], *, limit: int, exact: bool
    ) -> Arrivals:
        found: list[Trigger] = []
        for partition, position, until in cursors:
            place = (queue, partition, State.SUBMITTED)
            line = [
                self._trigger(task)
                for task in self._tasks.values()
                if (task.queue, task.partition, task.state) == place
                and (self._arrived[task.id], task.id) > position
                and (until is None or self._arrived[task.id] < until)
            ]
            found += sorted(line, key=lambda trigger: (trigger.arrived, trigger.id))[:limit]
        return Arrivals(found, self._last_number + 1)

    def _running(self) -> list[tuple[str, Running]]:
        return [
            (task.queue, Running(*(getattr(task, name) for name in Running._fields)))
            for task in self._in_state(State.PROCESSING)
        ]

    def _in_state(self, state: State) -> list[Task]:
        return sorted((t for t in self._tasks.values() if t.state is state), key=lambda t: t.id)

    # Agenda

    async def submit_due(self, *, limit: int) -> Due:
        self._call_number = None
        line = [(task.due_at, task.id) for task in self._in_state(State.WAITING) if task.due_at]
        now = self._clock.now()
        ids = [id for due_at, id in sorted(line) if due_at <= now][:limit]
        triggers = [self._trigger(self._moved(self._tasks[id], Event.DUE)) for id in ids]
        return Due(triggers, min((due_at for due_at, id in line if id not in ids), default=None))

    async def resume_lost(
        self, nodes: Collection[NodeId], *, deliveries_max: int, limit: int
    ) -> list[Trigger]:
        self._call_number = None
        gone = {node for node in nodes if not self._is_alive(node)}
        self._end_shares(gone)
        lost = [one for one in self._in_state(State.PROCESSING) if one.node in gone][:limit]
        triggers = self._resumed(lost, deliveries_max)
        self._give_back_shares(gone)
        return triggers

    def _resumed(self, tasks: Iterable[Task], deliveries_max: int) -> list[Trigger]:
        triggers = []
        for task in tasks:
            self._losses[task.id] += 1
            if self._losses[task.id] >= deliveries_max:
                self._moved(task, Event.PARKED, error="delivered too often without an outcome")
            else:
                triggers.append(self._trigger(self._moved(task, Event.LEASE_LOST)))
        return triggers

    async def submit_overdue(self, *, deadline_s: float, limit: int) -> list[Trigger]:
        span, now = timedelta(seconds=deadline_s), self._clock.now()
        late = [
            task
            for task in self._in_state(State.SUBMITTED)
            if task.queue in self._queues  # a look makes no queue known
            and (task.deadline_at or task.enqueued_at + span) < now
            and (self._arrived[task.id], task.id) > self._rows(task.queue)[task.partition].position
        ][:limit]
        for task in late:
            self._tasks[task.id] = replace(task, deadline_at=now + span)
        return [self._trigger(task) for task in late if task.deadline_at or task.version == 1]

    async def overdue(self, *, limit: int) -> list[Overdue]:
        now = self._clock.now()
        late = [
            Overdue(task.id, task.version, task.queue, task.kind, NodeId(task.node), late_s)
            for task in self._in_state(State.PROCESSING)
            if task.deadline_at
            and task.node
            and (late_s := (now - task.deadline_at).total_seconds()) > 0
        ]
        return sorted(late, key=lambda one: -one.late_s)[:limit]

    async def resume_overdue(
        self, tasks: Mapping[TaskId, int], *, deliveries_max: int
    ) -> list[Trigger]:
        self._call_number = None
        return self._resumed(self._processing(tasks), deliveries_max)

    async def postpone(self, tasks: Mapping[TaskId, int], *, deadline_s: float) -> None:
        deadline_at = self._clock.now() + timedelta(seconds=deadline_s)
        for task in self._processing(tasks):
            self._tasks[task.id] = replace(task, deadline_at=deadline_at)

    def _processing(self, tasks: Mapping[TaskId, int]) -> list[Task]:
        running = self._in_state(State.PROCESSING)
        return [task for task in running if tasks.get(task.id) == task.version]

    async def running_of(self, node: NodeId) -> list[Running]:
        return [row for _, row in self._running() if row.node == node]

    async def moved_on(self, node: NodeId, held: Mapping[TaskId, int]) -> list[TaskId]:
        still = {(row.id, row.version) for row in await self.running_of(node)}
        return [id for id, version in held.items() if (id, version) not in still]

    async def park(self, tasks: Mapping[TaskId, int], error: str) -> list[TaskId]:
        found = [self._tasks[id] for id in tasks if id in self._tasks]
        may_park = [
            task
            for task in found
            if task.version == tasks[task.id] and (task.state, Event.PARKED) in MOVES
        ]
        return [self._moved(task, Event.PARKED, error=error).id for task in may_park]

    async def clean(self, *, keep_days: float, limit: int) -> int:
        before = self._clock.now() - timedelta(days=keep_days)
        ended = [task for task in self._tasks.values() if task.state in FINAL and task.finished_at]
        old = [task.id for task in ended if task.finished_at and task.finished_at < before][:limit]
        self._forget(old)
        self._clean_schedules(before)
        return len(old)

    def _forget(self, ids: Iterable[TaskId]) -> None:
        for id in ids:
            del self._tasks[id]

    # Search

    async def find(self, filter: Filter) -> list[Task]:
        wanted = {
            "state": filter.states,
            "queue": filter.queues,
            "kind": filter.kinds,
            "fairness_key": filter.fairness_keys,
        }
        found = [
            task
            for task in self._tasks.values()
            if task.id > (filter.after or 0)
            and all(not any_of or getattr(task, name) in any_of for name, any_of in wanted.items())
        ]
        return sorted(found, key=lambda task: task.id)[: filter.limit]

    async def counts(self) -> dict[State, int]:
        return dict.fromkeys(State, 0) | Counter(task.state for task in self._tasks.values())

    async def survey(self, *, count_max: int = 10_000) -> list[QueueSurvey]:
        hot = [task for task in self._tasks.values() if task.state in HOT]
        names = sorted(self._queues.keys() | {task.queue for task in hot})
        return [
            self._survey(name, [task for task in hot if task.queue == name], count_max)
            for name in names
        ]

    def _survey(self, queue: str, tasks: Sequence[Task], count_max: int) -> QueueSurvey:
        now = self._clock.now()
        line = [task for task in tasks if task.state is State.SUBMITTED]
        first = min(line, key=lambda task: (self._arrived[task.id], task.id), default=None)
        running = [task for task in tasks if task.state is State.PROCESSING]
        late = [task for task in running if task.deadline_at and task.deadline_at < now]
        found = Counter(task.state for task in tasks)
        waiting, submitted, processing, error, stuck = (
            min(count, count_max) for count in (*(found[state] for state in sorted(HOT)), len(late))
        )
        age_s = (now - first.enqueued_at).total_seconds() if first else 0.0
        return QueueSurvey(queue, waiting, submitted, processing, error, age_s, stuck)

    async def unknown_queues(self) -> list[str]:
        waiting = {task.queue for task in self._in_state(State.SUBMITTED)}
        return sorted(waiting - self._queues.keys())


class ModelTransaction:
    """Outcomes that are settled at the end of the block, if it ends well."""

    connection = None

    def __init__(self, tasks: Mapping[TaskId, Task]) -> None:
        self._tasks = tasks
        self.outcomes: list[Outcome] = []

    async def settle(self, outcome: Outcome) -> bool:
        task = self._tasks.get(outcome.id)
        wanted = (State.PROCESSING, outcome.version)
        if task is None or (task.state, task.version) != wanted or self.outcomes:
            return False
        self.outcomes.append(outcome)
        return True


def _holds_up(elder: Task, skip_errors: bool) -> bool:
    match elder.state:
        case State.SUBMITTED:
            return True
        case State.WAITING:
            return elder.deliveries > 0
        case State.ERROR:
            return not skip_errors
    return False


def _facts(value: Any, task: Task, **own: Any) -> dict[str, Any]:
    """The fields of a value that tells of the task."""
    return {name: own[name] if name in own else getattr(task, name) for name in value._fields}


def _due_of(task: Task) -> datetime | None:
    return task.due_at if task.state is State.WAITING else None
