"""Random histories: SQLite, PostgreSQL and the model give the same answers, step by step.

Each step calls one verb with the same arguments on all three, compares the answers, and then all
that can be seen of the stores.  With HOLDFAST_LONG=1 two hundred histories of fifty steps are
played, each time others; else a few, always the same.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from contracts.choices import (
    DELAY_S,
    ERROR,
    MINUTES,
    MOSTLY,
    NEW_TASKS,
    NODE,
    OFF,
    SELDOM,
    SKIPPED,
    WISHES,
)
from contracts.plays import Besides
from contracts.sides import (
    NODES,
    SET_CLOCK,
    Side,
)
from holdfast.ids import NodeId
from holdfast.store import Change
from holdfast.task import Event, Grabbed, NewTask, Outcome, State, Task, Trigger
from holdfast.testing.contracts.builders import QUEUE

IS_LONG = bool(os.environ.get("HOLDFAST_LONG"))
EXAMPLES, STEPS = (200, 50) if IS_LONG else (10, 40)


def has(state: State) -> Callable[[Any], bool]:
    return lambda play: any(task.state is state for task in play.tasks)


class ThreeStores(Besides):
    """The history of one queue."""

    @initialize(tasks=NEW_TASKS, others=NEW_TASKS)
    def open(self, tasks: list[NewTask], others: list[NewTask]) -> None:
        for side in self._sides:
            self._run(side.open())
            self._opened.append(side)
        for node in NODES[:2]:
            self.renew(node, 5)
        self.claim(NODES[0], 0)
        self.enqueue(tasks + others)
        self.all_that_can_be_seen_is_the_same()
        self.grab_all(NODES[0])

    @rule(tasks=NEW_TASKS)
    def enqueue(self, tasks: list[NewTask]) -> None:
        async def call(side: Side) -> Any:
            return side.ours(await side.store.enqueue(tasks))

        self._step("enqueue", call)

    @rule(tasks=NEW_TASKS, minutes=st.integers(0, 3), commit=st.booleans())
    def enqueue_within(self, tasks: list[NewTask], minutes: int, commit: bool) -> None:
        """In a transaction of the caller's, which ends later: until then nobody sees anything."""
        self._on_all(lambda side: side.begin(tasks))
        try:
            if minutes:
                self._jump(minutes)
            self.all_that_can_be_seen_is_the_same()
        finally:
            answers = self._on_all(lambda side: side.end(commit=commit))
        told = iter(answers)

        async def ended(side: Side) -> Any:
            return side.ours(next(told))

        self._same("enqueue within", ended)

    @precondition(has(State.SUBMITTED))
    @rule(node=NODE)
    def grab_all(self, node: NodeId) -> None:
        """What a healthy node does: all that may run, at the right versions and epochs."""
        self._grab([_trigger(task, task.version) for task in self.waiting()], node, self.epochs)

    @precondition(has(State.SUBMITTED))
    @rule(data=st.data(), node=NODE, skip=SKIPPED, off=OFF)
    def grab(self, data: st.DataObject, node: NodeId, skip: Any, off: int) -> None:
        triggers = [_trigger(*one) for one in self._some(data, State.SUBMITTED)]
        if data.draw(SELDOM):
            triggers += triggers[:1]
        self._grab(triggers, node, self._off(off), skip, self._shares(data))

    @precondition(has(State.PROCESSING))
    @rule(data=st.data(), skip=SKIPPED, node=NODE, is_right=MOSTLY, off=OFF)
    def grab_again(
        self, data: st.DataObject, skip: Any, node: NodeId, is_right: bool, off: int
    ) -> None:
        """The reply of the first grab was lost; its epochs and shares may be gone by now."""
        some = self._some(data, State.PROCESSING)
        node = NodeId(some[0][0].node or node) if is_right else node
        triggers = [_trigger(task, version - 1) for task, version in some]
        self._grab(triggers, node, self._off(off), skip, self._shares(data), repeat=True)

    def _off(self, off: int) -> dict[int, int]:
        return {partition: epoch + off for partition, epoch in self.epochs.items()}

    def _shares(self, data: st.DataObject) -> set[int]:
        known = len(self._model.shares)
        if not known or not data.draw(SELDOM):
            return set()
        return data.draw(st.sets(st.integers(0, known), min_size=1, max_size=2))

    def _grab(
        self,
        triggers: Sequence[Trigger],
        node: NodeId,
        epochs: dict[int, int],
        skip: Sequence[str] = (),
        shares: Collection[int] = (),
        repeat: bool = False,
    ) -> None:
        async def call(side: Side) -> Any:
            grab = await side.store.grab(
                [side.theirs(trigger) for trigger in triggers],
                node=node,
                deadlines_s={"email": 120.0},
                epochs=epochs,
                skip_errors_of=skip,
                shares={side.shares.theirs(share) for share in shares},
                repeat=repeat,
            )
            told = [
                sorted(map(side.tasks.ours, set(ids))) for ids in (grab.undecided, grab.blocked)
            ]
            elders = sorted(side.tasks.ours(trigger.id) for trigger in grab.elders)
            return sorted(side.ours(grab.tasks)), told, elders

        self._step("grab", call)

    @precondition(has(State.PROCESSING))
    @rule(data=st.data(), node=NODE, is_right=MOSTLY, also=st.none() | NODE)
    def settle(
        self, data: st.DataObject, node: NodeId, is_right: bool, also: NodeId | None
    ) -> None:
        outcomes = self._outcomes(data)
        held = {task.id: task.node for task in self.tasks if task.state is State.PROCESSING}
        if is_right:
            node = NodeId(held.get(outcomes[0].id) or node)
        self._settle(outcomes, node)
        if also is not None:
            self._settle(outcomes, also)  # a repeat, by the same node or by another one

    def _settle(self, outcomes: list[Outcome], node: NodeId) -> None:
        async def call(side: Side) -> Any:
            return await side.store.settle([side.theirs(one) for one in outcomes], node=node)

        self._step("settle", call)

    @precondition(has(State.PROCESSING))
    @rule(data=st.data(), node=NODE, raises=st.booleans())
    def settle_within(self, data: st.DataObject, node: NodeId, raises: bool) -> None:
        """In the handler's own transaction, which may fail after the settle."""
        (task, version), *_ = self._some(data, State.PROCESSING)
        outcome = self._outcomes(data)[0]._replace(id=task.id, version=version)

        async def call(side: Side) -> Any:
            theirs = side.theirs(outcome)
            grabbed = Grabbed(theirs.id, version, "email", b"", 1, 1, 5, QUEUE, 0, *[None] * 5)  # type: ignore[arg-type]
            is_accepted = None
            try:
                async with side.store.transaction(grabbed, node=node) as transaction:
                    is_accepted = await transaction.settle(theirs)
                    if raises or not is_accepted:
                        raise ValueError("on purpose")
            except ValueError:
                pass
            return is_accepted

        self._step("settle within", call)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), force=st.booleans(), delay_s=DELAY_S, error=ERROR)
    def change(self, data: st.DataObject, force: bool, delay_s: float, error: str | None) -> None:
        some = self._some(data, State.WAITING, State.ERROR, State.PROCESSING)
        if data.draw(SELDOM):
            some += [(some[0][0], some[0][1] + 1)]
        changes = [
            Change(
                task.id,
                data.draw(st.sampled_from(WISHES)),
                data.draw(st.sampled_from([version, version, None])),
                delay_s,
                force,
                error,
            )
            for task, version in some
        ]
        if data.draw(SELDOM):
            changes.append(Change(-1, Event.CANCELLED))  # type: ignore[arg-type]

        async def call(side: Side) -> Any:
            return side.ours(await side.store.change([side.theirs(one) for one in changes]))

        self._step("change", call)

    @rule(limit=st.sampled_from([1, 100]))
    def submit_due(self, limit: int) -> None:
        async def call(side: Side) -> Any:
            triggers, next_due_at = await side.store.submit_due(limit=limit)
            # Who got as many as wanted asks again at once, whatever the next time is.
            return side.ours(triggers), next_due_at if len(triggers) < limit else None

        self._step("submit due", call)

    @rule(minutes=MINUTES)
    def jump(self, minutes: int) -> None:
        self._jump(minutes)

    @rule(minutes=st.integers(1, 3))
    def jump_and_submit_due(self, minutes: int) -> None:
        self._jump(minutes)
        self.submit_due(100)

    @rule(deadline_s=st.sampled_from([60.0, 300.0]))
    def submit_overdue(self, deadline_s: float) -> None:
        async def call(side: Side) -> Any:
            found = await side.store.submit_overdue(deadline_s=deadline_s, limit=1000)
            return sorted(side.ours(found))

        self._step("submit overdue", call)

    @precondition(has(State.PROCESSING))
    @rule(data=st.data(), deliveries_max=st.sampled_from([2, 3]))
    def resume_overdue(self, data: st.DataObject, deliveries_max: int) -> None:
        named = self._named(data, State.PROCESSING)

        async def call(side: Side) -> Any:
            found = await side.store.resume_overdue(
                side.named(named), deliveries_max=deliveries_max
            )
            return sorted(side.ours(found))

        self._step("resume overdue", call)

    @precondition(has(State.PROCESSING))
    @rule(data=st.data(), minutes=MINUTES)
    def postpone(self, data: st.DataObject, minutes: int) -> None:
        named = self._named(data, State.PROCESSING)

        async def call(side: Side) -> Any:
            await side.store.postpone(side.named(named), deadline_s=60.0 * minutes)

        self._step("postpone", call)

    @rule(
        nodes=st.sets(NODE, min_size=1),
        deliveries_max=st.sampled_from([2, 3, 3]),
        has_ended=st.booleans(),
    )
    def resume_lost(self, nodes: set[NodeId], deliveries_max: int, has_ended: bool) -> None:
        if has_ended:
            self.end(nodes)

        async def call(side: Side) -> Any:
            found = await side.store.resume_lost(nodes, deliveries_max=deliveries_max, limit=1000)
            return sorted(side.ours(found))

        self._step("resume lost", call)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def park(self, data: st.DataObject) -> None:
        named = self._named(data, State.SUBMITTED, State.PROCESSING)

        async def call(side: Side) -> Any:
            parked = await side.store.park(side.named(named), "no handler")
            return sorted(map(side.tasks.ours, parked))

        self._step("park", call)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), node=NODE)
    def compare(self, data: st.DataObject, node: NodeId) -> None:
        named = self._named(data, State.PROCESSING)

        async def call(side: Side) -> Any:
            held = side.named(named)
            moved = await side.store.moved_on(node, held)
            return sorted(list(held).index(id) for id in moved)

        self._step("moved on", call)

    # What happens to any call

    @precondition(lambda self: self._calls)
    @rule(back=st.integers(1, 5))
    def again(self, back: int) -> None:
        """A call with the same arguments, right after the first or after others."""
        name, call = self._calls[-min(back, len(self._calls))]
        self._has_more = True
        self._same(f"{name} again", call)

    @rule()
    def reopen(self) -> None:
        for side in self._sides:
            self._run(side.reopen())
        self._has_more = True


def _trigger(task: Task, version: int) -> Trigger:
    facts: Sequence[Any] = (task.queue, task.partition, task.kind, task.priority)
    return Trigger(task.id, version, *facts, task.fairness_key, 1.0, task.ordering_key)


async def _prepare(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(SET_CLOCK)
    await connection.close()


def test_a_random_history_has_the_same_answers_in_all_three_stores(
    postgres_url: str, tmp_path: Path
) -> None:
    asyncio.run(_prepare(postgres_url))
    numbers = count()
    run_state_machine_as_test(
        lambda: ThreeStores(postgres_url, tmp_path / f"{next(numbers)}.db"),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=not IS_LONG,
            suppress_health_check=list(HealthCheck),
        ),
    )
