"""A peer on the same server: pgqueuer, the fastest Python queue on PostgreSQL that we know.

Once as it is shipped, and once with the best settings that we found: a large batch.  Both with
the asyncpg driver, its drain mode, its tuned autovacuum, and a handler that does nothing; its
tables are logged, as ours are.  It keeps no archive but a log of its own, as it does by default.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

from holdfast.bench.bare import connected
from holdfast.bench.ground import Place
from holdfast.bench.load import BULK, PAYLOAD_BYTES
from holdfast.clock import Clock
from holdfast.errors import MissingExtra, StoreUnavailable
from holdfast.sql.query import quoted

BATCH_TUNED = 1_000  # the fastest of 50, 200, 500, 1,000 and 2,000 on two cores
KIND = "noop"


async def drained_rate(
    place: Place, tasks: int, *, clock: Clock, batch: int | None = None
) -> float:
    """Tasks a second of one pgqueuer worker in this process, from its start to an empty queue.

    `batch` is its own default when None.
    """
    try:
        from pgqueuer.adapters.connections import connect_asyncpg
        from pgqueuer.core.qm import QueueManager
        from pgqueuer.domain.types import QueueExecutionMode
        from pgqueuer.queries import Queries
    except ImportError as error:
        raise MissingExtra("bench", "--beside pgqueuer") from error
    async with connected(place.url) as connection:
        await connection.execute(f"CREATE SCHEMA {quoted(place.schema)}")
    calls = 0
    async with connect_asyncpg(_within(place)) as connection:
        queries = Queries.from_asyncpg_connection(connection)
        await queries.install()
        await queries.optimize_autovacuum()
        for first in range(0, tasks, BULK):
            amount = min(BULK, tasks - first)
            await queries.enqueue([KIND] * amount, [b"x" * PAYLOAD_BYTES] * amount, [0] * amount)
        manager = QueueManager(queries)

        @manager.entrypoint(KIND)
        async def noop(_: Any) -> None:
            nonlocal calls
            calls += 1

        started = clock.seconds()
        settings: dict[str, Any] = {} if batch is None else {"batch_size": batch}
        await manager.run(
            **settings,
            dequeue_timeout=timedelta(seconds=1),
            mode=QueueExecutionMode.drain,
        )
        took_s = clock.seconds() - started
        left = await queries.queue_size()
    if calls != tasks or left:
        raise StoreUnavailable(f"pgqueuer handled {calls} of {tasks} tasks and left {left}")
    return tasks / took_s


def _within(place: Place) -> str:
    """The address with our schema as search path: pgqueuer writes its names without one."""
    parts = urlsplit(place.url)
    extra = urlencode({"search_path": place.schema})
    return parts._replace(query=f"{parts.query}&{extra}" if parts.query else extra).geturl()
