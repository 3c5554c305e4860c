"""The store on PostgreSQL: all roles over one `Database`."""

from __future__ import annotations

from random import Random

import asyncpg

from holdfast.clock import Clock
from holdfast.errors import StoreUnavailable
from holdfast.stores.postgres.agenda import PostgresAgenda
from holdfast.stores.postgres.backlogs import PostgresBacklogs
from holdfast.stores.postgres.connection import Database
from holdfast.stores.postgres.insight import PostgresInsight
from holdfast.stores.postgres.leases import PostgresLeases
from holdfast.stores.postgres.migrate import (
    SchemaStatus,
    check,
    migrate,
    migration_sql,
    schema_status,
    upkeep,
)
from holdfast.stores.postgres.probe import PostgresProbe
from holdfast.stores.postgres.rings import PostgresRings
from holdfast.stores.postgres.rulebook import PostgresRulebook
from holdfast.stores.postgres.search import PostgresSearch
from holdfast.stores.postgres.tasks import PostgresTasks
from holdfast.stores.postgres.timetable import PostgresTimetable


class PostgresStore(
    PostgresTasks,
    PostgresBacklogs,
    PostgresLeases,
    PostgresAgenda,
    PostgresRulebook,
    PostgresRings,
    PostgresTimetable,
    PostgresSearch,
    PostgresInsight,
):
    """`holdfast.store.Store` on PostgreSQL 14 and later.

    Opens at most `connections_max` connections for the engine and as many again for handlers'
    transactions and searches, each when it is needed.  A pooler in transaction mode is found
    by itself, unless `pooled` says beforehand whether there is one.  `clock` measures how long
    ago something was done; what is due or ended is judged by the server's clock alone.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str = "holdfast",
        clock: Clock,
        rng: Random,
        connections_max: int = 8,
        pooled: bool | None = None,
    ) -> None:
        self._database = Database(
            url, schema=schema, rng=rng, connections_max=connections_max, pooled=pooled
        )
        self._clock = clock
        self._partitions = 0
        self._written = {}
        self._low_water = None

    @property
    def partitions(self) -> int:
        assert self._partitions, "the number of partitions is known once the store is open"
        return self._partitions

    @property
    def is_pooled(self) -> bool:
        """Whether a pooler stands between us and the server; known once the store is open."""
        return self._database.is_pooled

    @property
    def schema(self) -> str:
        return self._database.schema

    async def open(self) -> None:
        try:
            await self._database.open()
            ((version, partitions, code_min),) = await self._database.read("schema_status", {})
            check(version, self._database.where, code_min=code_min)
            self._partitions = partitions
            await self._put_right()
        except BaseException:
            await self._database.close()
            raise

    async def close(self) -> None:
        await self._database.close()

    async def migrate(self) -> int:
        return await migrate(self._database)

    async def schema_status(self) -> SchemaStatus:
        """Which schema version this code knows, and which the database has."""
        return await schema_status(self._database)

    def migration_sql(self) -> str:
        """The whole schema as one text, for those who run their SQL themselves."""
        return migration_sql(self._database)

    async def durability(self) -> dict[str, str]:
        return dict(await self._database.read("durability", {}, plain=True))

    def probe(self, listen_url: str) -> PostgresProbe:
        """Questions to the server, for `holdfast doctor`; the store need not be open."""
        return PostgresProbe(self._database, clock=self._clock, listen_url=listen_url)

    async def _put_right(self) -> None:
        """The upkeep of a start.  A user who may only enqueue leaves it to the nodes."""
        try:
            await self._database.together(upkeep)
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, asyncpg.InsufficientPrivilegeError):
                raise
