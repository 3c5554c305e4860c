"""Tasks whose node died run alone, in a process of their own, whatever they are."""

from __future__ import annotations

import asyncio
import os
import signal

import psutil
import pytest

from conditions import until
from engine import in_suspects
from engine.in_suspects import own
from holdfast import Holdfast, Retry, State
from holdfast.ids import NodeId
from holdfast.task import Event
from holdfast.telemetry.events import (
    AloneRefused,
    Events,
    SettleRefused,
    SuspectStarted,
    TaskSettled,
)
from holdfast.testing.apps import migrate
from holdfast.testing.build import a_grabbed
from holdfast.testing.contracts.builders import grab, waiting_triggers
from holdfast.testing.recorder import Recorder
from holdfast.worker import processes, spawned
from holdfast.worker import suspects as module
from holdfast.worker.spawned import Child
from holdfast.worker.suspects import Suspects
from holdfast.worker.verdict import ProcessLost, TimeLimitExceeded
from nodes.fleet import Fleet

GONE = NodeId("gone")


async def lose(app: Holdfast) -> None:
    """Everything that waits is grabbed by a node that dies with it."""
    store = await app.store()
    await grab(store, await waiting_triggers(store, "default"), GONE)
    await store.resume_lost([GONE], deliveries_max=5, limit=1000)


# ── the processes ─────────────────────────────────────────────────────────────────────────


class Rig:
    def __init__(self, size: int = 1) -> None:
        self.events = Events()
        self.heard = Recorder(self.events)
        self.suspects = Suspects(size, node=NodeId("me"), events=self.events)

    async def run(self, task, *args, handler=None):
        handler = handler or task.handler
        payload = handler.arguments.seal(args, {})
        suspect = a_grabbed(1, handler.kind, payload=payload, losses=1, deliveries=2)
        return await self.suspects.run(suspect, handler)

    async def pid(self) -> int:
        outcome = await self.run(in_suspects.pid)
        assert outcome.event is Event.SUCCEEDED
        (pid,) = self.suspects.pids
        return pid


@pytest.fixture
async def rig():
    rig = Rig()
    yield rig
    rig.suspects.close()


async def test_one_process_runs_suspects_one_after_the_other(rig):
    assert await rig.pid() == await rig.pid() != os.getpid()

    assert rig.heard.all(SuspectStarted) == [SuspectStarted(1, "pid", 1)] * 2


async def test_after_a_death_the_next_suspect_runs_in_a_fresh_process(rig):
    first = await rig.pid()
    with pytest.raises(ProcessLost) as caught:
        await rig.run(in_suspects.die, "exit")

    assert caught.value.how.startswith("exit code 7, peak memory ")
    assert caught.value.last_words == "my last words"
    assert await rig.pid() != first


async def test_what_a_suspect_writes_to_stderr_is_passed_on(rig, capfd):
    with pytest.raises(ProcessLost, match="SIGKILL"):
        await rig.run(in_suspects.die, "kill")

    assert "my last words" in capfd.readouterr().err


async def test_a_process_that_died_while_it_had_nothing_to_do_is_nobodys_death(rig):
    first = await rig.pid()
    os.kill(first, signal.SIGKILL)

    assert await rig.pid() != first


async def test_whoever_leaves_a_thread_behind_has_no_follower_in_its_process(rig):
    first = await rig.pid()
    await rig.run(in_suspects.leave_a_thread)
    await until(lambda: not psutil.pid_exists(first))

    assert await rig.pid() != first


async def test_a_time_limit_kills_the_process(rig):
    app = Holdfast("sqlite:///never-opened.db")
    limited = own(app, in_suspects.hang, time_limit=0.1).handler
    with pytest.raises(TimeLimitExceeded, match="its process was killed"):
        await rig.run(None, handler=limited)

    assert rig.suspects.pids == []


async def test_a_suspect_that_is_stopped_takes_its_process_with_it(rig):
    attempt = asyncio.create_task(rig.run(in_suspects.hang))
    await rig.heard.until(SuspectStarted, timeout_s=30)
    (pid,) = rig.suspects.pids
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt

    await until(lambda: not psutil.pid_exists(pid))


async def test_a_process_without_suspects_ends_after_a_while(monkeypatch):
    monkeypatch.setattr(module, "IDLE_S", 0.05)
    rig = Rig()
    pid = await rig.pid()

    await until(lambda: not psutil.pid_exists(pid))
    assert rig.suspects.pids == []


async def test_a_process_stands_ready_for_suspects_that_are_expected(rig):
    rig.suspects.expect([in_suspects.pid.handler])
    await until(lambda: rig.suspects.pids)
    ready = rig.suspects.pids
    rig.suspects.expect([in_suspects.pid.handler])

    assert [await rig.pid()] == ready  # and no second one was started


async def test_no_process_is_started_for_kinds_that_cannot_run_alone(rig, monkeypatch):
    monkeypatch.delattr(Child, "start")
    rig.suspects.expect([in_suspects.end_later.handler])
    await asyncio.sleep(0.01)

    assert rig.suspects.pids == []


async def test_a_process_that_dies_at_its_start_leaves_the_next_suspect_its_reason(
    rig, monkeypatch
):
    monkeypatch.setattr(spawned, "serve", in_suspects.die_at_the_start)
    rig.suspects.expect([in_suspects.pid.handler])

    assert await rig.run(in_suspects.pid) is None
    assert "exit code 9" in rig.heard.all(AloneRefused)[0].reason


async def test_a_suspect_does_not_wait_for_a_new_process_when_another_is_free(monkeypatch):
    """Starting one may take longer than all that there is to run."""
    rig = Rig(2)
    first = await rig.pid()
    start, held = Child.start, asyncio.Event()

    async def start_late(*, listens):
        await held.wait()
        return await start(listens=listens)

    monkeypatch.setattr(Child, "start", start_late)
    async with asyncio.timeout(5):
        await asyncio.gather(*(rig.run(in_suspects.pid) for _ in range(5)))

    assert rig.suspects.pids == [first]
    held.set()
    await until(lambda: len(rig.suspects.pids) == 2)
    rig.suspects.close()


async def test_no_more_processes_start_at_once_than_there_are_cores(monkeypatch):
    monkeypatch.setattr(processes, "STARTS_MAX", 2)
    rig, starting, most = Rig(6), 0, 0
    start = Child.start

    async def counted(*, listens):
        nonlocal starting, most
        starting += 1
        most = max(most, starting)
        await asyncio.sleep(0.02)
        starting -= 1
        return await start(listens=listens)

    monkeypatch.setattr(Child, "start", counted)
    await asyncio.gather(*(rig.run(in_suspects.pid) for _ in range(6)))
    rig.suspects.close()

    assert most == 2


async def test_a_suspect_that_finds_no_process_goes_back_and_stays_a_suspect(rig, monkeypatch):
    monkeypatch.setattr(module, "ROOM_S", 0.05)
    long = asyncio.create_task(rig.run(in_suspects.hang))
    await rig.heard.until(SuspectStarted, timeout_s=30)

    outcome = await rig.run(in_suspects.pid)

    assert (outcome.event, outcome.counts, outcome.forgives) == (Event.RETRIED, False, False)
    assert 0 < outcome.delay_s <= 5
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    assert (await rig.run(in_suspects.pid)).event is Event.SUCCEEDED  # there is room again


@pytest.mark.parametrize("why", ["inside of a function", "ends later"])
async def test_who_cannot_run_alone_is_refused_with_the_reason_once(rig, why):
    app = Holdfast("sqlite:///never-opened.db")

    @app.task
    async def hidden() -> None: ...

    task = in_suspects.end_later if why == "ends later" else hidden
    assert await rig.run(task) is None
    assert await rig.run(task) is None

    (refused,) = rig.heard.all(AloneRefused)
    assert refused.kind == task.handler.kind and why in refused.reason
    assert rig.suspects.pids == []


async def test_a_kind_that_the_process_does_not_find_is_refused(rig):
    app = Holdfast("sqlite:///never-opened.db")
    renamed = own(app, in_suspects.pid, name="other").handler

    assert await rig.run(None, handler=renamed) is None
    assert "finds no handler" in rig.heard.all(AloneRefused)[0].reason


async def test_without_slots_for_suspects_nobody_runs_alone():
    suspects = Suspects(0, node=NodeId("me"), events=Events())
    handler = in_suspects.pid.handler
    task = a_grabbed(1, "pid", payload=handler.arguments.seal((), {}), losses=1)

    assert await suspects.run(task, handler) is None


# ── in a node ─────────────────────────────────────────────────────────────────────────────


async def test_suspects_of_every_mode_run_in_other_processes_and_are_done(app):
    names = ("pid", "pid_of_thread", "pid_of_process")
    tasks = [own(app, getattr(in_suspects, name)) for name in names]
    handles = [await task.enqueue() for task in tasks]
    await lose(app)

    with Recorder(app.events) as heard:
        async with app.node() as node:
            pids = {await handle.result(timeout=30) for handle in handles}
            again = await (await tasks[0].enqueue()).result(timeout=30)
            await node.drained(10)

    assert os.getpid() not in pids
    assert again == os.getpid()  # who is no suspect runs here
    assert {event.task for event in heard.all(SuspectStarted)} == {h.id for h in handles}
    assert {(await handle.task()).deliveries for handle in handles} == {2}


async def test_suspects_of_a_batch_kind_run_one_by_one(app):
    batch = own(app, in_suspects.batch)
    handles = await batch.enqueue_many([(n,) for n in range(5)])
    await lose(app)
    async with app.node() as node:
        await node.drained(30)

    tasks = [await handle.task() for handle in handles]
    assert {(task.state, task.deliveries) for task in tasks} == {(State.DONE, 2)}


async def test_what_a_suspect_says_and_raises_follows_its_policy(app):
    say = own(app, in_suspects.say, retry=Retry(attempts=2, delay=0.01))
    handles = {what: await say.enqueue(what) for what in ("fine", "after", "again", "raises")}
    await lose(app)
    async with app.node() as node:
        await node.drained(30)

    results = {w: (await h.result()).split() for w, h in handles.items() if w != "raises"}
    assert [result[:2] for result in results.values()] == [
        ["fine", "1"],
        ["after", "2"],
        ["again", "1"],
    ]
    here = [what for what, result in results.items() if int(result[2]) == os.getpid()]
    assert here == ["after", "again"]  # an outcome was recorded: no suspects any more
    failed = await handles["raises"].task()
    # What it raises alone clears it, uncounted: only in the node it counts.
    assert (failed.state, failed.attempts, failed.deliveries) == (State.ERROR, 2, 4)
    assert "ValueError: not today" in failed.error


async def test_a_suspect_that_ends_its_process_is_parked_at_once_with_what_is_known(app):
    die = own(app, in_suspects.die, retry=Retry(attempts=9, delay=0))
    handle = await die.enqueue("kill")
    await lose(app)
    async with app.node() as node:
        await node.drained(30)

    task = await handle.task()
    assert (task.state, task.deliveries) == (State.ERROR, 2)
    assert task.error.startswith("the last lines on stderr:\nmy last words\n")
    assert "delivered 2 times, and alone in a process it ended it: SIGKILL" in task.error


async def test_a_transactional_suspect_commits_its_writes_and_the_settle_together(
    app, ledger, store_url, monkeypatch
):
    monkeypatch.setenv("ALONE_URL", store_url)
    book = own(app, in_suspects.book)
    handles = {entry: await book.enqueue(entry) for entry in ("fine", "fails", "dies")}
    await lose(app)
    with Recorder(app.events) as heard:
        async with app.node() as node:
            await node.drained(30)

    assert await handles["fine"].result() != os.getpid()
    assert await ledger.entries() == ["fine"]
    assert "not today" in (await handles["fails"].task()).error
    assert "exit code 5" in (await handles["dies"].task()).error
    settled = {event.task: event.event for event in heard.all(TaskSettled)}
    assert settled == {
        handles["fine"].id: "SUCCEEDED",
        handles["fails"].id: "PARKED",
        handles["dies"].id: "PARKED",
    }
    assert not heard.all(SettleRefused)


async def test_a_transactional_suspect_whose_process_opens_another_store_runs_in_the_node(
    make_app, ledger, tmp_path, monkeypatch
):
    other = f"sqlite:///{tmp_path / 'other.db'}"
    await migrate(other)
    monkeypatch.setenv("ALONE_URL", other)
    app = await make_app()
    book = own(app, in_suspects.book)
    handle = await book.enqueue("fine")
    await lose(app)
    with Recorder(app.events) as heard:
        async with app.node() as node:
            assert await handle.result(timeout=30) == os.getpid()
            await node.drained(10)

    assert await ledger.entries() == ["fine"]
    assert "give the app the same address" in heard.all(AloneRefused)[0].reason


async def test_suspects_that_wait_are_handed_back_by_a_stopping_node_and_stay_suspects(app):
    hang = own(app, in_suspects.hang)
    handles = await hang.enqueue_many([()] * 3)
    await lose(app)
    with Recorder(app.events) as heard:
        async with app.node(slots_suspects=1, drain_s=0):
            await heard.until(SuspectStarted, timeout_s=30)

    tasks = [await handle.task() for handle in handles]
    assert {task.state for task in tasks} == {State.SUBMITTED}
    store = await app.store()
    again = await grab(store, await waiting_triggers(store, "default"), GONE)
    assert [task.losses for task in again] == [1, 1, 1]


async def test_two_hundred_suspects_of_a_fast_kind_are_through_in_seconds(app):
    say = own(app, in_suspects.say)
    handles = await say.enqueue_many([("fine",)] * 200)
    await lose(app)
    loop = asyncio.get_running_loop()
    async with app.node() as node:
        began = loop.time()
        await node.drained(60)
        took_s = loop.time() - began

    assert {await handle.state() for handle in handles} == {State.DONE}
    assert took_s < 20  # some 3 s on an idle machine with two cores


async def test_suspects_are_expected_before_the_lease_of_another_node_ends(
    postgres_url, monkeypatch
):
    expected: list[str] = []
    monkeypatch.setattr(
        Suspects, "expect", lambda self, handlers: expected.extend(h.kind for h in handlers)
    )

    def register(app, name):
        return {"pid": own(app, in_suspects.pid)}

    async with Fleet(postgres_url, register, lease_s=6.0, tick_s=0.1) as fleet:
        mine, other = await fleet.join(renewer="loop"), await fleet.join(renewer="loop")
        await asyncio.sleep(0.5)
        assert expected == []
        other.cut_off()

        await until(lambda: expected, timeout_s=10)

        (member,) = [one for one in await mine.store.real.members() if one.node == other.node.id]
        assert member.is_alive and expected[0] == "pid"
