"""The writer thread: many callers a commit, and one caller's trouble is nobody else's."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import StoreUnavailable, TransactionRefused
from holdfast.sql.query import Style, load, rendered
from holdfast.stores.sqlite import SQLiteStore, log, same_file, writer
from holdfast.stores.sqlite.statements import run_script
from holdfast.task import Event, Outcome, State
from holdfast.testing.contracts.builders import (
    NODE,
    a_task,
    enqueued,
    eventually,
    grab,
    grabbed,
    look,
    settle,
    trigger_of,
    waiting_triggers,
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(tmp_path / "app.db", clock=SystemClock(), rng=Random(0), patience_s=0.5)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def caller(store: SQLiteStore) -> Iterator[sqlite3.Connection]:
    """A connection that belongs to the user of the library."""
    with closing(sqlite3.connect(store.path, isolation_level=None)) as db:
        yield db


def size(path: str) -> int:
    return os.stat(path).st_size


async def test_one_callers_error_does_not_fail_another_of_the_same_commit(
    store: SQLiteStore,
) -> None:
    wrong = a_task(payload=object())

    answers = await asyncio.gather(
        *(store.enqueue([a_task(), wrong] if number == 7 else [a_task()]) for number in range(20)),
        return_exceptions=True,
    )

    failed = [number for number, answer in enumerate(answers) if isinstance(answer, Exception)]
    assert failed == [7]
    assert len(await waiting_triggers(store)) == 19


async def test_callers_on_many_loops_share_the_writer(store: SQLiteStore) -> None:
    async def work() -> None:
        for _ in range(20):
            await store.enqueue([a_task()])

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(4)]
    for thread in threads:
        thread.start()
    await work()

    async def all_ended() -> bool:
        return not any(thread.is_alive() for thread in threads)

    await eventually(all_ended)
    assert len(await waiting_triggers(store)) == 100


async def test_concurrent_callers_share_commits(store: SQLiteStore) -> None:
    before = store.commits

    await asyncio.gather(*(store.enqueue([a_task()]) for _ in range(200)))

    assert store.commits - before < 20


@pytest.fixture
def slow_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits may take as long as the disk of this machine needs."""
    monkeypatch.setattr("holdfast.stores.sqlite.writer.INLINE_S", 60.0)


async def commits_inline(store: SQLiteStore) -> None:
    """Until a single caller's statements run on this thread."""

    async def may_run_here() -> bool:
        await store.enqueue([a_task()])
        return store._writer._inline_left > 0

    assert await eventually(may_run_here)


@pytest.mark.usefixtures("slow_is_fine")
async def test_a_single_caller_commits_on_its_own_thread(store: SQLiteStore, caller) -> None:
    await commits_inline(store)
    before = len(await waiting_triggers(store))
    threads: set[str] = set()
    caller.execute("PRAGMA journal_mode").fetchall()
    store._writer._db.set_trace_callback(lambda text: threads.add(threading.current_thread().name))

    for _ in range(10):
        (added,) = await store.enqueue([a_task()])
        seen = caller.execute("SELECT count(*) FROM holdfast_task WHERE id = ?", [added.id])
        assert seen.fetchall() == [(1,)], "answered before others could see it"

    assert "MainThread" in threads
    assert len(await waiting_triggers(store)) == before + 10


@pytest.mark.usefixtures("slow_is_fine")
async def test_an_inline_caller_waits_for_the_lock_like_everybody(
    store: SQLiteStore, caller: sqlite3.Connection
) -> None:
    await commits_inline(store)
    before = len(await waiting_triggers(store))
    caller.execute("BEGIN IMMEDIATE")
    call = asyncio.ensure_future(store.enqueue([a_task()]))
    await asyncio.sleep(0.1)
    assert not call.done()

    caller.execute("ROLLBACK")

    await call
    assert len(await waiting_triggers(store)) == before + 1


@pytest.mark.usefixtures("slow_is_fine")
async def test_after_a_quiet_moment_a_small_grab_commits_on_its_own_thread_whoever_else_writes(
    store: SQLiteStore, caller: sqlite3.Connection
) -> None:
    ids = await enqueued(store, *(a_task() for _ in range(10)))
    triggers = [await trigger_of(store, id) for id in ids]
    caller.execute("CREATE TABLE theirs (number INTEGER)")
    threads: list[str] = []

    for trigger in triggers:
        caller.execute("INSERT INTO theirs VALUES (1)")
        await store.enqueue([a_task()])
        await asyncio.sleep(2 * writer.QUIET_S)
        store._writer._db.set_trace_callback(
            lambda text: threads.append(threading.current_thread().name)
        )
        assert [task.id for task in await grab(store, [trigger])] == [trigger.id]
        store._writer._db.set_trace_callback(None)
        (row,) = caller.execute("SELECT state FROM holdfast_task WHERE id = ?", [trigger.id])
        assert row == (State.PROCESSING,), "answered before others could see it"

    assert set(threads) == {"MainThread"}


@pytest.mark.usefixtures("slow_is_fine")
async def test_a_small_grab_beside_a_held_lock_waits_on_the_writers_thread(
    store: SQLiteStore, caller: sqlite3.Connection
) -> None:
    (id,) = await enqueued(store, a_task())
    trigger = await trigger_of(store, id)
    await asyncio.sleep(2 * writer.QUIET_S)
    caller.execute("BEGIN IMMEDIATE")
    began = asyncio.get_running_loop().time()
    call = asyncio.ensure_future(grab(store, [trigger]))
    await asyncio.sleep(0.05)
    stood_still_s = asyncio.get_running_loop().time() - began - 0.05
    assert not call.done() and stood_still_s < 0.045

    caller.execute("ROLLBACK")

    assert [task.id for task in await call] == [id]


@pytest.mark.usefixtures("slow_is_fine")
async def test_what_breaks_on_the_callers_own_thread_leaves_nothing_behind(
    store: SQLiteStore, caller: sqlite3.Connection
) -> None:
    await store.enqueue([a_task()])
    await asyncio.sleep(2 * writer.QUIET_S)
    before = len(await waiting_triggers(store))

    def broken(db: sqlite3.Connection, now: int) -> None:
        assert threading.current_thread().name == "MainThread"
        db.execute("DELETE FROM holdfast_task")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store._writer.run(broken, is_small=True)

    assert not store._writer._db.in_transaction
    assert len(await waiting_triggers(store)) == before


@pytest.mark.usefixtures("slow_is_fine")
async def test_a_checkpoint_that_is_due_sends_the_next_caller_to_the_writer(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def noted(db: sqlite3.Connection, now: int) -> None:
        threads.append(threading.current_thread().name)

    await store.enqueue([a_task()])
    for is_due in (False, True, False):
        await asyncio.sleep(2 * writer.QUIET_S)
        monkeypatch.setattr(store._writer._log, "is_due", lambda *_, due=is_due, **__: due)
        await store._writer.run(noted, is_small=True)

    assert threads == ["MainThread", "MainThread", "holdfast-writer"]


async def test_a_quick_read_runs_on_the_callers_own_thread_and_a_slow_one_does_not(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def read(db: sqlite3.Connection, now: int) -> int:
        threads.append(threading.current_thread().name)
        found: int = db.execute("SELECT count(*) FROM holdfast_task").fetchone()[0]
        return found

    for quick_s in (60.0, 60.0, 0.0, 60.0, 60.0):
        monkeypatch.setattr("holdfast.stores.sqlite.reader.QUICK_S", quick_s)
        assert await store._read(read) == 0

    assert threads[1:] == ["MainThread", "MainThread", "holdfast-engine", "MainThread"]
    with pytest.raises(StoreUnavailable, match="refused"):
        await store._read(lambda db, now: db.execute("SELECT nothing"))


@pytest.mark.usefixtures("slow_is_fine")
async def test_an_inline_callers_error_is_its_own(store: SQLiteStore) -> None:
    await commits_inline(store)
    before = len(await waiting_triggers(store))

    with pytest.raises((sqlite3.Error, StoreUnavailable)):
        await store.enqueue([a_task(payload=object())])

    await store.enqueue([a_task()])
    assert len(await waiting_triggers(store)) == before + 1


@pytest.mark.usefixtures("slow_is_fine")
async def test_a_caller_in_a_loop_does_not_shut_out_the_others(store: SQLiteStore) -> None:
    await commits_inline(store)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.create_task(other())
    for _ in range(200):
        await store.enqueue([a_task()])
    beside.cancel()

    assert turns > 10


async def test_a_cancelled_caller_does_no_harm(store: SQLiteStore) -> None:
    call = asyncio.ensure_future(store.enqueue([a_task()]))
    await asyncio.sleep(0)
    call.cancel()

    assert (await enqueued(store))[0] > 0


async def test_closing_finishes_what_was_accepted(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "app.db", clock=SystemClock(), rng=Random(0))
    await store.open()
    calls = [asyncio.ensure_future(store.enqueue([a_task()])) for _ in range(50)]
    await asyncio.sleep(0)

    await store.close()
    await store.close()

    assert all(answer.created for (answer,) in await asyncio.gather(*calls))
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.enqueue([a_task()])


async def test_a_caller_that_waits_for_its_own_lock_is_told_what_to_do(
    store: SQLiteStore, caller: sqlite3.Connection
) -> None:
    caller.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailable, match="within=connection"):
        await store.enqueue([a_task()])

    caller.execute("ROLLBACK")
    assert len(await enqueued(store)) == 1
    assert len(await waiting_triggers(store)) == 1


async def test_grabs_and_settles_wait_for_a_callers_transaction(
    store: SQLiteStore, caller: sqlite3.Connection
) -> None:
    (task,) = await grabbed(store)
    (id,) = await enqueued(store)
    trigger = await trigger_of(store, id)
    caller.execute("BEGIN IMMEDIATE")

    calls = [
        asyncio.ensure_future(settle(store, task, Event.SUCCEEDED)),
        asyncio.ensure_future(grab(store, [trigger])),
    ]
    done, _ = await asyncio.wait(calls, timeout=0.8)  # longer than the patience of an enqueue
    assert not done
    caller.execute("COMMIT")

    settled, tasks = await asyncio.gather(*calls)
    assert settled and len(tasks) == 1


async def test_a_handler_that_enqueues_beside_its_transaction_is_told_so(
    store: SQLiteStore,
) -> None:
    (task,) = await grabbed(store)

    async with store.transaction(task, node=NODE) as transaction:
        with pytest.raises(StoreUnavailable, match="within=connection"):
            await store.enqueue([a_task()])
        (answer,) = run_script(transaction.connection, store.enqueueing([a_task()]))
        assert await transaction.settle(Outcome(task.id, task.version, Event.SUCCEEDED))

    assert [one.id for one in await waiting_triggers(store)] == [answer.id]
    assert (await look(store, task.id)).state is State.DONE


async def test_a_handlers_writes_roll_back_with_the_settle(
    store: SQLiteStore, caller: sqlite3.Connection
) -> None:
    caller.execute("CREATE TABLE effect (number INTEGER)")
    (task,) = await grabbed(store)

    async def attempt(number: int) -> None:
        async with store.transaction(task, node=NODE) as transaction:
            transaction.connection.execute("INSERT INTO effect VALUES (?)", (number,))
            await transaction.settle(Outcome(task.id, task.version, Event.SUCCEEDED))
            if number == 1:
                raise ValueError

    with pytest.raises(ValueError):
        await attempt(1)
    await attempt(2)

    assert caller.execute("SELECT number FROM effect").fetchall() == [(2,)]
    assert (await look(store, task.id)).state is State.DONE


async def test_a_handler_cannot_end_the_transaction_itself(store: SQLiteStore) -> None:
    (task,) = await grabbed(store)

    with pytest.raises(TransactionRefused, match="ended the transaction"):
        async with store.transaction(task, node=NODE) as transaction:
            transaction.connection.execute("ROLLBACK")

    assert await settle(store, task, Event.SUCCEEDED)


async def test_a_cancelled_handler_gives_the_file_back(store: SQLiteStore) -> None:
    (task,) = await grabbed(store)

    async def handler() -> None:
        async with store.transaction(task, node=NODE):
            await asyncio.Event().wait()

    calls = [asyncio.ensure_future(handler()) for _ in range(3)]
    await asyncio.wait(calls, timeout=0.1)
    for call in reversed(calls):
        call.cancel()
    await asyncio.wait(calls)

    assert await settle(store, task, Event.SUCCEEDED)


async def test_a_task_in_the_callers_own_transaction_commits_or_vanishes_with_it(
    store: SQLiteStore, caller: sqlite3.Connection
) -> None:
    caller.execute("BEGIN")
    run_script(caller, store.enqueueing([a_task()]))
    assert await waiting_triggers(store) == []
    caller.execute("ROLLBACK")
    caller.execute("BEGIN")
    (answer,) = run_script(caller, store.enqueueing([a_task()]))
    caller.execute("COMMIT")

    assert [one.id for one in await waiting_triggers(store)] == [answer.id]


async def test_another_connection_gets_its_turn_while_the_writer_is_busy(
    store: SQLiteStore,
) -> None:
    is_over = threading.Event()

    def commit_often() -> int:
        with closing(sqlite3.connect(store.path, timeout=30, isolation_level=None)) as db:
            for _ in range(40):
                db.execute("BEGIN IMMEDIATE")
                run_script(db, store.enqueueing([a_task()]))
                db.execute("COMMIT")
        is_over.set()
        return 40

    other = asyncio.ensure_future(asyncio.to_thread(commit_often))
    async with asyncio.timeout(20):
        while not is_over.is_set():
            await asyncio.gather(*(store.enqueue([a_task()] * 20) for _ in range(20)))

    assert await other == 40


async def test_of_several_stores_on_one_file_exactly_one_wins_each_task(
    store: SQLiteStore,
) -> None:
    others = [SQLiteStore(store.path, clock=SystemClock(), rng=Random(0)) for _ in range(3)]
    for other in others:
        await other.open()
    ids = await enqueued(store, *(a_task() for _ in range(60)))
    triggers = await waiting_triggers(store)

    # One task a call, so that the writers of the four stores meet at the lock again and again.
    calls = [grab(one, [trigger]) for trigger in triggers for one in (store, *others)]
    won = [task.id for tasks in await asyncio.gather(*calls) for task in tasks]

    assert sorted(won) == ids
    for other in others:
        await other.close()


async def test_the_doorbell_rings_for_every_commit_of_others_and_of_ours(
    store: SQLiteStore, caller: sqlite3.Connection
) -> None:
    quiet = store.data_version()
    assert store.data_version() == quiet

    await store.enqueue([a_task()])
    ours = store.data_version()
    run_script(caller, store.enqueueing([a_task()]))

    assert len({quiet, ours, store.data_version()}) == 3


async def test_the_same_file_is_recognised_by_any_name(
    store: SQLiteStore, caller: sqlite3.Connection, tmp_path: Path
) -> None:
    os.symlink(store.path, tmp_path / "alias.db")

    with closing(sqlite3.connect(tmp_path / "alias.db")) as alias:
        assert store.same_file(caller) and store.same_file(alias)
    for other in (":memory:", tmp_path / "other.db"):
        with closing(sqlite3.connect(other)) as db:
            assert not store.same_file(db) and not same_file(db, store.path)


async def test_an_idle_wal_is_carried_over_into_the_database(
    store: SQLiteStore, tmp_path: Path
) -> None:
    await store.enqueue([a_task(payload=b"x" * 1000) for _ in range(1000)])

    async def is_carried_over() -> bool:
        # Without its WAL, and by another process: closing the file here would drop our locks.
        copying = await asyncio.create_subprocess_exec("cp", store.path, tmp_path / "copy.db")
        await copying.wait()
        with closing(sqlite3.connect(tmp_path / "copy.db")) as db, suppress(sqlite3.Error):
            return bool(db.execute("SELECT count(*) FROM holdfast_task").fetchone() == (1000,))
        return False

    assert await eventually(is_carried_over)


async def test_a_long_wal_is_cut_off_when_nothing_is_written(store: SQLiteStore) -> None:
    await store.enqueue([a_task(payload=b"x" * 10_000) for _ in range(2000)])
    assert size(f"{store.path}-wal") > log.BYTES_KEPT

    async def is_short() -> bool:
        return size(f"{store.path}-wal") <= log.BYTES_KEPT

    assert await eventually(is_short)


async def test_the_wal_does_not_grow_under_one_who_commits_all_the_time(
    store: SQLiteStore,
) -> None:
    for _ in range(400):
        await store.enqueue([a_task()])
    length = size(f"{store.path}-wal")

    for _ in range(2000):
        await store.enqueue([a_task()])

    assert length >= log.BYTES
    assert size(f"{store.path}-wal") <= length + log.BYTES // 2
    assert len(await waiting_triggers(store)) == 2400


async def test_the_wal_is_used_again_after_a_long_reader_has_gone(
    store: SQLiteStore, caller: sqlite3.Connection
) -> None:
    caller.execute("BEGIN")
    caller.execute("SELECT count(*) FROM holdfast_task").fetchall()
    for _ in range(20):
        await store.enqueue([a_task(payload=b"x" * 1000) for _ in range(500)])
    while_read = size(f"{store.path}-wal")
    caller.execute("ROLLBACK")

    for _ in range(1500):
        await store.enqueue([a_task()])

    assert while_read > 10_000_000
    assert size(f"{store.path}-wal") <= while_read + log.BYTES


async def test_large_commits_after_many_small_ones_do_not_make_the_wal_long(
    store: SQLiteStore,
) -> None:
    for _ in range(700):
        await store.enqueue([a_task()])

    for _ in range(40):
        await store.enqueue([a_task(payload=b"x" * 1000) for _ in range(500)])

    assert size(f"{store.path}-wal") < 6 * log.BYTES


async def test_the_wal_stays_bounded_while_much_is_written(store: SQLiteStore) -> None:
    for _ in range(30):
        await store.enqueue([a_task(payload=b"x" * 1000) for _ in range(2000)])

    assert size(store.path) > 50_000_000
    assert size(f"{store.path}-wal") < 40_000_000


HOT = ["grab_look", "grab", "settle_look", "remove", "archive_plain", "arrivals_same"]
HOT += [
    "arrivals_later",
    "levels",
    "trim",
    "sibling_runs",
    "elder_waits",
    "elder_submitted",
    "due",
    "lost",
    "triggers",
]
HOT += [
    "running_of_node",
    "next_column",
    "last_level",
    "find_errors",
    "old",
    "key_find",
    "next_due",
]


@pytest.mark.parametrize("name", HOT)
async def test_a_hot_statement_walks_no_table_and_sorts_nothing(
    store: SQLiteStore, caller: sqlite3.Connection, name: str
) -> None:
    query = load("holdfast.stores.sqlite", name)
    params: dict[str, Any] = dict.fromkeys(rendered(query, Style.NAMED)[1], 1)

    plan = [row[3] for row in caller.execute(f"EXPLAIN QUERY PLAN {query.text}", params)]

    assert plan
    assert not [step for step in plan if step.startswith("SCAN ") and "VIRTUAL" not in step]
    sorts = [step for step in plan if "TEMP B-TREE" in step]
    assert not sorts or name == "grab_look"  # a batch by id: what it reads is bounded by its ids
