"""`holdfast doctor`: each check fails for a real reason, and its sentence is read."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import holdfast
from examined import FAIL, OK, WARN, a_store, examined, prepared
from holdfast.clock import SystemClock
from holdfast.doctor.file import check_file_system, check_fsync
from holdfast.doctor.finding import Thresholds
from holdfast.ids import NodeId
from holdfast.store import Kept, Store
from holdfast.task import NewTask, TaskId, Trigger
from holdfast.testing.contracts.builders import eventually
from schema import NEWEST

PACKAGE = Path(holdfast.__file__).parents[1]
CANARY = "can4ry-pa55word"
NODE = NodeId("node-a")


@pytest.fixture
async def url(store_url: str) -> str:
    """A prepared store."""
    return await prepared(store_url)


@pytest.fixture
async def sqlite_url(tmp_path: Path) -> str:
    return await prepared(f"sqlite:///{tmp_path / 'app.db'}")


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = a_store(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def a_task(**fields: Any) -> NewTask:
    given = {"queue": "mail", "partition": 0, "kind": "letter", "payload": b"{}"}
    return NewTask(**(given | fields))


async def alive(store: Store, *nodes: str, queues: Any = ("mail",), kinds: Any = ("letter",)):
    for node in nodes:
        await store.renew(NodeId(node), lease_s=60, queues=queues, kinds=kinds)


# ── what is sound ─────────────────────────────────────────────────────────────────────────────


async def test_a_sound_store_with_a_node_has_nothing_to_complain_of(url: str):
    async with opened(url) as store:
        await alive(store, NODE)
        await store.enqueue([a_task()])

    found = await examined(url)

    assert {name: one for name, one in found.items() if one.verdict is not OK} == {}
    found.says("nodes", OK, "1 node alive, serving mail")
    found.says("schema", OK, f"tables {NEWEST} = code {NEWEST}")
    expected = {"fsync", "journal", "disk"} if url.startswith("sqlite") else {"xmin", "listen"}
    assert expected <= found.keys()


# ── the store and its schema ──────────────────────────────────────────────────────────────────


async def test_tables_that_are_missing_older_or_newer_are_told_apart(
    bare_store_url: str, tmp_path: Path
):
    if bare_store_url.startswith("sqlite"):
        (tmp_path / "app.db").touch(mode=0o600)
    (await examined(bare_store_url)).says("schema", FAIL, "no tables of Holdfast yet", "db migrate")
    await prepared(bare_store_url)

    await _pretend(bare_store_url, version=NEWEST - 1)
    (await examined(bare_store_url)).says("schema", FAIL, f"version {NEWEST - 1}, this code needs")
    await _pretend(bare_store_url, version=NEWEST + 1)
    (await examined(bare_store_url)).says("schema", OK, f"version {NEWEST + 1}", "they still fit")
    await _pretend(bare_store_url, version=NEWEST + 1, code_min=NEWEST + 1)
    (await examined(bare_store_url)).says(
        "schema", FAIL, "this code knows", "install a newer Holdfast"
    )


async def _pretend(url: str, *, version: int, code_min: int = 4) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
            values = {"schema": version, "code_min": code_min}.items()
            db.executemany("UPDATE holdfast_meta SET value = ?2 WHERE name = ?1", values)
        return
    connection = await asyncpg.connect(url)
    await connection.execute(f"DELETE FROM holdfast.migration WHERE number >= {NEWEST}")
    for number in range(NEWEST, version + 1):
        await connection.execute(f"INSERT INTO holdfast.migration VALUES ({number}, 'x', 'x')")
    await connection.execute(f"UPDATE holdfast.meta SET value = {code_min} WHERE name = 'code_min'")
    await connection.close()


async def test_a_store_that_cannot_be_reached_is_a_failure_and_ends_the_checks(tmp_path: Path):
    away = await examined(f"postgresql://app:{CANARY}@127.0.0.1:1/app")
    no_file = await examined(f"sqlite:///{tmp_path / 'typo.db'}")
    (tmp_path / "text.db").write_text("no database, but a text that is long enough to look at")
    no_database = await examined(f"sqlite:///{tmp_path / 'text.db'}")

    away.says("store", FAIL, "PostgreSQL at 127.0.0.1:1/app cannot be reached")
    no_file.says("store", FAIL, f"there is no file {tmp_path / 'typo.db'}")
    no_database.says("store", FAIL, "this is not an SQLite database")
    assert CANARY not in str(away)
    assert not (tmp_path / "typo.db").exists()


# ── nodes, queues, duties, tasks ──────────────────────────────────────────────────────────────


async def test_without_a_node_alive_doctor_warns(url: str):
    found = await examined(url)

    found.says("nodes", WARN, "no node is alive", "holdfast worker APP")


async def test_nodes_queues_kinds_and_tasks_that_need_somebody(url: str):
    async with opened(url) as store:
        await store.renew(NodeId("dead"), lease_s=0.01, queues=["mail"], kinds=["letter"])
        await alive(store, NODE)
        await alive(store, "gone")
        await store.keep_duties([Kept("waker", 0, 60.0)], node=NodeId("gone"))
        await store.end([NodeId("gone")])
        await store.enqueue(
            [a_task(), a_task(kind="parcel"), a_task(queue="bills", kind="invoice")]
        )
        ids = [one.id for one in await store.enqueue([a_task(kind="letter")] * 2)]
        await store.park({ids[0]: 1}, "broken")
        await _stuck(store, ids[1])

    found = await examined(url, limits=Thresholds(lease_ended_s=0.0))

    found.says("leases", WARN, "2 nodes ended without a good-bye", "dead, gone", "start a node")
    found.says("queues", WARN, "tasks wait in bills, and no live node serves it")
    found.says("kinds", WARN, "no live node has a handler for parcel in mail")
    found.says("duties", WARN, "no live node keeps waker")
    found.says("errors", WARN, "1 task in ERROR", "holdfast error list")
    found.says("stuck", WARN, "1 task PROCESSING past the deadline", "holdfast task list --stuck")


async def _stuck(store: Store, id: int) -> None:
    trigger = Trigger(TaskId(id), 1, "mail", 0, "letter", 5)
    grabbed = await store.grab([trigger], node=NODE, deadlines_s={"letter": 0.01}, epochs={})
    assert grabbed.tasks

    async def is_stuck() -> bool:
        return (await store.troubles()).stuck == 1

    await eventually(is_stuck)


async def test_a_duty_that_is_overdue_is_kept_by_nobody(url: str):
    async with opened(url) as store:
        await alive(store, NODE)
        await store.keep_duties([Kept("cleaner", 0, 0.0)], node=NODE)

    (await examined(url)).says("duties", OK, "1 on record")
    found = await examined(url, limits=Thresholds(duty_overdue_s=0.0))
    found.says("duties", WARN, "no live node keeps cleaner")


async def test_more_nodes_than_half_of_the_partitions_are_too_many(url: str):
    async with opened(url) as store:
        half = store.partitions // 2
        await alive(store, *(f"node-{number}" for number in range(half)))
        (await examined(url)).says("partitions", OK)
        await alive(store, "one-more")

    found = await examined(url)

    found.says("partitions", WARN, f"half of the {half * 2} partitions serve mail ({half + 1})")


# ── the file of an SQLite store ───────────────────────────────────────────────────────────────


async def test_several_nodes_on_one_file_need_a_library_that_is_safe(sqlite_url: str):
    async with opened(sqlite_url) as store:
        await alive(store, "one", "two")

    found = await examined(sqlite_url)

    if sqlite3.sqlite_version_info >= (3, 51, 3):
        found.says("sqlite", OK, sqlite3.sqlite_version)
    else:
        found.says("sqlite", WARN, f"2 nodes use the file with SQLite {sqlite3.sqlite_version}")


async def test_files_that_others_may_read_are_named_with_the_command(sqlite_url: str):
    path = sqlite_url.removeprefix("sqlite:///")
    os.chmod(path, 0o640)

    found = await examined(sqlite_url)

    found.says("permissions", WARN, f"other users of this machine may read payloads: {path}")
    assert found["permissions"].fix == f"chmod 600 {path}"


async def test_fast_durability_is_shown(sqlite_url: str):
    found = await examined(sqlite_url, durability="fast")

    found.says("durability", WARN, 'durability = "fast": the last commits may be lost')
    found.says("journal", OK, "journal mode WAL, synchronous NORMAL")


async def test_a_long_log_a_full_disk_and_a_slow_disk_are_told(sqlite_url: str):
    limits = Thresholds(wal_bytes=1, disk_bytes_warn=2**60, disk_bytes_fail=0, commit_s=0.0)
    async with opened(sqlite_url) as store:
        await store.enqueue([a_task()])
        found = await examined(sqlite_url, limits=limits)

    found.says("wal", WARN, "a long read keeps it from being emptied")
    found.says("disk", WARN, "left in /", "free some space")
    found.says("fsync", WARN, "a commit takes", "use a faster disk")
    full = await examined(sqlite_url, limits=Thresholds(disk_bytes_fail=2**60))
    full.says("disk", FAIL, "writes are about to be refused")


async def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path):
    found = check_fsync(Path("/proc"), SystemClock(), Thresholds())

    assert found.verdict is WARN
    assert "nothing can be written beside the file" in found.what


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no file system in memory")
async def test_a_file_in_memory_is_not_durable():
    path = Path(f"/dev/shm/holdfast-doctor-{os.getpid()}.db")
    try:
        found = await examined(await prepared(f"sqlite:///{path}"))
        found.says("file system", WARN, "the file lies on tmpfs: it lives in memory")
    finally:
        for each in path.parent.glob(f"{path.name}*"):
            each.unlink()


@pytest.mark.parametrize(
    ("kind", "verdict", "words"),
    [
        ("nfs4", FAIL, "the file lies on nfs4, a network file system"),
        ("cifs", FAIL, "the file lies on cifs, a network file system"),
        ("overlay", WARN, "the file lies on overlay: it is a layer of a container"),
        ("ext4", OK, "ext4"),
    ],
)
def test_the_file_system_is_judged_by_its_mount(tmp_path: Path, kind, verdict, words):
    mounts = tmp_path / "mounts"
    here = str(tmp_path / "data").replace(" ", "\\040")
    mounts.write_text(f"/dev/vda / xfs rw 0 0\nserver:/x {here} {kind} rw 0 0\nproc /proc proc rw")

    found = check_file_system(tmp_path / "data" / "app.db", mounts)

    assert found.verdict is verdict
    assert words in found.what
    assert check_file_system(tmp_path / "app.db", mounts).what == "xfs"


# ── the command ───────────────────────────────────────────────────────────────────────────────

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}

    def run(*arguments: str, python: tuple[str, ...] = (), **environ: str) -> Any:
        program = () if "-c" in python else ("-m", "holdfast.cli")
        return subprocess.run(
            [sys.executable, *python, *program, *arguments],
            cwd=tmp_path,
            env=kept | {"PYTHONPATH": str(PACKAGE)} | environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


async def test_the_command_prints_verdict_name_and_sentence_and_counts(url: str, run: Run):
    done = await asyncio.to_thread(run, "doctor", HOLDFAST_URL=url)
    told = await asyncio.to_thread(run, "doctor", "--json", HOLDFAST_URL=url)

    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout
    assert done.stderr == "0 failures, 1 warning\n"
    width = len("configuration  ")
    assert "warn  " + "nodes".ljust(width) + "no node is alive: tasks are kept, and wait" in lines
    assert "      " + "fix".ljust(width) + "start one: holdfast worker APP" in lines
    assert "ok    " + "schema".ljust(width) + f"tables {NEWEST} = code {NEWEST}" in lines
    shown = json.loads(told.stdout)
    assert (shown["schema"], shown["failures"], shown["warnings"]) == ("holdfast.check.v1", 0, 1)
    (nodes,) = [item for item in shown["items"] if item["name"] == "nodes"]
    assert nodes["verdict"] == "warn"


def test_a_failure_is_exit_8_and_shows_no_password(run: Run):
    done = run("doctor", HOLDFAST_URL=f"postgresql://app:{CANARY}@127.0.0.1:1/app")

    assert done.returncode == 8
    assert done.stderr == "exit 8: 1 failure, 0 warnings\n"
    assert "FAIL  store " in done.stdout
    assert "postgresql://app:***@127.0.0.1:1/app" in done.stdout
    assert CANARY not in done.stdout + done.stderr


def test_wrong_settings_and_apps_are_failures_with_their_reasons(run: Run, tmp_path: Path):
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "orders.py").write_text(
        "from holdfast import Holdfast\napp = Holdfast('sqlite:///orders.db')\n"
        "@app.task(queue='mail')\nasync def letter() -> None: ...\n"
    )

    no_address = run("doctor")
    misspelt = run("doctor", HOLDFAST_NODE__LEESE="5s", HOLDFAST_URL="sqlite:///a.db")
    broken = run("doctor", "broken")
    sound = run("doctor", "orders")

    assert [one.returncode for one in (no_address, misspelt, broken, sound)] == [8, 8, 8, 8]
    assert "FAIL  configuration  no address of a store is given" in no_address.stdout
    assert "unknown variable HOLDFAST_NODE__LEESE" in misspelt.stdout
    assert "FAIL  app         broken cannot be imported: No module named" in broken.stdout
    assert "app            orders: 1 task in mail" in sound.stdout
    assert "FAIL  store          there is no file orders.db" in sound.stdout


async def test_python_without_assertions_and_with_few_files_is_told(sqlite_url: str, run: Run):
    few = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)); "
        "from holdfast.cli import main; main(['doctor'])"
    )
    optimized = await asyncio.to_thread(run, "doctor", python=("-O",), HOLDFAST_URL=sqlite_url)
    limited = await asyncio.to_thread(run, python=("-c", few), HOLDFAST_URL=sqlite_url)

    assert optimized.returncode == 8
    assert "FAIL  assertions     Python runs with -O" in optimized.stdout
    assert "start it without -O" in optimized.stdout
    assert limited.returncode == 0
    assert "warn  open files     this process may open 200 files" in limited.stdout
