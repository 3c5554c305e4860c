"""Duties of several nodes on the real stores: one keeps each, another one takes over."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime

import pytest

from holdfast import Deadline, Holdfast, State, current_task
from holdfast.clock import SystemClock
from holdfast.duties.resumer import Resumer
from holdfast.duties.waker import Waker
from holdfast.telemetry.events import DutyTaken, Events, TaskStuck
from holdfast.testing.apps import migrate
from holdfast.testing.contracts.builders import NODE, waiting_triggers
from holdfast.testing.recorder import Recorder
from nodes.fleet import Fleet

QUICK = {"tick_s": 0.1, "spacing": 1, "lease_s": 2.0}
DUTIES = {"waker", "resumer", "cleaner", "watcher"}


class Ran:
    """Which task ran when, on which node."""

    def __init__(self) -> None:
        self.starts: list[tuple[int, str, datetime]] = []
        self.may_end = asyncio.Event()

    def register(self, app: Holdfast, name: str):
        @app.task(name="note")
        async def note(number: int) -> None:
            self.starts.append((number, name, datetime.now(UTC)))

        return {"note": note}


async def until(is_so, timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not is_so():
            await asyncio.sleep(0.01)


def holders(fleet: Fleet) -> dict[str, list[str]]:
    """Who keeps each duty, as the nodes themselves believe."""
    found: dict[str, list[str]] = {}
    for peer in fleet.peers:
        for duty in peer.node.duties:
            found.setdefault(duty, []).append(peer.name)
    return found


@pytest.mark.req("TASK-66", "TASK-67")
async def test_one_node_wakes_waiting_tasks_of_all_nodes_and_none_before_its_time(store_url):
    ran = Ran()
    async with Fleet(store_url, ran.register, **QUICK) as fleet:
        for _ in range(3):
            await fleet.join()
        await fleet.until_shared()
        await until(lambda: "waker" in holders(fleet))
        note = fleet.peers[0].tasks["note"]
        handles = [await note.options(delay=0.2 + n * 0.02).enqueue(n) for n in range(40)]
        due_at = {n: (await handle.task()).due_at for n, handle in enumerate(handles)}
        await until(lambda: len(ran.starts) == 40)
        await fleet.until_drained()

        assert len(holders(fleet)["waker"]) == 1
        late_s = [(at - due_at[n]).total_seconds() for n, _, at in ran.starts if due_at[n]]
        assert min(late_s) >= 0
        assert max(late_s) <= 5.0 + 1.0, "one poll and the processing delay"
        assert len({name for _, name, _ in ran.starts}) > 1, "woken by one, run by all"


@pytest.mark.req("TASK-68")
async def test_each_duty_has_one_holder_and_another_one_when_it_dies(store_url):
    ran = Ran()
    async with Fleet(store_url, ran.register, **QUICK) as fleet:
        for _ in range(3):
            await fleet.join()
        await until(lambda: holders(fleet).keys() >= DUTIES)
        assert all(len(names) == 1 for names in holders(fleet).values())

        dead = next(peer for peer in fleet.peers if "waker" in peer.node.duties)
        dead.cut_off()
        others = [peer for peer in fleet.peers if peer is not dead]
        await until(lambda: any("waker" in peer.node.duties for peer in others))
        kept = [duty for peer in others for duty in peer.node.duties]
        await until(lambda: set(kept) <= set(d for p in others for d in p.node.duties))

        note = others[0].tasks["note"]
        await note.options(delay=0.1).enqueue(1)
        await until(lambda: len(ran.starts) == 1)


@pytest.mark.req("TASK-72")
async def test_two_holders_of_the_same_duties_cause_no_second_attempt(store_url):
    ran = Ran()
    async with Fleet(store_url, ran.register, duties=False, tick_s=0.1, lease_s=30.0) as fleet:
        for _ in range(2):
            await fleet.join()
        await fleet.until_shared()
        wakers = [
            Waker(peer.store.real, publish=peer.bus.publish, clock=SystemClock())
            for peer in fleet.peers
        ]
        note = fleet.peers[0].tasks["note"]
        await note.options(delay=0.05).enqueue_many([(n,) for n in range(500)])
        async with asyncio.timeout(30):
            while len(ran.starts) < 500:
                await asyncio.gather(*(waker.run_once() for waker in wakers))
                await asyncio.sleep(0.005)
        await fleet.until_drained()

    counts = Counter(number for number, _, _ in ran.starts)
    assert len(counts) == 500
    assert set(counts.values()) == {1}


@pytest.mark.req("TASK-75")
@pytest.mark.parametrize(
    ("stuck", "ends_in", "deliveries"),
    [
        ("error", State.ERROR, 1),
        ("failed", State.FAILED, 1),
        ("retry", State.DONE, 2),
        ("ignore", State.DONE, 1),
    ],
)
async def test_a_task_past_its_deadline_goes_the_way_of_its_kind(
    store_url, stuck, ends_in, deliveries
):
    hangs = asyncio.Event()
    app = Holdfast(store_url)
    with Recorder(app.events) as heard:

        @app.task(deadline=Deadline(0.3, stuck=stuck))
        async def slow() -> None:
            if current_task().deliveries == 1:
                await hangs.wait()

        await migrate(store_url)
        async with app, app.node(tick_s=0.1, lease_s=2.0, resume_every_s=0.2) as node:
            handle = await slow.enqueue()
            await heard.until(TaskStuck, timeout_s=20)
            if stuck == "ignore":
                assert (await handle.task()).state is State.PROCESSING
                hangs.set()
            async with asyncio.timeout(20):
                while (task := await handle.task()).state is not ends_in:
                    await asyncio.sleep(0.02)
            hangs.set()
            await node.drained(20)

        stuck_events = heard.all(TaskStuck)
    assert (stuck_events[0].kind, stuck_events[0].state) == ("slow", "PROCESSING")
    assert task.deliveries == deliveries


async def test_a_task_of_a_dead_node_is_no_deadline_matter(store_url):
    """Its lease has ended: it is resumed for that reason, whatever its kind says."""
    app = Holdfast(store_url)
    events = Events()

    @app.task(deadline=Deadline(0.1, stuck="failed"))
    async def slow() -> None: ...

    await migrate(store_url)
    async with app:
        store = await app.store()
        await store.holdings("default")
        handle = await slow.enqueue()
        (trigger,) = await waiting_triggers(store, "default")
        await store.grab([trigger], node=NODE, deadlines_s={"slow": 0.05}, epochs={})
        await asyncio.sleep(0.2)
        resumer = Resumer(
            store,
            publish=lambda _: None,
            clock=SystemClock(),
            events=events,
            deliveries_max=5,
            submitted_s=1800,
            unknown_queue_s=300,
        )

        await resumer.run_once()

        assert (await handle.task()).state is State.PROCESSING


async def test_a_node_that_ends_gives_its_duties_to_the_next_at_once(store_url):
    ran = Ran()
    async with Fleet(store_url, ran.register, tick_s=0.2, spacing=1, lease_s=30.0) as fleet:
        first = await fleet.join()
        await until(lambda: set(first.node.duties) >= DUTIES)
        second = await fleet.join()
        with Recorder(second.app.events) as heard:
            await fleet.leave(first)
            await until(lambda: set(second.node.duties) >= DUTIES, 5.0)
            assert {event.duty for event in heard.all(DutyTaken)} >= DUTIES
