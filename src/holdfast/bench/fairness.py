"""`fairness`: who gets how much of a node while everybody waits, and what it costs to be fair.

Each part lets its tasks stand in the backlog before the first of them starts: the queue is paused,
filled, taken over by a node, and resumed when the store says that every task has its place.  From
then on the handler notes whose turn it is.  A node with few slots is watched, so that handlers are
called in the order of the dispatch.  When there is nothing more to see, a node with many slots
runs the rest, for the check.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nextafter
from random import Random
from statistics import median
from typing import NamedTuple

from holdfast.bench.backlog import Memory
from holdfast.bench.drain import SLOTS
from holdfast.bench.ground import Ground, Place
from holdfast.bench.load import (
    BULK,
    NO_PROFILE,
    QUEUE,
    STALL_S,
    TEXT,
    Checked,
    Load,
    Profile,
    Run,
    checked,
    drained,
    settled,
)
from holdfast.bench.report import Mark
from holdfast.clock import SystemClock
from holdfast.limit import Mode
from holdfast.store import Cursor, Position, Store
from holdfast.tasks import TaskDefinition

ZIPF_KEYS, ZIPF_EXPONENT = (90, 500, 10_000), 1.2
KEYS_MANY = 10_000
WEIGHTS = {"five": 5.0, "three": 3.0, "two": 2.0}
HEAVY, LIGHT, LIGHT_SHARE = "heavy", "light", 0.05
LIGHT_DONE_AT_MAX = 0.11  # of all tasks: every other turn is its own, and a tenth is for disorder
SLEEPS_S = {"fast": 0.010, "slow": 0.100}
SLOW_FEWEST = 50  # slow tasks: fewer say nothing about a share
SLOTS_WATCHED, SLOTS_COST = 8, 20
ROUNDS = 4
LOOK_S = 0.02
PAD = "."
SEED = 69  # every run and every store gets the same lines

Line = Sequence[str | None]  # the fairness keys of the tasks, in the order of their arrival
Enough = Callable[[str], bool]  # is told whose turn it is; True: there is nothing more to see


@dataclass(slots=True)
class Turn:
    """One call of the handler: whose it was, and from when to when it ran."""

    key: str
    started_s: float
    ended_s: float = inf


class Comparison(NamedTuple):
    """All turns of the same line of a heavy and a light tenant, dispatched in two ways."""

    fair: Sequence[Turn]
    first_come: Sequence[Turn]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fairness:
    """With `compared`, each run adds its 95:5 case beside first come, first served."""

    tasks: int = 100_000
    profile: Profile = NO_PROFILE
    compared: list[Comparison] | None = None
    name = "fairness"

    @property
    def marks(self) -> Sequence[Mark]:
        return (
            Mark(figure="unfairness", at_most=nextafter(1.0, 0.0)),  # below 1
            Mark(figure="share_error_points", at_most=2),
            Mark(figure="light_key_done_at", at_most=LIGHT_DONE_AT_MAX * self._tenth),
            Mark(figure="cost_share_error_points", at_most=5),
            Mark(figure="keys_ratio", at_least=0.8),
            Mark(figure="rss_mb", at_most=300),
        )

    @property
    def options(self) -> Mapping[str, int]:
        return {"slots": SLOTS, "slots_watched": SLOTS_WATCHED, "slots_cost": SLOTS_COST}

    @property
    def _tenth(self) -> int:
        return max(self.tasks // 10, 20)

    async def run(self, ground: Ground) -> Run:
        track, memory = Track(ground, self.profile), Memory()
        figures: dict[str, float | None] = {
            "unfairness": await self._unfairness(track, memory),
            "share_error_points": await self._share_error(track),
            "light_key_done_at": await self._light_key_done_at(track),
            "cost_share_error_points": await self._cost_share_error(track),
            "keys_ratio": await self._keys_ratio(track, memory),
            "rss_mb": memory.highest_mb,
        }
        return Run(figures, tuple(track.checks))

    async def _unfairness(self, track: Track, memory: Memory) -> float:
        """The worst over all numbers of keys."""
        found = []
        for keys in ZIPF_KEYS:
            line = zipf_line(keys, self.tasks, Random(SEED))
            async with (memory if keys >= KEYS_MANY else Memory()).watched():
                turns = await track.turns(line, every_key_seen(line))
            found.append(unfairness([turn.key for turn in turns]))
        return max(found)

    async def _share_error(self, track: Track) -> float:
        line = shuffled_line(dict.fromkeys(WEIGHTS, self._tenth), Random(SEED))
        turns = await track.turns(line, one_used_up(line), weights=WEIGHTS)
        return share_error_points([turn.key for turn in turns], WEIGHTS)

    async def _light_key_done_at(self, track: Track) -> float:
        light = round(self._tenth * LIGHT_SHARE)
        line = shuffled_line({HEAVY: self._tenth - light, LIGHT: light}, Random(SEED))
        fair = await track.turns(line, all_used_up(line))
        if self.compared is not None:
            first_come = await track.turns(line, all_used_up(line), mode="off")
            if not any(check.problem for check in track.checks):
                self.compared.append(Comparison(fair, first_come))
        return done_at([turn.key for turn in fair], LIGHT)

    async def _cost_share_error(self, track: Track) -> float:
        """Ten fast tasks for each slow one: with equal shares both run out at the same time."""
        slow = max(self.tasks // 100, SLOW_FEWEST)
        line = shuffled_line({"fast": 10 * slow, "slow": slow}, Random(SEED))
        turns = await track.turns(
            line, one_used_up(line), mode="cost", sleeps_s=SLEEPS_S, slots=SLOTS_COST
        )
        return abs(100 * time_share(turns, "slow") - 50)

    async def _keys_ratio(self, track: Track, memory: Memory) -> float:
        """Both ways to drain take turns, every other round in the opposite order: the median.

        A machine that is slower for a minute slows both, one that is for a second one round.
        """
        count = max(self.tasks // 2, 1)
        keyed: Line = [f"key {number % KEYS_MANY}" for number in range(count)]
        plain: Line = [None] * count
        ratios = []
        for number in range(ROUNDS):
            took_s: dict[bool, float] = {}
            for is_keyed in (False, True) if number % 2 else (True, False):
                async with (memory if is_keyed else Memory()).watched():
                    took_s[is_keyed] = await track.drain_s(keyed if is_keyed else plain)
            ratios.append(took_s[False] / took_s[True])
        return median(ratios)


class Track:
    """Where the lines of one run are dispatched, each on a store of its own, and checked."""

    def __init__(self, ground: Ground, profile: Profile) -> None:
        self.checks: list[Checked] = []
        self._ground = ground
        self._profile = profile

    async def turns(
        self,
        line: Line,
        is_enough: Enough,
        *,
        mode: Mode = "count",
        weights: Mapping[str, float] | None = None,
        sleeps_s: Mapping[str, float] | None = None,
        slots: int = SLOTS_WATCHED,
    ) -> list[Turn]:
        """The turns of this line, from the first one until there is enough of them.

        Where it never comes to that the rest is left undone, so that the check fails.
        """
        async with (
            self._ground.place() as place,
            (load := Watched(place, is_enough, sleeps_s or {})).app,
        ):
            store, queue = await load.app.store(), load.app.queue(QUEUE)
            await queue.fairness(mode)
            await queue.pause()
            await line_up(load.turn, line, weights or {})
            with self._profile.measuring():
                async with load.app.node(slots_async=slots):
                    is_seen = await backlog_stands(store)
                    if is_seen:
                        await queue.resume()
                        is_seen = await load.seen()
            if is_seen:
                async with load.app.node(slots_async=SLOTS) as node:
                    await drained(node, lambda: load.calls)
            self.checks.append(await checked(store, expected=len(line), calls=load.calls))
        return load.turns

    async def drain_s(self, line: Line) -> float:
        """How long a node takes for this line, from its start until all is settled: see `drain`."""
        clock = SystemClock()
        async with self._ground.place() as place:
            async with (filling := Load(place)).app:
                await line_up(filling.noop, line, {})
            async with (load := Load(place)).app:
                store = await load.app.store()
                started = clock.seconds()
                with self._profile.measuring():
                    async with load.app.node(slots_async=SLOTS) as node:
                        await load.called(len(line))
                        await settled(node)
                        took_s = clock.seconds() - started
                        await drained(node, lambda: load.calls)
                self.checks.append(await checked(store, expected=len(line), calls=load.calls))
        return took_s


class Watched(Load):
    """A load whose handler notes its turns, until there are enough.

    With `sleeps_s` it takes so long for a key; after that it does nothing here either.
    """

    def __init__(self, place: Place, is_enough: Enough, sleeps_s: Mapping[str, float]) -> None:
        super().__init__(place)
        self.turns: list[Turn] = []
        self._enough = asyncio.Event()
        clock = SystemClock()

        @self.app.task(name="turn", queue=QUEUE)
        async def turn(text: str) -> None:
            await self.noop(text)
            if self._enough.is_set():
                return
            key = text.rstrip(PAD)
            self.turns.append(now := Turn(key, clock.seconds()))
            if is_enough(key):
                self._enough.set()
            elif key in sleeps_s:
                await asyncio.sleep(sleeps_s[key])
            now.ended_s = clock.seconds()

        self.turn = turn

    async def seen(self) -> bool:
        """Wait until there are enough turns; False: nothing happens any more."""
        before = -1
        while not self._enough.is_set() and self.calls > before:
            before = self.calls
            try:
                async with asyncio.timeout(STALL_S):
                    await self._enough.wait()
            except TimeoutError:
                pass
        return self._enough.is_set()


async def line_up(
    task: TaskDefinition[[str], None], line: Line, weights: Mapping[str, float]
) -> None:
    """Enqueue a task for each key of the line, with the key in its payload of the usual size.

    A call of `enqueue_many` has one key for all its tasks.  So there are many callers, and the
    client adds what they bring together.
    """
    for first in range(0, len(line), BULK):
        await asyncio.gather(
            *(
                task.options(fairness_key=key, weight=weights.get(key or "", 1.0)).enqueue(
                    (key or "").ljust(len(TEXT), PAD)
                )
                for key in line[first : first + BULK]
            )
        )


async def backlog_stands(store: Store) -> bool:
    """Wait until all tasks have their places in the backlog; False: no more of them get one.

    They have when no task is left above the positions that the owner has written.
    """
    clock, before = SystemClock(), list[Position]()
    moved_at = clock.seconds()
    while clock.seconds() - moved_at < STALL_S:
        loaded = await store.load(QUEUE, range(store.partitions))
        cursors = [Cursor(one.partition, one.position) for one in loaded]
        if not (await store.arrivals(QUEUE, cursors, limit=1, exact=False)).triggers:
            return True
        if (positions := [one.position for one in loaded]) != before:
            before, moved_at = positions, clock.seconds()
        await asyncio.sleep(LOOK_S)
    return False


def zipf_line(keys: int, count: int, rng: Random) -> list[str]:
    """Tasks of so many tenants, the first of them far busier than the last."""
    weights = [1 / (number + 1) ** ZIPF_EXPONENT for number in range(keys)]
    return rng.choices([f"key {number}" for number in range(keys)], weights, k=count)


def shuffled_line(counts: Mapping[str, int], rng: Random) -> list[str]:
    line = list(Counter(counts).elements())
    rng.shuffle(line)
    return line


def every_key_seen(line: Line) -> Enough:
    unseen = set(line)

    def is_enough(key: str) -> bool:
        unseen.discard(key)
        return not unseen

    return is_enough


def one_used_up(line: Line) -> Enough:
    """Some tenant has nothing left that waits."""
    left = Counter(line)

    def is_enough(key: str) -> bool:
        left[key] -= 1
        return not left[key]

    return is_enough


def all_used_up(line: Line) -> Enough:
    left = len(line)

    def is_enough(key: str) -> bool:
        nonlocal left
        left -= 1
        return not left

    return is_enough


def unfairness(order: Sequence[str]) -> float:
    """The index of each key's first turn, summed up, over keys²: about 0.5 when all take turns."""
    first = {key: index for index, key in reversed(list(enumerate(order)))}
    return sum(first.values()) / max(len(first), 1) ** 2


def share_error_points(order: Sequence[str], weights: Mapping[str, float]) -> float:
    """The largest difference between a key's share of the turns and of the weights, in points."""
    counts, total = Counter(order), sum(weights.values())
    shares = {key: counts[key] / max(len(order), 1) for key in weights}
    return 100 * max(abs(shares[key] - weight / total) for key, weight in weights.items())


def done_at(order: Sequence[str], key: str) -> int:
    """The number of the key's last turn, the first one of all being 1."""
    return max((number for number, other in enumerate(order, 1) if other == key), default=0)


def time_share(turns: Sequence[Turn], key: str) -> float:
    """The key's share of the time that handlers ran until the last of them started."""
    until_s = max((turn.started_s for turn in turns), default=0.0)
    times_s = [(turn.key, min(turn.ended_s, until_s) - turn.started_s) for turn in turns]
    return sum(s for of, s in times_s if of == key) / (sum(s for _, s in times_s) or 1.0)
