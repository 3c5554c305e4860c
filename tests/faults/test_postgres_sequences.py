"""The orders of events that the dispatch protocol prevents, played on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import asyncpg
import pytest

from holdfast.clock import SystemClock
from holdfast.errors import OutcomeUnknown
from holdfast.store import (
    START,
    ZERO,
    Column,
    Cursor,
    Entry,
    Level,
    LevelCursor,
    Mark,
    Position,
    Tail,
)
from holdfast.store import Record as Write
from holdfast.stores.postgres import PostgresStore
from holdfast.task import Event, Key, Outcome, State, TaskId, Trigger
from holdfast.testing.contracts.builders import (
    NODE,
    OTHER,
    QUEUE,
    a_task,
    claimed,
    enqueued,
    eventually,
    grab,
    grabbed,
    look,
    trigger_of,
)

COLUMN = Column(5, "email")
INSERT = """
    INSERT INTO holdfast.task
        (queue, partition, kind, priority, state, arrived, enqueued_at, payload)
    VALUES ($1, 0, 'email', 5, 1, pg_current_xact_id(), now(), '') RETURNING id
"""


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, clock=SystemClock(), rng=Random(0))
    await store.migrate()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def connect(postgres_url: str) -> AsyncIterator[Callable[[], Awaitable[asyncpg.Connection]]]:
    made = []

    async def connected() -> asyncpg.Connection:
        made.append(await asyncpg.connect(postgres_url))
        return made[-1]

    yield connected
    for connection in made:
        await connection.close()


async def read(
    store: PostgresStore, position: Position, *, exact: bool
) -> tuple[list[int], Position]:
    """The ids of one page of partition 0 and the position after it."""
    found = await store.arrivals(QUEUE, [Cursor(0, position)], limit=100, exact=exact)
    return [one.id for one in found.triggers], Position(found.horizon, 0)


async def blocked(watcher: asyncpg.Connection, call: asyncio.Task) -> int:
    """Wait until the call waits for a lock; the process number of its backend."""

    async def waits() -> int | None:
        assert not call.done(), "the call should wait"
        return await watcher.fetchval(
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND datname = current_database() AND application_name = 'holdfast'"
        )

    return await eventually(waits)


async def test_a_task_that_commits_late_is_not_missed(store, connect):
    early, late = await connect(), await connect()
    slow, fast = late.transaction(), early.transaction()
    await slow.start()
    first = await late.fetchval(INSERT, QUEUE)
    await fast.start()
    second = await early.fetchval(INSERT, QUEUE)
    await fast.commit()

    before, position = await read(store, START, exact=True)
    seen, _ = await read(store, START, exact=False)
    await slow.commit()
    after, _ = await read(store, position, exact=True)

    assert first < second
    assert (before, seen) == ([], [second])
    assert after == [first, second]


async def test_a_transaction_that_stays_open_stops_no_early_read_and_nothing_comes_twice(
    store, connect
):
    writer = await connect()
    open_for_long = writer.transaction()
    await open_for_long.start()
    await writer.execute("SELECT pg_current_xact_id()")

    exact: list[int] = []
    early: list[int] = []
    position = cursor = START
    for _ in range(5):
        await enqueued(store, a_task(), a_task())
        page, position = await read(store, position, exact=True)
        exact += page
        found = await store.arrivals(QUEUE, [Cursor(0, cursor)], limit=100, exact=False)
        early += [one.id for one in found.triggers]
        cursor = Position(found.triggers[-1].arrived, found.triggers[-1].id)
    await open_for_long.rollback()
    page, _ = await read(store, position, exact=True)

    assert exact == []
    assert len(early) == 10 and early == sorted(set(early)) == page


async def test_ids_given_before_the_transaction_number_do_not_confuse_the_exact_read(
    store, connect
):
    (oldest,) = await enqueued(store)  # its id also logs the next 32, so that they cost no number
    slow = await connect()
    transaction = slow.transaction()
    await transaction.start()
    taken = await slow.fetchval("SELECT nextval('holdfast.task_id')")
    (other,) = await enqueued(store)
    first, position = await read(store, START, exact=True)
    await slow.execute(
        "INSERT INTO holdfast.task (id, queue, partition, kind, priority, state, arrived,"
        " enqueued_at, payload) VALUES ($1, $2, 0, 'email', 5, 1, pg_current_xact_id(), now(), '')",
        taken,
        QUEUE,
    )
    await transaction.commit()
    second, _ = await read(store, position, exact=True)

    assert taken < other
    assert (first, second) == ([oldest, other], [taken])


@pytest.mark.req("TASK-93")
async def test_a_grab_whose_reply_is_lost_is_repeated_and_an_undecided_one_is_offered_again(
    store, connect
):
    (id,) = await enqueued(store)
    trigger = await trigger_of(store, id)
    holder = await connect()
    lock = holder.transaction()
    await lock.start()
    await holder.execute("SELECT FROM holdfast.task WHERE id = $1 FOR UPDATE", id)

    first = await store.grab([trigger], node=NODE, deadlines_s={}, epochs={})
    await lock.rollback()
    second = await store.grab([trigger], node=NODE, deadlines_s={}, epochs={})
    again = await store.grab([trigger], node=NODE, deadlines_s={}, epochs={}, repeat=True)

    assert (first.tasks, first.undecided) == ([], [id])
    assert [task.id for task in second.tasks] == [id]
    assert again.tasks == second.tasks
    assert (await look(store, id)).deliveries == 1


@pytest.mark.req("TASK-93")
async def test_a_repeated_grab_waits_for_the_first_that_is_still_at_work(store, connect):
    (id,) = await enqueued(store)
    trigger = await trigger_of(store, id)
    first, watcher = await connect(), await connect()
    at_work = first.transaction()
    await at_work.start()
    await first.execute(
        "UPDATE holdfast.task SET state = 2, version = 2, deliveries = 1, node = $2 WHERE id = $1",
        id,
        NODE,
    )

    repeat = asyncio.create_task(grab(store, [trigger], repeat=True))
    await blocked(watcher, repeat)
    await at_work.commit()

    (task,) = await repeat
    assert (task.id, task.version, task.deliveries) == (id, 2, 1)


def an_entry(seq: int) -> Entry:
    return Entry(Level(1, seq), Trigger(TaskId(seq), 1, QUEUE, 0, "email", 5))


async def written(store: PostgresStore, epoch: int, seq: int) -> bool:
    """Whether the owner of this epoch could append to partition 0."""
    write = Write(partition=0, epoch=epoch, entries=[an_entry(seq)], marks={COLUMN: Mark(ZERO)})
    return not await store.record(QUEUE, [write])


async def test_an_old_owner_with_an_older_snapshot_is_refused(store, connect):
    old = (await claimed(store))[0]
    rival, watcher = await connect(), await connect()
    takeover = rival.transaction()
    await takeover.start()
    await rival.execute(
        "UPDATE holdfast.partition SET epoch = epoch + 1, owner = $2 "
        "WHERE queue = $1 AND partition = 0",
        QUEUE,
        OTHER,
    )

    late = asyncio.create_task(written(store, old, 1))
    await blocked(watcher, late)  # its snapshot is from before the takeover
    await takeover.commit()

    assert await late is False
    assert await store.levels(QUEUE, [LevelCursor(0, COLUMN, ZERO, 10)]) == [[]]


async def test_a_takeover_waits_for_the_old_owners_write_and_sees_it(store, connect):
    old = await claimed(store)
    writer, watcher = await connect(), await connect()
    writing = writer.transaction()
    await writing.start()
    await writer.execute(
        "SELECT FROM holdfast.partition WHERE queue = $1 AND partition = 0 FOR SHARE", QUEUE
    )
    await writer.execute(
        "INSERT INTO holdfast.backlog (queue, partition, priority, kind, pass, seq, task, arrived,"
        " version, weight) VALUES ($1, 0, 5, 'email', 3, 4, 9, 1, 1, 1)",
        QUEUE,
    )

    takeover = asyncio.create_task(store.claim(QUEUE, {0: old[0]}, node=OTHER))
    await blocked(watcher, takeover)
    await writing.commit()

    assert await takeover == {0: old[0] + 1}
    (loaded,) = await store.load(QUEUE, [0])
    assert loaded.columns == {COLUMN: Tail(Level(3, 4))}


async def test_of_two_takeovers_at_once_one_wins_and_the_loser_writes_nothing(store):
    seen = {holding.partition: holding.epoch for holding in await store.holdings(QUEUE)}

    both = await asyncio.gather(
        store.claim(QUEUE, seen, node=NODE), store.claim(QUEUE, seen, node=OTHER)
    )

    assert sorted(map(len, both)) == [0, len(seen)]
    assert await written(store, 0, 1) is False
    assert await written(store, 1, 1) is True
    second = await store.claim(QUEUE, dict.fromkeys(seen, 1), node=NODE)
    assert set(second.values()) == {2}
    assert await written(store, 1, 2) is False
    assert await written(store, 2, 2) is True


async def test_an_append_that_is_repeated_after_a_lost_reply_stands_once(store):
    epochs = await claimed(store)

    assert await written(store, epochs[0], 1)
    assert await written(store, epochs[0], 1)

    (entries,) = await store.levels(QUEUE, [LevelCursor(0, COLUMN, ZERO, 10)])
    assert entries == [an_entry(1)]


async def test_a_repeat_appends_what_the_first_call_did_not_write(store):
    epochs = await claimed(store)
    assert await written(store, epochs[0], 2)

    entries = [an_entry(seq) for seq in (1, 2, 3)]
    write = Write(partition=0, epoch=epochs[0], entries=entries, position=Position(7, 7))
    refused = await store.record(QUEUE, [write])

    (found,) = await store.levels(QUEUE, [LevelCursor(0, COLUMN, ZERO, 10)])
    (loaded,) = await store.load(QUEUE, [0])
    assert (refused, found, loaded.position) == (set(), entries, Position(7, 7))


async def test_a_repeated_append_waits_for_the_first_that_is_still_at_work(store, connect):
    epochs = await claimed(store)
    first, watcher = await connect(), await connect()
    writing = first.transaction()
    await writing.start()
    await first.execute(
        "INSERT INTO holdfast.backlog (queue, partition, priority, kind, pass, seq, task, arrived,"
        " version, weight) VALUES ($1, 0, 5, 'email', $2, 1, $3, 1, 1, 1)",
        QUEUE,
        an_entry(1).level.pass_,
        an_entry(1).trigger.id,
    )

    repeat = asyncio.create_task(written(store, epochs[0], 1))
    await blocked(watcher, repeat)
    await writing.commit()

    assert await repeat
    (entries,) = await store.levels(QUEUE, [LevelCursor(0, COLUMN, ZERO, 10)])
    assert [entry.level for entry in entries] == [an_entry(1).level]


async def test_a_batch_keeps_what_differs_between_its_tasks(store):
    plain = {"fairness_key": None, "ordering_key": None, "metadata": None, "priority": 5}
    other = {"fairness_key": "a", "ordering_key": "b", "metadata": b"{}", "priority": 1}
    new = [a_task(kind=f"k{n}", **each) for n, each in enumerate((plain, other, plain, other))]
    ids = await enqueued(store, *new)
    await enqueued(store, *(a_task(kind="alike", weight=2.0, **other) for _ in range(3)))

    found = await store.get(ids)
    for id, task in zip(ids, new, strict=True):
        assert {name: getattr(found[id], name) for name in plain} == (
            plain if task.ordering_key is None else other
        )
        assert found[id].kind == task.kind
    triggers = (await store.arrivals(QUEUE, [Cursor(0, START)], limit=9, exact=False)).triggers
    facts = {(t.kind, t.priority, t.fairness_key, t.ordering_key, t.weight) for t in triggers}
    assert ("alike", 1, "a", "b", 2.0) in facts and ("k0", 5, None, None, 1.0) in facts


async def test_a_batch_of_outcomes_keeps_what_differs_between_them(store):
    tasks = await grabbed(store, *(a_task() for _ in range(5)))
    given = [
        {"event": Event.SUCCEEDED, "result": b"1"},
        {"event": Event.SUCCEEDED},
        {"event": Event.SUCCEEDED, "keep": False},
        {"event": Event.GIVEN_UP, "error": "why"},
        {"event": Event.RETRIED, "error": "later"},
    ]

    outcomes = [Outcome(t.id, t.version, **each) for t, each in zip(tasks, given, strict=True)]
    assert await store.settle(outcomes, node=NODE) == [True] * 5

    found = await store.get([task.id for task in tasks])
    ended = [found.get(task.id) for task in tasks]
    assert [task and (task.state, task.result, task.error) for task in ended] == [
        (State.DONE, b"1", None),
        (State.DONE, None, None),
        None,
        (State.FAILED, None, "why"),
        (State.WAITING, None, "later"),
    ]


async def test_marks_do_not_pile_up(store, connect):
    epochs = await claimed(store)
    watcher = await connect()

    for seq in range(300):
        mark = Mark(Level(1, seq), seq)
        write = Write(partition=0, epoch=epochs[0], marks={COLUMN: mark}, position=Position(seq, 1))
        await store.record(QUEUE, [write])

    assert await watcher.fetchval("SELECT count(*) FROM holdfast.mark") < 200
    (loaded,) = await store.load(QUEUE, [0])
    assert loaded.marks == {COLUMN: Mark(Level(1, 299), 299)}
    assert loaded.position == Position(299, 1)


async def test_a_second_caller_of_a_key_waits_for_the_first_ones_transaction(store, connect):
    first, watcher = await connect(), await connect()
    transaction = first.transaction()
    await transaction.start()
    await first.execute(
        "INSERT INTO holdfast.key (scope, name, task) "
        "VALUES ('s', 'n', nextval('holdfast.task_id'))"
    )

    second = asyncio.create_task(store.enqueue([a_task(key=Key("s", "n"))]))
    await blocked(watcher, second)
    await transaction.rollback()

    (answer,) = await second
    assert answer.created and answer.state is State.SUBMITTED


@pytest.mark.parametrize(("key", "is_safe"), [(None, False), (Key("s", "n"), True)])
async def test_a_connection_lost_during_a_commit_says_that_nobody_can_tell(
    store, connect, key, is_safe
):
    holder, watcher = await connect(), await connect()
    lock = holder.transaction()
    await lock.start()
    await holder.execute("LOCK TABLE holdfast.task IN EXCLUSIVE MODE")

    call = asyncio.create_task(store.enqueue([a_task(key=key)]))
    await watcher.execute("SELECT pg_terminate_backend($1)", await blocked(watcher, call))

    with pytest.raises(OutcomeUnknown) as raised:
        await call
    assert raised.value.repeat_is_safe is is_safe
    await lock.rollback()
    assert (await store.enqueue([a_task(key=key)]))[0].created
