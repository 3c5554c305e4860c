"""`holdfast why`: each reason is brought about on a real store, and its sentence is read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import asyncpg
import pytest

from conditions import until
from holdfast import FixedSlots, Holdfast, Retry
from holdfast.ids import NodeId
from holdfast.store import START, Change, Cursor, Entry, Kept, Level, Record, Store
from holdfast.task import Event, NewTask, Outcome, TaskId, Trigger
from holdfast.testing.apps import opened
from holdfast.testing.contracts.builders import claimed, eventually
from holdfast.why.explain import head_of, reasons_of
from holdfast.why.known import gather
from holdfast.why.reason import Reason

QUEUE = "pay"
NODE, OTHER = NodeId("node-a"), NodeId("node-b")


class Shop:
    """An app whose handlers run until they may end, and questions about its tasks."""

    def __init__(self, app: Holdfast) -> None:
        self.app = app
        self.may_end = asyncio.Event()
        self.running = 0

        @app.task(queue=QUEUE)
        async def payout(partner: str = "") -> None:
            self.running += 1
            await self.may_end.wait()

        @app.task(queue=QUEUE, retry=Retry(attempts=3, delay=60))
        async def fails() -> None:
            raise ValueError("the bank said no")

        self.payout = payout
        self.fails = fails

    async def reasons(self, id: int) -> dict[str, str]:
        return {one.rule: one.value for one in await self.asked(id)}

    async def waits_for(self, id: int) -> str:
        """The marked line, as rule and value; "" when none is."""
        marked = [f"{one.rule}: {one.value}" for one in await self.asked(id) if one.waits_here]
        assert len(marked) <= 1
        return "".join(marked)

    async def asked(self, id: int) -> list[Reason]:
        known = await gather(await self.app.store(), TaskId(id))
        assert known is not None
        return reasons_of(known)

    async def head(self, id: int) -> str:
        known = await gather(await self.app.store(), TaskId(id))
        assert known is not None
        return head_of(known)

    async def will_wait_for(self, id: int, *words: str) -> str:
        """The marked line, once it has these words in it."""

        async def found() -> str:
            text = await self.waits_for(id)
            return text if all(word in text for word in words) else ""

        try:
            return await eventually(found)
        except TimeoutError:
            raise AssertionError(f"{words} not in {await self.waits_for(id)!r}") from None

    @asynccontextmanager
    async def node(self, **settings: Any) -> AsyncIterator[Any]:
        async with self.app.node(queues=[QUEUE], **settings) as node:
            try:
                yield node
            finally:
                self.may_end.set()


@pytest.fixture
async def shop(store_url: str) -> AsyncIterator[Shop]:
    app = Holdfast(store_url, rng=Random(1))
    async with opened(app):
        yield Shop(app)


async def serving(store: Store, *, kinds: tuple[str, ...] = ("payout",), **facts: Any) -> None:
    """A node that is alive and owns everything, but starts nothing."""
    await store.renew(NODE, lease_s=60, queues=[QUEUE], kinds=kinds, facts=facts)
    await claimed(store, NODE, QUEUE)


async def grabbed(store: Store, id: int, *, deadline_s: float = 60.0) -> Any:
    (trigger,) = [one for one in await submitted(store) if one.id == id]
    epochs = {one.partition: one.epoch for one in await store.holdings(QUEUE)}
    deadlines_s = {trigger.kind: deadline_s}
    found = await store.grab([trigger], node=NODE, deadlines_s=deadlines_s, epochs=epochs)
    return found.tasks[0]


async def submitted(store: Store) -> list[Trigger]:
    cursors = [Cursor(partition, START) for partition in range(store.partitions)]
    return (await store.arrivals(QUEUE, cursors, limit=1000, exact=False)).triggers


# ── finished, parked, waiting ─────────────────────────────────────────────────────────────────


async def test_a_finished_task_says_when_and_where(shop: Shop):
    shop.may_end.set()
    async with shop.node() as node:
        task = await shop.payout.enqueue()
        await task.result(timeout=10)
        reasons = await shop.reasons(task.id)

    assert reasons["DONE"].startswith("finished at 2")
    assert f"on node {node.id}, deliveries 1" in reasons["DONE"]
    assert "DONE since" in await shop.head(task.id)
    assert await shop.waits_for(task.id) == ""


async def test_a_cancelled_and_a_failed_task_say_why(shop: Shop):
    store = await shop.app.store()
    first, second = await shop.payout.enqueue(), await shop.payout.enqueue()
    await store.change(
        [
            Change(first.id, Event.CANCELLED, error="not wanted any more"),
            Change(second.id, Event.GIVEN_UP, error="the account is closed"),
        ]
    )

    cancelled, failed = await shop.reasons(first.id), await shop.reasons(second.id)

    assert cancelled["error"] == "not wanted any more"
    assert "by a person or before it ever ran" in cancelled["CANCELLED"]
    assert failed["error"] == "the account is closed"
    assert "does not run again" in failed["do"]


async def test_a_parked_task_names_its_error_and_the_way_on(shop: Shop):
    store = await shop.app.store()
    await serving(store)
    task = await shop.payout.enqueue()
    taken = await grabbed(store, task.id)
    error = "Traceback …\nValueError: the bank said no"
    await store.settle([Outcome(taken.id, taken.version, Event.PARKED, error=error)], node=NODE)

    reasons = await shop.reasons(task.id)

    assert "ValueError: the bank said no" in await shop.waits_for(task.id)
    assert f"`holdfast error resume {task.id}`" in reasons["do"]


async def test_a_delayed_task_says_until_when_and_who_wakes_it(shop: Shop):
    task = await shop.payout.options(delay=600).enqueue()

    assert "waker: no live node keeps the waker" in str(await shop.reasons(task.id)).replace(
        "'", ""
    )
    await serving(await shop.app.store())

    waits_for = await shop.waits_for(task.id)
    assert waits_for.startswith("due: in 10 min, at 2")
    assert waits_for.endswith("delayed by its caller")
    assert (await shop.reasons(task.id))["waker"] == f"node {NODE} submits it when it is due"


async def test_the_keeper_of_the_waker_is_named_while_it_is_alive(shop: Shop):
    store = await shop.app.store()
    task = await shop.payout.options(delay=600).enqueue()
    await serving(store)
    await store.renew(OTHER, lease_s=60, queues=[], kinds=[])
    await store.keep_duties([Kept("waker", 0, 30.0)], node=OTHER)

    assert (await shop.reasons(task.id))["waker"] == f"node {OTHER} submits it when it is due"
    await store.end([OTHER])
    assert "no live node keeps the waker" in (await shop.reasons(task.id))["waker"]


async def test_what_is_due_and_not_woken_waits_for_the_waker(shop: Shop):
    task = await shop.payout.options(delay=0.05).enqueue()

    assert await shop.will_wait_for(task.id, "waker: no live node keeps the waker")
    await serving(await shop.app.store())
    assert "due: since" in await shop.will_wait_for(task.id, "next look; delayed by its caller")


async def test_a_retry_names_the_attempt_and_its_error(shop: Shop):
    async with shop.node():
        task = await shop.fails.enqueue()
        text = await shop.will_wait_for(task.id, "due: in", "retry after attempt 1 failed")

    assert text.endswith("retry after attempt 1 failed with ValueError: the bank said no")


# ── PROCESSING ────────────────────────────────────────────────────────────────────────────────


async def test_a_running_task_names_its_node_and_its_deadline(shop: Shop):
    async with shop.node() as node:
        task = await shop.payout.enqueue()
        await until(lambda: shop.running == 1)
        reasons = await shop.reasons(task.id)

        assert "runs it, delivery 1; its lease has" in reasons[f"node {node.id}"]
        assert reasons["deadline"].startswith("in 60 min, at 2")
        assert await shop.waits_for(task.id) == ""


async def test_a_stuck_task_is_past_its_deadline(shop: Shop):
    store = await shop.app.store()
    await serving(store)
    task = await shop.payout.enqueue()
    await grabbed(store, task.id, deadline_s=0.01)

    text = await shop.will_wait_for(task.id, "deadline: passed")

    assert f"it is stuck; `holdfast task resume {task.id} --force`" in text


async def test_a_task_of_a_dead_node_says_who_will_resume_it(shop: Shop):
    store = await shop.app.store()
    await serving(store)
    task = await shop.payout.enqueue()
    await grabbed(store, task.id)
    await store.end([NODE])

    assert "and no live node serves the queue" in await shop.waits_for(task.id)
    await store.renew(OTHER, lease_s=60, queues=[QUEUE], kinds=["payout"])
    assert "its lease ended" in await shop.waits_for(task.id)
    assert "the other nodes resume its tasks" in await shop.waits_for(task.id)
    await store.leave([NODE])
    assert f"node {NODE}: left no lease" in await shop.waits_for(task.id)


# ── SUBMITTED: who serves it ──────────────────────────────────────────────────────────────────


async def test_a_queue_that_nobody_ever_served_is_told_apart_from_one_without_a_live_node(
    shop: Shop,
):
    store = await shop.app.store()
    task = await shop.payout.enqueue()

    assert "no node has ever served it" in await shop.waits_for(task.id)
    assert "SUBMITTED since" in await shop.head(task.id)
    await serving(store)
    await store.end([NODE])
    assert "no live node serves it, nor any other queue" in await shop.waits_for(task.id)
    await store.renew(OTHER, lease_s=60, queues=["mail", "shop"], kinds=[])
    assert "live ones serve mail, shop" in await shop.waits_for(task.id)


async def test_a_kind_without_a_handler_names_those_there_are(shop: Shop):
    task = await shop.payout.enqueue()
    await serving(await shop.app.store(), kinds=("letter", "mail"))

    text = await shop.waits_for(task.id)

    assert text.startswith("kind payout: no live node has a handler for it; they have letter, mail")


async def test_a_partition_without_a_live_owner_says_so(shop: Shop):
    store = await shop.app.store()
    task = await shop.payout.enqueue()
    await store.renew(OTHER, lease_s=60, queues=[QUEUE], kinds=["payout"])

    assert "has no owner" in await shop.waits_for(task.id)
    await store.renew(NODE, lease_s=0.05, queues=[QUEUE], kinds=["payout"])
    await claimed(store, NODE, QUEUE)
    assert await shop.will_wait_for(task.id, f"owner {NODE}: lease ended", "another node takes it")


# ── SUBMITTED: pauses and limits ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "scope", "command"),
    [
        ({}, "queue pay", "`holdfast queue resume pay`"),
        ({"kind": "payout"}, "kind payout", "`holdfast queue resume pay --kind payout`"),
        ({"key": "acme"}, "key acme", "`holdfast queue resume pay --key acme`"),
    ],
)
async def test_a_pause_names_the_command_that_ends_it(shop: Shop, words, scope, command):
    await shop.app.queue(QUEUE).pause(**words)
    async with shop.node():
        task = await shop.payout.options(fairness_key="acme").enqueue("acme")

        assert await shop.waits_for(task.id) == f"{scope}: paused; {command} lets it go on"


async def test_a_full_limit_names_its_holders(shop: Shop):
    await shop.app.queue(QUEUE).limit("partner", concurrency=4, key="*")
    payout = shop.payout.options(fairness_key="stripe")
    async with shop.node():
        held = [await payout.enqueue() for _ in range(4)]
        await until(lambda: shop.running == 4)
        task = await payout.enqueue()

        ids = ", ".join(str(one.id) for one in held)
        text = await shop.waits_for(task.id)
        assert text == f"key stripe: 4 of 4 (limit partner), held by {ids}"


async def test_a_limit_of_each_node_counts_the_tasks_of_the_owner(shop: Shop):
    await shop.app.queue(QUEUE).limit("each", concurrency=1, kind="payout", local=True)
    async with shop.node() as node:
        held = await shop.payout.enqueue()
        await until(lambda: shop.running == 1)
        task = await shop.payout.enqueue()

        text = await shop.waits_for(task.id)
        assert text == f"kind payout: 1 of 1 on node {node.id} (limit each), held by {held.id}"


async def test_a_limit_with_room_is_told_and_holds_nobody_back(shop: Shop):
    store = await shop.app.store()
    await shop.app.queue(QUEUE).limit("total", concurrency=30)
    await shop.app.queue(QUEUE).limit("alone", rate=5.0, local=True, kind="payout")
    task = await shop.payout.enqueue()
    await serving(store)

    asked = await shop.asked(task.id)

    values = [one.value for one in asked if "limit" in one.value]
    assert values[1] == "0 of 30 (limit total)"
    assert "rate 5/s (limit alone): each node counts by itself" in values[0]
    assert not any(one.waits_here for one in asked if "limit" in one.value)


async def test_a_used_up_rate_says_when_it_refills(shop: Shop):
    await shop.app.queue(QUEUE).limit("slowly", rate=0.1, burst=10.0)
    async with shop.node():
        await shop.payout.enqueue()
        await until(lambda: shop.running == 1)
        task = await shop.payout.enqueue()

        text = await shop.will_wait_for(task.id, "is used up")

    assert text.startswith("queue pay: rate 0.1/s (limit slowly) is used up; refills in ")
    assert 1 < float(text.split()[-2]) <= 10


async def test_a_rate_of_each_key_goes_by_its_weight(shop: Shop):
    await shop.app.queue(QUEUE).limit("partner", rate=1.0, key="*")
    await shop.app.queue(QUEUE).weight("acme", 3.0)
    task = await shop.payout.options(fairness_key="acme").enqueue()
    await serving(await shop.app.store())

    assert "key acme" in await shop.reasons(task.id)
    assert (await shop.asked(task.id))[3].value == "rate 3/s (limit partner): 3 may start now"


# ── SUBMITTED: who stands before it ───────────────────────────────────────────────────────────


async def test_an_ordering_key_names_the_elder_and_its_state(shop: Shop):
    store = await shop.app.store()
    ordered = shop.payout.options(ordering_key="account-7")
    first, second, third = [await ordered.enqueue() for _ in range(3)]
    await serving(store)

    assert f"task {first.id} before it is SUBMITTED" in await shop.waits_for(third.id)
    taken = await grabbed(store, first.id)
    assert f"ordering key account-7: busy: task {first.id} runs" in await shop.waits_for(second.id)
    retry = Outcome(taken.id, taken.version, Event.RETRIED, delay_s=60, error="no")
    await store.settle([retry], node=NODE)
    assert f"task {first.id} before it waits for a retry" in await shop.waits_for(second.id)
    await store.change([Change(first.id, Event.RESUMED)])
    taken = await grabbed(store, first.id)
    await store.settle([Outcome(taken.id, taken.version, Event.PARKED, error="no")], node=NODE)
    text = await shop.waits_for(second.id)
    assert f"task {first.id} before it is in ERROR, and with on_error='block'" in text
    assert f"`holdfast error resume {first.id}`" in text


async def test_the_head_of_an_ordering_key_has_no_elder(shop: Shop):
    task = await shop.payout.options(ordering_key="account-7").enqueue()
    await serving(await shop.app.store())

    assert (await shop.reasons(task.id))["ordering key account-7"] == "no elder is before it"


async def test_those_before_it_are_counted_by_key_and_in_all(shop: Shop):
    async with shop.node(slots_async=1):
        await shop.payout.enqueue()
        await until(lambda: shop.running == 1)
        for _ in range(20):
            await shop.payout.options(fairness_key="acme").enqueue()
        await shop.payout.options(fairness_key="bolt").enqueue()
        task = await shop.payout.options(fairness_key="acme").enqueue()

        text = await shop.will_wait_for(task.id, "key acme: 20 tasks of this key before it")
        reasons = await shop.reasons(task.id)

    assert text
    assert reasons["line"] == "21 tasks of its kind and priority before it, of all keys"


async def test_higher_priorities_are_counted(shop: Shop):
    async with shop.node(slots_async=1):
        await shop.payout.enqueue()
        await until(lambda: shop.running == 1)
        urgent = [await shop.payout.options(priority=1).enqueue() for _ in range(3)]
        task = await shop.payout.enqueue()

        text = await shop.will_wait_for(task.id, "priority 5: 3 tasks of higher priority")
        assert text.endswith("before it")
        assert "priority 1" not in await shop.reasons(urgent[0].id)


async def test_counting_stops_at_ten_thousand(shop: Shop):
    store = await shop.app.store()
    await serving(store)
    new = NewTask(queue=QUEUE, partition=0, kind="payout", payload=b"{}")
    ids = [one.id for one in await store.enqueue([new] * 10_050)]
    epoch = next(one.epoch for one in await store.holdings(QUEUE) if one.partition == 0)
    triggers = [Trigger(id, 1, QUEUE, 0, "payout", 5) for id in ids]
    entries = [Entry(Level(n, n), trigger) for n, trigger in enumerate(triggers, 1)]
    await store.record(QUEUE, [Record(partition=0, epoch=epoch, entries=entries)])

    text = await shop.waits_for(ids[-1])

    assert text == "line: at least 10,000 tasks of its kind and priority before it, of all keys"


async def test_what_the_owner_has_not_read_yet_is_told(shop: Shop):
    store = await shop.app.store()
    await serving(store)
    task = await shop.payout.enqueue()

    text = await shop.waits_for(task.id)

    assert text.startswith("arrival: enqueued ")
    assert text.endswith(" ago, its owner has not written it to the backlog yet")


@pytest.mark.store("postgres")
async def test_an_open_transaction_that_holds_the_arrival_is_named(postgres_url: str):
    app = Holdfast(postgres_url, rng=Random(1))
    async with opened(app):
        shop, store = Shop(app), await app.store()
        await serving(store)
        connection = await asyncpg.connect(postgres_url)
        async with connection.transaction():
            await connection.execute("CREATE TABLE held (value int)")
            pid = await connection.fetchval("SELECT pg_backend_pid()")
            task = await shop.payout.enqueue()

            text = await shop.waits_for(task.id)

        assert "an older transaction is still open" in text
        assert f"pid {pid}, user postgres, for " in text
        await connection.close()


# ── SUBMITTED: slots and policies ─────────────────────────────────────────────────────────────


async def test_slots_that_are_taken_are_told_with_their_holders(shop: Shop):
    async with shop.node(slots_async=2):
        holders = [await shop.payout.enqueue() for _ in range(2)]
        await until(lambda: shop.running == 2)
        task = await shop.payout.enqueue()
        ids = ", ".join(str(holder.id) for holder in holders)

        text = await shop.will_wait_for(task.id, "slots: all 2 async slots of the 1 node")

    assert text.endswith(f"serving it are taken, by {ids}")


async def test_only_the_slots_of_its_own_mode_hold_a_task_back(shop: Shop):
    may_end = threading.Event()

    @shop.app.task(queue=QUEUE)
    def blocking() -> None:
        may_end.wait(30)

    async with shop.node(slots_threads=1, slots_async=3):
        first, second = await blocking.enqueue(), await blocking.enqueue()
        other = await shop.payout.enqueue()
        await until(lambda: shop.running == 1)

        text = await shop.will_wait_for(second.id, "slots: all 1 thread slots of the 1 node")
        reasons = await shop.reasons(other.id)
        may_end.set()

    assert text.endswith(f"serving it are taken, by {first.id}")
    assert "slots" not in reasons


async def test_slots_that_another_queue_has_taken_are_told_by_the_node(shop: Shop):
    @shop.app.task(queue="other")
    async def long() -> None:
        shop.running += 1
        await shop.may_end.wait()

    async with shop.app.node(slots_async=1, lease_s=1.0):
        await long.enqueue()
        await until(lambda: shop.running == 1)
        task = await shop.payout.enqueue()

        text = await shop.will_wait_for(task.id, "slots: all 1 async slots of the 1 node")
        shop.may_end.set()

    assert text.endswith("serving it are taken")


async def test_of_an_older_node_the_sum_of_its_slots_is_known(shop: Shop):
    store = await shop.app.store()
    await serving(store, slots={"async": 2, "thread": 1}, running=3)
    task = await shop.payout.enqueue()

    text = await shop.waits_for(task.id)

    assert text == "slots: all 3 slots of the 1 node serving it are taken"


async def test_what_only_a_nodes_memory_knows_is_said_to_be_unknown(shop: Shop):
    async with shop.node(booking=FixedSlots(1)) as node:
        await shop.payout.enqueue()
        await until(lambda: shop.running == 1)
        task = await shop.payout.enqueue()

        async def start() -> str:
            return (await shop.reasons(task.id)).get("start", "")

        text = await eventually(start)
        assert text.startswith("nothing that the store knows of holds it back")
        assert text.endswith(f"which only the memory of node {node.id} knows")
