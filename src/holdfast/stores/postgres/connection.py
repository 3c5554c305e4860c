"""Connections to PostgreSQL: two bounded pools, one way to run a statement, one to run several.

The **engine pool** serves the hot statements, under planner settings that leave them one plan
each, whatever the statistics say (plans flip after an autoanalyze of a drained table).  The
**plain pool** serves people's searches and the handlers' own transactions, with the planner as
the server has it; plans are cached by connection, so the two must not share any.  Each pool
opens at most `connections_max` connections, the plain one only when it is needed.

Behind a pooler in transaction mode a session belongs to nobody: there, every call is one explicit
transaction that begins with its settings, and no statement is prepared by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, TypeVar

import asyncpg

from holdfast.sql.query import Query, Style, load, quoted, rendered
from holdfast.stores.postgres.failures import (
    CONFLICTS,
    DRIVER_ERRORS,
    LOST,
    failed,
    is_missing_day,
    not_connected,
    place,
)
from holdfast.stores.postgres.pool import Pool

PACKAGE = "holdfast.stores.postgres"
CONNECT_S_MAX = 10.0
STATEMENTS_MAX = 200  # prepared on one connection; we have about fifty
REPEATS_MAX = 5  # of a call that the server sent back because of a deadlock
DAYS_AHEAD = 9  # yesterday, today and a week

T = TypeVar("T")
Params = Mapping[str, Any]
Rows = Sequence[Sequence[Any]]

PLANNER = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "enable_material": "off",
    "jit": "off",  # the price of a disabled plan node would switch it on
    "plan_cache_mode": "force_generic_plan",
}
TIMEOUTS = {
    "statement_timeout": "30s",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "60s",
}
_NAME = {"application_name": "holdfast"}  # the only setting that every pooler lets through
_SHARED = _NAME | {"default_transaction_isolation": "read committed"}
ENGINE = _SHARED | PLANNER | TIMEOUTS
PLAIN = _SHARED | {"idle_in_transaction_session_timeout": "1h"}


class EngineConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that runs only our own statements, which leave nothing behind to reset."""

    def get_reset_query(self) -> str:
        return ""


class Session:
    """One connection while it is ours: runs the files of `queries/` by name."""

    def __init__(self, connection: Any, database: Database) -> None:
        self.connection = connection
        self._database = database

    async def run(self, name: str, params: Params) -> list[Any]:
        """The rows of `queries/<name>.sql`."""
        text, names = self._database.text(name)
        rows: list[Any] = await self.connection.fetch(text, *[params[each] for each in names])
        return rows


class Database:
    """The pools of one store, and the texts of its schema."""

    def __init__(
        self, url: str, *, schema: str, rng: Random, connections_max: int, pooled: bool | None
    ) -> None:
        quoted(schema)  # refuses anything but a plain name
        assert connections_max >= 1, "a store needs a connection"
        self.schema = schema
        self.where = place(url)
        self._knows_pooler = pooled is not None
        self.is_pooled = bool(pooled)
        self._url = url
        self._rng = rng
        self._connections_max = connections_max
        self._engine: Pool | None = None
        self._plain: Pool | None = None
        self._texts: dict[str, tuple[str, tuple[str, ...]]] = {}

    def query(self, name: str) -> Query:
        return load(PACKAGE, name, self.schema)

    def text(self, name: str) -> tuple[str, tuple[str, ...]]:
        """The text for asyncpg, and its parameters' names."""
        if (known := self._texts.get(name)) is None:
            known = self._texts[name] = rendered(self.query(name), Style.DOLLAR)
        return known

    async def open(self) -> None:
        """Look whether a pooler is in between, and make the pools; at once if they exist."""
        if self._engine is not None:
            return
        if not self._knows_pooler:
            self.is_pooled = await self.finds_pooler()
        self._engine = self._pool(ENGINE, EngineConnection)
        self._plain = self._pool(PLAIN, asyncpg.Connection)

    async def close(self) -> None:
        """Wait for what is running, then let go of every connection.  Safe to repeat."""
        pools, self._engine, self._plain = (self._engine, self._plain), None, None
        for pool in pools:
            if pool is not None:
                await pool.close()

    async def read(self, name: str, params: Params, *, plain: bool = False) -> list[Any]:
        """The rows of a statement that writes nothing; repeated by the caller at will."""
        if self.is_pooled:
            return await self.together(lambda session: session.run(name, params), plain=plain)
        async with self._connection(self._plain if plain else self._engine) as connection:
            try:
                return await Session(connection, self).run(name, params)
            except DRIVER_ERRORS as error:
                raise self._mapped(error) from error

    async def write(self, name: str, params: Params, *, repeat_is_safe: bool = True) -> list[Any]:
        """Run one statement as a transaction of its own: one round trip."""
        if self.is_pooled:
            return await self.together(
                lambda session: session.run(name, params), repeat_is_safe=repeat_is_safe
            )

        async def once() -> list[Any]:
            async with self._connection(self._engine) as connection:
                return await Session(connection, self).run(name, params)

        return await self._settled(once, repeat_is_safe=repeat_is_safe)

    async def together(
        self,
        work: Callable[[Session], Awaitable[T]],
        *,
        repeat_is_safe: bool = True,
        plain: bool = False,
    ) -> T:
        """Run the statements of `work` in one transaction; `work` may be called again."""

        async def once() -> T:
            async with self.transaction(plain=plain, repeat_is_safe=repeat_is_safe) as session:
                return await work(session)

        return await self._settled(once, repeat_is_safe=repeat_is_safe, may_have_happened=False)

    @asynccontextmanager
    async def transaction(
        self, *, plain: bool = False, repeat_is_safe: bool = True
    ) -> AsyncIterator[Session]:
        """A transaction that commits at the end of the block and rolls back when it raises.

        Errors of the driver inside the block come out as they are; those of the commit are
        mapped, because only there nobody can tell.
        """
        async with self._connection(self._plain if plain else self._engine) as connection:
            transaction = connection.transaction(isolation="read_committed")
            try:
                await transaction.start()
            except DRIVER_ERRORS as error:
                raise self._mapped(error) from error
            try:
                if self.is_pooled:
                    await connection.execute(local(TIMEOUTS if plain else PLANNER | TIMEOUTS))
                yield Session(connection, self)
            except BaseException:
                with suppress(*DRIVER_ERRORS):
                    await transaction.rollback()
                raise
            try:
                await transaction.commit()
            except DRIVER_ERRORS as error:
                raise self._mapped(
                    error, may_have_happened=True, repeat_is_safe=repeat_is_safe
                ) from error

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Any]:
        """A connection outside of the pools, for migrating before there is anything to open."""
        try:
            connection = await asyncpg.connect(
                self._url, timeout=CONNECT_S_MAX, statement_cache_size=0
            )
        except DRIVER_ERRORS as error:
            raise not_connected(error, self.where) from error
        try:
            yield connection
        except DRIVER_ERRORS as error:
            raise self._mapped(error) from error
        finally:
            with suppress(*DRIVER_ERRORS):
                await connection.close(timeout=CONNECT_S_MAX)

    @asynccontextmanager
    async def autocommitting(self) -> AsyncIterator[Any]:
        """A plain connection for statements that must not run inside a transaction."""
        async with self._connection(self._plain) as connection:
            try:
                yield connection
            except DRIVER_ERRORS as error:
                raise self._mapped(error) from error

    async def make_archive_days(self) -> None:
        """Make the day tables up to a week ahead."""
        async with self.transaction() as session:
            await session.run("make_archive_days", {"days": DAYS_AHEAD})

    async def _settled(
        self,
        once: Callable[[], Awaitable[T]],
        *,
        repeat_is_safe: bool,
        may_have_happened: bool = True,
    ) -> T:
        """The answer of `once`, repeated while the server says that only its timing was wrong."""
        for repeat in range(REPEATS_MAX):
            try:
                return await once()
            except DRIVER_ERRORS as error:
                is_last = repeat == REPEATS_MAX - 1
                if isinstance(error, CONFLICTS) and not is_last:
                    await asyncio.sleep(self._rng.uniform(0.5, 1.5) * 0.01 * 2**repeat)
                elif is_missing_day(error) and not is_last:
                    await self._made_days()
                else:
                    raise self._mapped(
                        error, may_have_happened=may_have_happened, repeat_is_safe=repeat_is_safe
                    ) from error
        raise AssertionError("the last repeat returns or raises")

    async def _made_days(self) -> None:
        try:
            await self.make_archive_days()
        except DRIVER_ERRORS as error:
            raise self._mapped(error) from error

    def _mapped(
        self,
        error: BaseException,
        *,
        may_have_happened: bool = False,
        repeat_is_safe: bool = True,
    ) -> BaseException:
        return (
            failed(
                error,
                self.where,
                may_have_happened=may_have_happened,
                repeat_is_safe=repeat_is_safe,
            )
            or error
        )

    @asynccontextmanager
    async def _connection(self, pool: Pool | None) -> AsyncIterator[Any]:
        assert pool is not None, "the store is not open"
        try:
            connection = await pool.take()
        except DRIVER_ERRORS as error:
            raise not_connected(error, self.where) from error
        is_sound = False
        try:
            yield connection
            is_sound = True
        except asyncpg.PostgresError as error:
            # Having said no, the server stands ready for the next statement.
            is_sound = not isinstance(error, LOST)
            raise
        except Exception:
            is_sound = pool is self._plain  # a handler's own error; the reset below decides
            raise
        finally:
            try:
                if is_sound and pool is self._plain:
                    is_sound, is_reset = False, await _is_reset(connection)
                    is_sound = is_reset
            finally:
                # Also when the reset was cancelled: a connection that nobody gives back is lost.
                pool.give(connection, is_sound=is_sound)

    def _pool(self, settings: dict[str, str], kind: type[Any]) -> Pool:
        async def connect() -> Any:
            return await asyncpg.connect(
                self._url,
                timeout=CONNECT_S_MAX,
                connection_class=EngineConnection if self.is_pooled else kind,
                server_settings=_NAME if self.is_pooled else settings,
                statement_cache_size=0 if self.is_pooled else STATEMENTS_MAX,
            )

        return Pool(connect, size_max=self._connections_max)

    async def finds_pooler(self) -> bool:
        """Whether something between us and the server hands its sessions around.

        A pooler refuses our settings, or forgets them, or shows another process number than the
        server does.  In a mode that keeps sessions apart the answer costs speed only.
        """
        try:
            connection = await asyncpg.connect(
                self._url, timeout=CONNECT_S_MAX, statement_cache_size=0, server_settings=ENGINE
            )
        except asyncpg.ProtocolViolationError:
            return True
        except DRIVER_ERRORS as error:
            raise not_connected(error, self.where) from error
        try:
            async with connection.transaction():
                pid, seqscan = await connection.fetchrow(
                    "SELECT pg_backend_pid(), current_setting('enable_seqscan')"
                )
            return bool(pid != connection.get_server_pid() or seqscan != "off")
        except DRIVER_ERRORS as error:
            raise self._mapped(error) from error
        finally:
            await connection.close(timeout=CONNECT_S_MAX)


async def _is_reset(connection: Any) -> bool:
    """Whether the session is as new: what a handler set, locked or prepared must not stay."""
    try:
        await connection.reset(timeout=CONNECT_S_MAX)
    except DRIVER_ERRORS:
        return False
    return True


def local(settings: Mapping[str, str]) -> str:
    """The settings for the rest of this transaction, as statements."""
    return "; ".join(f"SET LOCAL {name} = '{value}'" for name, value in settings.items())
