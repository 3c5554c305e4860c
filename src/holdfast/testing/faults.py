"""Faults on purpose: a store and a bus that misbehave as the real ones do, by a seed.

`FaultyStore` wraps any store: a call may fail before it happens, fail *after* it happened (the
reply is lost), or be slow.  `FaultyBus` wraps any bus: triggers may be lost, doubled or late.
Both leave the truth alone, so a test can look at the real store underneath.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from random import Random
from typing import Any

from holdfast.bus import Bus, Hear
from holdfast.errors import StoreUnavailable
from holdfast.store import Store
from holdfast.task import Trigger

VERBS = frozenset(
    {
        "enqueue", "grab", "settle", "change", "get", "claim", "load", "arrivals", "record",
        "levels", "renew", "members", "leave", "holdings", "let_go", "wish", "submit_due",
        "resume_lost", "running_of", "moved_on", "park", "clean", "find", "counts",
        "count_levels", "submit_overdue", "overdue", "resume_overdue", "postpone", "end", "ask",
        "look", "duties", "keep_duties", "ring_latest", "ring_append", "ring_records",
        "ring_rotate",
        "schedules", "due_schedules", "put_schedule", "fire_schedule", "drop_schedule",
    }
)  # fmt: skip


class FaultyStore:
    """A store whose calls fail at the given rates; `calls` counts what reached it."""

    def __init__(
        self,
        store: Store,
        *,
        rng: Random,
        fail_before: float = 0.0,
        lose_reply: float = 0.0,
        slow: float = 0.0,
        slow_s: float = 0.02,
        verbs: Collection[str] = VERBS,
    ) -> None:
        self.real = store
        self.calls: Counter[str] = Counter()
        self.is_down = False
        self.rates = {"fail_before": fail_before, "lose_reply": lose_reply, "slow": slow}
        self._rng = rng
        self._slow_s = slow_s
        self._verbs = frozenset(verbs)

    def heal(self) -> None:
        """From now on every call goes through."""
        self.is_down = False
        self.rates = dict.fromkeys(self.rates, 0.0)

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.real, name)
        if name not in VERBS:
            return real

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            fault = self._fault(name)
            if self.is_down or fault == "fail_before":
                raise StoreUnavailable(f"injected: {name} never happened")
            if fault == "slow":
                await asyncio.sleep(self._rng.expovariate(1 / self._slow_s))
            answer = await real(*args, **kwargs)
            if fault == "lose_reply":
                raise StoreUnavailable(f"injected: the reply of {name} was lost")
            return answer

        return call

    def _fault(self, name: str) -> str | None:
        if name not in self._verbs:
            return None
        dice = self._rng.random()
        for fault, rate in self.rates.items():
            dice -= rate
            if dice < 0:
                return fault
        return None


class FaultyBus:
    """A bus that loses, doubles or delays triggers; `published` keeps what was handed to it."""

    def __init__(
        self,
        bus: Bus,
        *,
        rng: Random,
        lose: float = 0.0,
        double: float = 0.0,
        late: float = 0.0,
        late_s: float = 0.05,
    ) -> None:
        self._bus = bus
        self._rng = rng
        self._lose, self._double, self._late = lose, double, late
        self._late_s = late_s
        self.published: list[Trigger] = []

    def publish(self, triggers: Sequence[Trigger]) -> None:
        self.published += triggers
        now: list[Trigger] = []
        for trigger in triggers:
            if self._rng.random() < self._lose:
                continue
            copies = 2 if self._rng.random() < self._double else 1
            if self._rng.random() < self._late:
                loop = asyncio.get_running_loop()
                loop.call_later(self._late_s, self._bus.publish, [trigger] * copies)
            else:
                now += [trigger] * copies
        self._rng.shuffle(now)
        self._bus.publish(now)

    async def subscribe(self, queues: Collection[str], hear: Hear) -> None:
        await self._bus.subscribe(queues, hear)

    async def unsubscribe(self, hear: Hear) -> None:
        await self._bus.unsubscribe(hear)

    async def close(self) -> None:
        await self._bus.close()
