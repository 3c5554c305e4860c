"""What every coordinator has to prove.

    class TestMyCoordinator(SharedCoordinatorContract):
        @pytest.fixture
        async def store(self): ...            # opened, migrated and empty

        def coordinator(self, store, node, **options):
            return MyCoordinator(store, node, **options)

`CoordinatorContract` is for one node by itself; `SharedCoordinatorContract` adds what several
nodes promise one another.  A coordinator is only asked through its own verbs; what came of it is
looked up in the store.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from holdfast.coordinator import Coordinator, View, preferred
from holdfast.ids import NodeId
from holdfast.ring import Kept
from holdfast.store import Look, Store
from holdfast.testing.contracts.builders import NODE, OTHER, QUEUE, eventually, grabbed

THIRD = NodeId("node-c")
LEASE_S = 60.0
LEASE_S_SHORT = 0.3


class CoordinatorContract:
    @pytest.fixture
    async def store(self) -> Any:
        raise NotImplementedError("give a store that is open, migrated and empty")

    def coordinator(self, store: Store, node: NodeId, **options: Any) -> Coordinator:
        """Override it: a coordinator for `queues` and `kinds`, with a lease of `lease_s`."""
        raise NotImplementedError("give a coordinator")

    def joined(
        self,
        store: Store,
        node: NodeId = NODE,
        *,
        queues: Sequence[str] = (QUEUE,),
        kinds: Sequence[str] = ("email",),
        lease_s: float = LEASE_S,
    ) -> Coordinator:
        return self.coordinator(store, node, queues=queues, kinds=kinds, lease_s=lease_s)

    async def test_a_node_by_itself_is_to_take_every_partition(self, store: Store) -> None:
        view = await self.joined(store).beat()

        share = view.shares[QUEUE]
        seen = {one.partition: one.epoch for one in await store.holdings(QUEUE)}
        assert (share.claim, share.let_go) == (seen, [])
        assert (view.owned[QUEUE], view.ended) == ({}, [])

    async def test_what_was_claimed_is_owned_under_a_raised_epoch(self, store: Store) -> None:
        coordinator = self.joined(store)
        seen = (await coordinator.beat()).shares[QUEUE].claim

        taken = await coordinator.claimed(QUEUE, seen)

        view = await coordinator.beat()
        assert taken == {partition: epoch + 1 for partition, epoch in seen.items()}
        assert view.owned[QUEUE] == taken
        assert (view.shares[QUEUE].claim, view.shares[QUEUE].let_go) == ({}, [])

    async def test_a_claim_at_an_epoch_that_has_passed_takes_nothing(self, store: Store) -> None:
        coordinator = self.joined(store)
        seen = (await coordinator.beat()).shares[QUEUE].claim
        taken = await coordinator.claimed(QUEUE, seen)

        assert await coordinator.claimed(QUEUE, seen) == {}

        assert (await coordinator.beat()).owned[QUEUE] == taken

    async def test_what_was_let_go_of_has_no_owner(self, store: Store) -> None:
        coordinator = await settled(self.joined(store))

        await coordinator.let_go(QUEUE, [1, 2])

        owners = {one.partition: one.owner for one in await store.holdings(QUEUE)}
        assert [number for number, owner in owners.items() if owner is None] == [1, 2]
        assert {1, 2}.isdisjoint((await coordinator.beat()).owned[QUEUE])

    async def test_leaving_gives_up_everything_at_once(self, store: Store) -> None:
        coordinator = await settled(self.joined(store))

        await coordinator.leave()
        await coordinator.leave()

        assert {one.owner for one in await store.holdings(QUEUE)} == {None}
        assert await store.members() == []

    async def test_a_later_incarnation_takes_over_and_fences_the_earlier_one(
        self, store: Store
    ) -> None:
        old = self.joined(store, NODE, lease_s=LEASE_S_SHORT)
        before = await old.claimed(QUEUE, (await old.beat()).shares[QUEUE].claim)
        new = self.joined(store, OTHER)

        async def taken() -> dict[int, int]:
            return await new.claimed(QUEUE, (await new.beat()).shares[QUEUE].claim)

        epochs = await eventually(taken)

        assert epochs == {partition: epoch + 1 for partition, epoch in before.items()}
        assert (await old.beat()).owned[QUEUE] == {}

    async def test_the_view_names_the_kinds_and_shares_of_each_queue(self, store: Store) -> None:
        coordinator = self.joined(store, queues=["a", "b"], kinds=["email", "sms"])

        view = await coordinator.beat()

        assert view.kinds == dict.fromkeys(["a", "b"], frozenset({"email", "sms"}))
        assert {len(view.shares[queue].claim) for queue in "ab"} == {store.partitions}

    async def test_beating_twice_changes_nothing(self, store: Store) -> None:
        coordinator = await settled(self.joined(store))

        assert await coordinator.beat() == await coordinator.beat()


class SharedCoordinatorContract(CoordinatorContract):
    async def test_a_beat_tells_what_a_person_asked_of_this_node_and_of_no_other(
        self, store: Store
    ) -> None:
        one, other = self.joined(store), self.joined(store, OTHER)
        before = [(await each.beat()).asked for each in (one, other)]

        assert await store.ask(NODE, "drain")

        assert before == [None, None]
        assert [(await each.beat()).asked for each in (one, other)] == ["drain", None]

    async def test_nodes_share_the_partitions_as_rendezvous_hashing_says(
        self, store: Store
    ) -> None:
        first, second = self.joined(store, NODE), self.joined(store, OTHER)
        await beaten(first, second)  # both are seen by both now

        await beaten(first, second, times=3)

        assert await owners(store) == shared_by(store, NODE, OTHER)

    async def test_a_third_node_gets_its_share_by_wish_and_nothing_else_moves(
        self, store: Store
    ) -> None:
        first, second = self.joined(store, NODE), self.joined(store, OTHER)
        await beaten(first, second, times=4)
        before = {one.partition: one for one in await store.holdings(QUEUE)}

        third = self.joined(store, THIRD)
        # It wishes, they let go, it takes: each of them needs one beat for its part.
        await beaten(third, first, second, third)

        after = {one.partition: one for one in await store.holdings(QUEUE)}
        assert await owners(store) == shared_by(store, NODE, OTHER, THIRD)
        moved = {number for number in after if after[number] != before[number]}
        assert moved == {number for number in after if after[number].owner == THIRD}
        assert {after[number].epoch - before[number].epoch for number in moved} == {1}

    async def test_all_see_who_is_registered_and_who_keeps_what(self, store: Store) -> None:
        first, second = self.joined(store, NODE), self.joined(store, OTHER)
        await beaten(first, second)

        assert await first.keep([Kept("waker", 0, 5.0)]) == {"waker"}
        assert await second.keep([Kept("waker", 0, 5.0), Kept("cleaner", 0, 5.0)]) == {"cleaner"}

        for view in [await first.beat(), await second.beat()]:
            assert view.alive == {NODE, OTHER}
            assert [duty[:3] for duty in view.duties] == [
                ("cleaner", 1, OTHER),
                ("waker", 1, NODE),
            ]
        retired = await first.beat(retiring=True)
        assert NODE not in (await second.beat()).alive
        assert NODE not in retired.alive
        await first.leave()
        (_, waker) = (await second.beat()).duties
        assert (waker.holder, waker.due_in_s <= 0) == (None, True)

    async def test_a_partition_changes_hands_only_after_its_owner_has_let_go(
        self, store: Store
    ) -> None:
        first = await settled(self.joined(store, NODE))
        second = self.joined(store, OTHER)

        view = await second.beat()
        assert view.shares[QUEUE].claim == {}
        wished = {one.partition: one.epoch for one in await store.holdings(QUEUE) if one.wish}
        assert await second.claimed(QUEUE, wished) == {}  # its owner lives

        assert sorted((await first.beat()).shares[QUEUE].let_go) == sorted(wished)

    async def test_nothing_is_let_go_of_for_a_node_that_has_not_asked(self, store: Store) -> None:
        """It has a lease, but it may hang, or see other members than we do."""
        first = await settled(self.joined(store, NODE))
        await store.renew(OTHER, lease_s=LEASE_S, queues=[QUEUE], kinds=[])
        before = await store.holdings(QUEUE)

        await beaten(first, times=3)

        assert await store.holdings(QUEUE) == before

    async def test_two_views_of_the_members_never_flap(self, store: Store) -> None:
        """The first does not see the second: it keeps what it has, and nothing moves to and fro."""
        first, second = self.joined(store, NODE), self.joined(store, OTHER)
        await settled(first)
        blind: Any = _Blind(store, hidden=OTHER)
        partial = self.joined(blind, NODE)
        before = await store.holdings(QUEUE)

        for _ in range(10):
            await beaten(partial, second)

        after = await store.holdings(QUEUE)
        assert [(one.owner, one.epoch) for one in after] == [
            (one.owner, one.epoch) for one in before
        ]
        await beaten(first, second)
        assert await owners(store) == shared_by(store, NODE, OTHER)

    async def test_the_partitions_of_an_ended_lease_are_claimed_by_those_who_live(
        self, store: Store
    ) -> None:
        dead = await settled(self.joined(store, NODE, lease_s=LEASE_S_SHORT))
        (task,) = await grabbed(store, node=NODE)
        live = self.joined(store, OTHER)

        async def found() -> View | None:
            view = await live.beat()
            return view if view.ended else None

        view = await eventually(found)
        assert view is not None
        assert view.ended == [NODE]
        assert len(view.shares[QUEUE].claim) == store.partitions
        assert len(await live.claimed(QUEUE, view.shares[QUEUE].claim)) == store.partitions
        assert [one.id for one in await _resumed(store)] == [task.id]
        await live.forget([NODE])
        assert [one.node for one in await store.members()] == [OTHER]
        assert (await live.beat()).ended == []
        assert (await dead.beat()).owned[QUEUE] == {}  # it comes back, as one without a share

    async def test_a_node_that_left_is_not_waited_for(self, store: Store) -> None:
        first, second = self.joined(store, NODE), self.joined(store, OTHER)
        await beaten(first, second, times=4)

        await first.leave()
        await beaten(second)

        assert await owners(store) == shared_by(store, OTHER)

    async def test_a_wish_of_a_node_that_died_is_not_granted(self, store: Store) -> None:
        first = await settled(self.joined(store, NODE))
        dead = self.joined(store, OTHER, lease_s=LEASE_S_SHORT)
        await dead.beat()
        assert any(one.wish == OTHER for one in await store.holdings(QUEUE))

        async def ended() -> bool:
            return (await first.beat()).ended == [OTHER]

        await eventually(ended)
        assert (await first.beat()).shares[QUEUE].let_go == []

    async def test_who_does_not_serve_a_queue_has_no_share_of_it(self, store: Store) -> None:
        first = self.joined(store, NODE, queues=[QUEUE], kinds=["email"])
        other = self.joined(store, OTHER, queues=["else"], kinds=["sms"])

        await beaten(first, other, times=3)

        assert await owners(store) == shared_by(store, NODE)
        assert (await first.beat()).kinds == {QUEUE: frozenset({"email"})}


class _Blind:
    """A store that hides one member: a node whose view lags behind."""

    def __init__(self, store: Store, *, hidden: NodeId) -> None:
        self._store = store
        self._hidden = hidden

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def look(self, queues: Collection[str]) -> Look:
        look = await self._store.look(queues)
        return look._replace(members=[one for one in look.members if one.node != self._hidden])


async def beaten(*coordinators: Coordinator, times: int = 1) -> None:
    """Each does what a node does at its beat: let go, then claim."""
    for _ in range(times):
        for coordinator in coordinators:
            view = await coordinator.beat()
            for queue, share in view.shares.items():
                await coordinator.let_go(queue, share.let_go)
                await coordinator.claimed(queue, share.claim)


async def settled(coordinator: Coordinator) -> Coordinator:
    """The coordinator, after it has taken what it should."""
    await beaten(coordinator)
    return coordinator


async def owners(store: Store) -> dict[int, NodeId | None]:
    return {one.partition: one.owner for one in await store.holdings(QUEUE)}


def shared_by(store: Store, *nodes: NodeId) -> dict[int, NodeId | None]:
    """Who should own which partition."""
    return {**preferred(QUEUE, store.partitions, nodes)}


async def _resumed(store: Store) -> list[Any]:
    return list(await store.resume_lost([NODE], deliveries_max=5, limit=100))
