"""When a COMMIT may not have kept everything, the store is asked before anything is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import django.db
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from callers.rig import Rig, rig_on_postgres
from callers.ways import (
    Asyncpg,
    AsyncPsycopg,
    Django,
    Psycopg,
    SAAsyncSession,
    SAConnection,
    SASession,
    Way,
)
from conditions import until


@pytest.fixture
async def rig(postgres_url: str) -> AsyncIterator[Rig]:
    async with rig_on_postgres(postgres_url) as rig:
        yield rig


async def test_a_commit_after_a_caught_error_keeps_nothing_and_sends_nothing(rig: Rig) -> None:
    """PostgreSQL answers COMMIT in a broken transaction with ROLLBACK, and no driver raises."""
    for way_type in (
        Asyncpg,
        Psycopg,
        AsyncPsycopg,
        SASession,
        SAAsyncSession,
        SAConnection,
        Django,
    ):
        way: Way = way_type(rig.address)
        await way.open()
        await way.begin()
        await rig.enqueue(way)
        with pytest.raises(Exception, match="division by zero"):
            await way.execute("SELECT 1/0")
        await way.commit()
        await rig.time_passes()
        await way.close()

        assert rig.sent.triggers == [], way_type.__name__
    assert sum((await rig.store.counts()).values()) == 0


async def test_a_transaction_ended_by_a_text_of_several_statements_is_looked_up(rig: Rig) -> None:
    way = Asyncpg(rig.address)
    await way.open()
    await way.execute("BEGIN")
    ids = await rig.enqueue(way)
    await way.execute("SELECT 1; COMMIT")

    await rig.sent.until(1)
    assert rig.sent.ids == ids and not rig.kit.hooks
    await way.close()


@pytest.mark.parametrize("word", ["commit", "  COMMIT;", "END", "Commit Work"])
async def test_asyncpg_commits_written_by_hand_are_seen(rig: Rig, word: str) -> None:
    way = Asyncpg(rig.address)
    await way.open()
    await way.execute("BEGIN")
    ids = await rig.enqueue(way)
    await way.execute(word)

    await rig.sent.until(1)
    assert rig.sent.ids == ids and rig.looks == [] and not rig.kit.hooks
    await way.close()


async def test_a_happy_commit_asks_the_store_nothing_where_the_driver_has_a_hook(
    rig: Rig,
) -> None:
    for count, way_type in enumerate((Asyncpg, SASession, SAAsyncSession, Django), 1):
        way: Way = way_type(rig.address)
        await way.open()
        await way.begin()
        await rig.enqueue(way)
        await way.commit()
        await rig.sent.until(count)
        await way.close()

    await rig.time_passes()
    assert rig.looks == []


async def test_without_a_hook_the_store_is_asked_once_and_only_after_the_end(rig: Rig) -> None:
    for count, way_type in enumerate((Psycopg, AsyncPsycopg), 1):
        way: Way = way_type(rig.address)
        await way.open()
        await way.begin()
        await rig.enqueue(way)
        await rig.time_passes()
        assert len(rig.looks) == count - 1
        await way.commit()
        await rig.sent.until(count)
        await way.close()

    await rig.time_passes()
    assert len(rig.looks) == 2


async def test_a_session_on_somebody_elses_connection_waits_for_that_connections_commit(
    rig: Rig,
) -> None:
    way = SAConnection(rig.address)
    await way.open()
    await way.begin()
    inner = Way(rig.address)
    inner.thread = way.thread
    inner.within = await way.call(lambda: Session(way.within))
    ids = await rig.enqueue(inner)
    await way.call(inner.within.commit)
    await rig.time_passes()
    assert rig.sent.triggers == []

    await way.commit()

    await rig.sent.until(1)
    assert rig.sent.ids == ids
    await way.close()


async def test_a_scoped_session_is_its_threads_session(rig: Rig) -> None:
    way = SASession(rig.address)
    await way.open()
    engine = create_engine(way.engine_url())
    session = way.within = scoped_session(sessionmaker(engine))
    ids = await rig.enqueue(way)
    await way.call(session.commit)

    await rig.sent.until(1)
    assert rig.sent.ids == ids
    await way.call(session.remove)
    way.within = await way.call(session)
    await way.close()
    engine.dispose()


async def test_djangos_connection_objects_are_taken_like_the_alias(rig: Rig) -> None:
    way = Django(rig.address)
    await way.open()
    await way.begin()
    ids = []
    for given in ("default", django.db.connection, way.connection):
        way.within = given
        ids += await rig.enqueue(way)
    await way.commit()

    await rig.sent.until(3)
    assert rig.sent.ids == ids and not rig.kit.hooks
    await way.close()


async def test_djangos_lookout_leaves_with_the_next_statement_after_a_rollback(rig: Rig) -> None:
    way = Django(rig.address)
    await way.open()
    await way.begin()
    await rig.enqueue(way)
    await way.rollback()
    await way.execute("SELECT 1")

    assert not rig.kit.hooks and not way.connection.execute_wrappers
    await way.close()


async def test_a_connection_that_was_closed_by_its_block_has_committed(rig: Rig) -> None:
    way = Psycopg(rig.address)
    await way.open()

    async with await psycopg.AsyncConnection.connect(rig.address) as connection:
        inner = Way(rig.address)
        inner.within = connection
        ids = await rig.enqueue(inner)
    del inner, connection

    await rig.sent.until(1)
    assert rig.sent.ids == ids
    await way.close()


async def test_a_lost_connection_sends_nothing_for_what_it_rolled_back(rig: Rig) -> None:
    connection = await asyncpg.connect(rig.address)
    way = Way(rig.address)
    way.within = connection
    transaction = connection.transaction()
    await transaction.start()
    await rig.enqueue(way)
    pid = connection.get_server_pid()

    other = await asyncpg.connect(rig.address)
    await other.execute("SELECT pg_terminate_backend($1)", pid)
    await other.close()

    await until(connection.is_closed)
    await rig.time_passes()
    assert rig.sent.triggers == [] and not rig.kit.hooks
