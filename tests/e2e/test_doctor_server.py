"""`holdfast doctor` on PostgreSQL: servers, users and poolers that are really wrong."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
import pytest

from examined import FAIL, OK, WARN, examined, prepared
from holdfast.doctor.finding import Thresholds
from holdfast.doctor.server import check_version
from holdfast.testing.contracts.builders import eventually
from holdfast.testing.postgres import PrivateServer, Server
from holdfast.testing.processes import ended, free_port, spawn, until

pytestmark = pytest.mark.store("postgres")


@pytest.fixture
async def server_url(postgres_url: str) -> str:
    return await prepared(postgres_url)


async def test_an_old_snapshot_names_who_holds_it(server_url: str):
    connection = await asyncpg.connect(server_url, server_settings={"application_name": "bi"})
    async with connection.transaction(isolation="repeatable_read"):
        await connection.fetch("SELECT 1 AS report FROM holdfast.task")
        pid = await connection.fetchval("SELECT pg_backend_pid()")
        (await examined(server_url)).says("xmin", OK)
        found = await examined(server_url, limits=Thresholds(snapshot_s=0.0))
    await connection.close()

    words = [f"pid {pid}, user postgres, idle in transaction", '"SELECT pg_backend_pid()"']
    found.says("xmin", WARN, "the oldest snapshot is ", *words)
    assert found["xmin"].fix.startswith(f"end it: SELECT pg_terminate_backend({pid})")


async def test_a_clock_that_differs_is_told_in_both_directions(server_url: str, postgres: Server):
    name = server_url.rpartition("/")[2]
    for shift, words in (("1 hour", "60 min ahead of"), ("-90 seconds", "90 s behind")):
        postgres.execute(f"ALTER DATABASE {name} SET holdfast.clock_shift = '{shift}'")
        found = await examined(server_url)
        found.says("clock", WARN, f"the store's clock is {words} this machine's")


async def test_a_user_who_may_not_write_is_told_what_it_lacks(server_url: str, postgres: Server):
    name, role = server_url.rpartition("/")[2], f"reader_{os.getpid()}"
    postgres.execute(f"CREATE ROLE {role} LOGIN")
    postgres.execute(f"GRANT USAGE ON SCHEMA holdfast TO {role}", database=name)
    postgres.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO {role}", database=name)
    try:
        found = await examined(server_url.replace("postgres@", f"{role}@"))
    finally:
        postgres.execute(f"DROP OWNED BY {role}", database=name)
        postgres.execute(f"DROP ROLE {role}")

    found.says("rights", FAIL, "this user lacks CREATE on schema holdfast, DELETE on archive")
    found.says("schema", OK)


async def test_a_user_without_any_right_is_a_failure(server_url: str, postgres: Server):
    role = f"nobody_{os.getpid()}"
    postgres.execute(f"CREATE ROLE {role} LOGIN")
    try:
        found = await examined(server_url.replace("postgres@", f"{role}@"))
    finally:
        postgres.execute(f"DROP ROLE {role}")

    found.says("store", FAIL, "refused us: grant this user the rights")


async def test_tables_that_somebody_has_locked_do_not_hang_the_doctor(server_url: str):
    connection = await asyncpg.connect(server_url)
    async with connection.transaction():
        await connection.execute("LOCK TABLE holdfast.node")
        slow = await examined(server_url, limits=Thresholds(check_s=1.0))
        await connection.execute("LOCK TABLE holdfast.migration")
        closed = await examined(server_url, limits=Thresholds(check_s=1.0))
    await connection.close()

    slow.says("nodes", WARN, "could not be checked: no answer within 1.0 s")
    slow.says("schema", OK)
    closed.says("store", FAIL, "it does not answer within 1.0 s", "a long lock")


async def test_tables_that_lost_their_settings_and_dead_rows_are_named(server_url: str):
    connection = await asyncpg.connect(server_url)
    await connection.execute("ALTER TABLE holdfast.backlog RESET (autovacuum_vacuum_threshold)")
    await connection.execute("ALTER TABLE holdfast.meta SET (autovacuum_enabled = false)")
    await connection.execute("INSERT INTO holdfast.meta SELECT n, n FROM generate_series(1, 50) n")
    await connection.execute("DELETE FROM holdfast.meta WHERE value = name")
    limits = Thresholds(dead_rows=20)

    async def has_dead_rows() -> bool:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        found = await examined(server_url, limits=limits)
        return found["dead rows"].verdict is WARN

    await eventually(has_dead_rows)
    found = await examined(server_url, limits=limits)
    found.says("tables", WARN, "autovacuum is switched off for meta", "holdfast db sql")
    found.says("dead rows", WARN, "vacuum does not keep up with meta (50 beside ")
    await connection.execute("ALTER TABLE holdfast.meta RESET (autovacuum_enabled)")
    found = await examined(server_url)
    found.says("tables", WARN, "the vacuum settings of backlog are missing")
    await connection.close()


async def test_pools_that_the_server_cannot_serve_are_too_large(server_url: str):
    found = await examined(server_url, connections_max=5_000)
    found.says("connections", WARN, "1 node may open 10003 connections, and the server allows")

    found = await examined(server_url, limits=Thresholds(connections_part=0.0))
    found.says("connections", WARN, "connections are in use", "max_connections")


async def test_slow_commits_and_slow_notifications_are_told(server_url: str):
    found = await examined(server_url, limits=Thresholds(commit_s=0.0, listen_s=0.0))

    found.says("commit", WARN, "a commit takes")
    found.says("listen", WARN, "to come back")


async def test_a_pooler_is_found_whatever_the_settings_say(server_url: str, pgbouncer_url: str):
    alone = await examined(pgbouncer_url)
    alone.says("pooler", WARN, "behind a pooler in transaction mode", "set listen_url")
    alone.says("schema", OK)
    denied = await examined(pgbouncer_url, pooled=False)
    denied.says("pooler", FAIL, "pooled = false, but a pooler hands the sessions")
    both = await examined(pgbouncer_url, listen_url=server_url)
    both.says("pooler", OK, "a pooler in transaction mode")
    both.says("listen", OK)
    deaf = await examined(pgbouncer_url, listen_url=pgbouncer_url)
    deaf.says("listen", WARN, "a notification does not come back")


async def test_a_server_that_may_lose_commits_fails():
    wrong = dict.fromkeys(("fsync", "full_page_writes", "autovacuum"), "off")
    with PrivateServer(settings=wrong | {"synchronous_commit": "off"}) as server:
        found = await examined(server.url())

    found.says("fsync", FAIL, "fsync = off: commits are not written to the disk", "fsync = on")
    found.says("full_page_writes", FAIL, "a power cut may tear pages apart")
    found.says("synchronous_commit", FAIL, "commits return before they are on the disk")
    found.says("autovacuum", FAIL, "autovacuum = off: dead rows pile up")
    found.says("schema", FAIL)


async def test_prepared_transactions_slots_and_standbys_are_named():
    settings = {"wal_level": "logical", "max_prepared_transactions": "5"}
    limits = Thresholds(snapshot_s=0.0, snapshot_transactions=0)
    with PrivateServer(settings=settings) as server:
        server.execute("SELECT pg_create_logical_replication_slot('reports', 'pgoutput')")
        found = await examined(server.url(), limits=limits)
        found.says("xmin", WARN, "replication slot reports, nobody reads it", "('reports')")
        server.execute("SELECT pg_drop_replication_slot('reports')")

        server.execute("CREATE TABLE mine (value int)")
        connection = await asyncpg.connect(server.url())
        await connection.execute("BEGIN; INSERT INTO mine VALUES (1); PREPARE TRANSACTION 'left'")
        found = await examined(server.url(), limits=limits)
        found.says("xmin", WARN, "prepared transaction left, user postgres, prepared")
        assert found["xmin"].fix == "COMMIT PREPARED or ROLLBACK PREPARED 'left'"
        await connection.execute("ROLLBACK PREPARED 'left'")

        with a_standby(server) as standby_url:
            await eventually(lambda: _has_feedback(connection))
            found = await examined(server.url(), limits=limits)
            standby = await examined(standby_url)
        await connection.close()

    found.says("xmin", WARN, "the oldest snapshot is older than", "standby walreceiver")
    assert "hot_standby_feedback = off" in found["xmin"].fix
    standby.says("server", FAIL, "is a standby, which takes no writes", "name the primary")


async def _has_feedback(connection: asyncpg.Connection) -> bool:
    rows = await connection.fetch("SELECT backend_xmin FROM pg_stat_replication")
    return any(row[0] is not None for row in rows)


@contextmanager
def a_standby(server: PrivateServer) -> Iterator[str]:
    """A second server that follows the first one and tells it what it still needs."""
    port, data = free_port(), server.folder / "standby"
    user = server.user.options() if server.user else {}
    binaries = server._bin
    copy = ["-D", data, "-R", "-X", "stream", "-c", "fast", "-d", server.url()]
    subprocess.run(
        [binaries / "pg_basebackup", *copy],
        check=True,
        capture_output=True,
        cwd=server.folder,
        **user,
    )
    with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.write(f"port = {port}\nhot_standby_feedback = on\n")
        file.write("wal_receiver_status_interval = '1s'\n")
    with (server.folder / "standby.log").open("ab") as log:
        command = [str(binaries / "postgres"), "-D", str(data)]
        process = spawn(command, cwd=server.folder, user=server.user, log=log)
        url = server.url().replace(f":{server.port}/", f":{port}/")
        ready = [binaries / "pg_isready", "-h", "127.0.0.1", "-p", str(port)]
        try:
            until(lambda: subprocess.run(ready, capture_output=True).returncode == 0, 30.0)
            yield url
        finally:
            ended(process, [signal.SIGINT, signal.SIGKILL], 20.0)


def test_a_server_of_before_14_is_too_old():
    found = check_version({"server_version": "13.9", "server_version_num": "130009"})

    assert (found.verdict, found.what) == (FAIL, "PostgreSQL 13.9 is too old")
    assert found.fix == "update it to PostgreSQL 14 or later"
