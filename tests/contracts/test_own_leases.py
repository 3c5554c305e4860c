"""What a renewer's process asks of a store: it prolongs a lease, or ends it, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from holdfast.address import Address
from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError
from holdfast.node.compose import make_store
from holdfast.node.renewal import Order
from holdfast.node.renewing import OwnLease, own_lease
from holdfast.store import Kept, Store
from holdfast.testing.apps import migrate
from holdfast.testing.contracts.builders import NODE, OTHER, QUEUE, claimed, eventually, grabbed

LEASE_S = 60.0
Asked = Callable[[Callable[[OwnLease], Any]], Any]


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    await migrate(store_url)
    store = make_store(Address(url=store_url), clock=SystemClock(), rng=Random(0))
    await store.open()
    yield store
    await store.close()


def order(url: str, **changes: Any) -> Order:
    values = {"lease_s": LEASE_S, "stall_s": 60.0, "parent": 1, "schema": "holdfast"}
    return Order(**values | {"node": NODE, "url": url, "environment": {}} | changes)


async def asked(url: str, work: Callable[[OwnLease], Any], **changes: Any) -> Any:
    """Ask as its process does: without a loop, which is why a thread does it here."""

    def ask() -> Any:
        lease = own_lease(order(url, **changes), clock=SystemClock())
        try:
            return work(lease)
        finally:
            lease.close()

    return await asyncio.to_thread(ask)


async def test_a_lease_is_prolonged_and_nothing_else_of_it_changes(store: Store, store_url: str):
    facts = {"host": "alpha"}
    await store.renew(NODE, lease_s=5, queues=["a"], kinds=["email"], facts=facts)
    await store.renew(OTHER, lease_s=5, queues=[], kinds=[])
    before = {member.node: member for member in await store.members()}

    assert await asked(store_url, lambda lease: lease.prolong()) is True

    after = {member.node: member for member in await store.members()}
    assert 50 < after[NODE].left_s <= LEASE_S
    assert after[OTHER].left_s <= 5
    assert after[NODE]._replace(left_s=0) == before[NODE]._replace(left_s=0)


async def test_a_lease_that_was_forgotten_is_not_made_anew(store: Store, store_url: str):
    assert await asked(store_url, lambda lease: lease.prolong()) is False
    assert await store.members() == []


async def test_a_lease_that_has_ended_but_is_remembered_can_be_prolonged(
    store: Store, store_url: str
):
    """After an outage of the store, whoever comes first decides: the node, or those who resume."""
    await store.renew(NODE, lease_s=0.05, queues=[], kinds=[])

    async def ended() -> bool:
        return [member.is_alive for member in await store.members()] == [False]

    assert await eventually(ended)
    assert await asked(store_url, lambda lease: lease.prolong()) is True
    assert [member.is_alive for member in await store.members()] == [True]


async def test_the_end_of_a_lease_frees_all_that_its_node_had(store: Store, store_url: str):
    for node in (NODE, OTHER):
        await store.renew(node, lease_s=60, queues=[QUEUE], kinds=[])
    seen = await claimed(store)
    (task,) = await grabbed(store)
    await store.keep_duties([Kept("waker", 0, 60)], node=NODE)

    await asked(store_url, lambda lease: (lease.end(), lease.end()))

    alive = {member.node: member.is_alive for member in await store.members()}
    assert alive == {NODE: False, OTHER: True}
    resumed = await store.resume_lost([NODE], deliveries_max=3, limit=10)
    assert [trigger.id for trigger in resumed] == [task.id]
    assert len(await store.claim(QUEUE, seen, node=OTHER)) == store.partitions


async def test_a_store_that_is_away_is_said_to_be_and_no_password_with_it():
    url = "postgresql://me:hunter2-canary@127.0.0.1:1/nowhere"

    with pytest.raises(HoldfastError) as away:
        await asked(url, lambda lease: lease.prolong())

    assert "127.0.0.1:1" in str(away.value)
    assert "canary" not in str(away.value)


async def test_a_connection_that_broke_while_it_rested_costs_no_renewal(postgres, postgres_url):
    await migrate(postgres_url)
    ours = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE application_name = 'holdfast renewer'"
    )

    def twice(lease: OwnLease) -> tuple[bool, list[str], bool]:
        return lease.prolong(), postgres.execute(ours), lease.prolong()

    assert await asked(postgres_url, twice) == (False, ["1"], False)


async def test_a_pooler_may_stand_in_between(postgres_url, pgbouncer_url):
    await migrate(postgres_url)
    store = make_store(Address(url=postgres_url), clock=SystemClock(), rng=Random(0))
    await store.open()
    try:
        await store.renew(NODE, lease_s=5, queues=[], kinds=[])

        answers = await asked(pgbouncer_url, lambda lease: [lease.prolong() for _ in range(5)])
        await asked(pgbouncer_url, lambda lease: lease.end())

        assert answers == [True] * 5
        assert [member.is_alive for member in await store.members()] == [False]
    finally:
        await store.close()
