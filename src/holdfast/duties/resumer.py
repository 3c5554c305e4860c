"""The resumer: what is stuck goes on, or a person hears of it.

Tasks of dead nodes are not its business: each node looks for ended leases at every tick.  Here are
the slow ways of being lost, looked for once a minute:

    SUBMITTED, and nobody has taken it in for half an hour      its trigger is sent again
    PROCESSING past its deadline, on a node that is alive        retry · error · failed · ignore
    SUBMITTED in a queue that no node has ever served            ERROR

What becomes of a task past its deadline says the node that runs it, for each of its kinds: it
knows the handler.  Each of these moves names the task's version, so two resumers at once are one
too many, but do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.clock import Clock
from holdfast.duties.duty import AT_ONCE
from holdfast.policy import Deadline, Stuck
from holdfast.store import Answer, Change, Filter, Overdue, Store
from holdfast.task import Event, State, TaskId, Trigger
from holdfast.telemetry.events import Events, TaskStuck

EVERY_S = 60.0
BATCH_MAX = 1_000


class Plan(NamedTuple):
    """What the node of a kind wants to become of its tasks past their deadline."""

    stuck: Stuck = "error"
    deadline_s: float = Deadline().seconds


def plans_of(facts: Mapping[str, Any]) -> dict[str, Plan]:
    """The plans by kind, as a node tells them of itself; kinds of the default are left out."""
    return {kind: Plan(*plan) for kind, plan in facts.get("stuck", {}).items()}


class Resumer:
    """Looks for stuck tasks once a minute, and at once again while there may be more."""

    name = "resumer"

    def __init__(
        self,
        store: Store,
        *,
        publish: Callable[[Sequence[Trigger]], object],
        clock: Clock,
        events: Events,
        deliveries_max: int,
        submitted_s: float,
        unknown_queue_s: float,
        every_s: float = EVERY_S,
    ) -> None:
        self._store = store
        self._publish = publish
        self._clock = clock
        self._events = events
        self._deliveries_max = deliveries_max
        self._submitted_s = submitted_s
        self._unknown_queue_s = unknown_queue_s
        self._every_s = every_s
        self._strange_since: dict[str, float] = {}  # queues that no node has ever served

    async def run_once(self) -> float:
        """One batch of each kind of trouble."""
        found = await self._trigger_again()
        found = max(found, await self._handle_overdue())
        await self._park_strays()
        return AT_ONCE if found >= BATCH_MAX else min(self._every_s, self._unknown_queue_s / 2)

    # ── SUBMITTED ─────────────────────────────────────────────────────────────────────────

    async def _trigger_again(self) -> int:
        triggers = await self._store.submit_overdue(deadline_s=self._submitted_s, limit=BATCH_MAX)
        for trigger in triggers:
            self._events.emit(TaskStuck(trigger.id, trigger.kind, "SUBMITTED", "triggered again"))
        self._publish(triggers)
        return len(triggers)

    async def _park_strays(self) -> None:
        """Tasks of queues that no node has ever served, after a wait for a deploy to arrive."""
        now = self._clock.seconds()
        unknown = await self._store.unknown_queues()
        self._strange_since = {queue: self._strange_since.get(queue, now) for queue in unknown}
        for queue in [q for q in unknown if now - self._strange_since[q] >= self._unknown_queue_s]:
            found = await self._store.find(
                Filter(states=[State.SUBMITTED], queues=[queue], limit=BATCH_MAX)
            )
            text = f"no node has ever served the queue {queue!r}"
            await self._store.park({task.id: task.version for task in found}, text)

    # ── PROCESSING ────────────────────────────────────────────────────────────────────────

    async def _handle_overdue(self) -> int:
        overdue = await self._store.overdue(limit=BATCH_MAX)
        if not overdue:
            return 0
        plans = {
            member.node: plans_of(member.facts)
            for member in await self._store.members()
            if member.is_alive
        }
        batches: dict[Plan, list[Overdue]] = {}
        for one in overdue:
            if one.node in plans:  # else its lease has ended: the task is resumed for that reason
                batches.setdefault(plans[one.node].get(one.kind, Plan()), []).append(one)
        for plan, batch in batches.items():
            await self._handle(plan, batch)
        return len(overdue)

    async def _handle(self, plan: Plan, batch: Sequence[Overdue]) -> None:
        tasks = {one.id: one.version for one in batch}
        match plan.stuck:
            case "retry":
                triggers = await self._store.resume_overdue(
                    tasks, deliveries_max=self._deliveries_max
                )
                self._publish(triggers)
                did = "submitted again"
            case "error":
                by_text: dict[str, dict[TaskId, int]] = {}
                for one in batch:
                    by_text.setdefault(_late(one), {})[one.id] = one.version
                for text, some in by_text.items():
                    await self._store.park(some, text)
                did = "parked in ERROR"
            case "failed":
                wishes = [
                    Change(one.id, Event.GIVEN_UP, one.version, error=_late(one)) for one in batch
                ]
                changed = await self._store.change(wishes)
                self._publish([c.trigger for c in changed if c.answer is Answer.OK and c.trigger])
                did = "given up"
            case "ignore":
                await self._store.postpone(tasks, deadline_s=plan.deadline_s)
                did = "left alone until its next deadline"
        for one in batch:
            self._events.emit(TaskStuck(one.id, one.kind, "PROCESSING", did))


def _late(one: Overdue) -> str:
    return f"it ran past its deadline on node {one.node}, which is alive: nobody settled it"
