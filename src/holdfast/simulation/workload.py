"""What the users of a simulated cluster do: add tasks, change them, set limits and schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import msgspec

from holdfast.errors import OutcomeUnknown, Unavailable
from holdfast.simulation.kinds import QUEUES
from holdfast.simulation.processes import Place, Program
from holdfast.store import Change, Filter
from holdfast.task import Event, NewTask, State
from holdfast.timing import Every

OPEN_S = 2.0  # mean life of a transaction that stays open
SCHEDULE_S = 1.5
WISHES = (Event.CANCELLED, Event.RESUMED, Event.RESCHEDULED, Event.GIVEN_UP)


class Users(Program):
    """One process that enqueues, and the people who steer the queues."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, "users")
        self._rng = Random(f"users {place.plan.seed}")
        self._schedules: list[str] = []

    def start(self) -> asyncio.Task[None]:
        return self.place.world.start(self.process, self._live())

    async def _live(self) -> None:
        plan = self.place.plan
        async with asyncio.TaskGroup() as group:
            if plan.operators:
                group.create_task(self._operate())
            if plan.pauses:
                group.create_task(self._pause())
            for number in range(plan.requests):
                await asyncio.sleep(self._rng.expovariate(plan.requests / plan.faulty_s))
                group.create_task(self._request(f"r{number}"))

    # ── enqueueing ────────────────────────────────────────────────────────────────────────

    async def _request(self, request: str) -> None:
        """One task, of a kind of work that this seed has switched on."""
        rng, plan = self._rng, self.place.plan
        work = rng.choice(sorted(plan.work))
        kind, args, options = _WORK[work](rng, plan.keys, request)
        if "fairness_key" not in options and rng.random() < 0.5:
            options["fairness_key"] = f"tenant {rng.randrange(plan.keys)}"
        if rng.random() < 0.2:
            options["priority"] = rng.randrange(10)
        self.place.tell("enqueue", phase="invoke", request=request, kind=kind)
        if rng.random() < plan.open_share and options.keys() <= {"fairness_key", "priority"}:
            await self._transaction(request, kind, args, options)
            return
        enqueuer = self.definitions[kind].options(metadata={"request": request}, **options)
        try:
            handle = await enqueuer.enqueue(*args)
        except OutcomeUnknown:
            self.place.tell("enqueue", phase="info", request=request)
        except Unavailable:
            self.place.tell("enqueue", phase="fail", request=request)
        else:
            self.place.known.append(handle.id)
            self.place.tell(
                "enqueue", phase="ok", request=request, task=handle.id, created=handle.created
            )

    async def _transaction(
        self, request: str, kind: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        """The task of a transaction that stays open: younger tasks are seen before it."""
        handler, truth = self.definitions[kind].handler, self.place.truth
        new = NewTask(
            queue=handler.queue,
            kind=kind,
            payload=handler.arguments.seal(args, {}),
            partition=self._rng.randrange(truth.partitions),
            metadata=msgspec.json.encode({"request": request}),
            **options,
        )
        number = truth.begin()
        await asyncio.sleep(self._rng.expovariate(1 / OPEN_S))
        if self._rng.random() < 0.2:
            truth.roll_back(number)
            self.place.tell("enqueue", phase="fail", request=request)
            return
        answer = truth.commit(number, new)
        self.place.known.append(answer.id)
        self.place.tell("enqueue", phase="ok", request=request, task=answer.id)

    # ── people ────────────────────────────────────────────────────────────────────────────

    async def set_up(self) -> None:
        """Before any node starts: from the first moment on the limits hold."""
        rng, plan = self._rng, self.place.plan
        for number in range(plan.limits):
            queue = self.app.queue(rng.choice(QUEUES))
            size, key = rng.randint(1, 4), rng.choice((None, "*"))
            limit = partial(queue.limit, f"limit {number}", concurrency=size, key=key)
            await self._surely(limit)
        for number in range(plan.schedules):
            name = f"schedule {number}"
            self._schedules.append(name)
            timing = Every(SCHEDULE_S * (number + 1), catch_up="all")
            await self._surely(partial(self.definitions["plain"].put_schedule, name, timing, 0.01))

    async def _operate(self) -> None:
        while not self.place.faults.is_healed:
            await asyncio.sleep(self._rng.expovariate(1.0))
            if not self.place.known:
                continue
            event, id = self._rng.choice(WISHES), self._rng.choice(self.place.known)
            wish = Change(id, event, delay_s=self._rng.uniform(0.0, 3.0), force=True)
            if event is not Event.RESCHEDULED:
                wish = wish._replace(delay_s=0.0)
            with suppress(Unavailable):
                await (await self.app.client()).change([wish])

    async def _pause(self) -> None:
        while not self.place.faults.is_healed:
            await asyncio.sleep(self._rng.expovariate(0.3))
            queue = self.app.queue(self._rng.choice(QUEUES))
            await self._surely(queue.pause)
            await asyncio.sleep(self._rng.expovariate(0.5))
            await self._surely(queue.resume)

    async def tidy_up(self) -> None:
        """When faults are over: what would go on for ever, or hold others up, ends."""
        for name in self._schedules:
            await self._surely(partial(self.app.schedules.drop, name))
        for queue in QUEUES:
            await self._surely(self.app.queue(queue).resume)

    async def give_up_errors(self) -> None:
        """People look at tasks in ERROR, so that no ordering key waits for ever."""
        store = await self.app.store()
        parked = await store.find(Filter(states=[State.ERROR], limit=100))
        held = [task for task in parked if task.ordering_key is not None]
        await (await self.app.client()).change([Change(t.id, Event.GIVEN_UP) for t in held])

    async def _surely(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Until it succeeds: all of these may be repeated."""
        while True:
            try:
                await work()
            except Unavailable:
                await asyncio.sleep(0.2)
            else:
                return


Drawn = tuple[str, tuple[Any, ...], dict[str, Any]]  # kind, arguments, options


def _short(rng: Random) -> float:
    return round(rng.expovariate(20.0), 3)


def _plain(rng: Random, keys: int, request: str) -> Drawn:
    return "plain", (_short(rng),), {}


def _failing(rng: Random, keys: int, request: str) -> Drawn:
    return "failing", (_short(rng), rng.randrange(4)), {}


def _repeating(rng: Random, keys: int, request: str) -> Drawn:
    return "repeating", (_short(rng), rng.randrange(3), rng.choice((0.0, 0.3))), {}


def _delayed(rng: Random, keys: int, request: str) -> Drawn:
    return "plain", (_short(rng),), {"delay": round(rng.uniform(0.01, 6.0), 3)}


def _ordered(rng: Random, keys: int, request: str) -> Drawn:
    kind, args, _ = _failing(rng, keys, request)
    return kind, args, {"ordering_key": f"key {rng.randrange(keys)}"}


def _keyed(rng: Random, keys: int, request: str) -> Drawn:
    return "plain", (_short(rng),), {"unique": f"unique {rng.randrange(5 * keys)}"}


def _batched(rng: Random, keys: int, request: str) -> Drawn:
    return "batched", (request,), {}


def _transactional(rng: Random, keys: int, request: str) -> Drawn:
    return "transactional", (_short(rng), rng.randrange(3)), {}


def _later(rng: Random, keys: int, request: str) -> Drawn:
    return "later", (_short(rng),), {}


def _lingering(rng: Random, keys: int, request: str) -> Drawn:
    return "plain", (round(rng.uniform(0.5, 6.0), 3),), {}


def _stuck(rng: Random, keys: int, request: str) -> Drawn:
    if rng.random() < 0.5:
        return "limited", (rng.choice((0.1, 5.0)),), {}
    return "stuck", (rng.randrange(2),), {}


_WORK: dict[str, Callable[[Random, int, str], Drawn]] = {
    "plain": _plain,
    "failing": _failing,
    "repeating": _repeating,
    "delayed": _delayed,
    "ordered": _ordered,
    "keyed": _keyed,
    "batched": _batched,
    "transactional": _transactional,
    "later": _later,
    "lingering": _lingering,
    "stuck": _stuck,
}
