"""Every bus keeps the contract, and each of them its own promises."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from holdfast.bus import WAKER
from holdfast.buses.local import LocalBus
from holdfast.buses.notices import DOORBELL, channel_of, payloads_of, triggers_in
from holdfast.buses.postgres import PostgresBus
from holdfast.buses.sqlite import LATE_S, SQLiteBus
from holdfast.task import Trigger
from holdfast.telemetry.events import (
    Events,
    StoreFailed,
    TriggerRefused,
    TriggersDropped,
)
from holdfast.testing.build import START, a_trigger
from holdfast.testing.contracts.bus import BusContract, Heard


class Seen:
    """Events as they happen."""

    def __init__(self) -> None:
        self.events = Events()
        self._seen: list[object] = []
        self._news = asyncio.Event()
        self.events.listen(self._see)

    def of(self, kind: type) -> list:
        return [event for event in self._seen if isinstance(event, kind)]

    async def until(self, kind: type) -> None:
        async with asyncio.timeout(10):
            while not self.of(kind):
                self._news.clear()
                await self._news.wait()

    def _see(self, event: object) -> None:
        self._seen.append(event)
        self._news.set()


@pytest.fixture
async def seen() -> Seen:
    return Seen()


# ── in one process ────────────────────────────────────────────────────────────────────────


class TestLocalBus(BusContract):
    @pytest.fixture
    async def bus(self) -> AsyncIterator[LocalBus]:
        bus = LocalBus(events=Events())
        yield bus
        await bus.close()

    @pytest.mark.req("TASK-10")
    async def test_more_unsent_triggers_than_the_limit_are_dropped_with_a_warning(
        self, seen: Seen
    ) -> None:
        bus = LocalBus(events=seen.events, unsent_max=3)
        heard = Heard()
        await bus.subscribe(["default"], heard)

        # The loop stands still meanwhile, so that what other threads publish has to wait.
        publisher = threading.Thread(
            target=lambda: [bus.publish([a_trigger(id)]) for id in range(5)]
        )
        publisher.start()
        publisher.join(10)

        assert not publisher.is_alive()
        await heard.until(lambda: len(heard.triggers) == 3)
        assert seen.of(TriggersDropped) == [TriggersDropped(1), TriggersDropped(1)]
        await bus.close()

    async def test_a_listener_on_the_publishers_loop_has_heard_when_publish_returns(self) -> None:
        bus, heard = LocalBus(events=Events()), Heard()
        await bus.subscribe(["default"], heard)

        bus.publish([a_trigger(1)])

        assert heard.ids == [1]
        await bus.close()


# ── beside one SQLite file ────────────────────────────────────────────────────────────────


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE note (text)")
    db.close()
    return path


@pytest.fixture
def looker(file: Path) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    yield db
    db.close()


def version_of(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA data_version").fetchone()[0]


class TestSQLiteBus(BusContract):
    @pytest.fixture
    async def bus(self, looker: sqlite3.Connection) -> AsyncIterator[SQLiteBus]:
        bus = SQLiteBus(lambda: version_of(looker), events=Events())
        yield bus
        await bus.close()

    async def test_a_commit_of_another_connection_rings_the_doorbell(
        self, bus: SQLiteBus, file: Path
    ) -> None:
        heard = Heard()
        await bus.subscribe(["a", "b"], heard)

        db = sqlite3.connect(file, isolation_level=None)
        db.execute("INSERT INTO note VALUES ('hello')")

        await heard.until(lambda: sorted(heard.rings) == ["a", "b"])
        assert not heard.triggers
        db.close()

    async def test_a_quiet_file_rings_nobody(self, looker: sqlite3.Connection) -> None:
        looks = 0
        ten = asyncio.Event()

        def look() -> int:
            nonlocal looks
            looks += 1
            if looks == 10:
                ten.set()
            return version_of(looker)

        bus, heard = SQLiteBus(look, events=Events()), Heard()
        await bus.subscribe(["default"], heard)
        await asyncio.wait_for(ten.wait(), 10)

        assert not heard.rings
        await bus.close()

    async def test_a_change_that_our_own_commit_explains_rings_later_and_once(
        self, looker: sqlite3.Connection, file: Path
    ) -> None:
        commits = 0
        bus = SQLiteBus(lambda: version_of(looker), events=Events(), own_commits=lambda: commits)
        heard = Heard()
        await bus.subscribe(["default"], heard)
        loop = asyncio.get_running_loop()
        started_at = loop.time()

        db = sqlite3.connect(file, isolation_level=None)
        for _ in range(3):
            commits += 1
            db.execute("INSERT INTO note VALUES ('ours')")
        db.close()

        await heard.until(lambda: heard.rings == ["default"])
        assert loop.time() - started_at >= LATE_S
        await bus.close()

    async def test_a_version_that_cannot_be_read_is_reported_and_rings_later(
        self, seen: Seen, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("holdfast.buses.sqlite.BACK_OFF_S", 0.01)
        answers = iter([1, sqlite3.OperationalError("disk I/O error")])

        def look() -> int:
            answer = next(answers, 1)
            if isinstance(answer, Exception):
                raise answer
            return answer

        bus, heard = SQLiteBus(look, events=seen.events), Heard()
        await bus.subscribe(["default"], heard)

        await heard.until(lambda: heard.rings == ["default"])
        assert seen.of(StoreFailed) == [StoreFailed("data_version", "disk I/O error")]
        await bus.close()

    # ── over PostgreSQL ───────────────────────────────────────────────────────────────────────

    async def test_a_quiet_bus_hardly_looks_and_hears_of_a_commit_all_the_same(
        self, looker: sqlite3.Connection, file: Path
    ) -> None:
        looks = 0

        def look() -> int:
            nonlocal looks
            looks += 1
            return version_of(looker)

        other = sqlite3.connect(file, isolation_level=None)
        other.execute("INSERT INTO note VALUES ('makes the log')")
        bus, heard = SQLiteBus(look, events=Events(), log_path=f"{file}-wal"), Heard()
        await bus.subscribe(["default"], heard)
        await asyncio.sleep(2.5)  # it has to be quiet for two seconds
        before = looks
        await asyncio.sleep(1.0)
        assert looks - before <= 10
        rings, loop = len(heard.rings), asyncio.get_running_loop()
        other.execute("INSERT INTO note VALUES ('hello')")
        committed = loop.time()
        await heard.until(lambda: len(heard.rings) > rings)

        assert loop.time() - committed < 0.2
        await bus.close()
        other.close()

    async def test_who_commits_for_others_touches_the_log_and_they_are_rung_at_once(
        self, looker: sqlite3.Connection, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("holdfast.buses.sqlite.LOOK_S", 60.0)
        version = 1
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("INSERT INTO note VALUES ('makes the log')")
        log = f"{file}-wal"
        bus, heard = SQLiteBus(lambda: version, events=Events(), log_path=log), Heard()
        sender = SQLiteBus(lambda: 1, events=Events(), log_path=log)
        await bus.subscribe(["default"], heard)
        loop = asyncio.get_running_loop()
        took_s = []
        for count in range(1, 6):
            published_at = loop.time()
            version += 1
            sender.publish([a_trigger(count)])
            await heard.until(lambda count=count: len(heard.rings) == count)
            took_s.append(loop.time() - published_at)
            await asyncio.sleep(0.01)

        assert sorted(took_s)[2] < 0.01
        await bus.close()
        other.close()

    async def test_who_touches_the_log_is_not_rung_by_itself(
        self, looker: sqlite3.Connection, file: Path
    ) -> None:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("INSERT INTO note VALUES ('makes the log')")
        bus, heard = SQLiteBus(lambda: 1, events=Events(), log_path=f"{file}-wal"), Heard([])
        await bus.subscribe(["default"], heard)

        bus.publish([a_trigger(1)])
        await asyncio.sleep(0.05)

        assert not heard.rings
        await bus.close()
        other.close()


class Server:
    """One database; buses on it, each as another process would have it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.buses: list[PostgresBus] = []
        self.is_reachable = True

    def bus(self, events: Events | None = None, **options: object) -> PostgresBus:
        bus = PostgresBus(self.connect, schema="holdfast", events=events or Events(), **options)
        self.buses.append(bus)
        return bus

    async def connect(self, name: str = "bus") -> asyncpg.Connection:
        if not self.is_reachable:
            raise OSError("connection refused")
        return await asyncpg.connect(self.url, server_settings={"application_name": name})

    async def run(self, sql: str, *args: object) -> list:
        connection = await asyncpg.connect(self.url)
        try:
            return await connection.fetch(sql, *args)
        finally:
            await connection.close()

    async def end_connections(self) -> None:
        await self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'bus' AND datname = current_database()"
        )


@pytest.fixture
async def server(postgres_url: str) -> AsyncIterator[Server]:
    server = Server(postgres_url)
    yield server
    for bus in server.buses:
        await bus.close()


class TestPostgresBus(BusContract):
    @pytest.fixture
    async def bus(self, server: Server) -> PostgresBus:
        bus = server.bus()
        await bus.open()
        return bus

    async def test_a_trigger_reaches_another_process_whole(self, server: Server) -> None:
        here, there, heard = server.bus(), server.bus(), Heard()
        await here.open()
        await there.subscribe(["default"], heard)
        sent = a_trigger(2**62, kind="möbel", fairness_key='a"\0', weight=0.5, ordering_key="k")

        here.publish([sent])

        await heard.until(lambda: bool(heard.triggers))
        assert heard.triggers == [sent]

    async def test_what_will_be_due_is_told_to_the_waker_of_whichever_queue(
        self, server: Server
    ) -> None:
        here, there, of_queue, of_waker = server.bus(), server.bus(), Heard(), Heard()
        await here.open()
        await there.subscribe(["default"], of_queue)
        await there.subscribe([WAKER], of_waker)

        here.publish([a_trigger(1, due_at=START), a_trigger(2)])

        await of_waker.until(lambda: of_waker.ids == [1])
        await of_queue.until(lambda: of_queue.ids == [2])
        assert of_waker.triggers[0].due_at == START

    @pytest.mark.req("TASK-23")
    async def test_each_queue_has_a_channel_of_its_own_between_processes(
        self, server: Server
    ) -> None:
        here, there, of_a, of_b = server.bus(), server.bus(), Heard(), Heard()
        await here.open()
        await there.subscribe(["a"], of_a)
        await there.subscribe(["b"], of_b)

        here.publish([a_trigger(1, queue="a")])
        here.publish([a_trigger(2, queue="b"), a_trigger(3, queue="a")])

        await of_a.until(lambda: of_a.ids == [1, 3])
        await of_b.until(lambda: of_b.ids == [2])
        assert "b" not in of_a.rings and "a" not in of_b.rings

    async def test_what_a_listener_here_owns_does_not_leave_the_process(
        self, server: Server
    ) -> None:
        here, there = server.bus(), server.bus()
        mine, theirs = Heard(partitions=[0]), Heard()
        await here.subscribe(["default"], mine)
        await there.subscribe(["default"], theirs)

        here.publish([a_trigger(1, partition=0), a_trigger(2, partition=1)])

        await theirs.until(lambda: bool(theirs.triggers))
        assert (mine.ids, theirs.ids) == ([1], [2])

    async def test_what_is_published_after_the_end_opens_no_connection(
        self, server: Server
    ) -> None:
        bus = server.bus()
        await bus.open()
        bus.publish([a_trigger(1)])
        await bus.close()

        bus.publish([a_trigger(2)])
        await asyncio.sleep(0.1)

        asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'bus'"
        assert await server.run(f"{asked} AND datname = current_database()") == []

    async def test_a_listener_whose_backend_was_ended_hears_again_and_looks_for_what_it_missed(
        self, server: Server, seen: Seen
    ) -> None:
        here, there, heard = server.bus(), server.bus(seen.events), Heard()
        await here.open()
        await there.subscribe(["default"], heard)
        rings = len(heard.rings)

        await server.end_connections()
        await heard.until(lambda: len(heard.rings) > rings)
        here.publish([a_trigger(1)])

        await heard.until(lambda: heard.ids == [1])
        assert seen.of(StoreFailed)[0].verb == "listen"

    @pytest.mark.req("TASK-27")
    async def test_a_malformed_trigger_is_skipped_and_reported_and_later_ones_are_heard(
        self, server: Server, seen: Seen
    ) -> None:
        here, there, heard = server.bus(), server.bus(seen.events), Heard()
        await here.open()
        await there.subscribe(["default"], heard)

        for broken in ("", "{", "[[1]]", '[["a","b",0,1,5,null,1,null,null]]', "rubbish"):
            await server.run("SELECT pg_notify($1, $2)", channel_of("holdfast", "default"), broken)
        here.publish([a_trigger(1)])

        await heard.until(lambda: heard.ids == [1])
        assert len(seen.of(TriggerRefused)) == 5

    async def test_a_bus_that_cannot_connect_delays_nobody_and_rings_once_it_is_back(
        self, server: Server, seen: Seen
    ) -> None:
        here, there, heard = server.bus(seen.events), server.bus(), Heard()
        await here.open()
        await there.subscribe(["default"], heard)
        rings = len(heard.rings)

        server.is_reachable = False
        here.publish([a_trigger(1)])
        await seen.until(StoreFailed)
        server.is_reachable = True

        await heard.until(lambda: len(heard.rings) > rings)
        assert seen.of(StoreFailed)[0] == StoreFailed("notify", "connection refused")

    async def test_subscribing_without_a_server_returns_and_listens_later(
        self, server: Server, seen: Seen, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("holdfast.buses.postgres.ANSWER_S_MAX", 0.2)
        server.is_reachable = False
        bus, heard = server.bus(seen.events), Heard()

        await bus.subscribe(["default"], heard)
        assert not heard.rings and seen.of(StoreFailed)[0].verb == "listen"
        monkeypatch.undo()
        server.is_reachable = True

        await heard.until(lambda: heard.rings == ["default"])

    @pytest.mark.req("TASK-10")
    async def test_beyond_the_limit_triggers_are_skipped_with_a_warning(
        self, server: Server, seen: Seen
    ) -> None:
        bus = server.bus(seen.events, unsent_max=100)
        await bus.open()

        for id in range(150):
            bus.publish([a_trigger(id)])

        assert len(seen.of(TriggersDropped)) == 50

    async def test_a_bus_that_only_sends_makes_no_connection_to_listen(
        self, server: Server
    ) -> None:
        bus, heard = server.bus(listens=False), Heard()

        await bus.subscribe(["default"], heard)
        bus.publish([a_trigger(1)])

        assert heard.ids == [1]
        asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'bus'"
        assert (await server.run(asked))[0][0] == 0

    async def test_what_was_accepted_is_sent_before_the_bus_closes(self, server: Server) -> None:
        here, there, heard = server.bus(), server.bus(), Heard()
        await here.open()
        await there.subscribe(["default"], heard)

        for id in range(20):
            here.publish([a_trigger(id)])
        await here.close()

        await heard.until(lambda: heard.ids == list(range(20)))

    async def test_a_burst_is_gathered_and_rings_instead_of_telling_each(
        self, server: Server
    ) -> None:
        here, there, heard = server.bus(), server.bus(), Heard()
        await here.open()
        await there.subscribe(["default"], heard)
        rings = len(heard.rings)

        here.publish([a_trigger(id) for id in range(5_000)])

        await heard.until(lambda: len(heard.rings) > rings)
        assert not heard.triggers


class TestNotices:
    @pytest.mark.req("TASK-24")
    def test_a_notice_holds_id_version_and_what_sorting_needs_and_no_payload(self) -> None:
        trigger = a_trigger(5, version=3, fairness_key="acme", weight=2.0)

        (payload,) = payloads_of([trigger])

        assert payload == '[[5,3,0,"mail",5,"acme",2.0,null,null]]'
        assert triggers_in(payload, "default") == [trigger]
        assert "payload" not in Trigger._fields

    def test_many_triggers_share_payloads_below_eight_thousand_bytes(self) -> None:
        triggers = [a_trigger(id, fairness_key="k" * 50) for id in range(250)]

        payloads = payloads_of(triggers)

        assert 1 < len(payloads) <= 4
        assert all(len(payload.encode()) < 8_000 for payload in payloads)
        assert [t for p in payloads for t in triggers_in(p, "default")] == triggers

    def test_a_key_too_long_for_a_payload_becomes_a_doorbell(self) -> None:
        assert payloads_of([a_trigger(1, fairness_key="ü" * 5_000)]) == [DOORBELL]

    def test_channel_names_differ_by_schema_and_queue_and_fit_an_identifier(self) -> None:
        names = {channel_of(s, q) for s in ("a", "b" * 48) for q in ("a", "b", "ü" * 100)}

        assert len(names) == 6
        assert all(len(name.encode()) <= 63 for name in names)
