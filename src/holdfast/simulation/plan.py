"""What one seed draws: how large the cluster is, what it does, and what is done to it.

Each seed switches some faults and some kinds of work on and leaves the others out ("swarm"): a bug
that needs much of one thing and nothing of another is found sooner than by a little of everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

STORE_FAULTS = ("fail_before", "lose_reply", "slow")
BUS_FAULTS = ("lose", "double", "late")
NODE_FAULTS = ("kill", "stop", "isolate", "leave")
WORK = (
    "plain", "failing", "repeating", "delayed", "ordered", "keyed", "batched", "transactional",
    "later", "lingering", "stuck",
)  # fmt: skip
HABITS = (
    "words",  # handlers name their outcomes themselves
    "threads", "pools", "batches", "deadlines", "skipping", "spoilt", "bookings", "strangers",
    "keys",  # unique keys and external ids, repeated and refused
    "crowds",  # many at once, callers that wait for nothing
    "rules", "timetables", "wishes", "poison", "drains", "ring", "suspension",
)  # fmt: skip
HABITS_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The seed in words."""

    seed: int
    nodes: int
    requests: int
    faulty_s: float  # how long faults last
    lease_s: float
    slots: int
    work: frozenset[str]
    store_faults: dict[str, float] = field(default_factory=dict)  # name -> rate
    bus_faults: dict[str, float] = field(default_factory=dict)
    node_faults: frozenset[str] = frozenset()
    fault_every_s: float = 5.0  # on average, of the nodes' faults
    travel_s: float = 0.002  # mean way of a call to the store, and back
    skew_s: float = 0.0  # clocks of nodes are off by up to so much
    open_share: float = 0.0  # of the callers' transactions stay open for a while
    operators: bool = False
    schedules: int = 0
    limits: int = 0
    pauses: bool = False
    window: int = 1_000  # triggers of a column in memory: small ones meet every edge
    keys: int = 3
    habits: frozenset[str] = frozenset()
    wild_requests: int = 0
    is_by_arrival: bool = False  # the order in which a node starts what it may start


def drawn(seed: int) -> Plan:
    """The plan of this seed: the same whenever it is drawn."""
    rng = Random(f"plan {seed}")
    calm = rng.random() < 0.1  # some seeds have no faults at all: then nothing may start twice
    # Every second seed is tame: there much happens of little.
    wild = Random(f"habits {seed}")
    habits = _some(wild, HABITS, least=2, most=HABITS_MAX) if seed % 2 else frozenset()
    return Plan(
        seed=seed,
        nodes=rng.choice((1, 2, 2, 3, 3, 4)),
        requests=rng.choice((10, 20, 40, 80)),
        faulty_s=rng.uniform(5.0, 25.0),
        lease_s=rng.choice((1.5, 2.0, 3.0)),
        slots=rng.choice((1, 2, 5, 20)),
        work=_some(rng, WORK, least=2),
        store_faults={} if calm else _rates(rng, STORE_FAULTS, most=0.08),
        bus_faults={} if calm else _rates(rng, BUS_FAULTS, most=0.6),
        node_faults=frozenset() if calm else _some(rng, NODE_FAULTS, least=0),
        fault_every_s=rng.uniform(1.5, 8.0),
        travel_s=rng.choice((0.0005, 0.002, 0.02)),
        skew_s=0.0 if calm else rng.choice((0.0, 0.0, 1.0, 3600.0)),
        open_share=rng.choice((0.0, 0.0, 0.2)),
        operators=rng.random() < 0.3,
        schedules=rng.choice((0, 0, 0, 1, 2)),
        limits=rng.choice((0, 0, 0, 1, 2)),
        pauses=rng.random() < 0.15,
        window=rng.choice((2, 8, 1_000, 1_000)),
        keys=rng.choice((1, 3, 10)),
        habits=habits,
        wild_requests=wild.choice((5, 15, 30)) if habits else 0,
        is_by_arrival=bool(habits) and wild.random() < 0.2,
    )


def _some(
    rng: Random, names: tuple[str, ...], *, least: int, most: int | None = None
) -> frozenset[str]:
    count = rng.randint(least, most or len(names))
    return frozenset(rng.sample(names, count))


def _rates(rng: Random, names: tuple[str, ...], *, most: float) -> dict[str, float]:
    return {name: rng.uniform(0.0, most) for name in sorted(_some(rng, names, least=0))}
