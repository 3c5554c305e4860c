"""Schedules of an app: from code and at run time, steered by people, ended by their handlers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from conditions import until
from engine import in_processes
from engine.in_processes import own
from holdfast import (
    Answer,
    At,
    Cron,
    EndSchedule,
    Every,
    Later,
    Retry,
    RetryAfter,
    ScheduleSlot,
    State,
    Unique,
    current_task,
)
from holdfast.errors import ConfigurationError, WrongArguments
from holdfast.store import Filter
from holdfast.telemetry.events import ScheduleFired, TaskSettled

FAR = Every(365 * 86_400.0)


async def test_a_schedule_in_code_fires_with_its_arguments_and_its_handler_knows_its_slot(
    app, heard
):
    ran: list[tuple[str, ScheduleSlot | None, dict[str, object]]] = []

    @app.task
    async def report(region: str) -> None:
        task = current_task()
        ran.append((region, task.schedule, task.metadata))

    report.options(metadata={"tenant": "acme"}).schedule("often", Every(0.4), region="emea")
    async with app.node():
        await until(lambda: len(ran) >= 2)
    region, slot, metadata = ran[0]
    fired = heard.all(ScheduleFired)

    assert (region, metadata) == ("emea", {"tenant": "acme"})
    assert slot is not None and slot.name == "often"
    assert (slot.slot, slot.next_at) == (fired[0].slot, fired[0].slot + timedelta(seconds=0.4))
    assert [one.schedule for one in fired[:2]] == ["often", "often"]


async def test_a_task_that_somebody_enqueues_has_no_schedule(app):
    @app.task
    async def ask() -> bool:
        return current_task().schedule is None

    async with app.node():
        assert await (await ask.enqueue()).result(timeout=10)


@pytest.mark.req("TASK-84")
async def test_all_nodes_and_restarts_share_one_registration_and_another_line_updates_it(make_app):
    async def start(timing) -> None:
        app = await make_app()

        @app.task
        async def report() -> None: ...

        report.schedule("yearly", timing)
        async with app.node(), app.node():
            pass

    app = await make_app()
    for _ in range(2):
        await asyncio.gather(start(FAR), start(FAR))
    (first,) = await app.schedules.list()
    await app.schedules.pause("yearly")
    await start(Every(86_400.0 * 366))
    (changed,) = await app.schedules.list()

    assert (first.name, first.version, first.source) == ("yearly", 1, "code")
    assert (changed.version, changed.timing) == (3, Every(86_400.0 * 366))
    assert changed.is_paused, "what people set outlives a deploy"


async def test_a_schedule_that_is_gone_from_the_code_stays_until_it_is_dropped(make_app):
    old, new = await make_app(), await make_app()

    @old.task(name="report")
    async def report() -> None: ...

    @new.task(name="report")
    async def report_again() -> None: ...

    report.schedule("yearly", FAR)
    async with old.node():
        pass
    async with new.node():
        assert [one.name for one in await new.schedules.list()] == ["yearly"]
        assert await new.schedules.drop("yearly") is Answer.OK
        assert await new.schedules.drop("yearly") is Answer.NOT_FOUND
        assert await new.schedules.list() == []


async def test_a_schedule_that_is_put_at_run_time_fires_at_once_when_its_time_comes(app):
    ran: list[int] = []

    @app.task
    async def remind(customer: int) -> None:
        ran.append(customer)

    async with app.node():
        await asyncio.sleep(0.2)  # the scheduler sleeps by now, for five seconds
        loop = asyncio.get_running_loop()
        began = loop.time()
        schedule = await remind.put_schedule("customer 17", Every(0.3), 17)
        await until(lambda: ran == [17])
        assert loop.time() - began < 3.0, "it was woken"

    assert (schedule.version, schedule.source) == (1, "run time")
    again = await remind.put_schedule("customer 17", FAR, 17)
    assert (again.timing, again.last_at is not None) == (FAR, True)


async def test_a_paused_schedule_does_not_fire_and_a_resumed_one_makes_up_for_nothing(app):
    ran: list[datetime] = []

    @app.task
    async def tick() -> None:
        slot = current_task().schedule
        assert slot is not None and slot.slot is not None
        ran.append(slot.slot)

    async with app.node():
        await tick.put_schedule("often", Every(0.2, catch_up="all"))
        await until(lambda: len(ran) >= 1)
        assert await app.schedules.pause("often") is Answer.OK
        assert await app.schedules.pause("often") is Answer.OK
        paused = await app.schedules.get("often")
        assert paused is not None
        await until(lambda: paused.last_at in ran)
        await asyncio.sleep(0.7)
        count = len(ran)
        assert await app.schedules.resume("often") is Answer.OK
        resumed = await app.schedules.get("often")
        await until(lambda: len(ran) > count)

    assert paused is not None and paused.is_paused and paused.last_at is not None
    assert max(ran[:count]) == paused.last_at, "nothing fired after the pause"
    assert resumed is not None and ran[count] >= paused.last_at + timedelta(seconds=0.6)
    assert await app.schedules.pause("no such") is Answer.NOT_FOUND
    assert await app.schedules.resume("no such") is Answer.NOT_FOUND
    assert await app.schedules.get("no such") is None


async def test_run_now_adds_one_task_besides_the_slots(app):
    @app.task
    async def report(region: str) -> tuple[str, str, bool]:
        schedule = current_task().schedule
        assert schedule is not None
        return (region, schedule.name, schedule.slot is None)

    async with app.node():
        before = await report.put_schedule("yearly", FAR, "emea")
        await app.schedules.pause("yearly")
        id = await app.schedules.run_now("yearly")
        assert id is not None
        result = await app.handle(id).result(timeout=10)
        after = await app.schedules.get("yearly")

    assert tuple(result) == ("emea", "yearly", True)
    assert after is not None and after.next_at == before.next_at
    assert await app.schedules.run_now("no such") is None


@pytest.mark.req("TASK-84")
@pytest.mark.parametrize("way", ["async", "thread", "later", "transactional", "batch"])
async def test_the_outcome_end_stops_the_schedule(app, heard, way):
    ran: list[int] = []

    if way == "transactional":

        @app.task(transactional=True)
        async def once(tx: object, number: int) -> EndSchedule:
            ran.append(number)
            return EndSchedule()

    elif way == "batch":

        @app.batch_task(max=10)
        async def once(numbers: list[int]) -> EndSchedule:
            ran.extend(numbers)
            return EndSchedule()

    elif way == "thread":

        @app.task
        def once(number: int) -> int | EndSchedule:
            ran.append(number)
            return EndSchedule()

    else:

        @app.task
        async def once(number: int) -> EndSchedule | Later[int]:
            ran.append(number)
            if way == "async":
                return EndSchedule()
            later: Later[int] = Later()
            later.done(EndSchedule())
            return later

    once.schedule("until it works", Every(0.5), 5)
    async with app.node():
        await heard.until(TaskSettled, where=lambda event: event.kind == "once")
        schedule = await app.schedules.get("until it works")
        assert schedule is not None and schedule.is_ended
        store = await app.store()
        count = len(await store.find(Filter()))  # a slow machine may have fired a second one
        await asyncio.sleep(1.1)
        assert len(await store.find(Filter())) == count, "it fires no more"
        await until(lambda: len(ran) == count)
    async with app.node():  # a restart does not bring it back
        ended = await app.schedules.get("until it works")
        assert ended is not None and ended.is_ended
        assert await app.schedules.resume("until it works") is Answer.OK
        await until(lambda: len(ran) > count)
    tasks = await store.find(Filter())
    assert tasks[0].state is State.DONE


async def test_a_handler_in_a_process_of_the_pool_ends_its_schedule_too(app):
    task = own(app, in_processes.end_schedule)
    await task.put_schedule("yearly", FAR)
    async with app.node():
        id = await app.schedules.run_now("yearly")
        assert id is not None
        await app.handle(id).result(timeout=20)
    schedule = await app.schedules.get("yearly")

    assert schedule is not None and schedule.is_ended


@pytest.mark.req("TASK-84")
@pytest.mark.parametrize("says", ["policy", "RetryAfter"])
async def test_a_failure_is_repeated_only_if_that_is_earlier_than_the_next_regular_run(app, says):
    ran: list[int] = []

    @app.task(retry=Retry(attempts=9, delay=3600.0) if says == "policy" else Retry())
    async def report() -> None:
        ran.append(current_task().attempt)
        if says == "policy":
            raise ValueError("no connection")
        raise RetryAfter(3600.0, "no connection")

    @app.task(retry=Retry(attempts=3, delay=0.01))
    async def quick() -> None:
        ran.append(100 + current_task().attempt)
        raise ValueError("no connection")

    soon = datetime.now(UTC) + timedelta(seconds=0.3)
    report.schedule("half-hourly", Every(1800.0, soon))
    quick.schedule("hourly", Every(3600.0, soon))
    async with app.node() as node:
        await until(lambda: 1 in ran and 103 in ran)
        await node.drained(10)
    tasks = {task.kind: task for task in await (await app.store()).find(Filter())}

    assert sorted(ran) == [1, 101, 102, 103]
    assert tasks["report"].state is State.FAILED
    assert "no connection" in (tasks["report"].error or "")
    next_run = (soon + timedelta(seconds=1800)).isoformat()
    assert f"its next regular run comes first, at {next_run}" in (tasks["report"].error or "")
    assert tasks["quick"].state is State.ERROR, "its retries were used up"


async def test_a_one_off_time_fires_once_and_has_ended(app, heard):
    @app.task
    async def launch() -> None: ...

    async with app.node():
        await launch.put_schedule("launch", At(datetime.now(UTC) + timedelta(seconds=0.3)))
        await heard.until(ScheduleFired)
        schedule = await app.schedules.get("launch")

    assert schedule is not None and schedule.is_ended
    assert await app.schedules.resume("launch") is Answer.NOT_ALLOWED


async def test_what_makes_no_sense_is_refused_and_nothing_is_written(app):
    @app.task
    async def report(region: str) -> None: ...

    past = At(datetime.now(UTC) - timedelta(days=1))
    with pytest.raises(ConfigurationError, match=r"would never fire: once, at .* has passed"):
        await report.put_schedule("yesterday", past, "emea")
    with pytest.raises(WrongArguments):
        report.schedule("nightly", Cron("0 3 * * *"), 5, 6)
    with pytest.raises(ConfigurationError, match="a schedule fires many tasks"):
        report.options(unique=Unique("x")).schedule("nightly", Cron("0 3 * * *"), "emea")
    with pytest.raises(ConfigurationError, match=r"is Holdfast's own"):
        await report.options(metadata={"holdfast.schedule": {}}).enqueue("emea")
    report.schedule("nightly", Cron("0 3 * * *"), "emea")
    with pytest.raises(ConfigurationError, match="two schedules are named 'nightly'"):
        report.schedule("nightly", Cron("0 4 * * *"), "apac")

    assert await app.schedules.list() == []


async def test_a_code_with_a_time_that_has_passed_starts_all_the_same(app):
    @app.task
    async def launch() -> None: ...

    launch.schedule("launch", At(datetime.now(UTC) - timedelta(days=1)))
    async with app.node():
        (schedule,) = await app.schedules.list()

    assert schedule.is_ended and schedule.last_at is None
    assert await (await app.store()).find(Filter()) == []


async def test_a_sharding_policy_of_the_kind_chooses_the_partition(app):
    class Third:
        def partition(self, *, partitions: int, number: int, ordering_key: str | None) -> int:
            return 3

    @app.task(sharding=Third())
    async def report() -> None: ...

    schedule = await report.put_schedule("yearly", FAR)
    id = await app.schedules.run_now("yearly")
    assert id is not None

    assert (schedule.partition, (await app.get(id)).partition) == (3, 3)
