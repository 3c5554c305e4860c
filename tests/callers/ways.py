"""Every way to bring a transaction, behind the same six verbs.

Sync drivers work on a thread of their own, as they do in a web server: their connections never
meet the event loop.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import django
import psycopg
from django.conf import settings
from django.db import connections, transaction
from django.db.utils import ConnectionHandler
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

if not settings.configured:
    settings.configure(USE_TZ=True, DATABASES={})
    django.setup()


class Way:
    """One driver.  `within` is what the user gives; the thread is None for async drivers."""

    store = "postgres"
    within: Any

    def __init__(self, address: str) -> None:
        self.address = address  # a PostgreSQL URL, or the path of a SQLite file
        self.thread: ThreadPoolExecutor | None = None

    async def open(self) -> None: ...
    async def begin(self) -> None: ...
    async def execute(self, sql: str) -> None: ...
    async def savepoint(self) -> None: ...
    async def rollback_savepoint(self) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def close(self) -> None: ...

    async def call(self, work: Callable[[], Any]) -> Any:
        """Run something where the driver lives; an async driver's coroutine is awaited."""
        if self.thread is not None:
            return await asyncio.get_running_loop().run_in_executor(self.thread, work)
        found = work()
        return await found if isinstance(found, Coroutine) else found


class SyncWay(Way):
    """The verbs of a sync driver, moved to its thread."""

    async def open(self) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="caller")
        await self.call(self.on_open)

    async def begin(self) -> None:
        await self.call(self.on_begin)

    async def execute(self, sql: str) -> None:
        await self.call(lambda: self.on_execute(sql))

    async def savepoint(self) -> None:
        await self.call(self.on_savepoint)

    async def rollback_savepoint(self) -> None:
        await self.call(self.on_rollback_savepoint)

    async def commit(self) -> None:
        await self.call(self.on_commit)

    async def rollback(self) -> None:
        await self.call(self.on_rollback)

    async def close(self) -> None:
        await self.call(self.on_close)
        assert self.thread is not None
        self.thread.shutdown()

    def on_begin(self) -> None: ...

    def on_savepoint(self) -> None:
        self.on_execute("SAVEPOINT mine")

    def on_rollback_savepoint(self) -> None:
        self.on_execute("ROLLBACK TO SAVEPOINT mine")


class Asyncpg(Way):
    async def open(self) -> None:
        self.within = await asyncpg.connect(self.address)

    async def begin(self) -> None:
        self._outer = self.within.transaction()
        await self._outer.start()

    async def execute(self, sql: str) -> None:
        await self.within.execute(sql)

    async def savepoint(self) -> None:
        self._inner = self.within.transaction()
        await self._inner.start()

    async def rollback_savepoint(self) -> None:
        await self._inner.rollback()

    async def commit(self) -> None:
        await self._outer.commit()

    async def rollback(self) -> None:
        await self._outer.rollback()

    async def close(self) -> None:
        await self.within.close()


class AsyncpgPool(Asyncpg):
    """A pool of one connection, which the caller holds all the time."""

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(self.address, min_size=1, max_size=1)
        self.within = await self._pool.acquire()

    async def close(self) -> None:
        await self._pool.release(self.within)
        await self._pool.close()


class Psycopg(SyncWay):
    def on_open(self) -> None:
        self.within = psycopg.connect(self.address)

    def on_execute(self, sql: str) -> None:
        self.within.execute(sql)

    def on_commit(self) -> None:
        self.within.commit()

    def on_rollback(self) -> None:
        self.within.rollback()

    def on_close(self) -> None:
        self.within.close()


class AsyncPsycopg(Way):
    async def open(self) -> None:
        self.within = await psycopg.AsyncConnection.connect(self.address)

    async def execute(self, sql: str) -> None:
        await self.within.execute(sql)

    async def savepoint(self) -> None:
        await self.within.execute("SAVEPOINT mine")

    async def rollback_savepoint(self) -> None:
        await self.within.execute("ROLLBACK TO SAVEPOINT mine")

    async def commit(self) -> None:
        await self.within.commit()

    async def rollback(self) -> None:
        await self.within.rollback()

    async def close(self) -> None:
        await self.within.close()


class SQLite3(SyncWay):
    store = "sqlite"

    def on_open(self) -> None:
        self.within = sqlite3.connect(self.address, isolation_level=None)

    def on_begin(self) -> None:
        self.within.execute("BEGIN IMMEDIATE")

    def on_execute(self, sql: str) -> None:
        self.within.execute(sql).fetchall()

    def on_commit(self) -> None:
        self.within.execute("COMMIT")

    def on_rollback(self) -> None:
        self.within.execute("ROLLBACK")

    def on_close(self) -> None:
        self.within.close()


class SQLite3Implicit(SQLite3):
    """Python's old way: a transaction begins by itself with the first write."""

    def on_open(self) -> None:
        self.within = sqlite3.connect(self.address)

    def on_begin(self) -> None: ...

    def on_commit(self) -> None:
        self.within.commit()

    def on_rollback(self) -> None:
        self.within.rollback()


class SASession(SyncWay):
    def engine_url(self) -> str:
        return self.address.replace("postgresql://", "postgresql+psycopg://")

    def on_open(self) -> None:
        self.engine = create_engine(self.engine_url(), pool_size=1, max_overflow=0)
        self.within = Session(self.engine)

    def on_begin(self) -> None:
        self.within.begin()

    def on_execute(self, sql: str) -> None:
        self.within.connection().exec_driver_sql(sql)

    def on_savepoint(self) -> None:
        self._inner = self.within.begin_nested()

    def on_rollback_savepoint(self) -> None:
        self._inner.rollback()

    def on_commit(self) -> None:
        self.within.commit()

    def on_rollback(self) -> None:
        self.within.rollback()

    def on_close(self) -> None:
        self.within.close()
        self.engine.dispose()


class SAConnection(SASession):
    def on_open(self) -> None:
        self.engine = create_engine(self.engine_url(), pool_size=1, max_overflow=0)
        self.within = self.engine.connect()

    def on_execute(self, sql: str) -> None:
        self.within.exec_driver_sql(sql)


class SASessionSQLite(SASession):
    store = "sqlite"

    def engine_url(self) -> str:
        return f"sqlite:///{self.address}"


class SAConnectionSQLite(SAConnection):
    store = "sqlite"

    def engine_url(self) -> str:
        return f"sqlite:///{self.address}"


class SAAsyncSession(Way):
    def engine_url(self) -> str:
        return self.address.replace("postgresql://", "postgresql+asyncpg://")

    async def open(self) -> None:
        self.engine = create_async_engine(self.engine_url(), pool_size=1, max_overflow=0)
        self.within = AsyncSession(self.engine)

    async def begin(self) -> None:
        await self.within.begin()

    async def execute(self, sql: str) -> None:
        await (await self.within.connection()).exec_driver_sql(sql)

    async def savepoint(self) -> None:
        self._inner = await self.within.begin_nested()

    async def rollback_savepoint(self) -> None:
        await self._inner.rollback()

    async def commit(self) -> None:
        await self.within.commit()

    async def rollback(self) -> None:
        await self.within.rollback()

    async def close(self) -> None:
        await self.within.close()
        await self.engine.dispose()


class SAAsyncSessionPsycopg(SAAsyncSession):
    def engine_url(self) -> str:
        return self.address.replace("postgresql://", "postgresql+psycopg_async://")


class SAAsyncSessionSQLite(SAAsyncSession):
    store = "sqlite"

    def engine_url(self) -> str:
        return f"sqlite+aiosqlite:///{self.address}"


class SAAsyncConnection(SAAsyncSession):
    async def open(self) -> None:
        self.engine = create_async_engine(self.engine_url(), pool_size=1, max_overflow=0)
        self.within = await self.engine.connect()

    async def execute(self, sql: str) -> None:
        await self.within.exec_driver_sql(sql)


class Django(SyncWay):
    """The alias, as `within="default"`."""

    within = "default"

    def database(self) -> dict[str, Any]:
        parts = psycopg.conninfo.conninfo_to_dict(self.address)
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts["dbname"],
            "USER": parts["user"],
            "HOST": parts["host"],
            "PORT": parts["port"],
        }

    def on_open(self) -> None:
        # Connections belong to a thread; this one's `default` is the database of the test.
        self.connection = ConnectionHandler({"default": self.database()})["default"]
        connections["default"] = self.connection

    def on_begin(self) -> None:
        self._outer = transaction.atomic()
        self._outer.__enter__()

    def on_execute(self, sql: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)

    def on_savepoint(self) -> None:
        self._inner = transaction.atomic()
        self._inner.__enter__()

    def on_rollback_savepoint(self) -> None:
        self._inner.__exit__(LookupError, LookupError(), None)

    def on_commit(self) -> None:
        self._outer.__exit__(None, None, None)

    def on_rollback(self) -> None:
        self._outer.__exit__(LookupError, LookupError(), None)

    def on_close(self) -> None:
        self.connection.close()
        del connections["default"]


class DjangoSQLite(Django):
    store = "sqlite"

    def database(self) -> dict[str, Any]:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": self.address}


EIGHT: dict[str, type[Way]] = {
    "asyncpg": Asyncpg,
    "psycopg": Psycopg,
    "async psycopg": AsyncPsycopg,
    "sqlalchemy Session": SASession,
    "sqlalchemy AsyncSession": SAAsyncSession,
    "sqlalchemy Connection": SAConnection,
    "django": Django,
    "sqlite3": SQLite3,
}
MORE: dict[str, type[Way]] = {
    "asyncpg pool": AsyncpgPool,
    "sqlite3 implicit": SQLite3Implicit,
    "sqlalchemy Session, SQLite": SASessionSQLite,
    "sqlalchemy AsyncSession, SQLite": SAAsyncSessionSQLite,
    "sqlalchemy AsyncSession, psycopg": SAAsyncSessionPsycopg,
    "sqlalchemy Connection, SQLite": SAConnectionSQLite,
    "sqlalchemy AsyncConnection": SAAsyncConnection,
    "django, SQLite": DjangoSQLite,
}
WAYS = EIGHT | MORE
