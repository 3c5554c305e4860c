"""The servers that tests run on: private, durable, gone afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.testing.postgres import ExternalServer, PrivateServer, Server
from holdfast.testing.processes import until


def test_a_fresh_database_is_empty_and_every_commit_in_it_is_durable(postgres_url: str):
    with psycopg.connect(postgres_url) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert connection.execute(f"SHOW {setting}").fetchone() == ("on",)
        tables = connection.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 2200")
        assert tables.fetchone() == (0,)


def test_a_killed_server_has_every_commit_after_its_restart(private_postgres: PrivateServer):
    private_postgres.execute("CREATE TABLE kept AS SELECT 7 AS number")

    private_postgres.kill9()
    private_postgres.start()

    assert private_postgres.execute("SELECT number FROM kept") == ["7"]


def test_a_server_comes_back_on_its_old_address(private_postgres: PrivateServer):
    url = private_postgres.url()

    private_postgres.restart()

    assert private_postgres.url() == url
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_server_is_gone_with_its_folder_after_the_block():
    with PrivateServer() as server:
        pid, folder = server.pid, server.folder

    assert not psutil.pid_exists(pid)
    assert not folder.exists()


def test_a_server_stops_when_the_process_that_started_it_is_killed(tmp_path: Path):
    script = (
        "import sys, threading; from holdfast.testing.postgres import PrivateServer\n"
        "with PrivateServer() as server:\n"
        "    sys.stdout.write(f'{server.pid} {server.folder}\\n'); sys.stdout.flush()\n"
        "    threading.Event().wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as starter:
        pid, folder = starter.stdout.readline().decode().split()
        starter.kill()

    until(lambda: not _is_alive(int(pid)), 20)
    subprocess.run(["rm", "-r", folder], check=True)


def test_databases_are_copied_from_a_template(postgres: Server):
    postgres.create_database("holdfast_template")
    postgres.execute("CREATE TABLE copied (number int)", database="holdfast_template")
    try:
        postgres.create_database("holdfast_copy", template="holdfast_template")
        assert postgres.execute("SELECT * FROM copied", database="holdfast_copy") == []
    finally:
        postgres.drop_database("holdfast_copy")
        postgres.drop_database("holdfast_template")


def test_the_pooler_hands_each_transaction_any_connection(pgbouncer_url: str):
    with psycopg.connect(pgbouncer_url) as one, psycopg.connect(pgbouncer_url) as two:
        backend = one.execute("SELECT pg_backend_pid()").fetchone()
        one.commit()

        assert two.execute("SELECT pg_backend_pid()").fetchone() == backend


def test_another_server_is_used_by_its_address_alone(private_postgres: PrivateServer):
    private_postgres.execute("CREATE ROLE tester SUPERUSER LOGIN PASSWORD 'a@b:c'")
    address = private_postgres.url().replace("postgres@", "tester:a%40b%3Ac@")
    server = ExternalServer(address)

    url = server.create_database("theirs")

    assert url == address.replace("/postgres", "/theirs")
    assert server.execute("SELECT current_user", database="theirs") == ["tester"]
    server.drop_database("theirs")
    server.drop_database("theirs")


def test_an_older_postgresql_can_be_asked_for():
    with PrivateServer(version=16, settings={"max_connections": "20"}) as server:
        assert server.execute("SHOW server_version_num")[0].startswith("16")
        assert server.execute("SHOW max_connections") == ["20"]


def test_a_statement_that_fails_says_why(postgres: Server):
    with pytest.raises(StoreUnavailable, match="nowhere"):
        postgres.execute("SELECT * FROM nowhere")


@pytest.mark.parametrize("name", ["a b", 'x"; DROP', "1st", ""])
def test_a_database_name_that_is_no_identifier_is_refused(postgres: Server, name: str):
    with pytest.raises(ValueError, match="is no schema name"):
        postgres.create_database(name)


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
