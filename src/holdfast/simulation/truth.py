"""The one store of a simulated cluster: the model, which tells the history what it does.

Its clock is the world's.  Transactions of callers may stay open for a while, as in PostgreSQL: the
number of a task is taken when it is added, but nobody sees the task before the commit, while
younger ones are visible already.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from holdfast.clock import Clock
from holdfast.errors import Refused, StoreUnavailable
from holdfast.ids import NodeId
from holdfast.limit import Limit, Mode
from holdfast.ring import RingRecord
from holdfast.schedule import SCOPE, Fire
from holdfast.store import NO_FACTS, NO_WEIGHTS, Arrivals, Change, Changed, Cursor, Grab
from holdfast.task import Enqueued, Event, NewTask, Outcome, State, Task, TaskId, Trigger
from holdfast.testing.model import ModelStore, ModelTransaction
from holdfast.verify.history import History

# What a real store would stumble over, such as text that its driver cannot write or read.
UNSTORABLE = "unstorable"  # in a result
UNWRITABLE = "\0"  # in a fairness key
SPOILT_UNTIL = "spoilt_until"  # in the metadata: before this second the row cannot be read


class Truth(ModelStore):
    """The model with a diary and with open transactions."""

    def __init__(self, *, clock: Clock, history: History) -> None:
        super().__init__(clock=clock)
        self._history = history
        self._open: set[int] = set()
        self.moves = 0
        self._is_overdue = False
        self._number: int | None = None  # of the transaction that commits now
        self.skipping: frozenset[str] = frozenset()  # kinds that pass an elder in ERROR
        self.is_set_up = False  # nodes may live from now on

    @property
    def is_busy(self) -> bool:
        """Whether a task may still run."""
        busy = (State.WAITING, State.SUBMITTED, State.PROCESSING)
        return bool(self._open) or any(task.state in busy for task in self._tasks.values())

    # ── transactions that stay open ───────────────────────────────────────────────────────

    def begin(self) -> int:
        """A caller's transaction takes its number, and is not visible before `commit`."""
        self._last_number += 1
        self._open.add(self._last_number)
        return self._last_number

    def commit(self, number: int, new: NewTask) -> Enqueued:
        """The task of this transaction is visible from now on."""
        self._open.discard(number)
        self._number = number
        try:
            return self._enqueue(new)
        finally:
            self._number = None

    def roll_back(self, number: int) -> None:
        self._open.discard(number)

    def begun(self) -> ModelTransaction:
        """The transaction of a handler."""
        return ModelTransaction(self._tasks)

    async def committed(self, transaction: ModelTransaction, node: NodeId) -> None:
        self._call_number = None
        for outcome in transaction.outcomes:
            if not self._settle(outcome, node):
                raise StoreUnavailable("the task has moved on: nothing was settled")

    async def arrivals(
        self, queue: str, cursors: Sequence[Cursor], *, limit: int, exact: bool
    ) -> Arrivals:
        found = await super().arrivals(queue, cursors, limit=limit, exact=exact)
        horizon = min(self._open, default=found.horizon)
        triggers = found.triggers
        if exact:
            triggers = [trigger for trigger in triggers if trigger.arrived < horizon]
        return Arrivals(triggers, horizon, frozenset(self._open))

    # ── what it stumbles over ─────────────────────────────────────────────────────────────

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        if any(UNWRITABLE in (task.fairness_key or "") for task in tasks):
            raise Refused("simulated: a text that cannot be written")
        return await super().enqueue(tasks)

    async def grab(self, triggers: Sequence[Trigger], **words: Any) -> Grab:
        for trigger in triggers:
            task = self._tasks.get(trigger.id)
            if task is not None and self._is_spoilt(task):
                raise ValueError(f"simulated: the row of task {task.id} cannot be read")
        return await super().grab(triggers, **words)

    def _is_spoilt(self, task: Task) -> bool:
        if task.metadata is None or SPOILT_UNTIL.encode() not in task.metadata:
            return False
        until_s: float = msgspec.json.decode(task.metadata)[SPOILT_UNTIL]
        return self._clock.seconds() < until_s

    async def settle(self, outcomes: Sequence[Outcome], *, node: NodeId) -> list[bool]:
        if any(UNSTORABLE.encode() in (outcome.result or b"") for outcome in outcomes):
            raise Refused("simulated: a result that cannot be written")
        return await super().settle(outcomes, node=node)

    # ── the diary ─────────────────────────────────────────────────────────────────────────

    def _tell(self, op: str, **fields: Any) -> None:
        self._history.add(self._clock.seconds(), op, **fields)

    def _due_s(self, task: Task) -> float | None:
        """When the task is due, in seconds of the world."""
        if task.state is not State.WAITING or task.due_at is None:
            return None
        return self._clock.seconds() + (task.due_at - self._clock.now()).total_seconds()

    def _enqueue(self, new: NewTask) -> Enqueued:
        answer = super()._enqueue(new)
        if answer.created and self._number is not None:
            answer = answer._replace(id=self._renumbered(answer.id, self._number))
        if answer.created:
            task = self._tasks[answer.id]
            self._tell(
                "created",
                task=task.id,
                version=task.version,
                state=task.state.name,
                request=request_of(new),
                kind=task.kind,
                queue=task.queue,
                ordering_key=task.ordering_key,
                fairness_key=task.fairness_key,
                due=self._due_s(task),
                skips_errors=task.kind in self.skipping,
            )
        return answer

    def _renumbered(self, id: TaskId, number: int) -> TaskId:
        """The task under the number that its transaction took long ago."""
        old, kept = TaskId(number), self._tasks.pop(id)
        self._tasks[old] = replace(kept, id=old)
        self._weights[old] = self._weights.pop(id)
        if id in self._arrived:
            del self._arrived[id]
            self._arrived[old] = number
        for key, (holder, until) in list(self._keys.items()):
            if holder == id:
                self._keys[key] = old, until
        return old

    def _moved(self, task: Task, event: Event, **fields: Any) -> Task:
        moved = super()._moved(task, event, **fields)
        self.moves += 1
        self._tell(
            "moved",
            task=task.id,
            version=moved.version,
            event=event.name,
            to=moved.state.name,
            node=moved.node or task.node,
            due=self._due_s(moved),
            is_overdue=self._is_overdue,
            **{"from": task.state.name},
        )
        return moved

    async def resume_overdue(
        self, tasks: Mapping[TaskId, int], *, deliveries_max: int
    ) -> list[Trigger]:
        self._is_overdue = True  # taken from a node that lives, by right
        try:
            return await super().resume_overdue(tasks, deliveries_max=deliveries_max)
        finally:
            self._is_overdue = False

    async def renew(
        self,
        node: NodeId,
        *,
        lease_s: float,
        queues: Sequence[str],
        kinds: Sequence[str],
        facts: Mapping[str, Any] = NO_FACTS,
    ) -> None:
        await super().renew(node, lease_s=lease_s, queues=queues, kinds=kinds, facts=facts)
        self._tell("leased", node=node, until=round(self._clock.seconds() + lease_s, 6))

    async def end(self, nodes: Collection[NodeId]) -> None:
        await super().end(nodes)
        for node in nodes:
            self._tell("leased", node=node, until=self._clock.seconds())

    async def leave(self, nodes: Collection[NodeId], *, ended_only: bool = False) -> None:
        before = set(self._leases)
        await super().leave(nodes, ended_only=ended_only)
        for node in before - set(self._leases):
            self._tell("leased", node=node, until=0.0)

    async def fire_schedule(self, fire: Fire) -> list[Enqueued] | None:
        answers = await super().fire_schedule(fire)
        for task, answer in zip(fire.tasks, answers or (), strict=False):
            if answer.created and task.key is not None and task.key.scope == SCOPE:
                slot = datetime.fromisoformat(task.key.name.rpartition("@")[2])
                at_s = self._clock.seconds() + (slot - self._clock.now()).total_seconds()
                self._tell("fired", schedule=fire.name, slot=round(at_s, 6), task=answer.id)
        return answers

    async def ring_append(self, ring: str, record: RingRecord) -> bool:
        is_written = await super().ring_append(ring, record)
        if is_written:
            self._tell("ring", ring=ring, number=record.number, writer=record.writer)
        return is_written

    async def change(self, changes: Sequence[Change]) -> list[Changed]:
        changed = await super().change(changes)
        for wish, done in zip(changes, changed, strict=True):
            self._tell("wish", event=wish.event.name, task=wish.id, answer=done.answer.name)
        return changed

    async def change_rules(
        self,
        queue: str,
        *,
        limits: Sequence[Limit] = (),
        dropped: Collection[str] = (),
        weights: Mapping[str, float | None] = NO_WEIGHTS,
        fairness: Mode | None = None,
    ) -> int:
        version = await super().change_rules(
            queue, limits=limits, dropped=dropped, weights=weights, fairness=fairness
        )
        for limit in limits:
            # While nodes live, nobody knows when the last of them has heard of a new one.
            if limit.concurrency and not limit.local and not self.is_set_up:
                self._tell(
                    "limit",
                    name=limit.name,
                    queue=queue,
                    concurrency=limit.concurrency,
                    kind=limit.kind,
                    key=limit.key,
                    **{"from": self._clock.seconds()},
                )
        return version

    def shares_of(self, node: NodeId) -> int:
        """Slots of limits that this node may use."""
        held = (rows[node][1].held for rows in self._shares.values() if node in rows)
        return sum(held)


def request_of(new: NewTask) -> str | None:
    """The number that the workload gave to a request, from the task's metadata."""
    found = msgspec.json.decode(new.metadata) if new.metadata else {}
    return found.get("request")
