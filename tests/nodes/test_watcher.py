"""The watcher: incidents are raised once for the whole cluster, whoever is the watcher."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Holdfast, ParkInError, State
from holdfast.clock import SystemClock
from holdfast.duties.watcher import LOG, Trouble, Watcher, troubles
from holdfast.ids import NodeId
from holdfast.store import Change
from holdfast.task import Event
from holdfast.telemetry.events import Events, IncidentRaised, QueueSurvey, Surveyed
from holdfast.testing.apps import opened
from holdfast.testing.contracts.builders import a_task, enqueued, grabbed
from holdfast.testing.recorder import Recorder
from nodes.fleet import Fleet

QUICK = {"tick_s": 0.1, "spacing": 1, "lease_s": 3.0, "watch_every_s": 0.1}


def failing(app: Holdfast, name: str):
    @app.task(name="fail")
    async def fail() -> None:
        raise ParkInError("a person must look")

    return {"fail": fail}


async def until(is_so, timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not is_so():
            await asyncio.sleep(0.01)


@pytest.mark.req("TASK-71")
async def test_tasks_in_error_raise_an_incident_once_for_the_cluster_though_the_watcher_moves(
    store_url,
):
    async with Fleet(store_url, failing, **QUICK) as fleet:
        for _ in range(3):
            await fleet.join()

        def raised() -> list[IncidentRaised]:
            return [event for peer in fleet.peers for event in peer.heard.all(IncidentRaised)]

        handles = [await fleet.peers[0].tasks["fail"].enqueue() for _ in range(3)]
        async with asyncio.timeout(20):
            for handle in handles:
                while (await handle.task()).state is not State.ERROR:
                    await asyncio.sleep(0.02)
        await until(lambda: any(event.count == 3 for event in raised()))
        told = len(raised())
        assert all(event.kind == "error" for event in raised())
        assert (
            max(raised(), key=lambda event: event.count).what
            == "3 tasks of queue 'default' in ERROR: holdfast error list"
        )

        watcher = next(peer for peer in fleet.peers if "watcher" in peer.node.duties)
        heard = list(watcher.heard.all(IncidentRaised))
        await fleet.leave(watcher)
        await until(lambda: any("watcher" in peer.node.duties for peer in fleet.peers))
        others = [peer for peer in fleet.peers if "watcher" in peer.node.duties]
        before = len(others[0].heard.all(Surveyed))
        await until(lambda: len(others[0].heard.all(Surveyed)) >= before + 3)

        assert len(heard) + len(raised()) == told, "the next watcher knows what was told"
        records = await fleet.peers[0].store.real.ring_records(LOG, after=0, limit=100)
        assert [record.number for record in records] == list(range(1, len(records) + 1))


async def test_what_gets_worse_is_told_again_and_what_ended_may_come_back(store_url):
    app = Holdfast(store_url)
    async with opened(app):
        store = await app.store()
        events = Events()
        watcher = Watcher(
            store, NodeId("a"), served=lambda: ["contract"], clock=SystemClock(), events=events
        )
        with Recorder(events) as heard:

            async def looked() -> list[int]:
                before = len(heard.all(IncidentRaised))
                await watcher.run_once()
                return [event.count for event in heard.all(IncidentRaised)[before:]]

            assert await looked() == []
            tasks = await grabbed(store, a_task(), a_task(), a_task())
            await store.park({tasks[0].id: tasks[0].version}, "broken")
            assert await looked() == [1]
            assert await looked() == []
            await store.park({t.id: t.version for t in tasks[1:]}, "broken")
            assert await looked() == [3]
            await store.change([Change(task.id, Event.GIVEN_UP) for task in tasks])
            assert await looked() == []
            (again,) = await grabbed(store, a_task())
            await store.park({again.id: again.version}, "broken")
            assert await looked() == [1]


async def test_tasks_that_nobody_serves_or_that_are_stuck_are_told_after_their_time(store_url):
    app = Holdfast(store_url)
    async with opened(app):
        store = await app.store()
        events = Events()

        def watcher(wait_s: float) -> Watcher:
            return Watcher(
                store,
                NodeId("a"),
                served=list,
                clock=SystemClock(),
                events=events,
                unserved_s=wait_s,
                stuck_s=wait_s,
            )

        await enqueued(store, a_task())
        await grabbed(store, a_task(kind="slow"), deadlines_s={"slow": 0.001})
        await asyncio.sleep(0.02)
        with Recorder(events) as heard:
            await watcher(60.0).run_once()
            assert heard.all(IncidentRaised) == []
            await watcher(0.0).run_once()

            kinds = {event.kind: event.what for event in heard.all(IncidentRaised)}
        assert kinds == {
            "unserved": "1 task of queue 'contract' waiting, but no live node serves it",
            "stuck": "1 task of queue 'contract' past the deadline: holdfast task list --stuck",
        }


async def test_a_hook_hears_of_incidents_and_nothing_else(store_url):
    app = Holdfast(store_url)
    heard: list[IncidentRaised] = []
    stop = app.on_incident(heard.append)

    app.events.emit(IncidentRaised("error", "one", 1))
    app.events.emit(Surveyed("a", (), (), None, None))
    stop()
    app.events.emit(IncidentRaised("error", "two", 2))

    assert [event.what for event in heard] == ["one"]


def test_troubles_are_errors_stuck_and_unserved_tasks():
    surveys = [
        QueueSurvey("a", 0, 5, 0, 2, 1.0, 1),
        QueueSurvey("b", 9, 0, 3, 0, 0.0, 0),
        QueueSurvey("c", 0, 7, 0, 0, 9.0, 0),
    ]

    assert troubles(surveys, ["a", "b"]) == [
        Trouble("error", "a", 2),
        Trouble("stuck", "a", 1),
        Trouble("unserved", "c", 7),
    ]
