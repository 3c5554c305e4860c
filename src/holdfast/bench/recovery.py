"""`recovery`: how long the tasks of a dead node wait until they run again, and what is lost.

Three workers run under a steady load.  One after the other is killed and replaced: its process
alone ("process", its renewer lives and says so), or process and renewer in the same moment
("machine").  What it was running at that moment is looked up in the store; each of these tasks is
then waited for until its next attempt starts.  At the end every task that was enqueued must be DONE
once: a task is lost when it is not, and doubled when two attempts of it were recorded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from holdfast.app import Holdfast
from holdfast.bench.ground import Ground, Place
from holdfast.bench.load import QUEUE, Checked, Run
from holdfast.bench.report import Mark
from holdfast.bench.workers import Worker, Workers
from holdfast.clock import SystemClock
from holdfast.errors import Unavailable
from holdfast.store import Store
from holdfast.task import State, TaskId

Case = Literal["process", "machine"]

NODES = 3
PER_SECOND = 150.0
LEASE_S = 10.0
LEFT = (State.WAITING, State.SUBMITTED, State.PROCESSING)
WAIT_S_MAX = 60.0  # for the tasks of one dead node
SETTLED_LOOK_S = 1.0
REST_S = 1.0  # between a recovery and the next kill
P99_S_MAX: dict[str, float] = {"process": 3.0, "machine": LEASE_S + 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    kills: int = 20
    case: Case = "process"
    tasks: int = 0
    name = "recovery"

    @property
    def marks(self) -> Sequence[Mark]:
        return (
            Mark(figure="p99_s", at_most=P99_S_MAX[self.case]),
            Mark(figure="lost", at_most=0),
            Mark(figure="double_outcomes", at_most=0),
        )

    @property
    def options(self) -> Mapping[str, Any]:
        return {"kills": self.kills, "case": self.case, "nodes": NODES, "per_second": PER_SECOND}

    async def run(self, ground: Ground) -> Run:
        async with (
            ground.place() as place,
            place.store() as store,
            Workers(place, store) as workers,
        ):
            await asyncio.gather(*(workers.start() for _ in range(NODES)))
            waits_s: list[float] = []
            async with Producer(place) as producer:
                for number in range(self.kills):
                    waits_s += await self._killed(workers, store, number)
            await drained(store, WAIT_S_MAX)
            workers.look()
            return await self._judged(store, producer.count, workers, sorted(waits_s))

    async def _killed(self, workers: Workers, store: Store, number: int) -> list[float]:
        await asyncio.sleep(REST_S)
        victim = workers.alive[number % len(workers.alive)]
        await running(store, victim)
        at_s = workers.end(victim, whole_machine=self.case == "machine")
        assert victim.node is not None, "a worker that has started has a node"
        left = {row.id: row.version for row in await store.running_of(victim.node)}
        waits_s = await waited(workers, store, left, at_s)
        await workers.start()
        return waits_s

    async def _judged(
        self, store: Store, enqueued: int, workers: Workers, waits_s: list[float]
    ) -> Run:
        counts = await store.counts()
        done = counts.pop(State.DONE, 0)
        others = {state.name: count for state, count in counts.items() if count}
        doubled = doubled_outcomes(workers) + max(0, done - enqueued)
        figures: dict[str, float | None] = {
            "p50_s": median(waits_s) if waits_s else None,
            "p99_s": waits_s[int(len(waits_s) * 0.99)] if waits_s else None,
            "max_s": waits_s[-1] if waits_s else None,
            "recovered": float(len(waits_s)),
            "lost": float(enqueued - done),
            "double_outcomes": float(doubled),
        }
        # Attempts of killed nodes are called again: what counts is that each task is DONE.
        return Run(figures, (Checked(enqueued, enqueued, done, others),))


class Producer:
    """Adds tasks at a steady rate while the block lasts."""

    def __init__(self, place: Place, per_second: float = PER_SECOND) -> None:
        self.count = 0
        self._app: Holdfast = place.app()
        self._per_second = per_second
        self._is_enough = False

        @self._app.task(name="work", queue=QUEUE)
        async def work(number: int) -> None:
            """Runs elsewhere: see `holdfast.bench.patient`."""

        self._work = work

    async def __aenter__(self) -> Producer:
        await self._app.store()
        self._loop = asyncio.create_task(self._produce())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_enough = True  # an enqueue that is under way is finished and counted
        await self._loop
        await self._app.close()

    async def _produce(self) -> None:
        clock = SystemClock()
        since_s, number = clock.seconds(), 0
        while not self._is_enough:
            number += 1
            await asyncio.sleep(max(0.0, since_s + number / self._per_second - clock.seconds()))
            await self._add(number)

    async def _add(self, number: int) -> None:
        """One task; while the store is away it is tried again under the same id of our own."""
        task = self._work.options(external_id=f"{number}")
        while True:
            try:
                await task.enqueue(number)
            except Unavailable:
                await asyncio.sleep(0.2)
            else:
                self.count += 1
                return


async def running(store: Store, worker: Worker) -> None:
    """Wait until the worker has something to lose."""
    assert worker.node is not None
    async with asyncio.timeout(WAIT_S_MAX):
        while not await store.running_of(worker.node):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def waited(
    workers: Workers, store: Store, left: dict[TaskId, int], at_s: float
) -> list[float]:
    """How long after `at_s` each of the tasks was started again, in seconds.

    A settle that was on its way when the process died may still be carried out by the server: such
    a task has ended, and is not waited for.
    """
    clock, found = SystemClock(), dict[int, float]()
    look_s = clock.seconds() + SETTLED_LOOK_S
    while left.keys() - found.keys() and clock.seconds() - at_s < WAIT_S_MAX:
        for line in workers.look():
            if line.what == "start" and line.task in left and line.at_s > at_s:
                found.setdefault(line.task, line.at_s - at_s)
        if clock.seconds() >= look_s:
            look_s += SETTLED_LOOK_S
            tasks = await store.get([id for id in left if id not in found])
            for task in tasks.values():
                if task.state is State.DONE and task.version == left[task.id] + 1:
                    del left[task.id]
        await asyncio.sleep(0.02)
    return [found.get(id, WAIT_S_MAX) for id in left]


async def drained(store: Store, within_s: float) -> None:
    """Wait until nothing is left to run, or until it takes too long: then the check will tell.

    What waits is left too: a suspect that found no process goes back for a while.
    """
    clock = SystemClock()
    since_s = clock.seconds()
    while clock.seconds() - since_s < within_s:
        counts = await store.counts()
        if not any(counts.get(state) for state in LEFT):
            return
        await asyncio.sleep(0.2)


def doubled_outcomes(workers: Workers) -> int:
    """Deliveries that came to their end twice: two nodes would have won the same grab.

    An attempt whose node died between its end and the settle is repeated by right, as another
    delivery.
    """
    ends = Counter((line.task, line.delivery) for line in workers.lines if line.what == "end")
    return sum(count > 1 for count in ends.values())
