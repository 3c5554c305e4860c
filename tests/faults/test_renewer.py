"""Nodes that compute, hang, stop and die, in processes of their own: who keeps a lease, and who
does not.

Two nodes look at each other: one in a process, which suffers, and one here, which would take over.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from conditions import until
from holdfast import Holdfast, State
from holdfast.address import sqlite_path
from holdfast.dispatch.limits import Limits
from holdfast.node.renewer import KEPT
from holdfast.store import Filter, Member
from holdfast.telemetry.events import (
    LeaseDoubtful,
    LeaseEnded,
    LeaseRegained,
    LeaseRenewed,
    RenewerLost,
    StoreFailed,
)
from holdfast.testing.apps import opened
from holdfast.testing.recorder import Recorder

CHILD = Path(__file__).with_name("leased_process.py")
QUICK = Limits(idle_wait_s=0.5, retry_s=0.05, retry_s_max=0.2)
LEASE_S, HELD_S = 5.0, 15.0
SECRET = "hunter2-canary"


async def eventually(
    is_so: Callable[[], Awaitable[bool]], timeout_s: float = 20.0, why: str = ""
) -> None:
    async with asyncio.timeout(timeout_s):
        while not await is_so():
            await asyncio.sleep(0.02)


class Suffering:
    """A node process, and what it logged."""

    def __init__(self, process: asyncio.subprocess.Process, id: str) -> None:
        self.pid = process.pid
        self.id = id
        self.log: list[dict[str, Any]] = []
        self._process = process
        self._reading = asyncio.create_task(self._read())

    def of(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.log if line.get("happened") == name]

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def leave(self) -> None:
        """Ask it to stop in good order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert await asyncio.wait_for(self._process.wait(), 20) == 0

    async def close(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.log.append(json.loads(line))


class Pair:
    """The app here, with the same kinds as in leased_process.py, and the node over there."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Holdfast(url, rng=Random(1))
        self.heard = Recorder(self.app.events)
        self.ran: list[str] = []

        for kind in ("crunch", "backtrack", "stubborn", "fork"):
            self._register(kind)

    def _register(self, kind: str) -> None:
        @self.app.task(name=kind)
        async def run(seconds: float) -> None:
            self.ran.append(kind)

        setattr(self, kind, run)

    @asynccontextmanager
    async def suffering(self, **settings: Any) -> AsyncIterator[Suffering]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(CHILD),
            self.url,
            json.dumps(settings),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            node = await self._ready(process)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        renewer = 0
        try:
            renewer = await self.renewer_of(node.id)
            yield node
        finally:
            for pid in (node.pid, renewer):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            await node.close()
            if renewer:
                await until(lambda: not is_running(renewer))

    async def _ready(self, process: asyncio.subprocess.Process) -> Suffering:
        assert process.stdout is not None
        while True:
            line = json.loads(await asyncio.wait_for(process.stdout.readline(), 30))
            if "ready" in line:
                return Suffering(process, line["ready"])

    async def member(self, id: str) -> Member | None:
        found = {member.node: member for member in await (await self.app.store()).members()}
        return found.get(id)

    async def renewer_of(self, id: str) -> int:
        """The process that renews the node's lease, once it is known and has done so."""
        found: list[int] = []

        async def is_known() -> bool:
            member = await self.member(id)
            found[:] = filter(None, [member.facts.get("renewer") if member else None])
            return bool(found) and "holdfast renewer" in " ".join(command(found[0]))

        await eventually(is_known)
        return found[0]

    async def runs_at(self, id: str, count: int) -> bool:
        busy = Filter(states=[State.PROCESSING], limit=100)
        return [t.node for t in await (await self.app.store()).find(busy)] == [id] * count

    async def owners(self) -> set[str | None]:
        return {one.owner for one in await (await self.app.store()).holdings("default")}


async def is_done(handle: Any) -> bool:
    return (await handle.task()).state is State.DONE


def is_running(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def command(pid: int) -> list[str]:
    with suppress(psutil.Error):
        return psutil.Process(pid).cmdline()
    return []


def environment(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text(encoding="utf-8", errors="replace")


async def watched_until_done(pair: Pair, there: Suffering, handle: Any) -> list[bool]:
    """A second node would take the task over; answers whether the first was alive, look by look."""
    await eventually(lambda: pair.runs_at(there.id, 1))
    is_alive: list[bool] = []

    async def done() -> bool:
        member = await pair.member(there.id)
        is_alive.append(member is not None and member.is_alive)
        return await is_done(handle)

    async with pair.app.node(lease_s=LEASE_S, limits=QUICK):
        await eventually(done, timeout_s=60)
    return is_alive


def held_on(store_url: str) -> tuple[str, ...]:
    """Each kind on one of the stores; in long runs each on both."""
    if os.environ.get("HOLDFAST_LONG"):
        return "crunch", "backtrack"
    return ("crunch",) if store_url.startswith("sqlite") else ("backtrack",)


@pytest.mark.whole
async def test_a_handler_that_holds_the_interpreter_for_longer_than_a_lease_runs_once(store_url):
    pair = Pair(store_url)
    async with opened(pair.app), pair.suffering(lease_s=LEASE_S) as there:
        for kind in held_on(store_url):
            handle = await getattr(pair, kind).enqueue(HELD_S)
            is_alive = await watched_until_done(pair, there, handle)
            await until(lambda kind=kind: [kind] in [e["kinds"] for e in there.of("LoopBlocked")])

            assert all(is_alive) and len(is_alive) > 50
            assert (await handle.task()).deliveries == 1
            (blocked,) = [line for line in there.of("LoopBlocked") if line["kinds"] == [kind]]
            assert blocked["seconds"] > LEASE_S
            text = f"a handler of kind {kind} held the interpreter for {blocked['seconds']:.1f} s"
            assert blocked["level"] == "WARNING" and blocked["text"].startswith(text)
        assert (pair.ran, pair.heard.all(LeaseEnded)) == ([], [])
        assert not there.of("LeaseDoubtful") + there.of("LeaseLost")


async def test_what_a_killed_node_had_goes_on_elsewhere_long_before_its_lease_would_end(store_url):
    pair = Pair(store_url)
    async with opened(pair.app), pair.suffering(lease_s=10.0) as there:
        handles = await pair.stubborn.enqueue_many([(60.0,)] * 5)
        await eventually(lambda: pair.runs_at(there.id, 5))
        renewer = await pair.renewer_of(there.id)
        async with pair.app.node(lease_s=10.0, limits=QUICK) as here:
            loop = asyncio.get_running_loop()
            killed_at = loop.time()
            there.send(signal.SIGKILL)

            async def is_taken_over() -> bool:
                return await pair.owners() == {here.id} and len(pair.ran) == 5

            await eventually(is_taken_over)
            took_s = loop.time() - killed_at
            for handle in handles:
                await handle.result(timeout=5)
            await until(lambda: not is_running(renewer))

        assert took_s < 3.0
        assert [event.node for event in pair.heard.all(LeaseEnded)] == [there.id]
        assert {(await handle.task()).deliveries for handle in handles} == {2}


async def test_a_node_that_dies_is_noticed_though_a_fork_of_it_holds_the_pipe_open(store_url):
    pair = Pair(store_url)
    async with opened(pair.app), pair.suffering(lease_s=10.0) as there:
        handle = await pair.fork.enqueue(6.0)
        await until(lambda: len(psutil.Process(there.pid).children()) == 2)
        pids = [child.pid for child in psutil.Process(there.pid).children()]
        async with pair.app.node(lease_s=10.0, limits=QUICK):
            loop = asyncio.get_running_loop()
            killed_at = loop.time()
            there.send(signal.SIGKILL)
            await eventually(lambda: is_done(handle))

            assert loop.time() - killed_at < 3.0
            assert any(is_running(pid) for pid in pids), "the fork outlives its node"
        await until(lambda: not any(is_running(pid) for pid in pids))


async def test_a_renewer_that_is_killed_is_replaced_and_nothing_is_lost(store_url):
    pair = Pair(store_url)
    async with opened(pair.app), pair.app.node(lease_s=2.0, renewer="process") as here:
        first = await pair.renewer_of(here.id)
        os.kill(first, signal.SIGKILL)
        lost = await pair.heard.until(RenewerLost)
        handle = await pair.stubborn.enqueue(0.0)
        await handle.result(timeout=5)

        async def is_replaced() -> bool:
            return await pair.renewer_of(here.id) != first

        await eventually(is_replaced)

        assert (lost.node, lost.reason) == (here.id, "ended with SIGKILL")
        assert (await handle.task()).deliveries == 1
        assert not pair.heard.all(LeaseDoubtful)


async def test_a_renewer_that_hangs_is_replaced(store_url):
    pair = Pair(store_url)
    async with opened(pair.app), pair.app.node(lease_s=1.0, renewer="process") as here:
        first = await pair.renewer_of(here.id)
        os.kill(first, signal.SIGSTOP)

        lost = await pair.heard.until(RenewerLost, timeout_s=15)

        assert lost.reason == "was silent"
        assert not is_running(first)
        assert await pair.renewer_of(here.id) != first


@pytest.mark.parametrize("stopped", ["node", "node and renewer"])
async def test_a_node_that_hangs_longer_than_the_stall_limit_is_given_up_and_refused_later(
    store_url, stopped
):
    pair = Pair(store_url)
    short = {"lease_s": 2.0, "tick_s": 0.3}
    async with opened(pair.app), pair.suffering(**short, stall_limit_s=2.0) as there:
        handle = await pair.stubborn.enqueue(2.0)
        await eventually(lambda: pair.runs_at(there.id, 1))
        pids = [there.pid]
        if "renewer" in stopped:
            pids.append(await pair.renewer_of(there.id))
        async with pair.app.node(**short, limits=QUICK) as here:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            await eventually(lambda: is_done(handle))
            assert await pair.owners() == {here.id}
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            await until(lambda: bool(there.of("SettleRefused")))
            await until(lambda: bool(there.of("LeaseRegained")))

            async def is_back() -> bool:
                return await pair.owners() == {here.id, there.id}

            await eventually(is_back)

        task = await handle.task()
        assert (task.state, task.deliveries, pair.ran) == (State.DONE, 2, ["stubborn"])
        (refused,) = there.of("SettleRefused")
        text = f"task {handle.id} (stubborn): superseded, its outcome was refused"
        assert (refused["level"], refused["text"]) == ("WARNING", text)
        doubts = there.of("LeaseDoubtful") + there.of("LeaseLost")
        assert {line["level"] for line in doubts} == {"WARNING"}


async def test_a_pause_shorter_than_the_stall_limit_costs_a_node_nothing(store_url):
    pair = Pair(store_url)
    async with opened(pair.app), pair.suffering(lease_s=2.0, tick_s=0.3) as there:
        handle = await pair.stubborn.enqueue(1.0)
        await eventually(lambda: pair.runs_at(there.id, 1))
        async with pair.app.node(lease_s=2.0, limits=QUICK):
            there.send(signal.SIGSTOP)
            await asyncio.sleep(5.0)  # the pause itself, of two leases and a half
            there.send(signal.SIGCONT)
            await handle.result(timeout=5)

        assert (await handle.task()).deliveries == 1
        assert (pair.ran, there.of("LeaseDoubtful")) == ([], [])


@asynccontextmanager
async def without_store(url: str, server: Any) -> AsyncIterator[None]:
    """The store is away for as long as the block lasts."""
    if not url.startswith("sqlite:"):
        await asyncio.to_thread(server.stop)
        yield
        await asyncio.to_thread(server.start)
        return
    lock = sqlite3.connect(f"{sqlite_path(url)}-leases", isolation_level=None)
    try:
        lock.execute("BEGIN EXCLUSIVE")
        yield
        lock.execute("ROLLBACK")
    finally:
        lock.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_while_the_store_is_away_a_lease_is_unknown_and_not_lost(kind, tmp_path, request):
    server = None
    url = f"sqlite:///{tmp_path / 'app.db'}"
    if kind == "postgres":
        server = request.getfixturevalue("private_postgres")
        url = server.create_database("app")
    pair = Pair(url)
    settings = {"lease_s": 5.0, "tick_s": 0.5, "limits": QUICK, "renewer": "process"}
    async with opened(pair.app), pair.app.node(**settings) as here:
        await pair.renewer_of(here.id)
        async with without_store(url, server):
            failed = await pair.heard.until(StoreFailed, where=lambda e: e.verb == "renew")
            assert not pair.heard.all(LeaseDoubtful), "one failure means nothing yet"
            await pair.heard.until(LeaseDoubtful, timeout_s=15)
        await pair.heard.until(LeaseRegained, timeout_s=15)
        await (await pair.stubborn.enqueue(0.0)).result(timeout=10)

        assert failed.error
        assert len(pair.heard.all(LeaseDoubtful)) == 1


async def test_ps_shows_the_renewer_and_neither_its_arguments_nor_its_environment_a_secret(
    store_url, monkeypatch
):
    monkeypatch.setenv("PGPASSWORD", SECRET)
    monkeypatch.setenv("HOLDFAST_URL", f"postgresql://me:{SECRET}@db/app")
    pair = Pair(store_url.replace("postgres@", f"postgres:{SECRET}@"))
    async with opened(pair.app), pair.app.node(lease_s=2.0, renewer="process") as here:
        renewer = await pair.renewer_of(here.id)
        await pair.heard.until(LeaseRenewed, count=5)
        shown = await asyncio.create_subprocess_exec(
            "ps", "-ww", "-p", str(renewer), "-o", "args=", stdout=asyncio.subprocess.PIPE
        )
        listed = (await shown.communicate())[0].decode()
        names = {line.partition("=")[0] for line in environment(renewer).split("\0") if line}

        assert f"holdfast renewer of {here.id}" in listed
        assert SECRET not in listed + environment(renewer)
        assert names <= {*KEPT, "PYTHONPATH"}
    assert not is_running(renewer)


async def test_a_renewer_goes_with_its_node_and_signals_to_all_do_not_end_it_before(store_url):
    """A service manager sends SIGTERM to every process of a service."""
    pair = Pair(store_url)
    async with opened(pair.app), pair.suffering(lease_s=2.0) as there:
        renewer = await pair.renewer_of(there.id)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(renewer, number)
        await asyncio.sleep(0.5)
        assert is_running(renewer)
        await there.leave()

        assert not is_running(renewer)
        assert await pair.member(there.id) is None
        assert not there.of("RenewerLost")


@pytest.mark.store("postgres")
async def test_a_renewer_works_behind_a_pooler(pgbouncer_url):
    pair = Pair(pgbouncer_url)
    async with opened(pair.app), pair.suffering(lease_s=1.5, tick_s=0.3) as there:
        await asyncio.sleep(1.0)  # it has started and connected
        there.send(signal.SIGSTOP)
        await asyncio.sleep(4.0)
        member = await pair.member(there.id)
        there.send(signal.SIGCONT)

        assert member is not None and member.is_alive
