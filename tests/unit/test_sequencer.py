"""Nodes that write a log in turns, on virtual time: healthy, dying, paused, cut off, misled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random

import pytest

from holdfast.clock import Clock
from holdfast.duties.sequencer import Sequencer
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.ids import NodeId
from holdfast.ring import RingRecord, distance, in_order
from holdfast.telemetry.events import Events, StoreFailed
from holdfast.testing.model import ModelStore
from holdfast.testing.recorder import Recorder
from holdfast.testing.simulate import World, simulate

NODES = in_order([NodeId(f"node-{letter}") for letter in "abcde"])
RING = "cuts"
TICK_S = 1 / 16


class Skewed:
    """A clock that is wrong by so much, and jumps."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ahead_s = 0.0

    def now(self) -> datetime:
        return self._world.now() + timedelta(seconds=self.ahead_s)

    def seconds(self) -> float:
        return self._world.time() + self.ahead_s


class Log:
    """The log as one node reaches it: slow, away, or answering into the void."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.slow_s = 0.0
        self.is_away = False
        self.loses_replies = 0.0

    async def ring_latest(self, ring: str) -> RingRecord:
        await self._pass()
        return await self._fleet.store.ring_latest(ring)

    async def ring_append(self, ring: str, record: RingRecord) -> bool:
        await self._pass()
        is_written = await self._fleet.store.ring_append(ring, record)
        if is_written:
            self._fleet.written.append((self._fleet.world.time(), record))
        if self._fleet.rng.random() < self.loses_replies:
            raise OutcomeUnknown("no answer", repeat_is_safe=False)
        return is_written

    async def ring_rotate(self, ring: str, *, kept: int) -> None:
        await self._fleet.store.ring_rotate(ring, kept=kept)

    async def _pass(self) -> None:
        if self.slow_s:
            await asyncio.sleep(self._fleet.rng.random() * self.slow_s)
        if self.is_away:
            raise StoreUnavailable("away")


class Fleet:
    def __init__(
        self,
        world: World,
        *,
        tick_s: float = TICK_S,
        kept: int = 1000,
        news: Callable[[], bool] = lambda: True,
        nodes: Collection[NodeId] = NODES,
    ) -> None:
        self.world = world
        self.rng = Random(7)
        self.events = Events()
        self.store = ModelStore(clock=world)
        self.written: list[tuple[float, RingRecord]] = []
        self.alive = set(nodes)
        self.tick_s, self.kept, self.news = tick_s, kept, news
        self.logs: dict[NodeId, Log] = {}
        self.clocks: dict[NodeId, Skewed] = {}
        self.loops: dict[NodeId, asyncio.Task[None]] = {}
        for node in nodes:
            self.start(node)

    def start(self, node: NodeId) -> None:
        self.alive.add(node)
        self.logs[node] = Log(self)
        clock: Clock = self.clocks.setdefault(node, Skewed(self.world))
        sequencer = Sequencer(
            RING,
            node,
            log=self.logs[node],  # type: ignore[arg-type]
            alive=lambda: self.alive,
            wanted=lambda latest: self._wanted(latest),
            clock=clock,
            events=self.events,
            tick_s=self.tick_s,
            kept=self.kept,
        )
        self.loops[node] = asyncio.create_task(sequencer.keep())

    async def _wanted(self, latest: RingRecord) -> bytes | None:
        return b"news" if self.news() else None

    async def kill(self, node: NodeId) -> None:
        loop = self.loops.pop(node)
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)

    async def end(self) -> None:
        for node in list(self.loops):
            await self.kill(node)

    @property
    def writers(self) -> list[NodeId]:
        return [record.writer for _, record in self.written]

    def assert_safe(self) -> None:
        """RING-23 and 24, whatever happened."""
        numbers = [record.number for _, record in self.written]
        assert numbers == list(range(1, len(numbers) + 1)), "none twice, none skipped"


def play(scenario, **options):
    async def main(world: World):
        fleet = Fleet(world, **options)
        try:
            answer = await scenario(fleet)
        finally:
            await fleet.end()
        fleet.assert_safe()
        return answer

    return simulate(main)


@pytest.mark.req("RING-1")
def test_one_record_is_written_at_each_tick_sixteen_a_second():
    async def scenario(fleet: Fleet) -> list[tuple[float, RingRecord]]:
        await asyncio.sleep(10)
        return fleet.written

    written = play(scenario)
    assert len(written) == 159, "one at each tick after the first look"
    assert {record.writer for _, record in written} == {NODES[0]}
    gaps = [b - a for (a, _), (b, _) in pairwise(written)]
    assert max(gaps) <= 1.2 * TICK_S


@pytest.mark.req("RING-15")
@pytest.mark.parametrize("tick_s", [1 / 16, 0.5, 1.0])
def test_the_length_of_a_tick_is_what_was_asked_for(tick_s):
    async def scenario(fleet: Fleet) -> int:
        await asyncio.sleep(60 * tick_s - 0.001)
        return len(fleet.written)

    assert play(scenario, tick_s=tick_s) == 59, "one at each tick after the first look"


@pytest.mark.req("RING-3", "RING-22")
def test_stand_ins_write_after_spacing_times_distance_and_one_tick():
    async def scenario(fleet: Fleet) -> list[tuple[int, float]]:
        found = []
        for _ in range(4):
            await asyncio.sleep(2)
            last_at, last = fleet.written[-1]
            await fleet.kill(last.writer)
            await asyncio.sleep(4)
            at, heir = next((a, r) for a, r in fleet.written if r.number == last.number + 1)
            found.append((distance(heir.writer, NODES, last.writer), (at - last_at) / TICK_S))
        return found

    found = play(scenario)
    assert [behind for behind, _ in found] == [1, 1, 1, 1]
    for behind, ticks in found:
        assert 3 * behind + 1 <= ticks + 0.1
        assert ticks <= 3 * behind + 1 + 1.1, "and the wait for its own next tick"


@pytest.mark.req("RING-39")
def test_without_the_coordinator_nothing_is_written_and_ticks_go_on_afterwards():
    async def scenario(fleet: Fleet) -> tuple[int, int, int, bool]:
        with Recorder(fleet.events) as heard:
            await asyncio.sleep(1)
            before = len(fleet.written)
            for log in fleet.logs.values():
                log.is_away = True
            await asyncio.sleep(5)
            during = len(fleet.written)
            for log in fleet.logs.values():
                log.is_away = False
            await asyncio.sleep(1)
            was_told = any(isinstance(event, StoreFailed) for event in heard.heard)
            return before, during, len(fleet.written), was_told

    before, during, after, was_told = play(scenario)
    assert before == during
    assert after >= during + 10
    assert was_told


@pytest.mark.req("RING-28")
def test_an_answer_that_never_came_leads_to_a_look_and_never_to_a_second_record():
    async def scenario(fleet: Fleet) -> int:
        for log in fleet.logs.values():
            log.loses_replies = 0.3
        await asyncio.sleep(60)
        return len(fleet.written)

    assert play(scenario) > 300


@pytest.mark.req("RING-38")
def test_wrong_clocks_pauses_and_a_slow_coordinator_break_only_the_timing():
    async def scenario(fleet: Fleet) -> tuple[int, int]:
        rng = fleet.rng
        for _ in range(200):
            await asyncio.sleep(rng.random())
            node = rng.choice(NODES)
            match rng.randrange(4):
                case 0:
                    fleet.clocks[node].ahead_s = rng.uniform(-1, 1)
                case 1 if node in fleet.loops:
                    await fleet.kill(node)
                case 2 if node not in fleet.loops:
                    fleet.start(node)
                case _:
                    fleet.logs[node].slow_s = rng.choice([0, 0.2, 2.0])
        return len(fleet.written), len(set(fleet.writers))

    count, writers = play(scenario)
    assert count > 300
    assert writers == 5


@pytest.mark.req("RING-42")
def test_nodes_that_join_and_leave_change_the_ring_without_a_doubled_or_lost_number():
    async def scenario(fleet: Fleet) -> tuple[int, set[NodeId]]:
        late = [NodeId(f"late-{number}") for number in range(5)]
        for joining, leaving in zip(late, NODES, strict=True):
            fleet.start(joining)
            await asyncio.sleep(1)
            fleet.alive.discard(leaving)
            await fleet.kill(leaving)
            await asyncio.sleep(1)
        return len(fleet.written), set(fleet.writers)

    count, writers = play(scenario)
    assert count >= 10 * 16 - 5 * 4
    assert len(writers) > 1


@pytest.mark.req("RING-20", "RING-45")
def test_two_who_believe_to_have_the_same_place_do_not_collide_for_ever():
    async def scenario(fleet: Fleet) -> list[NodeId]:
        views = {node: {node} for node in NODES[:2]}  # each believes to be alone
        for node in views:
            await fleet.kill(node)
            fleet.start(node)
        fleet.alive = views[NODES[0]]
        await asyncio.sleep(5)
        return fleet.writers

    writers = play(scenario, nodes=NODES[:2])
    assert len(writers) >= 70, "the first to write takes the lead, at every tick"


@pytest.mark.req("RING-41")
def test_after_ten_idle_minutes_the_first_of_the_ring_writes_the_next_number():
    is_new = [True]

    async def scenario(fleet: Fleet) -> tuple[int, int, RingRecord]:
        await asyncio.sleep(2)
        is_new[0] = False
        await asyncio.sleep(1)
        before = len(fleet.written)
        await asyncio.sleep(600)
        idle = len(fleet.written)
        is_new[0] = True
        await asyncio.sleep(0.2)
        return before, idle, fleet.written[idle][1]

    before, idle, record = play(scenario, news=lambda: is_new[0])
    assert before == idle
    assert record.number == idle + 1
    assert record.writer == NODES[0]


@pytest.mark.req("RING-14")
def test_the_log_is_rotated_on_the_way():
    async def scenario(fleet: Fleet) -> list[int]:
        await asyncio.sleep(20)
        records = await fleet.store.ring_records(RING, after=0, limit=1000)
        return [record.number for record in records]

    numbers = play(scenario, kept=10)
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert 10 <= len(numbers) <= 110
    assert numbers[-1] >= 319


@pytest.mark.req("RING-26")
def test_bodies_follow_one_another_without_gap_or_overlap_whatever_fails():
    """Each body is a range that starts where that of the latest record ended."""
    top = [0]

    async def ranged(latest: RingRecord) -> bytes | None:
        top[0] += 1  # something is new at every look
        start = int(latest.body.split(b"-")[1]) if latest.body else 0
        return b"%d-%d" % (start, top[0]) if start < top[0] else None

    async def scenario(fleet: Fleet) -> list[tuple[int, int]]:
        fleet._wanted = ranged  # type: ignore[method-assign]
        for node in NODES:
            await fleet.kill(node)
            fleet.start(node)
        for log in fleet.logs.values():
            log.loses_replies, log.slow_s = 0.2, 0.3
        for _ in range(30):
            await asyncio.sleep(1)
            node = fleet.rng.choice(NODES)
            await fleet.kill(node)
            fleet.start(node)
            fleet.logs[node].loses_replies = 0.2
        return [
            (int(start), int(end))
            for start, end in (record.body.split(b"-") for _, record in fleet.written)
        ]

    ranges = play(scenario)
    assert len(ranges) > 50
    assert ranges[0][0] == 0
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
