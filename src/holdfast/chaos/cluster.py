"""Workers under a steady load on a PostgreSQL of their own, for scenarios and soaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

from holdfast.bench.ground import Place
from holdfast.bench.workers import Workers
from holdfast.chaos.load import Load
from holdfast.store import Store
from holdfast.testing.postgres import PrivateServer

BACKENDS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


@dataclass(frozen=True, slots=True)
class Cluster:
    server: PrivateServer
    place: Place
    store: Store
    workers: Workers
    load: Load


@asynccontextmanager
async def cluster(nodes: int, per_second: float) -> AsyncIterator[Cluster]:
    """So many workers, and so many short tasks a second; all of it is gone after the block."""
    with PrivateServer() as server:
        place = Place(server.url())
        await place.closed_store().migrate()
        async with (
            place.store() as store,
            Workers(place, store) as workers,
            Load(place, Random(1), per_second, long=0.0) as load,
        ):
            await asyncio.gather(*(workers.start() for _ in range(nodes)))
            load.start()
            yield Cluster(server, place, store, workers, load)
            await load.stop()


async def terminate_backends(server: PrivateServer) -> None:
    """Every connection of a client ends, ours too, but for the one that asks."""
    await asyncio.to_thread(server.execute, BACKENDS)
