"""Opening: what is made, what is refused, and what the message says."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.clock import Clock, SystemClock
from holdfast.errors import ConfigurationError, SchemaTooNew, StoreUnavailable
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.contracts.builders import (
    NODE,
    OTHER,
    QUEUE,
    a_task,
    claimed,
    enqueued,
    grabbed,
    waiting_triggers,
)
from schema import NEWEST


class ShiftedClock(SystemClock):
    """The machine's clock, ahead by as much as the test says."""

    ahead_s = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead_s)


def a_store(path: Path, clock: Clock | None = None, **options: Any) -> SQLiteStore:
    return SQLiteStore(path, clock=clock or SystemClock(), rng=Random(0), **options)


async def test_a_new_file_gets_our_tables_and_is_its_owners_alone(tmp_path: Path) -> None:
    store = a_store(tmp_path / "app.db")

    await store.open()
    await store.enqueue([a_task()])

    modes = {name: oct(os.stat(tmp_path / name).st_mode & 0o777) for name in os.listdir(tmp_path)}
    assert modes.pop("app.db-leases-journal", "0o600") == "0o600"
    assert modes == dict.fromkeys(["app.db", "app.db-wal", "app.db-shm", "app.db-leases"], "0o600")
    assert await store.schema_status() == (NEWEST, NEWEST)
    assert store.partitions == 8
    await store.close()


async def test_the_users_tables_and_version_are_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "app.db")) as db:
        db.execute("CREATE TABLE mine (value TEXT)")
        db.execute("PRAGMA user_version = 77")
    store = a_store(tmp_path / "app.db")

    await store.open()
    await store.close()

    with closing(sqlite3.connect(tmp_path / "app.db")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (77,)
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    ours = {name for name in names if not name.startswith("sqlite_")}
    assert {name for name in ours if not name.startswith("holdfast_")} == {"mine"}


async def test_full_durability_is_the_default_and_fast_has_to_be_asked_for(tmp_path: Path) -> None:
    found = {}
    for durability in ("full", "fast"):
        store = a_store(tmp_path / "app.db", durability=durability)
        await store.open()
        found[durability] = await store.durability()
        await store.close()

    assert {settings["journal_mode"] for settings in found.values()} == {"wal"}
    assert {settings["wal_autocheckpoint"] for settings in found.values()} == {"0"}
    assert [settings["synchronous"] for settings in found.values()] == ["FULL", "NORMAL"]
    with pytest.raises(ConfigurationError):
        a_store(tmp_path / "app.db", durability="none")


async def test_what_was_enqueued_is_there_after_the_store_is_opened_again(tmp_path: Path) -> None:
    for count in (1, 2, 3):
        store = a_store(tmp_path / "app.db")
        await store.open()
        await store.enqueue([a_task()])
        triggers = await waiting_triggers(store)
        await store.close()
        assert len(triggers) == count


async def test_many_that_open_a_new_file_at_once_make_one_schema(tmp_path: Path) -> None:
    stores = [a_store(tmp_path / "app.db") for _ in range(6)]

    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.migrate() for store in stores))
    await asyncio.gather(*(store.enqueue([a_task()]) for store in stores))

    assert len(await waiting_triggers(stores[0])) == 6
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_file_of_a_newer_holdfast_is_refused_unless_it_names_our_version(
    tmp_path: Path,
) -> None:
    store = a_store(tmp_path / "app.db")
    await store.open()
    await store.close()
    with closing(sqlite3.connect(tmp_path / "app.db", isolation_level=None)) as db:
        db.execute("UPDATE holdfast_meta SET value = 99 WHERE name = 'schema'")

    await store.open()  # it names our version as one that can work with it
    await store.close()
    with closing(sqlite3.connect(tmp_path / "app.db", isolation_level=None)) as db:
        db.execute("UPDATE holdfast_meta SET value = 98 WHERE name = 'code_min'")

    with pytest.raises(SchemaTooNew, match=r"99.*install a newer Holdfast"):
        await store.open()


def test_the_migration_can_be_read_before_it_is_run(tmp_path: Path) -> None:
    text = a_store(tmp_path / "app.db").migration_sql()

    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(text)
        assert db.execute("SELECT value FROM holdfast_meta WHERE name = 'schema'").fetchone() == (
            1,
        )


def _folder_missing(folder: Path) -> Path:
    return folder / "nowhere" / "app.db"


def _not_a_database(folder: Path) -> Path:
    (folder / "app.db").write_bytes(b"no database at all" * 100)
    return folder / "app.db"


def _a_folder(folder: Path) -> Path:
    (folder / "app.db").mkdir()
    return folder / "app.db"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (_folder_missing, "cannot be made: No such file or directory"),
        (_not_a_database, "not an SQLite database; name another file"),
        (_a_folder, "cannot be opened"),
    ],
)
async def test_a_file_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, make: Callable[[Path], Path], sentence: str
) -> None:
    with pytest.raises(StoreUnavailable, match=sentence):
        await a_store(make(tmp_path)).open()


async def test_a_file_that_cannot_be_written_is_refused_with_the_reason(tmp_path: Path) -> None:
    store = a_store(tmp_path / "app.db")
    await store.open()
    await store.close()

    def connect_to_read(path: str, **options: Any) -> sqlite3.Connection:
        db = sqlite3.connect(path, **options)
        db.execute("PRAGMA query_only = 1")
        return db

    with pytest.raises(StoreUnavailable, match="cannot be written to; check their permissions"):
        await a_store(tmp_path / "app.db", connect=connect_to_read).open()


async def test_a_full_disk_fails_the_write_and_nothing_else(tmp_path: Path) -> None:
    pages_max = 100_000

    def connect_to_small_disk(path: str, **options: Any) -> sqlite3.Connection:
        db = sqlite3.connect(path, **options)
        connections.append(db)
        return db

    connections: list[sqlite3.Connection] = []
    store = a_store(tmp_path / "app.db", connect=connect_to_small_disk)
    await store.open()
    await enqueued(store, a_task())
    pages = connections[0].execute("PRAGMA page_count").fetchone()[0]
    connections[0].execute(f"PRAGMA max_page_count = {pages + 10}")

    large, small = await asyncio.gather(
        store.enqueue([a_task(payload=b"x" * 1_000_000)]),
        store.enqueue([a_task()]),
        return_exceptions=True,
    )

    assert isinstance(large, StoreUnavailable) and "the disk is full" in str(large)
    assert not isinstance(small, BaseException) and small[0].created
    connections[0].execute(f"PRAGMA max_page_count = {pages_max}")
    await enqueued(store, a_task(payload=b"x" * 1_000_000))
    assert len(await waiting_triggers(store)) == 3
    await store.close()


async def test_a_lost_lease_file_is_made_anew_and_judges_nobody_dead_at_once(
    tmp_path: Path,
) -> None:
    clock = ShiftedClock()
    store = a_store(tmp_path / "app.db", clock)
    await store.open()
    await store.renew(NODE, lease_s=10, queues=[QUEUE], kinds=[])
    epochs = await claimed(store)
    await grabbed(store)
    await store.close()
    (tmp_path / "app.db-leases").write_bytes(b"damaged by a power loss " * 1000)

    await store.open()
    assert await store.members() == []
    assert await claimed(store, OTHER) == {}
    assert await store.resume_lost([NODE], deliveries_max=5, limit=5) == []
    clock.ahead_s = 11.5
    assert await claimed(store, OTHER) == {number: epoch + 1 for number, epoch in epochs.items()}
    assert len(await store.resume_lost([NODE], deliveries_max=5, limit=5)) == 1
    await store.close()


async def test_a_lease_file_that_another_process_replaced_is_opened_again(tmp_path: Path) -> None:
    store = a_store(tmp_path / "app.db")
    await store.open()
    await store.renew(NODE, lease_s=10, queues=[], kinds=[])
    os.unlink(tmp_path / "app.db-leases")
    other = a_store(tmp_path / "app.db")
    await other.open()

    await store.renew(NODE, lease_s=10, queues=[], kinds=[])

    assert [member.node for member in await other.members()] == [NODE]
    await store.close()
    await other.close()


@pytest.mark.skipif(sqlite3.sqlite_version_info >= (3, 51, 3), reason="this SQLite is safe")
async def test_several_node_processes_on_an_old_sqlite_are_warned_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    neighbour = await asyncio.create_subprocess_exec("sleep", "60")
    store = a_store(tmp_path / "app.db")
    await store.open()
    await store.renew(NODE, lease_s=10, queues=[], kinds=[])
    assert caplog.records == []
    with closing(sqlite3.connect(f"{store.path}-leases", isolation_level=None)) as db:
        row = (OTHER, json.dumps([]), json.dumps([]), neighbour.pid, 2**60)
        db.execute(
            "INSERT INTO holdfast_lease (node, queues, kinds, pid, until) VALUES (?,?,?,?,?)", row
        )

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await store.renew(NODE, lease_s=10, queues=[], kinds=[])

    neighbour.kill()
    await neighbour.wait()
    assert len(caplog.records) == 1
    assert "several node processes" in caplog.text and "3.51.3" in caplog.text
    await store.close()
