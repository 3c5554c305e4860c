"""Who is measured, in which version, and how its makers advise to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Keeper = Literal["postgres", "sqlite", "redis"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One queue on one store.  `adapter` is a module of `bench/peers`.

    `packages` go into an environment of their own; none: that of Holdfast itself.  `has_bulk`: many
    tasks in one call.  `how` tells a reader what was chosen where its docs leave a choice.
    """

    name: str
    adapter: str
    keeper: Keeper
    packages: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)  # for its adapter
    has_bulk: bool = False
    how: str = ""

    @property
    def is_ours(self) -> bool:
        return self.adapter == "holdfast_peer"

    @property
    def environment(self) -> str:
        """Entries of the same adapter share it."""
        return self.adapter if self.packages else ""


ENTRIES = (
    Entry(
        name="holdfast",
        adapter="holdfast_peer",
        keeper="postgres",
        has_bulk=True,
        how="`holdfast worker`, one process, defaults with `holdfast[fast]`: uvloop",
    ),
    Entry(
        name="holdfast-1000",
        adapter="holdfast_peer",
        keeper="postgres",
        settings={"HOLDFAST_NODE__SLOTS__ASYNC": "1000"},
        has_bulk=True,
        how="the same with 1,000 slots, as pgqueuer-1000 has",
    ),
    Entry(
        name="pgqueuer",
        adapter="pgqueuer_peer",
        keeper="postgres",
        packages=("pgqueuer[asyncpg]==1.6.0",),
        has_bulk=True,
        how="`PgQueuer.run`, asyncpg, its tuned autovacuum, defaults",
    ),
    Entry(
        name="pgqueuer-1000",
        adapter="pgqueuer_peer",
        keeper="postgres",
        packages=("pgqueuer[asyncpg]==1.6.0",),
        settings={"QUEUE_BATCH": "1000"},
        has_bulk=True,
        how="the same with `batch_size=1000`, the fastest of 50, 200, 500, 1,000 and 2,000 here",
    ),
    Entry(
        name="procrastinate",
        adapter="procrastinate_peer",
        keeper="postgres",
        packages=("procrastinate==3.10.0", "psycopg[binary]==3.3.8"),
        has_bulk=True,
        how="asynchronous worker, `concurrency=100`",
    ),
    Entry(
        name="chancy",
        adapter="chancy_peer",
        keeper="postgres",
        packages=("chancy==0.26.0", "psycopg[binary]==3.3.8"),
        has_bulk=True,
        how="asyncio executor, `concurrency=100`, `eager_polling`, no log",
    ),
    Entry(
        name="dbos",
        adapter="dbos_peer",
        keeper="postgres",
        packages=("dbos==3.3.0",),
        how="a workflow without steps on a queue, defaults",
    ),
    Entry(
        name="awa",
        adapter="awa_peer",
        keeper="postgres",
        packages=("awa-pg==0.6.9",),
        has_bulk=True,
        how="asynchronous worker, 100 workers on the queue, bulk by `enqueue_many_copy`",
    ),
    Entry(
        name="holdfast-sqlite",
        adapter="holdfast_peer",
        keeper="sqlite",
        has_bulk=True,
        how="`holdfast worker`, one process, `holdfast[fast]`, defaults: WAL, `synchronous=FULL`",
    ),
    Entry(
        name="huey",
        adapter="huey_peer",
        keeper="sqlite",
        packages=("huey==3.5.4",),
        how="4 threads, WAL, `fsync=True`, no results",
    ),
    Entry(
        name="dbos-sqlite",
        adapter="dbos_peer",
        keeper="sqlite",
        packages=("dbos==3.3.0",),
        how="as dbos, on a file",
    ),
    Entry(
        name="celery",
        adapter="celery_peer",
        keeper="redis",
        packages=("celery[redis]==5.7.0",),
        how="prefork, a process for each core, late acknowledgement, results ignored",
    ),
    Entry(
        name="dramatiq",
        adapter="dramatiq_peer",
        keeper="redis",
        packages=("dramatiq[redis]==2.2.1",),
        how="defaults: a process for each core, 8 threads each",
    ),
    Entry(
        name="taskiq",
        adapter="taskiq_peer",
        keeper="redis",
        packages=("taskiq==0.13.0", "taskiq-redis==1.2.4"),
        how="`RedisStreamBroker`, which acknowledges; defaults: 2 processes",
    ),
    Entry(
        name="saq",
        adapter="saq_peer",
        keeper="redis",
        packages=("saq[redis]==0.26.4", "typing_extensions"),
        how="`concurrency=100`",
    ),
    Entry(
        name="streaq",
        adapter="streaq_peer",
        keeper="redis",
        packages=("streaq==7.2.0",),
        has_bulk=True,
        how="`concurrency=100`, bulk by `enqueue_many`",
    ),
)


def chosen(names: str) -> list[Entry]:
    """Those of `PEERS=a,b`, or all; whoever does not exist is named."""
    wanted = [name for name in names.replace(",", " ").split() if name]
    known = {entry.name: entry for entry in ENTRIES}
    if strangers := [name for name in wanted if name not in known]:
        raise SystemExit(f"no such peer: {', '.join(strangers)}; there are {', '.join(known)}")
    return [known[name] for name in wanted] or list(ENTRIES)
