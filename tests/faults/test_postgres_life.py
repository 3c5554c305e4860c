"""A PostgreSQL that is restored, migrated, shared, restarted, or not there at all."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import asyncpg
import pytest

from holdfast.clock import SystemClock
from holdfast.errors import (
    Refused,
    SchemaError,
    SchemaMissing,
    SchemaTooNew,
    StoreUnavailable,
    Unavailable,
)
from holdfast.store import START, Cursor, Position
from holdfast.store import Record as Write
from holdfast.stores.postgres import PostgresStore
from holdfast.task import Event, Grabbed, Key, Outcome, State
from holdfast.testing.contracts.builders import (
    NODE,
    QUEUE,
    a_task,
    claimed,
    enqueued,
    eventually,
    grab,
    grabbed,
    look,
    settle,
    waiting_triggers,
)
from holdfast.testing.postgres import PrivateServer, Server, installed
from schema import NEWEST


def a_store(url: str, **options: object) -> PostgresStore:
    return PostgresStore(url, clock=SystemClock(), rng=Random(0), **options)


@asynccontextmanager
async def opened(url: str, **options: object) -> AsyncIterator[PostgresStore]:
    store = a_store(url, **options)
    await store.migrate()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def shifted(postgres: Server, url: str, shift: str) -> None:
    """Set the clock of the database for connections made from now on, and end the others."""
    name = url.rpartition("/")[2]
    postgres.execute(f"ALTER DATABASE {name} SET holdfast.clock_shift = '{shift}'")
    postgres.execute(
        f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'"
    )


async def test_a_settle_after_midnight_makes_the_day_that_is_missing(postgres, postgres_url):
    async with opened(postgres_url) as store:
        tasks = await grabbed(store, *(a_task() for _ in range(4)))
        await shifted(postgres, postgres_url, "40 days")
        await eventually(lambda: _answers(store))

        outcomes = [
            Outcome(tasks[0].id, tasks[0].version, Event.SUCCEEDED, result=b"1"),
            Outcome(tasks[1].id, tasks[1].version, Event.RETRIED),
        ]
        assert await store.settle(outcomes, node=NODE) == [True, True]

        done = await look(store, tasks[0].id)
        assert (done.state, done.result) == (State.DONE, b"1")
        assert (done.finished_at - done.enqueued_at).days in (39, 40)
        assert (await look(store, tasks[1].id)).state is State.WAITING


async def test_a_transaction_that_settles_after_midnight_keeps_its_work(postgres, postgres_url):
    async with opened(postgres_url) as store:
        (task,) = await grabbed(store)
        await shifted(postgres, postgres_url, "40 days")
        await eventually(lambda: _answers(store))

        async with store.transaction(task, node=NODE) as transaction:
            await transaction.connection.execute("CREATE TABLE work AS SELECT 7 AS done")
            assert await transaction.settle(Outcome(task.id, task.version, Event.SUCCEEDED))

        assert (await look(store, task.id)).state is State.DONE
        name = postgres_url.rpartition("/")[2]
        assert postgres.execute("SELECT done FROM work", database=name) == ["7"]


async def test_an_old_day_that_somebody_reads_is_dropped_by_a_later_clean(postgres_url):
    async with opened(postgres_url) as store:
        (task,) = await grabbed(store, a_task(key=Key("orders", "1")))
        await settle(store, task, Event.SUCCEEDED)
        reader = await asyncpg.connect(postgres_url)
        await reader.execute("SELECT holdfast.make_archive_days(current_date - 41, 2)")
        await reader.execute(
            "UPDATE holdfast.archive SET finished_at = finished_at - interval '40 days'"
        )
        reading = reader.transaction()
        await reading.start()
        await reader.execute("SELECT count(*) FROM holdfast.archive")

        busy = await store.clean(keep_days=30, limit=100)
        await reading.rollback()
        await reader.close()
        free = await store.clean(keep_days=30, limit=100)

        assert (busy, free) == (0, 1)
        assert await store.get([task.id]) == {}
        assert (await store.enqueue([a_task(key=Key("orders", "1"))]))[0].created


async def test_two_that_clean_at_once_do_not_disturb_each_other(postgres_url):
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        admin = await asyncpg.connect(postgres_url)
        await admin.execute("SELECT holdfast.make_archive_days(current_date - 50, 15)")
        await admin.close()

        await asyncio.gather(*(store.clean(keep_days=30, limit=9) for store in (one, two) * 2))
        await one.clean(keep_days=30, limit=9)

        (task,) = await grabbed(two)
        assert await settle(two, task, Event.SUCCEEDED)


async def _answers(store: PostgresStore) -> bool:
    """Whether the store has noticed that its connections are gone, and made new ones."""
    try:
        await store.members()
        await store.counts()
    except Unavailable:
        return False
    return True


@pytest.mark.req("TASK-95")
async def test_a_dump_restored_on_another_server_loses_nothing(postgres, postgres_url):
    name = postgres_url.rpartition("/")[2]
    burn = (
        "DO $$ BEGIN FOR i IN 1..3000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
    )
    postgres.execute(burn, database=name)
    async with opened(postgres_url) as store:
        ids = await enqueued(store, *(a_task(partition=n % 2) for n in range(6)))
        (epoch, *_) = (await claimed(store)).values()
        horizon = (await store.arrivals(QUEUE, [], limit=1, exact=True)).horizon
        await store.record(QUEUE, [Write(partition=0, epoch=epoch, position=Position(horizon, 0))])
    with PrivateServer() as other:
        _copied(postgres, other, name)
        async with _reopened(other.url(name)) as store:
            cursors = [Cursor(partition, START) for partition in (0, 1)]
            exact = await store.arrivals(QUEUE, cursors, limit=100, exact=True)
            (loaded, _) = await store.load(QUEUE, [0, 1])

            assert exact.horizon < horizon
            assert sorted(one.id for one in exact.triggers) == ids
            assert loaded.position == START
            tasks = await grab(store, exact.triggers)
            outcomes = [Outcome(one.id, one.version, Event.SUCCEEDED) for one in tasks]
            assert await store.settle(outcomes, node=NODE) == [True] * 6


@asynccontextmanager
async def _reopened(url: str) -> AsyncIterator[PostgresStore]:
    """A node's start on tables that are there: no migration."""
    store = a_store(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def _copied(source: Server, target: PrivateServer, name: str) -> None:
    target.create_database(name)
    programs = installed() / "bin"
    dump = subprocess.run([programs / "pg_dump", source.url(name)], capture_output=True, check=True)
    subprocess.run(
        [programs / "psql", "--quiet", "--set=ON_ERROR_STOP=1", target.url(name)],
        input=dump.stdout,
        capture_output=True,
        check=True,
    )


@pytest.mark.parametrize("way", ["postgres_url", "pgbouncer_url"])
async def test_four_that_migrate_at_the_same_time_make_one_schema(request, way):
    url = request.getfixturevalue(way)

    versions = await asyncio.gather(*(a_store(url).migrate() for _ in range(4)))

    assert versions == [NEWEST] * 4
    async with opened(url) as store:
        assert await store.schema_status() == (NEWEST, NEWEST)
        assert await enqueued(store)


async def test_the_printed_schema_is_the_migrated_one(postgres, bare_postgres_url):
    name = bare_postgres_url.rpartition("/")[2]
    postgres.execute(a_store(bare_postgres_url).migration_sql(), database=name)

    async with _reopened(bare_postgres_url) as store:
        (task,) = await grabbed(store)
        assert await settle(store, task, Event.SUCCEEDED)
        assert await store.migrate() == NEWEST


async def test_two_schemas_in_one_database_do_not_meet(postgres_url):
    async with opened(postgres_url, schema="one") as one, opened(postgres_url, schema="Two") as two:
        await enqueued(one, a_task(), a_task())
        (task,) = await grabbed(two)
        await claimed(one)

        assert len(await waiting_triggers(one)) == 2
        assert await waiting_triggers(two) == []
        assert {holding.owner for holding in await two.holdings(QUEUE)} == {None}
        assert await settle(two, task, Event.SUCCEEDED)
        assert (await one.counts())[State.DONE] == 0


@pytest.mark.parametrize(
    "schema",
    ["", "a b", 'a"b', "a'; DROP TABLE task; --", "1a", "x" * 60, "public.task", "naïve", "a\0b"],
)
def test_sql_in_the_schema_name_is_refused(schema):
    with pytest.raises(ValueError, match="schema name"):
        a_store("postgresql://nowhere", schema=schema)


async def test_tables_that_are_missing_name_the_command(bare_postgres_url):
    with pytest.raises(SchemaMissing, match="holdfast db migrate"):
        await a_store(bare_postgres_url).open()
    assert await a_store(bare_postgres_url).schema_status() == (NEWEST, None)


async def test_tables_of_a_newer_version_are_left_alone_unless_they_name_ours(
    postgres, postgres_url
):
    async with opened(postgres_url) as store:
        (task,) = await grabbed(store)
        async with store.transaction(task, node=NODE) as transaction:
            await transaction.connection.execute(
                "INSERT INTO holdfast.migration (number, name, checksum) VALUES (99, 'x', 'y')"
            )
    store = a_store(postgres_url)
    await store.open()  # they name our version as one that can work with them
    await store.close()
    name = postgres_url.rpartition("/")[2]
    postgres.execute("UPDATE holdfast.meta SET value = '98' WHERE name = 'code_min'", database=name)

    for call in (a_store(postgres_url).open, a_store(postgres_url).migrate):
        with pytest.raises(SchemaTooNew, match="newer Holdfast"):
            await call()


async def test_a_migration_that_was_applied_with_another_text_is_named(postgres, postgres_url):
    async with opened(postgres_url):
        pass
    name = postgres_url.rpartition("/")[2]
    postgres.execute("UPDATE holdfast.migration SET checksum = 'other'", database=name)

    with pytest.raises(SchemaError, match="0001_kernel"):
        await a_store(postgres_url).migrate()


async def test_values_that_the_database_cannot_hold_are_refused(postgres_url):
    async with opened(postgres_url) as store:
        for task in (a_task(kind="a\0b"), a_task(partition=99_999), a_task(delay_s=1e300)):
            for tasks in ([task], [task, a_task()]):
                with pytest.raises(Refused, match="within range"):
                    await store.enqueue(tasks)

        assert (await store.counts())[State.SUBMITTED] == 0


@pytest.mark.parametrize(
    ("changed", "advice"),
    [
        (lambda url: "postgresql://me:s3cret@127.0.0.1:1/x", "host and port"),
        (lambda url: url.rpartition("/")[0] + "/nowhere", "does not exist"),
        (lambda url: url.replace("postgres@", "nobody:s3cret@"), "user or the password"),
    ],
)
async def test_a_database_that_cannot_be_reached_says_what_to_do(
    postgres_url: str, changed: Callable[[str], str], advice: str
):
    for call in (a_store(changed(postgres_url)).open, a_store(changed(postgres_url)).migrate):
        with pytest.raises(StoreUnavailable, match=advice) as raised:
            await call()
        assert "s3cret" not in str(raised.value)


async def test_what_was_answered_survives_the_death_of_the_server(private_postgres):
    url = private_postgres.create_database("app")
    async with opened(url) as store:
        ids = await enqueued(store, *(a_task() for _ in range(20)))
        (task,) = await grabbed(store)

        private_postgres.kill9()
        with pytest.raises(Unavailable):
            await enqueued(store)
        private_postgres.start()
        await eventually(lambda: _answers(store))

        assert set(ids) <= {one.id for one in await waiting_triggers(store)}
        assert await settle(store, task, Event.SUCCEEDED)


async def test_more_callers_than_connections_wait_in_line(postgres_url):
    async with opened(postgres_url, connections_max=2) as store:
        await asyncio.gather(*(enqueued(store) for _ in range(50)))
        connection = await asyncpg.connect(postgres_url)
        try:
            engine = await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND application_name = 'holdfast'"
            )
        finally:
            await connection.close()

        assert len(await waiting_triggers(store)) == 50
        assert engine <= 4


async def test_a_call_that_is_given_up_leaves_a_usable_store(postgres_url):
    async with opened(postgres_url, connections_max=1) as store:
        holder = await asyncpg.connect(postgres_url)
        try:
            lock = holder.transaction()
            await lock.start()
            await holder.execute("LOCK TABLE holdfast.task IN EXCLUSIVE MODE")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await enqueued(store)
            await lock.rollback()
        finally:
            await holder.close()

        assert await enqueued(store)


async def test_a_handler_leaves_no_settings_behind(postgres_url):
    async with opened(postgres_url, connections_max=1) as store:
        for task in await grabbed(store, a_task(), a_task()):
            async with store.transaction(task, node=NODE) as transaction:
                seqscan = await transaction.connection.fetchval("SHOW enable_seqscan")
                path = await transaction.connection.fetchval("SHOW search_path")
                await transaction.connection.execute("SET search_path = nowhere")
                assert (seqscan, path) == ("on", '"$user", public')
                await transaction.settle(Outcome(task.id, task.version, Event.SUCCEEDED))


@pytest.mark.parametrize("error", [None, ValueError("the handler's own")], ids=["done", "failed"])
async def test_a_handlers_connection_comes_back_when_its_reset_is_given_up(
    postgres_url, monkeypatch, error
):
    resetting = asyncio.Event()

    async def never_ends(connection: asyncpg.Connection, *, timeout: float | None = None) -> None:  # noqa: ASYNC109
        resetting.set()
        await asyncio.Event().wait()

    async def handle(store: PostgresStore, task: Grabbed) -> None:
        async with store.transaction(task, node=NODE) as transaction:
            await transaction.settle(Outcome(task.id, task.version, Event.SUCCEEDED))
            if error is not None:
                raise error

    async with opened(postgres_url, connections_max=1) as store:
        for task in await grabbed(store, *(a_task() for _ in range(3))):
            with monkeypatch.context() as patch:
                patch.setattr(asyncpg.Connection, "reset", never_ends)
                resetting.clear()
                attempt = asyncio.create_task(handle(store, task))
                await asyncio.wait_for(resetting.wait(), 10)
                attempt.cancel()
                assert (await asyncio.gather(attempt, return_exceptions=True))[0] is not None

            async with asyncio.timeout(10):
                counts = await store.counts()  # on the same pool, which has one connection

        assert counts[State.DONE] == (0 if error else 3)


async def test_durability_is_what_the_server_says(postgres_url):
    async with opened(postgres_url) as store:
        settings = await store.durability()

    assert (settings["fsync"], settings["synchronous_commit"]) == ("on", "on")
    assert os.environ.get("HOLDFAST_TEST_PG") or settings["full_page_writes"] == "on"


async def test_a_node_that_renews_while_its_tasks_are_being_resumed_keeps_them(postgres_url):
    """Whoever resumes saw the lease ended; the renewal was under way and is committed first."""
    async with opened(postgres_url) as store:
        await store.renew(NODE, lease_s=0.05, queues=[QUEUE], kinds=[])
        (task,) = await grabbed(store)
        await asyncio.sleep(0.1)
        connection = await asyncpg.connect(postgres_url)
        try:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(
                "UPDATE holdfast.node SET until = holdfast.now() + interval '60 seconds'"
            )
            resuming = asyncio.create_task(store.resume_lost([NODE], deliveries_max=9, limit=10))
            await asyncio.sleep(0.3)
            await transaction.commit()

            assert await resuming == []
        finally:
            await connection.close()
        assert (await look(store, task.id)).version == task.version
