"""After the commit: one suite over every way to bring a transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from callers.rig import Rig, rig_on_postgres, rig_on_sqlite
from callers.ways import EIGHT, MORE, WAYS, Way


@pytest.fixture(params=[*EIGHT, *(pytest.param(name, marks=pytest.mark.whole) for name in MORE)])
def way_type(request: pytest.FixtureRequest) -> type[Way]:
    return WAYS[request.param]


@pytest.fixture
async def rig(
    way_type: type[Way], request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Rig]:
    async with AsyncExitStack() as stack:
        if way_type.store == "sqlite":
            yield await stack.enter_async_context(rig_on_sqlite(tmp_path / "app.db"))
        else:
            url = request.getfixturevalue("postgres_url")
            yield await stack.enter_async_context(rig_on_postgres(url))


@pytest.fixture
async def way(way_type: type[Way], rig: Rig) -> AsyncIterator[Way]:
    way = way_type(rig.address)
    await way.open()
    yield way
    await way.close()


@pytest.mark.req("TASK-1", "ALL-8")
async def test_no_trigger_is_sent_before_the_commit(rig: Rig, way: Way) -> None:
    await way.begin()
    ids = await rig.enqueue(way)
    await rig.time_passes()

    assert rig.sent.triggers == []
    await way.commit()

    await rig.sent.until(1)
    assert rig.sent.ids == ids


@pytest.mark.req("TASK-3")
async def test_after_a_rollback_no_trigger_is_ever_sent_and_no_row_is_left(
    rig: Rig, way: Way
) -> None:
    await way.begin()
    gone = await rig.enqueue(way, 2)
    await way.rollback()
    await way.begin()
    kept = await rig.enqueue(way)
    await way.commit()

    await rig.sent.until(1)
    await rig.time_passes()
    await rig.watch.close()
    # PostgreSQL's ids are never used again; SQLite's are, when nobody has ever seen them.
    assert rig.sent.ids == kept
    assert set(await rig.store.get(gone)) <= set(kept)
    assert sum((await rig.store.counts()).values()) == 1


@pytest.mark.req("TASK-3", "TASK-4")
async def test_what_a_rolled_back_savepoint_added_is_never_triggered(rig: Rig, way: Way) -> None:
    await way.begin()
    first = await rig.enqueue(way)
    await way.savepoint()
    await rig.enqueue(way, 3, kind="gone")
    await way.rollback_savepoint()
    last = await rig.enqueue(way, kind="kept")
    await way.commit()

    await rig.sent.until(2)
    await rig.time_passes()
    assert rig.sent.ids == first + last
    assert {trigger.kind for trigger in rig.sent.triggers} == {"mail", "kept"}


@pytest.mark.req("TASK-4")
async def test_n_tasks_of_one_transaction_give_exactly_n_triggers(rig: Rig, way: Way) -> None:
    await way.begin()
    ids = await rig.enqueue(way, 20)
    for _ in range(10):
        ids += await rig.enqueue(way)
    await way.commit()

    await rig.sent.until(30)
    await rig.time_passes()
    assert rig.sent.ids == ids
    assert len(set(ids)) == 30


@pytest.mark.req("TASK-11")
async def test_every_task_is_visible_to_others_when_its_trigger_is_sent(rig: Rig, way: Way) -> None:
    for round in range(1, 6):
        await way.begin()
        await rig.enqueue(way, 2)
        await way.commit()
        await rig.sent.until(2 * round)

    assert rig.sent.unseen == []


@pytest.mark.req("TASK-9")
async def test_the_trigger_leaves_while_the_caller_keeps_its_only_connection(
    rig: Rig, way: Way
) -> None:
    await way.begin()
    ids = await rig.enqueue(way)
    await way.commit()
    await way.begin()
    await way.execute("SELECT 1")

    await rig.sent.until(1)
    assert rig.sent.ids == ids
    await way.rollback()


async def test_transactions_one_after_the_other_do_not_mix(rig: Rig, way: Way) -> None:
    kept = []
    for number in range(6):
        await way.begin()
        ids = await rig.enqueue(way)
        if number % 2:
            await way.rollback()
        else:
            await way.commit()
            kept += ids

    await rig.sent.until(3)
    await rig.time_passes()
    assert rig.sent.ids == sorted(kept)


async def test_nothing_is_kept_once_the_transaction_is_over(rig: Rig, way: Way) -> None:
    await way.begin()
    await rig.enqueue(way)
    await way.commit()
    await rig.sent.until(1)
    rig.sent.triggers.clear()
    rig.looks.clear()

    await way.begin()
    await way.execute("SELECT 1")
    await way.commit()
    await rig.time_passes()

    assert rig.sent.triggers == [] and rig.looks == []
