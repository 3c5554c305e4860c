"""People who steer a simulated cluster while it lives: its rules, its schedules, its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from holdfast.errors import ConfigurationError, Refused, Unavailable
from holdfast.schedule import Schedule, Unreadable
from holdfast.simulation.kinds import QUEUES
from holdfast.simulation.processes import NodeProgram, Place, Program
from holdfast.timing import At, CatchUp, Every, Timing

RULES = 4  # limits that come and go
TIMETABLES = 3
RULE_EVERY_S = 1.0  # mean, of each kind of change
FOLLOWED_S = 8.0  # when nothing goes wrong, all nodes follow a new rule within this
TRIES_S = 3.0


class People(Program):
    """One process in which people work, as their seed's habits say."""

    def __init__(self, place: Place, nodes: Sequence[NodeProgram]) -> None:
        """`nodes` are those of now: others take their places in it."""
        super().__init__(place, "people")
        self._rng = Random(f"people {place.plan.seed}")
        self._nodes = nodes

    def start(self) -> asyncio.Task[None]:
        return self.place.world.start(self.process, self._live())

    async def _live(self) -> None:
        deeds = {"rules": self._rule, "timetables": self._timetable, "wishes": self._wish}
        async with asyncio.TaskGroup() as group:
            for habit in sorted(deeds.keys() & self.place.plan.habits):
                group.create_task(self._keep_on(deeds[habit]))

    async def _keep_on(self, deed: Callable[[], Awaitable[None]]) -> None:
        while not self.place.faults.is_healed:
            await asyncio.sleep(self._rng.expovariate(1 / RULE_EVERY_S))
            with suppress(Unavailable, Refused, TimeoutError):
                await deed()

    async def tidy_up(self) -> None:
        """What would hold others up for ever ends."""
        habits = self.place.plan.habits
        for queue in QUEUES if "rules" in habits else ():
            steered = self.app.queue(queue)
            for number in range(RULES):
                await steered.drop_limit(f"rule {number}")
            for limit in (await steered.rules()).limits:
                if limit.pauses:
                    await steered.drop_limit(limit.name)
        if "rules" in habits:
            await self._limit_the_rest()
        for number in range(TIMETABLES + 1) if "timetables" in habits else ():
            await self.app.schedules.drop(f"timetable {number}")

    # ── rules ─────────────────────────────────────────────────────────────────────────────

    async def _rule(self) -> None:
        """Change one rule of one queue."""
        rng = self._rng
        queue = self.app.queue(rng.choice(QUEUES))
        name, key = f"rule {rng.randrange(RULES)}", self._key()
        match rng.randrange(6):
            case 0:
                size: dict[str, Any] = {"concurrency": rng.randint(1, 4)}
                if rng.random() < 0.5:
                    size = {"rate": rng.choice((3.0, 20.0)), "burst": rng.choice((0.2, 1.0))}
                counted = rng.choice((None, "*", key))
                kind = rng.choice((None, None, "plain"))
                await queue.limit(name, **size, key=counted, kind=kind, local=rng.random() < 0.4)
            case 1:
                await queue.drop_limit(name)
            case 2:
                await queue.weight(key, rng.choice((None, 0.1, 10.0)))
            case 3:
                await queue.fairness(rng.choice(("count", "cost", "off")))
            case _:
                await self._pause_a_while(queue, key)

    async def _pause_a_while(self, queue: Any, key: str) -> None:
        what: dict[str, Any] = self._rng.choice(
            (
                {"kind": "plain"},
                {"key": key},
                {"partition": self._rng.randrange(self.place.truth.partitions)},
            )
        )
        await queue.pause(**what)
        await asyncio.sleep(self._rng.expovariate(1.0))
        await queue.resume(**what)

    async def _limit_the_rest(self) -> None:
        """A rule that is set while nodes live, and nothing goes wrong: soon it holds."""
        queue = self.app.queue(QUEUES[0])
        await queue.limit("the rest", concurrency=2)
        self.place.tell(
            "limit",
            name="the rest",
            queue=queue.name,
            concurrency=2,
            kind=None,
            key=None,
            **{"from": self.place.world.seconds() + FOLLOWED_S},
        )

    def _key(self) -> str:
        return f"tenant {self._rng.randrange(self.place.plan.keys)}"

    # ── schedules ─────────────────────────────────────────────────────────────────────────

    async def _timetable(self) -> None:
        """Change one schedule."""
        rng, schedules = self._rng, self.app.schedules
        name = f"timetable {rng.randrange(TIMETABLES)}"
        match rng.randrange(7):
            case 0:
                await schedules.pause(name)
            case 1:
                await schedules.resume(name)
            case 2:
                if (id := await schedules.run_now(name)) is not None:
                    self.place.known.append(id)
            case 3:
                await schedules.drop(name)
            case 4:
                await self._put_unreadable()
            case _:
                words = rng.choice(("nothing", "end", "fail", "retry after", "again"))
                with suppress(ConfigurationError):  # it may be for a time that has passed
                    await self.definitions["speaking"].put_schedule(
                        name, self._timing(), words, 0.01
                    )

    def _timing(self) -> Timing:
        rng = self._rng
        catch_ups: tuple[CatchUp, ...] = ("none", "one", "all")
        catch_up = rng.choice(catch_ups)
        if rng.random() < 0.2:
            at = self.place.world.now() + timedelta(seconds=rng.uniform(-1.0, 3.0))
            return At(at, catch_up=catch_up)
        return Every(rng.choice((0.5, 2.0)), catch_up=catch_up)

    async def _put_unreadable(self) -> None:
        """What a newer Holdfast has written, whose nodes fire it."""
        store = await self.app.store()
        handler = self.definitions["plain"].handler
        now, known, _ = await store.schedules([f"timetable {TIMETABLES}"])
        timing: Any = Unreadable('{"moon": "full"}')
        wanted = Schedule(
            name=f"timetable {TIMETABLES}",
            timing=timing,
            kind="plain",
            queue=handler.queue,
            payload=handler.arguments.seal((0.0,), {}),
            next_at=now,
        )
        version = known[0].version if known else 0
        await store.put_schedule(replace(wanted, version=version))

    # ── tasks and nodes ───────────────────────────────────────────────────────────────────

    async def _wish(self) -> None:
        """Ask something of one task, or of one node."""
        rng, known = self._rng, self.place.known
        if rng.random() < 0.5 or not known:
            await self._look_at_a_node()
            return
        client, id = await self.app.client(), rng.choice(known)
        version = rng.choice((None, None, 1, 2, 3))
        match rng.randrange(5):
            case 0:
                await client.cancel(id, version=version)
            case 1:
                await client.resume(id, version=version, force=rng.random() < 0.5)
            case 2:
                await client.give_up(id, version=version)
            case 3:
                await client.reschedule(id, delay_s=rng.uniform(0.0, 2.0), version=version)
            case _:
                await client.get(id)

    async def _look_at_a_node(self) -> None:
        program = self._rng.choice(self._nodes)
        node = program.node
        if node is None or program.process.is_dead:
            return
        ask: Callable[[], Any] = self._rng.choice(
            (
                partial(node.backlog, self._rng.choice((*QUEUES, "nowhere"))),
                partial(node.drained, timeout_s=1.0),
            )
        )
        self.place.tell(
            "looked", node=program.process.name, ahead=node.looked_ahead, duties=node.duties
        )
        asking = self.place.world.start(program.process, ask())
        asking.add_done_callback(_seen)
        # Its process may be killed or stopped: then the answer never comes, or too late.
        await asyncio.wait([asking], timeout=TRIES_S)


def _seen(asking: asyncio.Task[Any]) -> None:
    """That a queue is unknown, or the store away, is an answer too."""
    error = None if asking.cancelled() else asking.exception()
    if error is not None and not isinstance(error, (Unavailable, Refused, TimeoutError)):
        raise error
