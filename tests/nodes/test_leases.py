"""A node acts only while it believes in its lease, says so, and goes on by itself."""

from __future__ import annotations

import asyncio
import logging
import time
from random import Random
from typing import Any

import pytest

from conditions import until
from holdfast import Holdfast, State
from holdfast.dispatch.limits import Limits
from holdfast.errors import StoreUnavailable
from holdfast.ids import NodeId
from holdfast.store import Store
from holdfast.telemetry.events import (
    AttemptTakenBack,
    LeaseDoubtful,
    LeaseEnded,
    LeaseRegained,
    LeaseRenewed,
    SettleRefused,
    TaskGrabbed,
    TaskResumed,
)
from holdfast.testing.apps import opened
from holdfast.testing.contracts.builders import grabbed
from holdfast.testing.faults import FaultyStore
from holdfast.testing.recorder import Recorder
from nodes.fleet import Fleet

QUICK = Limits(idle_wait_s=0.2, retry_s=0.01, retry_s_max=0.1)
SHORT: dict[str, Any] = {"lease_s": 1.0, "tick_s": 0.1, "limits": QUICK}


class Unrenewable(FaultyStore):
    """A store that serves everything but the renewals, and counts what else is asked."""

    fails = False

    def __getattr__(self, name: str) -> Any:
        if name == "renew" and self.fails:
            return self._refuse
        return super().__getattr__(name)

    async def _refuse(self, *args: Any, **kwargs: Any) -> None:
        raise StoreUnavailable("injected: nothing is renewed")


class Rig:
    """An app whose store can be told to renew no lease."""

    def __init__(self, url: str) -> None:
        self.stores: list[Unrenewable] = []
        self.app = Holdfast(url, rng=Random(1), wrap_store=self._keep)
        self.heard = Recorder(self.app.events)
        self.gate = asyncio.Event()
        self.ran: list[int] = []

        @self.app.task
        async def note(number: int) -> None:
            self.ran.append(number)
            if number < 0:
                await self.gate.wait()

        self.note = note

    @property
    def store(self) -> Unrenewable:
        return self.stores[0]

    def _keep(self, store: Store) -> Unrenewable:
        self.stores.append(Unrenewable(store, rng=Random(1)))
        return self.stores[-1]


async def test_a_node_that_cannot_renew_takes_no_new_work_until_it_can_and_says_so(
    store_url, caplog
):
    rig = Rig(store_url)
    async with opened(rig.app), rig.app.node(**SHORT) as node:
        running = await rig.note.enqueue(-1)
        await until(lambda: rig.ran == [-1])
        rig.store.fails = True
        await rig.heard.until(LeaseDoubtful)
        grabs, duties = rig.store.calls["grab"], rig.store.calls["submit_due"]
        waiting = await rig.note.enqueue(1)
        delayed = await rig.note.options(delay=0.05).enqueue(2)
        rig.gate.set()
        await running.result(timeout=5)  # what runs goes on, and is recorded
        await asyncio.sleep(3 * QUICK.idle_wait_s)

        assert (rig.store.calls["grab"], rig.ran) == (grabs, [-1])
        assert rig.store.calls["submit_due"] <= duties + 1
        assert len(rig.heard.all(LeaseDoubtful)) == 1
        rig.store.fails = False
        await rig.heard.until(LeaseRegained)
        for handle in (waiting, delayed):
            await handle.result(timeout=5)
        assert sorted(rig.ran) == [-1, 1, 2]
        assert len(rig.heard.all(TaskGrabbed)) == 3
        await node.drained(5)
    warned = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert [text for text in warned if "cannot renew its lease" in text]


async def test_a_renewal_that_fails_once_is_no_loss(store_url):
    rig = Rig(store_url)
    async with opened(rig.app), rig.app.node(lease_s=5.0, tick_s=0.1, limits=QUICK):
        renewed = len(rig.heard.all(LeaseRenewed))
        rig.store.fails = True
        await asyncio.sleep(0.5)
        await (await rig.note.enqueue(1)).result(timeout=5)
        rig.store.fails = False
        await rig.heard.until(LeaseRenewed, count=renewed + 2)

        assert not rig.heard.all(LeaseDoubtful)
        assert all(0 < event.margin_s < 5.0 for event in rig.heard.all(LeaseRenewed))


async def test_a_node_that_was_cut_off_is_refused_and_says_of_which_task(store_url, caplog):
    """Its attempt ends after another node has resumed and run the task."""
    gate = asyncio.Event()
    ran: list[str] = []

    def register(app: Holdfast, name: str) -> dict[str, Any]:
        @app.task
        async def stubborn() -> str:
            ran.append(name)
            while name == "a" and not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    continue
            return name

        return {"stubborn": stubborn}

    async with Fleet(store_url, register, **SHORT) as fleet:
        first = await fleet.join()
        handle = await first.tasks["stubborn"].enqueue()
        await until(lambda: ran == ["a"])
        second = await fleet.join()
        first.cut_off()
        ended = await second.heard.until(LeaseEnded)
        await until(lambda: ran == ["a", "b"])
        first.back()
        await first.heard.until(LeaseRegained)
        gate.set()
        refused = await first.heard.until(SettleRefused)

        assert ended.node == first.node.id
        assert (refused.task, refused.kind) == (handle.id, "stubborn")
        assert await handle.result(timeout=5) == "b"
        task = await handle.task()
        assert (task.state, task.deliveries) == (State.DONE, 2)
    text = f"task {handle.id} (stubborn): superseded, its outcome was refused"
    assert [one.levelno for one in caplog.records if one.getMessage() == text] == [logging.WARNING]


async def test_an_attempt_that_is_taken_back_names_its_task(store_url):
    rig = Rig(store_url)
    async with opened(rig.app), rig.app.node(**SHORT):
        handle = await rig.note.enqueue(-1)
        await until(lambda: rig.ran == [-1])
        await handle.cancel()

        taken = await rig.heard.until(AttemptTakenBack)

        assert (taken.task, taken.kind) == (handle.id, "note")


async def test_a_node_tells_of_itself_with_its_lease(store_url):
    rig = Rig(store_url)
    async with opened(rig.app), rig.app.node(**SHORT, slots_async=7):
        await rig.note.enqueue(-1)
        store = await rig.app.store()

        async def facts() -> dict[str, Any]:
            return dict((await store.members())[0].facts)

        async with asyncio.timeout(5):
            while (found := await facts()).get("running") != 1:
                await asyncio.sleep(0.05)
        rig.gate.set()

    assert set(found) == {
        "host", "pid", "version", "python", "slots", "renewer", "rss_mb", "lag_s", "running",
        "stuck", "pace", "taken", "modes",
    }  # fmt: skip
    assert (found["slots"]["async"], found["taken"]["async"], found["modes"]) == (7, 1, {})
    assert found["renewer"] is None
    assert found["rss_mb"] > 10


async def test_a_node_tells_what_ended_since_the_renewal_before(store_url):
    rig = Rig(store_url)
    async with opened(rig.app), rig.app.node(**SHORT):
        store = await rig.app.store()
        await rig.note.enqueue_many([(number,) for number in range(20)])
        told: dict[float, dict[str, Any]] = {}  # each renewal once
        async with asyncio.timeout(10):
            while (
                sum(pace["kinds"].get("note", {}).get("attempts", 0) for pace in told.values()) < 20
            ):
                await asyncio.sleep(0.02)
                pace = (await store.members())[0].facts["pace"]
                told[pace["over_s"]] = pace

    assert sum(pace["out"].get("default", 0) for pace in told.values()) == 20
    assert all(0 < pace["kinds"]["note"]["max_s"] < 5 for pace in told.values() if pace["kinds"])


@pytest.mark.parametrize("renewer", ["process", "loop"])
async def test_a_loop_that_stands_still_keeps_its_lease_only_with_a_renewer(store_url, renewer):
    """Everything is in this process, but for the renewer: nothing else can run meanwhile."""
    rig = Rig(store_url)
    async with opened(rig.app), rig.app.node(**SHORT, renewer=renewer):
        store = await rig.app.store()
        await rig.heard.until(LeaseRenewed, count=6)  # the process is up, if there is one
        time.sleep(2.5)  # noqa: ASYNC251

        (member,) = await store.members()

        assert member.is_alive == (renewer == "process")
        await (await rig.note.enqueue(1)).result(timeout=5)
        assert bool(rig.heard.all(LeaseDoubtful)) == (renewer == "loop")


@pytest.mark.store("sqlite")
async def test_a_store_in_memory_needs_no_process_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rig = Rig("sqlite:///:memory:")
    async with opened(rig.app), rig.app.node(**SHORT, renewer="process"):
        await (await rig.note.enqueue(1)).result(timeout=5)
        await rig.heard.until(LeaseRenewed, count=3)

        (member,) = await (await rig.app.store()).members()

        assert member.facts["renewer"] is None
    assert list(tmp_path.iterdir()) == []


async def test_the_end_of_a_lease_is_seen_when_it_comes_and_not_a_tick_later(store_url):
    """Tasks of a node that vanished wait for the rest of its lease, and hardly longer."""
    rig = Rig(store_url)
    async with opened(rig.app), rig.app.node(lease_s=9.0, tick_s=3.0) as node:
        await rig.heard.until(LeaseRenewed)
        store = await rig.app.store()
        loop = asyncio.get_running_loop()
        await store.renew(NodeId("gone"), lease_s=3.7, queues=[], kinds=[])
        ends_at = loop.time() + 3.7

        ended = await rig.heard.until(LeaseEnded, timeout_s=10)

        assert ended.node == "gone" and node.id != "gone"
        assert 0 <= loop.time() - ends_at < 1.0


async def test_a_request_of_a_node_that_is_already_forgotten_is_made_good(store_url):
    """Its machine died, its last grab was still under way, and is carried out after its funeral."""
    rig, gone = Rig(store_url), NodeId("gone")
    async with opened(rig.app), rig.app.node(**SHORT):
        store = await rig.app.store()
        await store.renew(gone, lease_s=0.5, queues=[], kinds=[])
        await rig.heard.until(LeaseEnded)
        async with asyncio.timeout(5):
            while len(await store.members()) > 1:
                await asyncio.sleep(0.05)

        (late,) = await grabbed(store, node=gone)

        resumed = await rig.heard.until(TaskResumed, timeout_s=5)
        assert (resumed.task, resumed.version) == (late.id, late.version + 1)
