"""Random histories: the SQLite store and the model give the same answers, step by step."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.ids import NodeId
from holdfast.store import Change, Filter, Store
from holdfast.stores.sqlite import SQLiteStore
from holdfast.task import Event, Key, Outcome, State, TaskId, Trigger
from holdfast.testing.contracts.builders import QUEUE, a_task, claimed, waiting_triggers
from holdfast.testing.model import ModelStore

NODES = [NodeId("a"), NodeId("b")]
SETTLED = [Event.SUCCEEDED, Event.RETRIED, Event.REPEATED, Event.PARKED, Event.GIVEN_UP]
WISHES = [Event.RESUMED, Event.RESCHEDULED, Event.CANCELLED, Event.GIVEN_UP, Event.GRABBED]
STEPS = ["enqueue", "grab", "settle", "change", "submit_due", "resume_lost", "park", "compare"]


class SetClock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.at = datetime(2030, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def seconds(self) -> float:
        return self.at.timestamp()


class History:
    """The same step on any store: chosen by a seed, from what the model holds."""

    def __init__(self, rng: Random, model: ModelStore) -> None:
        self._rng = rng
        self._model = model

    async def step(self, name: str) -> Any:
        """What to call, as a function of the store."""
        self._tasks = await self._model.find(Filter(limit=1000))
        self._node = self._rng.choice(NODES)
        arguments = getattr(self, f"_{name}")()
        return lambda store: _called(store, name, arguments)

    def _some(self, *states: State) -> dict[TaskId, int]:
        """Ids and versions, most of them right, most of them in a state that allows the step."""
        fitting = [task for task in self._tasks if task.state in states]
        tasks = fitting if fitting and self._rng.random() < 0.8 else self._tasks
        chosen = self._rng.sample(tasks, k=min(len(tasks), self._rng.randrange(1, 5)))
        return {task.id: task.version - (self._rng.random() < 0.2) for task in chosen}

    def _enqueue(self) -> Any:
        rng = self._rng
        keys = [None, None, Key("s", rng.choice("xyz"), rng.choice([None, 5.0]))]
        return [
            a_task(
                delay_s=rng.choice([0, 0, 0, 3.0]),
                key=rng.choice(keys),
                ordering_key=rng.choice([None, None, "k", "l"]),
                kind=rng.choice(["email", "sms"]),
            )
            for _ in range(rng.choice([1, 1, 2, 9]))
        ]

    def _grab(self) -> Any:
        triggers = [
            Trigger(id, version, QUEUE, 0, "email", 5)
            for id, version in self._some(State.SUBMITTED).items()
        ]
        return triggers, self._node, self._rng.random() < 0.3, self._rng.choice([(), ("sms",)])

    def _settle(self) -> Any:
        outcomes = [
            Outcome(
                id,
                version,
                self._rng.choice(SETTLED),
                delay_s=self._rng.choice([0.0, 2.0]),
                error=self._rng.choice([None, "why"]),
                counts=self._rng.random() < 0.8,
                resets=self._rng.random() < 0.1,
                keep=self._rng.random() < 0.8,
                forgives=self._rng.random() < 0.8,
            )
            for id, version in self._some(State.PROCESSING).items()
        ]
        return outcomes, self._node

    def _change(self) -> Any:
        some = self._some(State.WAITING, State.ERROR).items()
        forces = self._rng.random() < 0.5
        return [Change(id, self._rng.choice(WISHES), version, 2.0, forces) for id, version in some]

    def _submit_due(self) -> Any:
        return self._rng.choice([1, 100])

    def _resume_lost(self) -> Any:
        return [self._node]

    def _park(self) -> Any:
        return self._some(State.SUBMITTED, State.PROCESSING)

    def _compare(self) -> Any:
        return self._node, self._some(State.PROCESSING)


async def _called(store: Store, name: str, arguments: Any) -> Any:
    match name:
        case "grab":
            triggers, node, repeat, skip = arguments
            epochs = {holding.partition: holding.epoch for holding in await store.holdings(QUEUE)}
            grab = await store.grab(
                triggers,
                node=node,
                deadlines_s={"email": 60},
                epochs=epochs,
                repeat=repeat,
                skip_errors_of=skip,
            )
            return sorted(grab.tasks), sorted(grab.blocked)
        case "settle":
            return await store.settle(arguments[0], node=arguments[1])
        case "submit_due":
            triggers, next_due_at = await store.submit_due(limit=arguments)
            return [_plain(trigger) for trigger in triggers], next_due_at
        case "change":
            changed = await store.change(arguments)
            return [(one.answer, one.trigger and _plain(one.trigger)) for one in changed]
        case "resume_lost":
            triggers = await store.resume_lost(arguments, deliveries_max=3, limit=1000)
            return sorted(map(_plain, triggers))
        case "park":
            return sorted(await store.park(arguments, "parked"))
        case "compare":
            node, held = arguments
            return await store.running_of(node), sorted(await store.moved_on(node, held))
        case _:
            return await store.enqueue(arguments)


def _plain(trigger: Trigger) -> tuple[int, int]:
    """Numbers of arrival are each store's own affair."""
    return trigger.id, trigger.version


async def _state(store: Store) -> Any:
    """All tasks as people see them, and what the owner would find."""
    tasks = await store.find(Filter(limit=1000))
    seen = [
        # When a submitted task was due, and which words a parked one got, may differ.
        replace(task, due_at=None, error=task.error and "said", deadline_at=None)
        for task in tasks
    ]
    return seen, sorted(map(_plain, await waiting_triggers(store))), await store.counts()


async def _played(seed: int, names: list[str]) -> None:
    clock = SetClock()
    rng = Random(seed)
    model = ModelStore(clock=clock)
    store = SQLiteStore(":memory:", clock=clock, rng=Random(0))
    await store.open()
    try:
        await claimed(store), await claimed(model)
        history = History(rng, model)
        for name in names:
            clock.at += timedelta(seconds=rng.choice([0, 0.5, 1.5, 3.5]))
            call = await history.step(name)
            assert await call(store) == await call(model), name
            assert await _state(store) == await _state(model), name
    finally:
        await store.close()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    names=st.lists(
        st.sampled_from([*STEPS, "grab", "grab", "settle", "resume_lost"]),
        min_size=40,
        max_size=120,
    ),
)
def test_a_random_history_has_the_same_answers_in_sqlite_and_in_the_model(
    seed: int, names: list[str]
) -> None:
    asyncio.run(_played(seed, ["enqueue", *names]))
