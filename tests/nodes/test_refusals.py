"""No room, or not yet: who is told, what is kept, and when those refused are asked again."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

import pytest

from conditions import until
from holdfast import State
from holdfast.booking import Full
from holdfast.bus import Bus, Hear
from holdfast.dispatch.limits import Limits
from holdfast.store import Arrivals, Cursor, Record, Store
from holdfast.task import TaskId, Trigger
from holdfast.telemetry.events import TriggersTurnedAway
from holdfast.testing.apps import fresh, opened
from nodes.owner import QUEUE, enqueued

NEVER_S = 60.0  # longer than any test: nothing is found by looking now and then
APPEND_MAX = 20
PENDING = {"append_max": APPEND_MAX, "idle_wait_s": NEVER_S, "exact_s": NEVER_S}

# ── no room ───────────────────────────────────────────────────────────────────────────────────


class HeldUp:
    """The real store, whose `record` waits; it notes what was written to a backlog."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.may_record = asyncio.Event()
        self.written: set[TaskId] = set()
        self.looks = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def arrivals(self, queue: str, cursors: Sequence[Cursor], **named) -> Arrivals:
        found = await self._store.arrivals(queue, cursors, **named)
        self.looks += not named["exact"]
        return found

    async def record(self, queue: str, records: Sequence[Record]) -> set[int]:
        if any(record.entries for record in records):
            await self.may_record.wait()
        refused = await self._store.record(queue, records)
        self.written |= {entry.trigger.id for record in records for entry in record.entries}
        return refused


class Sender:
    """The real bus without its doorbell; it notes what senders learn while they publish."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._around: dict[Hear, Hear] = {}
        self.told: list[TriggersTurnedAway] = []
        self.is_publishing = False

    def __getattr__(self, name):
        return getattr(self._bus, name)

    def publish(self, triggers: Sequence[Trigger]) -> None:
        self.is_publishing = True
        self._bus.publish(triggers)
        self.is_publishing = False

    def hear(self, event: object) -> None:
        if self.is_publishing and isinstance(event, TriggersTurnedAway):
            self.told.append(event)

    async def subscribe(self, queues: Collection[str], hear: Hear) -> None:
        self._around[hear] = lambda queue, some: hear(queue, some) if some else ()
        await self._bus.subscribe(queues, self._around[hear])

    async def unsubscribe(self, hear: Hear) -> None:
        await self._bus.unsubscribe(self._around.pop(hear, hear))


class FirstPartition:
    def partition(self, *, partitions: int, number: int, ordering_key: str | None) -> int:
        return 0


def kept(made: list, wrap: type):
    """`wrap_store=` or `wrap_bus=` of an app, for a test that looks at what was wrapped."""

    def keep(real):
        made.append(wrap(real))
        return made[-1]

    return keep


@pytest.mark.req("FAIR-71")
async def test_a_sender_is_told_at_once_of_too_many_pending_writes_and_no_task_is_lost(store_url):
    """The error has reached the sender before `publish` returns, and the enqueue has succeeded."""
    stores: list[HeldUp] = []
    buses: list[Sender] = []
    app = fresh(store_url, wrap_store=kept(stores, HeldUp), wrap_bus=kept(buses, Sender))
    may_end = asyncio.Event()
    started: list[int] = []

    @app.task(sharding=FirstPartition())
    async def note(number: int) -> None:
        started.append(number)
        await may_end.wait()

    limits = Limits(look_ahead=640, **PENDING)
    async with opened(app), app.node(limits=limits, slots_async=2, drain_s=0.1) as node:
        (store,), (bus,) = stores, buses
        app.events.listen(bus.hear)
        await until(lambda: store.looks > 0)  # from now on only triggers say what there is
        for first in range(0, 500, 250):
            await note.enqueue_many([(number,) for number in range(first, first + 250)])
        await until(lambda: len(started) == 2)

        refused = sum(event.count for event in bus.told)
        assert {event.queue for event in bus.told} == {"default"}
        assert {event.reason for event in bus.told} == {"too many writes are pending"}
        assert 500 - 640 // 4 - 3 * APPEND_MAX <= refused <= 500 - 2 * APPEND_MAX
        assert node.looked_ahead <= 640 // 4 and not store.written
        counts = await store.counts()
        assert (counts[State.PROCESSING], counts[State.SUBMITTED]) == (2, 498)

        store.may_record.set()
        await until(lambda: len(store.written) >= refused)  # although no slot is freed
        assert len(started) == 2
        may_end.set()
        await node.drained(20)
        assert (await store.counts())[State.DONE] == 500
    assert sorted(started) == list(range(500))


@pytest.mark.req("FAIR-71")
async def test_refused_triggers_take_no_memory_and_block_nobody(store, owner_of):
    """However many are refused while a write hangs, memory holds what it may and no more."""
    owner = owner_of("owner", slots=0, look_ahead=80, **PENDING)
    await owner.take([0])
    await until(lambda: not owner.dispatcher.intake.partitions[0].is_dirty)
    owner.store.may_record.clear()
    ids = await enqueued(store, 600)
    intake, refused = owner.dispatcher.intake, []
    loop, turns = asyncio.get_running_loop(), []

    for first in range(0, 600, 50):
        triggers = [Trigger(id, 1, QUEUE, 0, "email", 5) for id in ids[first : first + 50]]
        loop.call_soon(turns.append, first)
        refused += owner.dispatcher.hear(triggers)
        assert len(turns) == first // 50, "the sender waited for nothing, not for one turn"
        assert len(intake.partitions[0].unwritten) <= APPEND_MAX
        assert len(intake.known) <= len(intake.table) <= 80
        await until(lambda first=first: len(turns) == first // 50 + 1)

    events = owner.heard.all(TriggersTurnedAway)
    assert sum(event.count for event in events) == len(refused) >= 600 - 80 - 2 * APPEND_MAX
    found = await store.get([trigger.id for trigger in refused])
    assert {task.state for task in found.values()} == {State.SUBMITTED}
    assert len(found) == len(refused)

    owner.store.may_record.set()
    owner.open_up()
    await until(lambda: len(owner.settled) == 600)
    assert sorted(owner.ids) == sorted(ids)


# ── not yet ───────────────────────────────────────────────────────────────────────────────────

LATE_S = 0.2


class Refusing:
    """No slot for a kind until it is opened; names a time, or none.  Notes who was asked when."""

    def __init__(self, kind: str, wait_s: float | None, *, key_only: bool) -> None:
        self._kind = kind
        self._wait_s = wait_s
        self._key_only = key_only
        self.is_open = False
        self.asked: dict[str | None, list[datetime]] = defaultdict(list)

    def book(self, trigger: Trigger, *, now: datetime) -> Full | None:
        if self.is_open or trigger.kind != self._kind:
            return None
        self.asked[trigger.fairness_key if self._key_only else None].append(now)
        wait_s = self._wait_s
        return Full(None if wait_s is None else now + timedelta(seconds=wait_s), self._key_only)

    def free(self, trigger: Trigger) -> None: ...

    @property
    def least(self) -> int:
        """How often each of those that wait was asked."""
        return min((len(times) for times in self.asked.values()), default=0)


@pytest.mark.req("TASK-58")
@pytest.mark.parametrize("keys", [0, 50, 1_000], ids=["kind", "few keys", "many keys"])
@pytest.mark.parametrize(
    ("wait_s", "idle_wait_s"), [(0.5, NEVER_S), (None, 0.5)], ids=["a time", "no time"]
)
async def test_who_is_refused_is_asked_again_in_time_and_once(store_url, wait_s, idle_wait_s, keys):
    """A thousand tasks wait.  Slots are freed at first, then nobody frees one."""
    app = fresh(store_url)
    ran: Counter[str] = Counter()

    @app.task
    async def wait(key: str) -> None:
        ran[key] += 1

    @app.task
    async def pass_by() -> None:
        ran["by"] += 1

    policy = Refusing("wait", wait_s, key_only=keys > 0)
    # The node's second look comes with its beat: here it never comes.
    settings = {
        "tick_s": NEVER_S,
        "lease_s": 4 * NEVER_S,
        "limits": Limits(idle_wait_s=idle_wait_s),
    }
    async with opened(app), app.node(booking=policy, **settings) as node:
        names = [f"k{number % max(keys, 1)}" for number in range(1_000)]
        await asyncio.gather(*(wait.options(fairness_key=name).enqueue(name) for name in names))
        for number in range(40):
            await pass_by.enqueue()
            await until(lambda number=number: ran["by"] > number)
        await until(lambda: node.in_flight == 0 and len(policy.asked) == max(keys, 1))
        policy.asked.clear()
        await until(lambda: len(policy.asked) == max(keys, 1) and policy.least >= 4)
        policy.is_open = True
        await node.drained(10)

    for key, times in policy.asked.items():
        waits_s = [(after - before).total_seconds() for before, after in pairwise(times)]
        assert len(times) <= 5, (key, len(times))
        assert median(waits_s) <= 0.5 + LATE_S, (key, waits_s)
        assert wait_s is None or min(waits_s) >= wait_s, (key, waits_s)
    assert ran == Counter(names) + Counter(by=40)
