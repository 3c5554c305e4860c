"""What cannot carry a task is refused with what to do instead, and nothing is written."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from callers.rig import Rig, rig_on_postgres, rig_on_sqlite
from callers.ways import (
    WAYS,
    Django,
    DjangoSQLite,
    SAConnectionSQLite,
    SQLite3,
    SQLite3Implicit,
    Way,
)
from holdfast.callers import wrap
from holdfast.errors import TransactionRefused


@pytest.fixture
async def on_postgres(postgres_url: str) -> AsyncIterator[Rig]:
    async with rig_on_postgres(postgres_url) as rig:
        yield rig


@pytest.fixture
async def on_sqlite(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig_on_sqlite(tmp_path / "app.db") as rig:
        yield rig


async def refused(rig: Rig, way: Way) -> str:
    """Why the way's connection was refused."""
    await way.open()
    try:
        await way.begin()
        with pytest.raises(TransactionRefused) as caught:
            await rig.enqueue(way)
        await way.rollback()
    finally:
        await way.close()
    assert sum((await rig.store.counts()).values()) == 0
    return str(caught.value)


async def test_a_connection_to_another_database_is_refused(
    on_postgres: Rig, postgres, postgres_url: str
) -> None:
    other = postgres.create_database("holdfast_other")
    try:
        for name in [name for name, way in WAYS.items() if way.store == "postgres"]:
            reason = await refused(on_postgres, WAYS[name](other))
            assert "'holdfast_other'" in reason and "store's own database" in reason, name
    finally:
        postgres.drop_database("holdfast_other")


async def test_a_connection_to_another_file_is_refused(on_sqlite: Rig, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    for name in [name for name, way in WAYS.items() if way.store == "sqlite"]:
        reason = await refused(on_sqlite, WAYS[name](str(other)))
        assert str(other) in reason and on_sqlite.address in reason, name


async def test_a_database_in_memory_is_refused(on_sqlite: Rig) -> None:
    assert "a database in memory" in await refused(on_sqlite, SQLite3(":memory:"))


async def test_another_kind_of_database_is_refused(on_sqlite: Rig, postgres_url: str) -> None:
    for name in [name for name, way in WAYS.items() if way.store == "postgres"]:
        reason = await refused(on_sqlite, WAYS[name](postgres_url))
        assert "PostgreSQL" in reason and "the store is on SQLite" in reason, name


async def test_a_connection_without_a_transaction_is_refused(on_postgres: Rig) -> None:
    url = on_postgres.address
    plain = await asyncpg.connect(url)
    with pytest.raises(TransactionRefused, match=r"async with connection\.transaction\(\)"):
        wrap(plain, kit=on_postgres.kit)
    await plain.close()

    with (
        psycopg.connect(url, autocommit=True) as automatic,
        pytest.raises(TransactionRefused, match=r"with connection\.transaction\(\)"),
    ):
        wrap(automatic, kit=on_postgres.kit)

    django = Django(url)
    await django.open()
    with pytest.raises(TransactionRefused, match=r"transaction\.atomic\(\)"):
        await on_postgres.enqueue(django)
    await django.close()


async def test_a_psycopg_connection_in_autocommit_is_taken_inside_a_transaction_block(
    on_postgres: Rig,
) -> None:
    async with await psycopg.AsyncConnection.connect(
        on_postgres.address, autocommit=True
    ) as connection:
        way = Way(on_postgres.address)
        way.within = connection
        async with connection.transaction():
            ids = await on_postgres.enqueue(way)

        await on_postgres.sent.until(1)
        assert on_postgres.sent.ids == ids


async def test_a_sqlite3_connection_without_a_transaction_is_refused(on_sqlite: Rig) -> None:
    db = sqlite3.connect(on_sqlite.address, isolation_level=None)
    with pytest.raises(TransactionRefused, match="BEGIN IMMEDIATE"):
        wrap(db, kit=on_sqlite.kit)
    db.close()


async def test_an_isolation_level_without_transactions_is_refused(on_postgres: Rig) -> None:
    url = on_postgres.address.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        caller = wrap(connection, kit=on_postgres.kit)
        with pytest.raises(TransactionRefused, match="AUTOCOMMIT"):
            caller.run_sync(on_postgres.store.enqueueing([]))
    engine.dispose()


@pytest.mark.parametrize("way_type", [SQLite3, SAConnectionSQLite, DjangoSQLite])
async def test_a_read_before_the_write_is_named_as_the_cause_of_a_locked_file(
    on_sqlite: Rig, way_type: type[Way]
) -> None:
    way, other = way_type(on_sqlite.address), SQLite3(on_sqlite.address)
    await way.open()
    await other.open()
    if way_type is SQLite3:
        await way.execute("BEGIN")
    else:
        await way.begin()
        await way.execute("SAVEPOINT one")  # begins a transaction that has no lock yet
    await way.execute("SELECT * FROM holdfast_task")
    await other.begin()
    await on_sqlite.enqueue(other)
    await other.commit()

    with pytest.raises(TransactionRefused, match=r"has read before it writes.*BEGIN IMMEDIATE"):
        await on_sqlite.enqueue(way)
    await way.rollback()
    await way.close()
    await other.close()


async def test_the_callers_connection_stops_checkpointing(on_sqlite: Rig) -> None:
    way = SQLite3Implicit(on_sqlite.address)
    await way.open()
    await on_sqlite.enqueue(way)
    await way.commit()

    asked = "PRAGMA wal_autocheckpoint"
    assert await way.call(lambda: way.within.execute(asked).fetchone()) == (0,)
    await way.close()


async def test_what_is_no_connection_is_refused_by_name(on_postgres: Rig) -> None:
    pool = asyncpg.create_pool(on_postgres.address)
    engine = create_engine("sqlite://")
    with psycopg.connect(on_postgres.address) as connection:
        for given, word in [
            (object(), "builtins.object"),
            (pool, "pool.acquire"),
            (connection.cursor(), "cursor.connection"),
            (engine, "Engine"),
            (sessionmaker(engine), "sessionmaker"),
            ("nowhere", "'nowhere'"),
        ]:
            with pytest.raises(TransactionRefused, match=word):
                wrap(given, kit=on_postgres.kit)
    engine.dispose()
