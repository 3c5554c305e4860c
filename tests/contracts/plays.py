"""Steps that three stores take side by side, and what is compared after each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contracts.choices import DELAY_S, ERROR, LIMITS, MOSTLY, NODE, OFF, SELDOM, SETTLED
from contracts.sides import (
    PARTITIONS,
    RING,
    PostgresSide,
    SetClock,
    Side,
    SQLiteSide,
    rest_of,
    tasks_of,
)
from holdfast.errors import HoldfastError
from holdfast.ids import NodeId
from holdfast.limit import Limit, Want
from holdfast.ring import Kept, RingRecord
from holdfast.schedule import Fire, Schedule, fire_of, planned
from holdfast.store import Filter
from holdfast.task import Outcome, State, Task
from holdfast.testing.contracts.builders import QUEUE, a_task
from holdfast.timing import Every

# What these calls change is seen of the tasks alone.
OF_TASKS = {
    "enqueue",
    "grab",
    "change",
    "submit due",
    "submit overdue",
    "resume overdue",
    "resume lost",
}
OF_TASKS |= {"postpone", "park", "moved on", "find", "survey"}

Call = Callable[[Side], Awaitable[Any]]


class Play(RuleBasedStateMachine):
    """The history of one queue.  What a step needs to know it reads from the model."""

    def __init__(self, url: str, path: Path) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._clock = SetClock()
        self._model = Side(self._clock)
        self._sides = [
            self._model,
            SQLiteSide(self._clock, path),
            PostgresSide(self._clock, url),
        ]
        self._calls: list[tuple[str, Call]] = []
        self._opened: list[Side] = []
        self._has_more = True  # whether more than tasks may have changed since the last look
        self.tasks: list[Task] = []

    def teardown(self) -> None:
        for side in self._opened:
            self._run(side.close())
        self._loop.close()

    # The same on all of them

    def _run(self, work: Awaitable[Any]) -> Any:
        return self._loop.run_until_complete(work)

    def _on_all(self, call: Call) -> list[Any]:
        answers: list[Any] = self._run(_together([call(side) for side in self._sides]))
        return answers

    def _same(self, name: str, call: Call) -> Any:
        """The answer that all of them give to this call."""
        wanted, *others = self._on_all(call)
        for side, found in zip(self._sides[1:], others, strict=True):
            assert found == wanted, f"{name}: {side.name} says {found}, the model says {wanted}"
        return wanted

    def _step(self, name: str, call: Call) -> Any:
        """The same, and it may be called again."""
        self._calls = [*self._calls[-4:], (name, call)]
        self._has_more |= name not in OF_TASKS
        return self._same(name, call)

    def _jump(self, minutes: int) -> None:
        self._clock.at += timedelta(minutes=minutes)
        for side in self._sides:
            self._run(side.set_clock())

    @invariant()
    def all_that_can_be_seen_is_the_same(self) -> None:
        if not self._opened:
            return
        self.tasks = self._compared(tasks_of)["tasks"]
        if self._has_more:
            rest = self._compared(rest_of)
            self.epochs = {one.partition: one.epoch for one in rest["holdings"]}
            self.schedules = rest["schedules"]
            self.latest = rest["latest"].number
            self._has_more = False

    def _compared(self, look: Callable[[Side], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        wanted: dict[str, Any]
        wanted, *others = self._on_all(look)
        for side, found in zip(self._sides[1:], others, strict=True):
            for name, value in found.items():
                assert value == wanted[name], f"{name}: {side.name} has {value}, not {wanted[name]}"
        return wanted

    # What a step is about

    def _some(self, data: st.DataObject, *states: State) -> list[tuple[Task, int]]:
        """Tasks and versions, most of them right, most of them in a state that allows the step."""
        fitting = [task for task in self.tasks if task.state in states]
        pool = fitting if fitting and data.draw(MOSTLY) else self.tasks
        places = st.lists(st.integers(0, len(pool) - 1), min_size=1, max_size=5, unique=True)
        chosen = [pool[place] for place in data.draw(places)]
        return [(task, task.version + data.draw(OFF)) for task in chosen]

    def waiting(self) -> list[Task]:
        return [task for task in self.tasks if task.state is State.SUBMITTED]

    def _named(self, data: st.DataObject, *states: State) -> dict[int, int]:
        found: dict[int, int] = {task.id: version for task, version in self._some(data, *states)}
        return found | ({-1: 1} if data.draw(SELDOM) else {})

    def _outcomes(self, data: st.DataObject) -> list[Outcome]:
        return [
            Outcome(
                task.id,
                version,
                data.draw(st.sampled_from(SETTLED)),
                delay_s=data.draw(DELAY_S),
                error=data.draw(ERROR),
                result=data.draw(st.sampled_from([None, b"result"])),
                counts=data.draw(MOSTLY),
                resets=data.draw(SELDOM),
                keep=data.draw(MOSTLY),
                forgives=data.draw(MOSTLY),
                ends=data.draw(st.sampled_from([None, None, None, "nightly"])),
            )
            for task, version in self._some(data, State.PROCESSING)
        ]


class Besides(Play):
    """Steps that are about other things than tasks: they are chosen less often."""

    @rule(data=st.data(), after=st.integers(-1, 20), limit=st.sampled_from([1, 5, 100]))
    def find(self, data: st.DataObject, after: int, limit: int) -> None:
        states = data.draw(st.sets(st.sampled_from(list(State)), max_size=3))
        kinds = data.draw(st.sets(st.sampled_from(["email", "sms", "fax"]), max_size=2))
        keys = data.draw(st.sets(st.sampled_from(["t", "u"]), max_size=1))
        after = min(after, len(self.tasks) - 1)

        async def call(side: Side) -> Any:
            wanted = Filter(
                states=states,
                kinds=kinds,
                fairness_keys=keys,
                after=None if after < 0 else side.tasks.theirs(after),  # type: ignore[arg-type]
                limit=limit,
            )
            return side.ours(await side.store.find(wanted))

        self._step("find", call)

    @rule()
    def survey(self) -> None:
        async def call(side: Side) -> Any:
            store = side.store
            return [
                await store.survey(),
                await store.troubles(),
                await store.waiting_kinds(),
                await store.unknown_queues(),
            ]

        self._step("survey", call)

    # Nodes, partitions and duties

    @rule(node=NODE, minutes=st.integers(1, 5))
    def renew(self, node: NodeId, minutes: int) -> None:
        async def call(side: Side) -> Any:
            await side.store.renew(
                node, lease_s=60.0 * minutes, queues=[QUEUE], kinds=["email"], facts={"a": minutes}
            )

        self._step("renew", call)

    @rule(nodes=st.sets(NODE, min_size=1, max_size=2))
    def end(self, nodes: set[NodeId]) -> None:
        self._step("end", lambda side: side.store.end(nodes))

    @rule(nodes=st.sets(NODE, min_size=1, max_size=2), ended_only=st.booleans())
    def leave(self, nodes: set[NodeId], ended_only: bool) -> None:
        self._step("leave", lambda side: side.store.leave(nodes, ended_only=ended_only))

    @rule(node=NODE, off=OFF)
    def claim(self, node: NodeId, off: int) -> None:
        async def call(side: Side) -> Any:
            seen = {h.partition: h.epoch + off for h in await side.store.holdings(QUEUE)}
            first = {partition: seen[partition] for partition in range(PARTITIONS)}
            return await side.store.claim(QUEUE, first, node=node)

        self._step("claim", call)

    @rule(node=NODE, is_wish=st.booleans(), partitions=st.sets(st.integers(0, 3)))
    def let_go(self, node: NodeId, is_wish: bool, partitions: set[int]) -> None:
        async def call(side: Side) -> Any:
            verb = side.store.wish if is_wish else side.store.let_go
            await verb(QUEUE, partitions, node=node)

        self._step("wish or let go", call)

    @rule(node=NODE, number=st.integers(0, 3), name=st.sampled_from(["waker", "cleaner"]))
    def keep_duties(self, node: NodeId, number: int, name: str) -> None:
        self._step(
            "keep duties",
            lambda side: side.store.keep_duties([Kept(name, number, 60.0)], node=node),
        )

    @rule(
        offs=st.lists(st.sampled_from([0, 1, -1, 0]), min_size=1, max_size=4),
        node=NODE,
        body=st.sampled_from([b"", b"\x00b"]),
    )
    def ring_append(self, offs: list[int], node: NodeId, body: bytes) -> None:
        for off in offs:
            record = RingRecord(self.latest + 1 + off, node, body)
            self._step("ring append", lambda side, it=record: side.store.ring_append(RING, it))

    @rule(kept=st.sampled_from([1, 2, 5]))
    def ring_rotate(self, kept: int) -> None:
        self._step("ring rotate", lambda side: side.store.ring_rotate(RING, kept=kept))

    # Limits

    @rule(
        limits=st.lists(LIMITS, max_size=2, unique_by=lambda limit: limit.name),
        dropped=st.sets(st.sampled_from("lmr"), max_size=1),
        weights=st.dictionaries(
            st.sampled_from("tu"), st.sampled_from([None, 2.0, 0.5, 5000.0]), max_size=2
        ),
        fairness=st.sampled_from([None, "count", "cost", "off"]),
    )
    def change_rules(
        self, limits: list[Limit], dropped: set[str], weights: dict[str, Any], fairness: Any
    ) -> None:
        self._step(
            "change rules",
            lambda side: side.store.change_rules(
                QUEUE, limits=limits, dropped=dropped, weights=weights, fairness=fairness
            ),
        )

    @rule(
        wants=st.lists(
            st.builds(
                Want,
                st.sampled_from("lmr"),
                st.sampled_from(["", "t"]),
                st.integers(0, 2),
                st.integers(0, 4),
            ),
            min_size=1,
            max_size=2,
            unique_by=lambda want: want.limit,
        ),
        node=NODE,
    )
    def allot(self, wants: list[Want], node: NodeId) -> None:
        async def call(side: Side) -> Any:
            return side.ours(await side.store.allot(QUEUE, wants, node=node))

        self._step("allot", call)

    # Schedules

    @rule(
        name=st.sampled_from(["nightly", "hourly"]),
        off=OFF,
        minutes=st.integers(-5, 5),
        is_paused=SELDOM,
        catch_up=st.sampled_from(["one", "all", "none"]),
    )
    def put_schedule(
        self, name: str, off: int, minutes: int, is_paused: bool, catch_up: Any
    ) -> None:
        versions = {one.name: one.version for one in self.schedules}
        schedule = Schedule(
            name=name,
            timing=Every(60.0, catch_up=catch_up),
            kind="email",
            queue=QUEUE,
            payload=b"hello",
            partition=1,
            is_paused=is_paused,
            next_at=self._clock.at + timedelta(minutes=minutes),
            version=versions.get(name, 0) + off,
        )
        self._step("put schedule", lambda side: side.store.put_schedule(schedule))

    @precondition(lambda self: self._opened and self.schedules)
    @rule(place=st.integers(0, 1), off=OFF)
    def fire_schedule(self, place: int, off: int) -> None:
        schedule = self.schedules[place % len(self.schedules)]
        now = self._clock.at
        fire = Fire(schedule.name, schedule.version, [a_task()], now, None, 1)
        if schedule.next_at is not None and schedule.next_at <= now:
            fire = fire_of(schedule, planned(schedule, now), partitions=PARTITIONS)

        async def call(side: Side) -> Any:
            answers = await side.store.fire_schedule(fire._replace(version=fire.version + off))
            return answers and side.ours(answers)

        self._step("fire schedule", call)

    @rule(name=st.sampled_from(["nightly", "hourly"]), is_meant=SELDOM)
    def drop_schedule(self, name: str, is_meant: bool) -> None:
        if is_meant:
            self._step("drop schedule", lambda side: side.store.drop_schedule(name))


async def _together(works: Sequence[Awaitable[Any]]) -> list[Any]:
    return await asyncio.gather(*map(_answered, works))


async def _answered(work: Awaitable[Any]) -> Any:
    """An answer, or the name of an error of ours: that is one as well."""
    try:
        return await work
    except HoldfastError as error:
        return type(error).__name__
