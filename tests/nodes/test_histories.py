"""Random histories on a real SQLite file: two nodes, lost and doubled triggers, cut-off nodes.

Safety is checked for the whole history; that everything ends, only after the faults have stopped.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Holdfast, Retry, State
from holdfast.dispatch.limits import Limits
from holdfast.store import Filter
from holdfast.telemetry.events import TaskResumed, TaskSettled
from holdfast.testing.faults import FaultyBus
from nodes.fleet import Fleet, Peer

EXAMPLES = 500 if os.environ.get("HOLDFAST_LONG") else 6
LIMITS = Limits(
    idle_wait_s=0.15, exact_s=0.05, retry_s=0.01, retry_s_max=0.05, window=20, reload_at=5
)
LEASE_S = 0.3
SETTINGS = {"limits": LIMITS, "lease_s": LEASE_S, "tick_s": 0.05, "slots_async": 8, "drain_s": 1.0}


class MoodyBus(FaultyBus):
    """A bus whose faults come and go."""

    def feel(self, *, lose: float = 0.0, double: float = 0.0) -> None:
        self._lose, self._double = lose, double


steps = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), st.integers(1, 40)),
        st.tuples(st.just("ordered"), st.integers(1, 5)),
        st.tuples(st.just("failing"), st.integers(1, 5)),
        st.tuples(st.just("delayed"), st.integers(1, 5)),
        st.tuples(st.just("lose"), st.floats(0.2, 1.0)),
        st.tuples(st.just("double"), st.floats(0.2, 1.0)),
        st.tuples(st.just("cut off"), st.integers(0, 1)),
        st.tuples(st.just("replace"), st.integers(0, 1)),
        st.tuples(st.just("pause"), st.floats(0.0, 2 * LEASE_S)),
    ),
    min_size=4,
    max_size=14,
)


class History:
    """What was asked for, what started, and what came of it."""

    def __init__(self, url: str) -> None:
        self.fleet = Fleet(url, self._register, **SETTINGS)
        self.enqueued: dict[int, int] = {}  # task id -> its number
        self.starts: Counter[int] = Counter()
        self.failures: Counter[int] = Counter()
        self.events: list[object] = []
        self._numbers = 0

    def _register(self, app: Holdfast, name: str) -> dict[str, Any]:
        @app.task(retry=Retry(attempts=50, delay=0.01))
        async def act(number: int, failures: int) -> None:
            self.starts[number] += 1
            await asyncio.sleep(0.005)
            if self.failures[number] < failures:
                self.failures[number] += 1
                raise ValueError("on purpose")

        app.events.listen(self.events.append)
        return {"act": act}

    async def join(self) -> Peer:
        return await self.fleet.join(wrap_bus=lambda bus: MoodyBus(bus, rng=Random(1)))

    async def play(self, step: tuple[str, Any]) -> None:
        match step:
            case ("cut off", place):
                self.fleet.peers[place].cut_off()
            case ("replace", place):
                peer = self.fleet.peers[place]
                peer.back()
                await self.fleet.leave(peer)
                await self.join()
            case ("pause", seconds):
                await asyncio.sleep(seconds)
            case ("lose" | "double" as fault, rate):
                for peer in self.fleet.peers:
                    peer.bus.feel(**{fault: rate})
            case (what, count):
                await self._enqueue(what, count)

    async def _enqueue(self, what: str, count: int) -> None:
        peer = next((one for one in self.fleet.peers if not one.store.is_down), None)
        if peer is None:
            return
        options = {"ordered": {"ordering_key": "key"}, "delayed": {"delay": 0.1}}.get(what, {})
        for _ in range(count):
            self._numbers += 1
            act = peer.tasks["act"].options(**options)
            handle = await act.enqueue(self._numbers, 2 if what == "failing" else 0)
            self.enqueued[handle.id] = self._numbers

    async def end(self) -> dict[int, State]:
        """Stop the faults, wait for the end, and answer how each task ended."""
        for peer in self.fleet.peers:
            peer.back()
            peer.bus.feel()
        await self.fleet.until_drained(20)
        found = await self.fleet.peers[0].store.real.find(Filter(limit=100_000))
        return {task.id: task.state for task in found}


async def played(url: str, script: list[tuple[str, Any]]) -> None:
    history = History(url)
    async with history.fleet:
        await history.join()
        await history.join()
        for step in script:
            await history.play(step)
        ended = await history.end()

    assert ended == dict.fromkeys(history.enqueued, State.DONE), "C1: nothing is lost"
    settled = Counter(
        event.task
        for event in history.events
        if isinstance(event, TaskSettled) and event.event == "SUCCEEDED"
    )
    assert settled == Counter(history.enqueued.keys()), "C3: one outcome each"
    resumed = Counter(e.task for e in history.events if isinstance(e, TaskResumed))
    for id, number in history.enqueued.items():
        bound = 1 + history.failures[number] + resumed[id]
        assert history.starts[number] <= bound, f"C7: task {id} started too often"


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=not os.environ.get("HOLDFAST_LONG"),
    suppress_health_check=list(HealthCheck),
)
@given(steps)
def test_no_history_of_faults_loses_a_task_or_records_two_outcomes(script):
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(played(f"sqlite:///{Path(folder) / 'app.db'}", script))
