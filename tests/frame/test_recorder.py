from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.telemetry.events import Events, NodeStarted, NodeStopped, TaskEnqueued
from holdfast.testing.recorder import Recorder


async def test_a_recorder_waits_for_the_event_that_fits():
    events = Events()
    heard = Recorder(events)
    asyncio.get_running_loop().call_soon(events.emit, TaskEnqueued(1, "mail", "send"))
    asyncio.get_running_loop().call_soon(events.emit, TaskEnqueued(2, "mail", "send"))

    event = await heard.until(TaskEnqueued, where=lambda event: event.task == 2)

    assert event == TaskEnqueued(2, "mail", "send")


async def test_a_recorder_answers_at_once_when_it_has_heard_the_event_before():
    events = Events()
    heard = Recorder(events)
    events.emit(NodeStopped("a"))

    assert await heard.until(NodeStopped, timeout_s=0.5) == NodeStopped("a")


async def test_a_recorder_hears_events_of_other_threads():
    events = Events()
    heard = Recorder(events)
    threads = [
        threading.Thread(
            target=lambda: [events.emit(TaskEnqueued(n, "q", "k")) for n in range(500)]
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()

    await heard.until(TaskEnqueued, count=2_000)

    assert len(heard.all(TaskEnqueued)) == 2_000
    for thread in threads:
        thread.join()


async def test_a_recorder_that_waits_in_vain_tells_what_it_heard_instead():
    events = Events()
    heard = Recorder(events)
    events.emit(NodeStarted("a", ("mail",)))

    with pytest.raises(TimeoutError, match=r"no NodeStopped within 0.01 s[^$]*NodeStarted"):
        await heard.until(NodeStopped, timeout_s=0.01)


def test_a_closed_recorder_costs_nothing_more():
    events = Events()
    with Recorder(events):
        assert events.wanted

    assert not events.wanted
