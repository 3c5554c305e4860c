"""The watch: triggers wait for their tasks to be committed, never for ever, and never twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from itertools import pairwise

import pytest

from conditions import until
from holdfast.callers.watch import Phase, Watch, has_ended
from holdfast.task import Task, TaskId, Trigger
from holdfast.telemetry.events import Events, StoreFailed, TriggersDropped
from holdfast.testing.build import a_task, a_trigger
from holdfast.testing.recorder import Recorder


class World:
    """A store of ids, and what was sent."""

    def __init__(self, **options: object) -> None:
        self.tasks: dict[TaskId, Task] = {}
        self.sent: list[Trigger] = []
        self.looks = 0
        self.looked_at: list[float] = []
        self.is_down = False
        self.takes_s = 0.0
        self.looking = 0
        self.events = Events()
        self.watch = Watch(
            self._get,
            self.sent.extend,
            loop=asyncio.get_running_loop(),
            events=self.events,
            **options,
        )

    def commit(self, *ids: int, **fields: object) -> None:
        self.tasks |= {TaskId(id): a_task(id, **fields) for id in ids}

    async def _get(self, ids: Sequence[TaskId]) -> dict[TaskId, Task]:
        self.looks += 1
        self.looked_at.append(asyncio.get_running_loop().time())
        if self.is_down:
            raise OSError("no route to host")
        self.looking += 1
        await asyncio.sleep(self.takes_s)
        self.looking -= 1
        return {id: self.tasks[id] for id in ids if id in self.tasks}


async def test_triggers_are_sent_once_their_tasks_are_visible() -> None:
    world = World()
    world.watch.add([a_trigger(1), a_trigger(2)])
    await until(lambda: world.looks >= 2)
    assert world.sent == []

    world.commit(1, 2)

    await until(lambda: len(world.sent) == 2)
    assert world.sent == [a_trigger(1), a_trigger(2)]
    await world.watch.close()


async def test_the_waits_between_looks_double_from_two_milliseconds() -> None:
    world = World()
    added_at = asyncio.get_running_loop().time()
    world.watch.add([a_trigger(1)])

    await until(lambda: world.looks == 6)

    times = [added_at, *world.looked_at]
    waits = [later - earlier for earlier, later in pairwise(times)]
    for wait, expected in zip(waits, [0.002, 0.004, 0.008, 0.016, 0.032, 0.064], strict=True):
        assert wait >= expected * 0.9
    await world.watch.close()


async def test_what_does_not_commit_within_a_minute_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    monkeypatch.setattr("holdfast.callers.watch.FORGET_S", 0.05)

    held = world.watch.add([a_trigger(1)])

    await until(lambda: held.is_taken)
    world.commit(1)
    assert world.sent == []
    await world.watch.close()


async def test_only_the_tasks_that_were_kept_are_sent() -> None:
    world = World()
    world.commit(1, 3)

    world.watch.add([a_trigger(1), a_trigger(2), a_trigger(3)], probe=has_ended)

    await until(lambda: bool(world.sent))
    assert [trigger.id for trigger in world.sent] == [1, 3]
    await world.watch.close()


async def test_a_transaction_that_has_ended_without_its_tasks_is_forgotten_at_once() -> None:
    world = World()

    held = world.watch.add([a_trigger(1)], probe=has_ended)

    await until(lambda: held.is_taken)
    assert world.looks == 1 and world.sent == []
    await world.watch.close()


async def test_while_the_driver_says_open_the_store_is_not_asked() -> None:
    world = World()
    phase = Phase.OPEN
    probes = 0

    def probe() -> Phase:
        nonlocal probes
        probes += 1
        return phase

    world.watch.add([a_trigger(1)], probe=probe)
    await until(lambda: probes > 10)
    assert world.looks == 0

    world.commit(1)
    phase = Phase.ENDED

    await until(lambda: len(world.sent) == 1)
    assert world.looks == 1
    await world.watch.close()


async def test_while_the_file_does_not_change_the_store_is_not_asked() -> None:
    version, asked = 1, 0

    def data_version() -> int:
        nonlocal asked
        asked += 1
        return version

    world = World(data_version=data_version)
    world.watch.add([a_trigger(1)])
    await until(lambda: asked > 10)
    assert world.looks == 0

    world.commit(1)
    version = 2

    await until(lambda: len(world.sent) == 1)
    assert world.looks == 1
    await world.watch.close()


async def test_an_id_that_was_given_again_belongs_to_the_younger_task() -> None:
    world = World()
    world.watch.add([a_trigger(1, kind="mail", priority=9)])
    world.watch.add([a_trigger(1, kind="mail", priority=1)])

    world.commit(1)

    await until(lambda: bool(world.sent))
    assert world.sent == [a_trigger(1, kind="mail", priority=1)]
    await world.watch.close()


async def test_a_task_of_another_kind_under_the_same_id_is_somebody_elses() -> None:
    world = World()
    world.commit(1, kind="theirs")

    held = world.watch.add([a_trigger(1, kind="ours")], probe=has_ended)

    await until(lambda: held.is_taken)
    assert world.sent == []
    await world.watch.close()


async def test_a_store_that_fails_is_asked_again() -> None:
    world = World()
    world.commit(1)
    world.is_down = True
    with Recorder(world.events) as heard:
        world.watch.add([a_trigger(1)], probe=has_ended)
        await heard.until(StoreFailed)

        world.is_down = False

        await until(lambda: len(world.sent) == 1)
    await world.watch.close()


async def test_threads_without_a_loop_add_and_whoever_takes_first_sends() -> None:
    world = World()
    world.commit(*range(20))
    taken: list[Trigger] = []

    def add() -> None:
        for id in range(20):
            held = world.watch.add([a_trigger(id)], probe=has_ended)
            if id % 2:
                taken.extend(held.take())

    thread = threading.Thread(target=add)
    thread.start()
    await until(lambda: not thread.is_alive())

    await until(lambda: len(world.sent) + len(taken) == 20)
    assert sorted(trigger.id for trigger in world.sent + taken) == list(range(20))
    await world.watch.close()


@pytest.mark.req("TASK-10")
async def test_more_held_triggers_than_the_limit_are_dropped_with_a_warning() -> None:
    world = World(unsent_max=3)
    with Recorder(world.events) as heard:
        world.watch.add([a_trigger(1), a_trigger(2)])
        dropped = world.watch.add([a_trigger(3), a_trigger(4)])

        assert heard.all(TriggersDropped) == [TriggersDropped(2)]
    assert dropped.is_taken
    await world.watch.close()


async def test_closing_looks_once_more_and_forgets_the_rest() -> None:
    world = World()
    world.watch.add([a_trigger(1)], wait_s=60)
    world.watch.add([a_trigger(2)], wait_s=60)
    world.commit(2)

    await world.watch.close()
    late = world.watch.add([a_trigger(2)])

    assert [trigger.id for trigger in world.sent] == [2]
    assert late.is_taken


async def test_no_look_is_under_way_after_the_end() -> None:
    """Its store is closed next, and would wait for it."""
    world = World()
    world.takes_s = 0.02  # longer than the wait for the next look
    world.watch.add([a_trigger(1)])
    await until(lambda: world.looking == 1)

    await world.watch.close()

    assert world.looking == 0
    await asyncio.sleep(0.05)
    assert world.looks == 2  # the one that was under way, and the last
