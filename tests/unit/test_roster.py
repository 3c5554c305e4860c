"""Duties on virtual time: one holder at a time, and a stand-in when it is gone."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast.duties.roster import Roster
from holdfast.ids import NodeId
from holdfast.ring import Kept, distance, in_order
from holdfast.telemetry.events import DutyLost, DutyTaken, Events
from holdfast.testing.model import ModelStore
from holdfast.testing.recorder import Recorder
from holdfast.testing.simulate import World, simulate

NODES = [NodeId(f"node-{letter}") for letter in "abcde"]


class Step:
    """A duty that notes who did a step when; it can hang or fail."""

    def __init__(self, fleet: Fleet, node: NodeId, name: str, rest_s: float) -> None:
        self.name = name
        self.hangs = self.fails = False
        self._fleet = fleet
        self._node = node
        self._rest_s = rest_s

    async def run_once(self) -> float:
        if self.fails:
            raise OSError("its own trouble")
        if self.hangs:
            await asyncio.sleep(3600)
        self._fleet.steps.append((self._fleet.world.time(), self._node, self.name))
        return self._rest_s


class Member:
    """A node with a roster: it ticks until it is killed, paused or cut off."""

    def __init__(self, fleet: Fleet, node: NodeId, duties: dict[str, float]) -> None:
        self.node = node
        self.fleet = fleet
        self.duties = {name: Step(fleet, node, name, rest_s) for name, rest_s in duties.items()}
        self.is_cut_off = False
        self.roster = Roster(
            node,
            list(self.duties.values()),
            coordinator=self,  # type: ignore[arg-type]
            clock=fleet.world,
            events=fleet.events,
            tick_s=1.0,
        )

    async def keep(self, kept: list[Kept]) -> set[str]:
        if self.is_cut_off:
            raise OSError("cut off")
        return await self.fleet.store.keep_duties(kept, node=self.node)

    async def live(self) -> None:
        while True:
            if not self.is_cut_off:
                await self.fleet.store.renew(self.node, lease_s=10, queues=["q"], kinds=[])
                alive = {m.node for m in await self.fleet.store.members() if m.is_alive}
                await self.roster.look(await self.fleet.store.duties(), alive)
            await asyncio.sleep(1.0)


class Fleet:
    def __init__(self, world: World, duties: dict[str, float], nodes: list[NodeId]) -> None:
        self.world = world
        self.events = Events()
        self.store = ModelStore(clock=world)
        self.steps: list[tuple[float, NodeId, str]] = []
        self.members = {node: Member(self, node, duties) for node in nodes}
        self.loops = {n: asyncio.create_task(m.live()) for n, m in self.members.items()}

    async def kill(self, node: NodeId, *, renewer_ends: bool) -> None:
        self.loops.pop(node).cancel()
        await self.members[node].roster.stop()
        if renewer_ends:
            await self.store.end([node])

    def holder(self, duty: str = "waker") -> NodeId:
        (held,) = [n for n, m in self.members.items() if m.roster.keeps(duty) and n in self.loops]
        return held

    def who_stepped(self, since: float, duty: str = "waker") -> list[NodeId]:
        return [node for at, node, name in self.steps if at >= since and name == duty]

    async def end(self) -> None:
        for loop in self.loops.values():
            loop.cancel()
        await asyncio.gather(*self.loops.values(), return_exceptions=True)
        for member in self.members.values():
            await member.roster.stop()


def play(scenario, duties: dict[str, float] | None = None, nodes: list[NodeId] = NODES):
    async def main(world: World):
        fleet = Fleet(world, duties or {"waker": 5.0}, nodes)
        try:
            return await scenario(fleet)
        finally:
            await fleet.end()

    return simulate(main)


def test_one_node_at_a_time_keeps_a_duty_and_goes_on_with_it():
    async def scenario(fleet: Fleet) -> list[NodeId]:
        await asyncio.sleep(300)
        return fleet.who_stepped(0)

    who = play(scenario)
    assert len(set(who)) == 1
    assert 58 <= len(who) <= 61, "every five seconds, and no more often for being five"


def test_duties_that_were_given_up_are_spread_over_the_nodes():
    async def scenario(fleet: Fleet) -> Counter[NodeId]:
        await asyncio.sleep(30)
        first = fleet.holder()
        await fleet.kill(first, renewer_ends=True)
        await asyncio.sleep(30)
        return Counter(fleet.holder(duty) for duty in ("waker", "resumer", "cleaner", "watcher"))

    duties = {"waker": 5.0, "resumer": 60.0, "cleaner": 60.0, "watcher": 30.0}
    assert len(play(scenario, duties)) >= 2


@pytest.mark.parametrize("rest_s", [5.0, 60.0])
def test_a_dead_holder_whose_lease_was_ended_is_replaced_at_the_next_tick(rest_s):
    async def scenario(fleet: Fleet) -> tuple[NodeId, NodeId, float]:
        await asyncio.sleep(20)
        dead, killed_at = fleet.holder(), fleet.world.time()
        await fleet.kill(dead, renewer_ends=True)
        await asyncio.sleep(30)
        first = next(at for at, node, _ in fleet.steps if at >= killed_at and node != dead)
        return dead, fleet.holder(), first - killed_at

    dead, heir, after_s = play(scenario, {"waker": rest_s})
    assert heir != dead
    assert after_s <= 1.1


def test_a_dead_holder_without_a_renewer_is_replaced_when_its_lease_has_ended():
    async def scenario(fleet: Fleet) -> tuple[NodeId, NodeId, float]:
        await asyncio.sleep(20)
        dead, killed_at = fleet.holder(), fleet.world.time()
        await fleet.kill(dead, renewer_ends=False)
        await asyncio.sleep(60)
        first = next(at for at, node, _ in fleet.steps if at >= killed_at and node != dead)
        return dead, fleet.holder(), first - killed_at

    dead, heir, after_s = play(scenario, {"waker": 60.0})
    circle = in_order(NODES)
    assert heir == circle[(circle.index(dead) + 1) % 5], "the next one in the ring"
    assert after_s <= 11.1, "the lease and a tick"


def test_a_holder_whose_step_hangs_or_fails_for_ever_is_replaced_though_it_lives():
    async def scenario(fleet: Fleet) -> list[tuple[NodeId, NodeId, float]]:
        found = []
        for trouble in ("hangs", "fails"):
            await asyncio.sleep(20)
            stuck, since = fleet.holder(), fleet.world.time()
            setattr(fleet.members[stuck].duties["waker"], trouble, True)
            await asyncio.sleep(40)
            steps = [at for at, node, _ in fleet.steps if at > since + 5 and node != stuck]
            found.append((stuck, fleet.holder(), steps[0] - since))
        return found

    for stuck, heir, after_s in play(scenario):
        assert heir != stuck
        assert after_s <= 5 + 4 + 4 + 1, "rest, grace, spacing x distance + 1, and a tick"


def test_a_node_that_is_cut_off_and_comes_back_has_lost_its_duty():
    async def scenario(fleet: Fleet) -> tuple[bool, list[object]]:
        with Recorder(fleet.events) as heard:
            await asyncio.sleep(20)
            old = fleet.holder()
            fleet.members[old].is_cut_off = True
            await asyncio.sleep(40)
            fleet.members[old].is_cut_off = False
            await asyncio.sleep(3)
            lost = [e for e in heard.heard if isinstance(e, DutyLost)]
            taken = [e for e in heard.heard if isinstance(e, DutyTaken)]
            return lost == [DutyLost(old, "waker")], taken

    was_told, taken = play(scenario)
    assert was_told
    assert len(taken) == 2


@pytest.mark.req("RING-13")
def test_a_listed_node_that_is_dead_delays_its_duty_by_its_own_delay_at_most():
    async def scenario(fleet: Fleet) -> tuple[float, int]:
        await asyncio.sleep(20)
        holder = fleet.holder()
        circle = in_order(NODES)
        second = circle[(circle.index(holder) + 1) % 5]
        for node in (holder, second):  # both stay listed: their leases are renewed elsewhere
            fleet.loops.pop(node).cancel()
            await fleet.members[node].roster.stop()

        async def pretend() -> None:
            while True:
                for node in (holder, second):
                    await fleet.store.renew(node, lease_s=10, queues=["q"], kinds=[])
                await asyncio.sleep(1)

        fleet.loops[holder] = asyncio.create_task(pretend())
        since = fleet.world.time()
        await asyncio.sleep(60)
        heir = next(n for at, n, _ in fleet.steps if at > since and n not in (holder, second))
        first = next(at for at, n, _ in fleet.steps if at > since and n == heir)
        return first - since, distance(heir, NODES, holder)

    after_s, behind = play(scenario)
    assert behind == 2
    assert after_s <= 5 + 4 + (behind * 3 + 1) + 1


def test_a_node_that_retires_gives_its_duties_up_at_once():
    async def scenario(fleet: Fleet) -> float:
        await asyncio.sleep(20)
        old = fleet.holder()
        await fleet.kill(old, renewer_ends=False)
        await fleet.store.leave([old])
        since = fleet.world.time()
        await asyncio.sleep(10)
        return next(at for at, node, _ in fleet.steps if at > since and node != old) - since

    assert play(scenario, {"waker": 60.0}) <= 1.1
