"""A paused key with a long backlog costs nothing, and is there when it may go on.

With HOLDFAST_LONG=1 it is a million tasks and the windows of a node as it is; else both are smaller
by about the same factor, so that the backlog is as many windows long.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import pytest

from conditions import until
from holdfast import Holdfast
from holdfast.bench.environment import rss_mb
from holdfast.dispatch.intake import Intake
from holdfast.dispatch.limits import Limits
from holdfast.node.node import Node
from holdfast.store import Column, Store
from holdfast.task import TaskId, Trigger
from holdfast.testing.apps import fresh, opened
from nodes.owner import enqueued

IS_LONG = bool(os.environ.get("HOLDFAST_LONG"))
WAITING = 1_000_000 if IS_LONG else 20_000
WATCHED_S = 5.0 if IS_LONG else 2.0
MOVED_S_MAX = 900.0 if IS_LONG else 20.0
OTHERS, KEYS = 10_000 if IS_LONG else 2_000, 4
ROUNDS = 7 if IS_LONG else 2
FIRST = 20_000  # of the paused key, whose order is looked at
GROWN_MB_MAX = 100.0
RATE_MIN = 0.8  # of the rate without the paused key
# Only the pace at which a backlog that helps nobody is moved is not the default in the long form.
LIMITS = (
    Limits(spill_s_max=0.1)
    if IS_LONG
    else Limits(look_ahead=1_900, window=100, reload_at=10, lane_window=8, spill_s_max=0.01)
)
EMAIL = Column(5, "email")
BOOKS = ("arrivals", "levels", "record", "grab")


class Traced:
    """A store that counts the rows that each verb of a queue's books reads and writes."""

    def __init__(
        self, store: Store, rows: Counter[tuple[str, str]], grabbed: list[Trigger]
    ) -> None:
        """`grabbed` are those of the paused key, as they were sent to be grabbed."""
        self._store = store
        self._rows = rows
        self._grabbed = grabbed

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name not in BOOKS:
            return real

        async def call(*args: Any, **named: Any) -> Any:
            if name == "grab":
                self._grabbed += [one for one in args[0] if one.fairness_key == "paused"]
            answer = await real(*args, **named)
            if name == "arrivals":
                self._rows[args[0], name] += len(answer.triggers)
            elif name == "levels":
                self._rows[args[0], name] += sum(map(len, answer))
            elif name == "record":
                for record in args[1]:
                    self._rows[args[0], "lanes"] += sum(bool(e.lane) for e in record.entries)
                    self._rows[args[0], "line"] += sum(not e.lane for e in record.entries)
                    self._rows[args[0], "marks"] += len(record.marks) + len(record.trims)
            else:
                self._rows.update((trigger.queue, name) for trigger in args[0])
            return answer

        return call


class Shop:
    """Two queues of one kind of work: in `busy` a key is paused, in `calm` none."""

    def __init__(self, url: str) -> None:
        self.rows: Counter[tuple[str, str]] = Counter()
        self.grabbed: list[Trigger] = []
        self.app: Holdfast = fresh(
            url, wrap_store=lambda store: Traced(store, self.rows, self.grabbed)
        )
        self.started: list[int] = []  # tasks of the paused key, by number
        self.served: Counter[str] = Counter()  # others, by queue
        self.most = 0  # triggers in memory, at any time that was looked at

        for queue in ("busy", "calm"):
            self._define(queue)

    def _define(self, queue: str) -> None:
        @self.app.task(name=f"work-{queue}", queue=queue)
        async def work(number: int | None) -> None:
            if number is None:
                self.served[queue] += 1
            else:
                self.started.append(number)

        setattr(self, queue, work)

    async def fill(self) -> None:
        await self.app.queue("busy").pause(key="paused")
        paused = self.busy.options(fairness_key="paused")
        for first in range(0, WAITING, 1_000):
            await paused.enqueue_many([(number,) for number in range(first, first + 1_000)])

    async def serve_others(self, queue: str) -> float:
        """Add tasks of other keys and wait until they have run; answers how many a second."""
        loop = asyncio.get_running_loop()
        work = getattr(self, queue)
        before, began_at = self.served[queue], loop.time()
        for key in range(KEYS):
            calls = [(None,)] * (OTHERS // KEYS)
            await work.options(fairness_key=f"other {key}").enqueue_many(calls)
        await until(lambda: self.served[queue] == before + OTHERS, 30.0)
        return OTHERS / (loop.time() - began_at)

    def of(self, queue: str) -> Counter[str]:
        """The rows of a queue's books until now, by verb."""
        return Counter({verb: n for (name, verb), n in self.rows.items() if name == queue})

    def is_moved(self, node: Node, intake: Intake) -> bool:
        """Whether the store holds the rest in lanes alone; looks at memory meanwhile."""
        self.most = max(self.most, held_by(node, intake))
        was_read = self.rows["busy", "line"] >= WAITING
        lines = [column for p in intake.partitions.values() for column in p.columns.values()]
        return was_read and all(line.at_end for line in lines)


def held_by(node: Node, intake: Intake) -> int:
    """Triggers that are in the node's memory, wherever they are kept."""
    partitions = intake.partitions.values()
    return max(
        node.looked_ahead,
        len(intake.known),
        len(intake.places),
        sum(len(p.remembered) + len(p.unwritten) + len(p.spilling) for p in partitions),
    )


def first_of(triggers: Sequence[Trigger]) -> list[list[TaskId]]:
    """The first tasks by partition, in this order; what was put back counts once."""
    first = list({trigger.id: trigger for trigger in triggers}.values())[:FIRST]
    lines: dict[int, list[TaskId]] = {}
    for trigger in first:
        lines.setdefault(trigger.partition, []).append(trigger.id)
    return list(lines.values())


async def most_in(seconds: float, measure: Callable[[], float]) -> float:
    """The highest value within this time."""
    loop = asyncio.get_running_loop()
    most, ends_at = measure(), loop.time() + seconds
    while loop.time() < ends_at:
        await asyncio.sleep(0.05)
        most = max(most, measure())
    return most


@pytest.mark.whole
@pytest.mark.req("FAIR-77")
async def test_a_paused_key_with_a_million_tasks_holds_no_memory_and_is_not_read_again(store_url):
    shop = Shop(store_url)
    async with opened(shop.app):
        await shop.fill()
        written_mb = rss_mb()
        async with shop.app.node(limits=LIMITS) as node:
            intake = node._dispatchers["busy"].intake
            await until(lambda: shop.is_moved(node, intake), MOVED_S_MAX)
            partitions = len(intake.partitions)
            before = shop.of("busy")
            most = await most_in(WATCHED_S, lambda: held_by(node, intake))
            rows = shop.of("busy") - before
            grown_mb = rss_mb() - written_mb

    assert max(shop.most, most) <= LIMITS.look_ahead < WAITING / 10
    assert rows["lanes"] == rows["line"] == rows["grab"] == rows["arrivals"] == 0, rows
    assert rows["levels"] <= partitions * LIMITS.lane_window, (
        "a page of each lane is read once, not once a second"
    )
    assert rows["marks"] <= 2 * partitions * (1 + WATCHED_S / LIMITS.lane_trim_s)
    assert shop.of("busy")["line"] == WAITING >= shop.of("busy")["lanes"], "each is moved once"
    assert grown_mb < GROWN_MB_MAX
    assert not shop.started


@pytest.mark.whole
@pytest.mark.req("FAIR-77")
async def test_others_run_at_full_speed_beside_it_and_all_of_it_runs_in_order_when_it_may(
    store_url, request
):
    shop = Shop(store_url)
    rates: dict[str, list[float]] = {"busy": [], "calm": []}
    async with opened(shop.app):
        await shop.fill()
        async with shop.app.node(limits=LIMITS) as node:
            intake = node._dispatchers["busy"].intake
            await until(lambda: shop.is_moved(node, intake), MOVED_S_MAX)
            before = shop.of("busy"), shop.of("calm")
            for number in range(ROUNDS):
                for queue in list(rates)[:: -1 if number % 2 else 1]:  # in turn, each first
                    rates[queue].append(await shop.serve_others(queue))
            busy, calm = shop.of("busy") - before[0], shop.of("calm") - before[1]
            assert not shop.started

            await shop.app.queue("busy").resume(key="paused")
            await until(lambda: len(shop.started) >= min(WAITING, FIRST), 60.0)
            if not IS_LONG:
                await node.drained(20.0)

    ratio = median(b / c for b, c in zip(rates["busy"], rates["calm"], strict=True))
    request.node.user_properties.append(("ratio", round(ratio, 3)))
    assert busy["lanes"] <= LIMITS.look_ahead, "nothing is moved a second time"
    assert busy["line"] <= ROUNDS * OTHERS and busy["levels"] <= ROUNDS * OTHERS + LIMITS.look_ahead
    assert busy["arrivals"] <= 2 * ROUNDS * OTHERS, "once early, once exactly, as without the pause"
    assert busy["grab"] <= 1.1 * calm["grab"]
    if IS_LONG:
        assert ratio >= RATE_MIN, rates
    lines = first_of(shop.grabbed)
    assert sum(map(len, lines)) == FIRST
    assert all(line == sorted(line) for line in lines), "first come, first served"
    if not IS_LONG:
        assert sorted(shop.started) == list(range(WAITING)), "none is lost, none runs twice"


@pytest.mark.req("FAIR-77")
async def test_the_paused_tasks_of_one_kind_do_not_keep_another_kind_from_being_read(
    store, owner_of
):
    """Both kinds have only paused tasks at the front; to move the first would take long."""
    await enqueued(store, 1_500, fairness_key="paused")
    await enqueued(store, 200, fairness_key="paused", kind="sms")
    late = await enqueued(store, 20, fairness_key="rare", weight=0.001, kind="sms")
    owner = owner_of("one", window=40, reload_at=10, look_ahead=200, spill_s=0.2, spill_s_max=0.2)
    owner.release()
    owner.slots.refused = {"paused"}

    await owner.take([0])
    await until(lambda: len(owner.grabbed) == len(late))

    assert owner.ids == late
    assert not owner.dispatcher.intake.partitions[0].columns[EMAIL].at_end, "far from being moved"


@pytest.mark.req("FAIR-77")
async def test_a_node_whose_memory_holds_paused_tasks_alone_reads_on_to_the_others_without_rest(
    store, owner_of
):
    await enqueued(store, 3_000, fairness_key="paused")
    others = await enqueued(store, 20, fairness_key="busy")
    owner = owner_of("one", ingest_share=0.001, page=100, grab_batch=10, look_ahead=400)
    owner.release()
    owner.slots.refused = {"paused"}

    await owner.take([0])
    await until(lambda: len(owner.grabbed) == len(others))

    assert owner.ids == others
