"""What `holdfast doctor` asks a server: each question a short transaction with a time-out.

The questions need no open store, and most of them no tables of ours: a server that is not as it
should be must still be able to answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from statistics import median
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import StoreUnavailable
from holdfast.probes import Holder, Table
from holdfast.stores.postgres.connection import Database, Session, local
from holdfast.stores.postgres.direct import connector
from holdfast.stores.postgres.failures import DRIVER_ERRORS, not_connected, place

PATIENCE = {"statement_timeout": "5s", "lock_timeout": "2s"}
LISTEN_S_MAX = 3.0
COMMITS = 5


class PostgresProbe:
    """`holdfast.probes.ServerProbe`: the promises are written there."""

    def __init__(self, database: Database, *, clock: Clock, listen_url: str) -> None:
        self._database = database
        self._clock = clock
        self._listen_url = listen_url

    async def settings(self) -> dict[str, str]:
        return dict(map(tuple, await self._asked("probe_settings")))

    async def lacking_rights(self) -> list[str]:
        rows = await self._asked("probe_rights", schema_name=self._database.schema)
        return [what for (what,) in rows]

    async def tables(self) -> list[Table]:
        rows = await self._asked("probe_tables", schema_name=self._database.schema)
        return [Table(name, tuple(options), live, dead) for name, options, live, dead in rows]

    async def holders(self) -> list[Holder]:
        return [Holder._make(row) for row in await self._asked("probe_holders")]

    async def clock_ahead_s(self) -> float:
        async with self._alone() as connection, connection.transaction():
            session = Session(connection, self._database)
            before, began_s = self._clock.now(), self._clock.seconds()
            ((theirs,),) = await session.run("probe_clock", {})
            took_s = self._clock.seconds() - began_s
        return _between(theirs, before) - took_s / 2

    async def commit_s(self) -> float:
        took: list[float] = []
        async with self._alone() as connection:
            session = Session(connection, self._database)
            for _ in range(COMMITS):
                transaction = connection.transaction()
                await transaction.start()
                await connection.execute(local(PATIENCE))
                await session.run("probe_commit", {})
                began_s = self._clock.seconds()
                await transaction.commit()
                took.append(self._clock.seconds() - began_s)
        return median(took)

    async def listen_s(self) -> float | None:
        try:
            connection = await connector(self._listen_url, name="holdfast doctor")()
        except DRIVER_ERRORS as error:
            raise not_connected(error, place(self._listen_url)) from error
        try:
            return await self._rang(connection)
        except DRIVER_ERRORS:
            return None
        finally:
            with suppress(*DRIVER_ERRORS):
                await connection.close(timeout=LISTEN_S_MAX)

    async def _rang(self, connection: Any) -> float:
        """How long a NOTIFY of another connection takes; TimeoutError when it does not come.

        Through a pooler, a connection hears what it sends itself, and nothing else.
        """
        heard = asyncio.Event()
        channel = f"{self._database.schema}_doctor"

        def hear(*_: object) -> None:
            heard.set()

        async with asyncio.timeout(LISTEN_S_MAX), self._alone() as other:
            await connection.add_listener(channel, hear)
            began_s = self._clock.seconds()
            await Session(other, self._database).run("probe_notify", {"channel": channel})
            await heard.wait()
            took_s = self._clock.seconds() - began_s
            await connection.remove_listener(channel, hear)
        return took_s

    async def has_pooler(self) -> bool:
        return await self._database.finds_pooler()

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[Any]:
        """A connection for one question; whatever the server says against it is no bug of ours."""
        try:
            async with self._database.alone() as connection:
                yield connection
        except DRIVER_ERRORS as error:
            raise StoreUnavailable(f"the server answered: {error}") from error

    async def _asked(self, name: str, **params: Any) -> list[Any]:
        async with self._alone() as connection, connection.transaction():
            await connection.execute(local(PATIENCE))
            return await Session(connection, self._database).run(name, params)


def _between(later: datetime, earlier: datetime) -> float:
    return (later - earlier).total_seconds()
