"""FastAPI and Starlette: the lifespan, with a node and without, around one of the user's own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import warnings
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette

from conditions import until
from holdfast import Holdfast, State
from holdfast.integrations.fastapi import lifespan
from holdfast.telemetry.events import NodeStarted, NodeStopped
from holdfast.testing.apps import fresh, migrate
from holdfast.testing.recorder import Recorder
from integrations.rig import insert, make_orders, orders, transaction

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette would like a successor of httpx
    from fastapi.testclient import TestClient


@pytest.fixture
async def app(store_url: str) -> Holdfast:
    await migrate(store_url)
    await asyncio.to_thread(make_orders, store_url)
    return fresh(store_url)


def shop(app: Holdfast, url: str, **options) -> tuple[FastAPI, list[str]]:
    """A program with one endpoint of each sort; what its handler has done."""
    done: list[str] = []
    api = FastAPI(lifespan=lifespan(app, **options))

    @app.task
    async def confirm(name: str) -> None:
        done.append(name)

    @api.post("/orders/{name}")
    def place(name: str) -> dict[str, int]:
        with transaction(url) as db:
            insert(db, name)
            handle = confirm.options(within=db).enqueue_sync(name)
            if name == "mallory":
                raise PermissionError(name)
        return {"task": handle.id}

    @api.post("/notes/{name}")
    def note(name: str) -> dict[str, int]:
        return {"task": confirm.enqueue_sync(name).id}

    @api.post("/greetings/{name}")
    async def greet(name: str) -> dict[str, int]:
        return {"task": (await confirm.enqueue(name)).id}

    return api, done


async def test_a_request_enqueues_in_its_transaction_and_the_node_of_the_program_runs_it(
    app, store_url
):
    api, done = shop(app, store_url)
    transport = httpx.ASGITransport(api, raise_app_exceptions=False)

    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
    ):
        assert (await client.post("/orders/mallory")).status_code == 500
        assert (await client.post("/orders/ada")).status_code == 200
        assert (await client.post("/greetings/bob")).status_code == 200
        await until(lambda: len(done) == 2)

    assert sorted(done) == ["ada", "bob"]
    assert await asyncio.to_thread(orders, store_url) == ["ada"]


def test_a_sync_program_leaves_nothing_open(store_url):
    asyncio.run(migrate(store_url))
    make_orders(store_url)
    app = fresh(store_url)
    before = set(threading.enumerate())
    api, done = shop(app, store_url)

    with Recorder(app.events) as heard, TestClient(api) as client:
        client.post("/orders/ada").raise_for_status()
        client.post("/notes/bob").raise_for_status()
        asyncio.run(until(lambda: sorted(done) == ["ada", "bob"]))

    assert heard.all(NodeStarted) and heard.all(NodeStopped)
    assert not [
        one for one in threading.enumerate() if one not in before and "holdfast" in one.name
    ]


async def test_a_running_attempt_finishes_before_the_program_ends(app):
    began, ended = asyncio.Event(), []

    @app.task
    async def slow() -> None:
        began.set()
        await asyncio.sleep(0.2)
        ended.append("finished")

    api = FastAPI(lifespan=lifespan(app))
    async with api.router.lifespan_context(api):
        handle = await slow.enqueue()
        await began.wait()
    assert ended == ["finished"]
    async with app:
        assert await handle.state() is State.DONE


async def test_without_a_node_the_program_only_enqueues(app, store_url):
    api, done = shop(app, store_url, node=False)
    transport = httpx.ASGITransport(api)

    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
    ):
        answer = await client.post("/orders/ada")
        assert await app.handle(answer.json()["task"]).state() is State.SUBMITTED

    assert done == []


async def test_the_node_serves_the_queues_and_has_the_settings_that_were_given(app):
    @app.task(queue="mail")
    async def mail() -> None: ...

    @app.task(queue="other")
    async def other() -> None: ...

    api = FastAPI(lifespan=lifespan(app, queues="mail", slots_async=3))
    with Recorder(app.events) as heard:
        async with api.router.lifespan_context(api):
            handle = await other.enqueue()
            await (await mail.enqueue()).result(timeout=10)
            assert await handle.state() is State.SUBMITTED

    (started,) = heard.all(NodeStarted)
    assert started.queues == ("mail",)


async def test_a_lifespan_of_the_users_own_begins_before_and_ends_after_and_keeps_its_state(app):
    told: list[object] = []

    @app.task
    async def nothing() -> None: ...

    @asynccontextmanager
    async def own(api):
        told.append(api)
        yield {"answer": 42}
        told.append("end")

    app.events.listen(lambda event: told.append(type(event).__name__), every_task=False)
    api = Starlette(lifespan=lifespan(app, around=own))
    async with api.router.lifespan_context(api) as state:
        assert state == {"answer": 42}

    nodes = [one for one in told if one in (api, "NodeStarted", "NodeStopped", "end")]
    assert nodes == [api, "NodeStarted", "NodeStopped", "end"]


async def test_the_state_of_the_users_lifespan_reaches_the_requests(app):
    @app.task
    async def nothing() -> None: ...

    @asynccontextmanager
    async def own(api):
        yield {"answer": 42}

    api = FastAPI(lifespan=lifespan(app, around=own))

    @api.get("/")
    def answer(request: Request) -> int:
        return request.state.answer

    def ask() -> int:
        with TestClient(api) as client:
            return client.get("/").json()

    assert await asyncio.to_thread(ask) == 42


@pytest.mark.parametrize("module", ["fastapi", "flask"])
def test_neither_the_package_nor_the_integration_imports_the_framework(module):
    names = "{'fastapi', 'starlette', 'flask', 'django', 'django_tasks'}"
    code = (
        f"import sys, holdfast, holdfast.integrations.{module}\n"
        f"assert not {names} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
