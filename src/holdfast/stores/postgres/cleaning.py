"""Keeping the archive: days ahead are made, days that are too old are dropped as a whole.

A day is detached first and dropped second, so that nobody waits for the drop.  If the process
dies in between, the next clean finds the table by its name and goes on.  A day whose lock is not
to be had in time is left for the next clean.
"""

from __future__ import annotations

from typing import Any

import asyncpg

from holdfast.errors import HoldfastError
from holdfast.sql.query import quoted
from holdfast.stores.postgres.connection import DAYS_AHEAD, Database, Session

LOCK_TIMEOUT = "2s"


async def cleaned(database: Database, *, keep_days: float, limit: int) -> int:
    """Make the days ahead, drop what is older than `keep_days`; how many tasks that were."""
    await database.write("make_archive_days", {"days": DAYS_AHEAD})
    await database.write("clean_keys", {"limit": limit})
    await database.write("clean_schedules", {"keep_days": keep_days, "limit": limit})
    count = 0
    params: dict[str, Any] = {"keep_days": keep_days}
    for day, is_attached, is_pending in await database.read("archive_days", params, plain=True):
        try:
            if is_attached:
                await _detach(database, day, is_pending)
            count += await _drop(database, day)
        except (HoldfastError, asyncpg.PostgresError) as error:
            if not _is_busy(error):
                raise
            break  # one day at a time can be on its way out
    if keep_days < 1:
        params["limit"] = limit
        rows: list[Any] = await database.together(
            lambda session: session.run("clean_young", params), plain=True
        )
        count += len(rows)
    return count


async def _detach(database: Database, day: str, is_pending: bool) -> None:
    text = _of_day(database, "detach_day", day)
    if database.is_pooled:
        # No session is ours, so the timeout holds for a transaction, and CONCURRENTLY refuses one.
        async with database.transaction(plain=True) as session:
            await session.connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
            await session.connection.execute(text + (" FINALIZE" if is_pending else ""))
        return
    async with database.autocommitting() as connection:
        await connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
        await connection.execute(text + (" FINALIZE" if is_pending else " CONCURRENTLY"))


async def _drop(database: Database, day: str) -> int:
    async def dropped(session: Session) -> int:
        await session.connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        await session.connection.execute(_of_day(database, "free_keys_of_day", day))
        count = await session.connection.fetchval(_of_day(database, "count_day", day))
        await session.connection.execute(_of_day(database, "drop_day", day))
        return int(count)

    return await database.together(dropped, plain=True)


_BUSY = (
    asyncpg.LockNotAvailableError,  # somebody reads the day
    asyncpg.ObjectNotInPrerequisiteStateError,  # another cleaner detaches one
    asyncpg.UndefinedTableError,  # another cleaner was faster
    asyncpg.DeadlockDetectedError,  # two detach at once, each waiting for the other's snapshot
)


def _is_busy(error: BaseException) -> bool:
    """Whether the day has to be left for the next clean."""
    return isinstance(error.__cause__ or error, _BUSY)


def _of_day(database: Database, name: str, day: str) -> str:
    return database.query(name).text.strip().replace("{day}", quoted(day))
