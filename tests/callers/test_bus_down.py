"""The bus is a hint: while it is away, commits go on, and their tasks run when it is back."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from conditions import until
from holdfast.dispatch.limits import Limits
from holdfast.stores.postgres import direct
from holdfast.telemetry.events import StoreFailed
from holdfast.testing.apps import fresh, opened
from holdfast.testing.recorder import Recorder


class Line:
    """The way from a bus to its server, which can be cut."""

    def __init__(self) -> None:
        self.is_cut = False
        self._connector = direct.connector

    def connector(self, url: str, **options: Any) -> Any:
        connect = self._connector(url, **options)

        async def connected() -> Any:
            if self.is_cut:
                raise OSError("no route to host")
            return await connect()

        return connected


@pytest.mark.req("TASK-8")
async def test_with_the_bus_down_the_commit_succeeds_and_the_task_runs_once_it_is_back(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    worker, web = fresh(postgres_url), fresh(postgres_url)
    for app in (worker, web):

        @app.task(name="note")
        async def note(number: int) -> None:
            ran.append(number)

    line = Line()
    never = Limits(idle_wait_s=3600, exact_s=3600)  # only the bus can bring it
    async with opened(worker), worker.node(duties=False, limits=never) as node:
        await until(lambda: node.is_idle)
        monkeypatch.setattr(direct, "connector", line.connector)
        async with opened(web):
            line.is_cut = True
            with Recorder(web.events) as heard, psycopg.connect(postgres_url) as connection:
                handle = await note.options(within=connection).enqueue(1)
                connection.commit()
                await heard.until(StoreFailed)
                assert ran == [] and (await handle.task()).version == 1

                line.is_cut = False
                await asyncio.wait_for(until(lambda: ran == [1]), 10)
        await node.drained(10)
