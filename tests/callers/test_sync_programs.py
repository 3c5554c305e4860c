"""Programs without an event loop: the same promises, kept by the app's own thread."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from random import Random

import psycopg

from holdfast.bus import Bus
from holdfast.clock import SystemClock
from holdfast.stores.postgres import PostgresStore
from holdfast.testing.apps import fresh
from holdfast.testing.faults import FaultyBus
from holdfast.testing.processes import until


class Program:
    def __init__(self, url: str) -> None:
        self.buses: list[FaultyBus] = []
        self.app = fresh(url, wrap_bus=self._recorded)

        @self.app.task
        def note(number: int) -> None: ...

        self.note = note

    def _recorded(self, bus: Bus) -> Bus:
        self.buses.append(FaultyBus(bus, rng=Random(0)))
        return self.buses[-1]

    @property
    def sent(self) -> list[int]:
        return [trigger.id for bus in self.buses for trigger in bus.published]


def test_a_sync_program_on_postgresql_sends_its_triggers_after_the_commit(
    postgres_url: str,
) -> None:
    program = Program(postgres_url)
    store = PostgresStore(postgres_url, clock=SystemClock(), rng=Random(0))
    program.app.call(store.migrate())
    program.app.call(store.close())

    with psycopg.connect(postgres_url) as connection:
        gone = program.note.options(within=connection).enqueue_sync(1)
        connection.rollback()
        kept = program.note.options(within=connection).enqueue_sync(2)
        assert program.sent == []

    until(lambda: bool(program.sent), 10.0)
    assert program.sent == [kept.id] and gone.id != kept.id
    program.app.close_sync()


def test_a_sync_program_on_sqlite_sends_its_triggers_after_the_commit(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    program = Program(f"sqlite:///{path}")
    connection = sqlite3.connect(path)

    kept = program.note.options(within=connection).enqueue_sync(1)
    assert program.sent == []
    connection.commit()

    until(lambda: bool(program.sent), 10.0)
    assert program.sent == [kept.id]
    connection.close()
    program.app.close_sync()
