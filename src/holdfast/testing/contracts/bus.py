"""What every bus has to prove.  Subclass it and give a `bus` that is open and has no listener."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast.bus import Bus
from holdfast.task import Trigger
from holdfast.testing.build import a_trigger

WAIT_S = 10.0


class Heard:
    """A listener that remembers; it has use for the triggers of `partitions`, or of all."""

    def __init__(self, partitions: Sequence[int] | None = None) -> None:
        self.triggers: list[Trigger] = []
        self.rings: list[str] = []
        self.threads: set[int] = set()
        self._partitions = partitions
        self._news = asyncio.Event()

    def __call__(self, queue: str, triggers: Sequence[Trigger]) -> Sequence[Trigger]:
        self.threads.add(threading.get_ident())
        if not triggers:
            self.rings.append(queue)
        mine = [one for one in triggers if self._wants(one)]
        self.triggers += mine
        self._news.set()
        return [one for one in triggers if not self._wants(one)]

    @property
    def ids(self) -> list[int]:
        return sorted(trigger.id for trigger in self.triggers)

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until what was heard makes this true; a TimeoutError after ten seconds."""
        async with asyncio.timeout(WAIT_S):
            while not is_true():
                self._news.clear()
                await self._news.wait()

    def _wants(self, trigger: Trigger) -> bool:
        return self._partitions is None or trigger.partition in self._partitions


class BusContract:
    @pytest.fixture
    async def bus(self) -> Any:
        raise NotImplementedError("give an open bus")

    async def test_a_published_trigger_reaches_the_listener_of_its_queue(self, bus: Bus) -> None:
        heard = Heard()
        await bus.subscribe(["default"], heard)

        bus.publish([a_trigger(7, fairness_key="acme", weight=2.0, ordering_key="order-1")])

        await heard.until(lambda: bool(heard.triggers))
        assert heard.triggers == [
            a_trigger(7, fairness_key="acme", weight=2.0, ordering_key="order-1")
        ]
        await bus.unsubscribe(heard)

    @pytest.mark.req("TASK-23")
    async def test_a_trigger_of_queue_a_is_never_seen_by_a_listener_of_queue_b(
        self, bus: Bus
    ) -> None:
        of_a, of_b = Heard(), Heard()
        await bus.subscribe(["a"], of_a)
        await bus.subscribe(["b"], of_b)

        bus.publish([a_trigger(1, queue="a"), a_trigger(2, queue="b"), a_trigger(3, queue="a")])
        bus.publish([a_trigger(4, queue="c")])

        await of_a.until(lambda: of_a.ids == [1, 3])
        await of_b.until(lambda: of_b.ids == [2])
        assert {one.queue for one in of_a.triggers} == {"a"} and "b" not in of_a.rings
        assert {one.queue for one in of_b.triggers} == {"b"} and "a" not in of_b.rings
        await bus.unsubscribe(of_a)
        await bus.unsubscribe(of_b)

    async def test_whoever_unsubscribed_hears_nothing_more(self, bus: Bus) -> None:
        gone, stays = Heard(), Heard()
        await bus.subscribe(["default"], gone)
        await bus.subscribe(["default"], stays)
        await bus.unsubscribe(gone)
        await bus.unsubscribe(gone)
        rings = len(gone.rings)

        bus.publish([a_trigger(1)])

        await stays.until(lambda: stays.ids == [1])
        assert not gone.triggers and len(gone.rings) == rings
        await bus.unsubscribe(stays)

    async def test_what_one_listener_does_not_own_is_offered_to_the_next(self, bus: Bus) -> None:
        low, high = Heard(partitions=[0]), Heard(partitions=[1])
        await bus.subscribe(["default"], low)
        await bus.subscribe(["default"], high)

        bus.publish([a_trigger(id, partition=id % 2) for id in range(10)])

        await high.until(lambda: high.ids == [1, 3, 5, 7, 9])
        assert low.ids == [0, 2, 4, 6, 8]
        await bus.unsubscribe(low)
        await bus.unsubscribe(high)

    async def test_other_threads_publish_and_the_listener_hears_on_its_own_loop(
        self, bus: Bus
    ) -> None:
        heard = Heard()
        await bus.subscribe(["default"], heard)

        def publish(first: int) -> None:
            for id in range(first, first + 50):
                bus.publish([a_trigger(id)])

        await asyncio.gather(*(asyncio.to_thread(publish, n * 50) for n in range(4)))

        await heard.until(lambda: heard.ids == list(range(200)))
        assert heard.threads == {threading.get_ident()}
        await bus.unsubscribe(heard)

    async def test_publishing_for_nobody_neither_waits_nor_raises(self, bus: Bus) -> None:
        bus.publish([])
        bus.publish([a_trigger(1)])

    async def test_a_listener_that_fails_does_not_fail_whoever_publishes(self, bus: Bus) -> None:
        def fails(queue: str, triggers: Sequence[Trigger]) -> Sequence[Trigger]:
            raise LookupError("no such partition")

        await bus.subscribe(["default"], fails)

        bus.publish([a_trigger(1)])

        await bus.unsubscribe(fails)
