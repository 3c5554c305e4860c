"""The gate of a queue: its limits and pauses, before any booking policy is asked.

A partition that is paused as a whole is not counted here: its node does not dispatch it.

Limits are kept in the store (see `holdfast.limit`).  Nodes have shares of them: the gate asks for
one when a trigger is refused for the lack of it, uses it from memory, and gives back what it does
not need.  Each grab names the shares that it relies on, so a node that was
taken for dead starts nothing under a share that somebody else has by now.

If the process dies, its shares come back when its tasks are resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from math import ceil

from holdfast.booking import Full
from holdfast.clock import Clock
from holdfast.ids import NodeId
from holdfast.limit import Limit, Mode, Rules, Share, Want, refilled, tokens_of
from holdfast.store import Rulebook
from holdfast.task import TaskId, Trigger
from holdfast.telemetry.events import Events, StoreFailed

Opened = Callable[[Iterable[str | None] | None], None]

LOOK_S = 0.5  # how often the gate looks whether the rules have changed
LATER_S = 0.05  # so that a tick of the node, which reads it too, comes first
ASK_S = 0.05  # how often it asks again for what it did not get
REFRESH_S = 1.0  # how often it says what it uses, also when it needs nothing
AHEAD_S = 0.2  # tokens of a rate are fetched for so long
HELD_MAX = 2_000  # limits and keys that are remembered without being used
NOTHING = Share(0, 0, 0)


class Held:
    """What this node has of one limit, for one key."""

    __slots__ = (
        "ask_at",
        "is_missed",
        "is_unsure",
        "key",
        "limit",
        "share",
        "since_s",
        "tokens",
        "tried_at",
        "used",
        "weight",
    )

    def __init__(self, limit: Limit, key: str) -> None:
        self.limit = limit
        self.key = key  # "" unless the limit counts keys apart
        self.used = 0  # slots that are booked
        self.share = NOTHING
        self.tokens: float | None = None  # of a rate
        self.since_s = 0.0  # a local rate: when its tokens were counted
        self.weight = 1.0  # of the key, as its last task had it
        self.is_missed = False  # somebody was refused for the lack of it
        self.is_unsure = False  # asked and not answered: the store may hold more for us
        self.ask_at = 0.0
        self.tried_at = 0.0  # when somebody last needed it

    @property
    def is_full(self) -> bool:
        limit = self.limit
        if limit.concurrency is None:
            return (self.tokens or 0.0) < 1.0
        if limit.local:
            return self.used >= limit.concurrency
        return self.used >= min(self.share.held, self.share.target)

    @property
    def is_spent(self) -> bool:
        """Whether this node uses the whole limit: there is nothing to ask for.

        Whoever is refused then goes on when a slot is freed here.
        """
        return self.limit.concurrency is not None and self.used >= self.limit.concurrency

    def want(self, now_s: float) -> Want:
        """What to ask the store for."""
        if self.limit.concurrency is None:
            rate, _ = tokens_of(self.limit, self.weight)
            ahead = 1 + ceil(rate * AHEAD_S) if self.is_missed else 0
            return Want(self.limit.name, self.key, int(self.tokens or 0), ahead, self.weight)
        wanted = self.used
        if self.is_missed:  # twice as many as now: demand is seen one refusal at a time
            wanted = min(2 * self.used + 4, self.limit.concurrency)
        elif now_s - self.tried_at < REFRESH_S:
            wanted = self.share.held
        return Want(self.limit.name, self.key, self.used, max(self.used, wanted))

    @property
    def is_idle(self) -> bool:
        has_any = self.used or self.share.held or self.tokens
        return not (has_any or self.is_missed or self.is_unsure)


class RulesVersion:
    """The version of the rules, asked for once for all gates of a node."""

    def __init__(self, store: Rulebook, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._version = -1
        self.read_at = float("-inf")

    def heard(self, version: int) -> None:
        """Somebody has read it who had to ask the store anyway."""
        self._version, self.read_at = version, self._clock.seconds()

    async def now(self) -> int:
        if self._clock.seconds() - self.read_at >= LOOK_S:
            self.heard(await self._store.rules_version())
        return self._version


class Gate:
    """The limits of one queue on this node."""

    def __init__(
        self,
        queue: str,
        *,
        node: NodeId,
        store: Rulebook,
        clock: Clock,
        events: Events,
        running: Callable[[], Iterable[Trigger]],
        switched: Callable[[Mode], None],
        opened: Opened,
        version: RulesVersion | None = None,
    ) -> None:
        """`running` tells which triggers hold a slot now; `switched` hears how keys are charged.

        `opened` is called when something may go on: for some keys, or with None for all.
        """
        self.queue = queue
        self.weights: dict[str | None, float] = {}  # by fairness key; changed in place
        self._node = node
        self._store = store
        self._version = version or RulesVersion(store, clock)
        self._clock = clock
        self._events = events
        self._running = running
        self._switched = switched
        self._opened = opened
        self._rules = Rules(version=-1)
        self._limits: Sequence[Limit] = ()  # those that count tasks
        self.paused_partitions: frozenset[int] = frozenset()
        self._held: dict[tuple[str, str], Held] = {}
        # By version: a task that is resumed while it runs here is booked twice for a moment.
        self._booked: dict[tuple[TaskId, int], list[Held]] = {}
        self._asked = asyncio.Event()
        self._look_at = 0.0

    @property
    def rules(self) -> Rules:
        return self._rules

    # ── booking ───────────────────────────────────────────────────────────────────────────

    def book(self, trigger: Trigger) -> Full | None:
        """Take what every limit asks for and answer None, or say why not and take nothing."""
        if not self._limits:
            return None
        found = self._all_of(trigger)
        now_s = self._clock.seconds()
        full: Full | None = None
        for held in found:
            held.tried_at = now_s
            if held.limit.rate:
                held.weight = self.weights.get(trigger.fairness_key, trigger.weight)
                if held.limit.local:
                    self._refill(held)
            if held.limit.pauses or held.is_full:
                # The others are asked for as well, to be there when this one is.
                refused = self._refused(held)
                full = full or refused
                if held.limit.pauses:
                    break
        if full is not None:
            return full
        for held in found:
            held.used += 1
            if held.limit.rate is not None:
                held.tokens = (held.tokens or 0.0) - 1.0
        if found:
            self._booked[trigger.id, trigger.version] = found
        return None

    def free(self, trigger: Trigger, *, is_lost: bool = False) -> None:
        """Give back what `book` took; the tokens too, when the trigger was never started."""
        if not self._booked:
            return
        for held in self._booked.pop((trigger.id, trigger.version), ()):
            held.used -= 1
            if is_lost and held.limit.rate is not None:
                held.tokens = (held.tokens or 0.0) + 1.0
            if held.share.held > held.share.target:
                self._asked.set()  # somebody else waits for it

    def shares(self, triggers: Iterable[Trigger]) -> set[int]:
        """The numbers of the shares that a grab of these triggers relies on."""
        if not self._booked:
            return set()
        found = (held for t in triggers for held in self._booked.get((t.id, t.version), ()))
        return {held.share.number for held in found if held.share.number}

    def doubt(self, triggers: Iterable[Trigger]) -> None:
        """The store knows of no such share of ours: use none of them until it gave new ones."""
        for trigger in triggers:
            for held in self._booked.get((trigger.id, trigger.version), ()):
                if held.share.number:
                    held.share, held.is_missed, held.ask_at = NOTHING, True, 0.0
        self._asked.set()

    def _all_of(self, trigger: Trigger) -> list[Held]:
        found = []
        for limit in self._limits:
            if limit.counts(trigger.kind, trigger.fairness_key):
                key = (trigger.fairness_key or "") if limit.is_per_key else ""
                held = self._held.get((limit.name, key))
                if held is None:
                    held = self._held[limit.name, key] = Held(limit, key)
                found.append(held)
        return found

    def _refused(self, held: Held) -> Full:
        limit = held.limit
        is_key = limit.key is not None
        if limit.pauses or (limit.local and limit.rate is None):
            return Full(key_only=is_key)
        if limit.local:
            rate, _ = tokens_of(limit, held.weight)
            wait_s = (1.0 - (held.tokens or 0.0)) / rate
            return Full(self._clock.now() + timedelta(seconds=wait_s), key_only=is_key)
        if not held.is_missed and not held.is_spent:
            held.is_missed, held.ask_at = True, 0.0
            self._asked.set()
        return Full(key_only=is_key)

    def _refill(self, held: Held) -> None:
        """The tokens of a rate that this node counts by itself."""
        now_s = self._clock.seconds()
        want = Want(held.limit.name, held.key, 0, 0, held.weight)
        held.tokens, _ = refilled(held.limit, want, held.tokens, now_s - held.since_s)
        held.since_s = now_s

    # ── sharing ───────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Know the rules before anything starts."""
        self._apply(await self._store.rules(self.queue))

    async def close(self) -> None:
        """Nothing runs any more: give everything back."""
        ours = [one for one in self._held.values() if not one.limit.local]
        held = [one for one in ours if one.share.held or one.is_unsure]
        wants = [Want(one.limit.name, one.key, 0, 0) for one in held]
        await self._store.allot(self.queue, wants, node=self._node)

    async def keep(self) -> None:
        """Follow the rules and ask for shares, until cancelled."""
        while True:
            try:
                await self._turn()
            except Exception as error:  # the store is away: what we hold stays ours
                self._events.emit(StoreFailed("limits", str(error)))
                await asyncio.sleep(LOOK_S)
            try:
                async with asyncio.timeout(self._rest_s()):
                    await self._asked.wait()
            except TimeoutError:
                pass
            self._asked.clear()

    async def _turn(self) -> None:
        now_s = self._clock.seconds()
        if now_s >= self._look_at:
            if await self._version.now() != self._rules.version:
                self._apply(await self._store.rules(self.queue))
            self._look_at = self._version.read_at + LOOK_S + LATER_S
            self._forget_idle(now_s)
        due = [held for held in self._held.values() if self._is_due(held, now_s)]
        if not due:
            return
        wants = [held.want(now_s) for held in due]
        for held, want in zip(due, wants, strict=True):
            # Until the answer comes, only what we said may be used: the rest may be gone.
            if held.limit.concurrency is None:
                held.tokens = (held.tokens or 0.0) - want.used
            else:
                held.share = held.share._replace(held=held.used)
            held.is_unsure = True
        shares = await self._store.allot(self.queue, wants, node=self._node)
        self._take(due, shares)

    def _forget_idle(self, now_s: float) -> None:
        """Keys that came once must not fill memory: by now their tokens would be full again."""
        if len(self._held) > HELD_MAX:
            self._held = {
                place: held
                for place, held in self._held.items()
                if held.used
                or held.is_missed
                or held.is_unsure
                or held.share.held
                or now_s - held.tried_at < max(REFRESH_S, held.limit.burst)
            }

    def _is_due(self, held: Held, now_s: float) -> bool:
        if held.limit.local or held.limit.pauses:
            return False
        yields = held.share.held > max(held.share.target, held.used)
        return now_s >= held.ask_at and (held.is_missed or yields or not held.is_idle)

    def _take(self, due: Sequence[Held], shares: Sequence[Share]) -> None:
        now_s = self._clock.seconds()
        keys: set[str | None] = set()
        is_open_for_all = False
        for held, share in zip(due, shares, strict=True):
            held.is_unsure = False
            if held.limit.concurrency is None:
                held.tokens = (held.tokens or 0.0) + share.held
                held.ask_at = now_s + (max(ASK_S, share.wait_s) if held.is_missed else REFRESH_S)
            else:
                held.share = share
                if held.is_spent:
                    held.is_missed = False
                # Above its target somebody else waits for it: soon there will be news of that.
                is_soon = held.is_missed or share.held > share.target
                held.ask_at = now_s + (ASK_S if is_soon else REFRESH_S)
            if held.is_missed and not held.is_full:
                held.is_missed = False
                if held.limit.key is None:
                    is_open_for_all = True
                else:
                    keys.add(held.key or held.limit.key)
            if held.is_idle and self._held.get((held.limit.name, held.key)) is held:
                del self._held[held.limit.name, held.key]
        if is_open_for_all:
            self._opened(None)
        elif keys:
            self._opened(keys)

    def _rest_s(self) -> float:
        now_s = self._clock.seconds()
        waits = [held.ask_at for held in self._held.values() if self._is_due(held, held.ask_at)]
        return max(0.001, min([self._look_at, *waits]) - now_s)

    def _apply(self, rules: Rules) -> None:
        """New rules: what runs is counted anew, and shares of what changed are asked for anew."""
        self._rules = rules
        paused = {limit: limit.paused_partition for limit in rules.limits}
        self.paused_partitions = frozenset(n for n in paused.values() if n is not None)
        self._limits = [limit for limit, number in paused.items() if number is None]
        limits = {limit.name: limit for limit in self._limits}
        self._held = {place: held for place, held in self._held.items() if place[0] in limits}
        for held in self._held.values():
            held.used = 0
            if held.limit != limits[held.limit.name]:
                held.limit = limits[held.limit.name]
                held.share = held.share._replace(target=0)
                held.ask_at = 0.0
        self._booked.clear()
        for trigger in self._running():
            if found := self._all_of(trigger):
                self._booked[trigger.id, trigger.version] = found
                for held in found:
                    held.used += 1
        self.weights.clear()
        self.weights.update(rules.weights)
        self._switched(rules.fairness)
        self._asked.set()
        self._opened(None)
