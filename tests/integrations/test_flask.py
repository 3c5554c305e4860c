"""Flask: handlers inside the application context, and a node beside the requests."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask, current_app

from holdfast import Holdfast, State
from holdfast.errors import ConfigurationError
from holdfast.integrations.flask import init_app
from holdfast.testing.apps import fresh, migrate
from holdfast.testing.processes import until
from integrations.rig import insert, make_orders, orders, transaction

PROGRAM = Path(__file__).with_name("flask_program.py")


@pytest.fixture
def app(store_url: str) -> Iterator[Holdfast]:
    asyncio.run(migrate(store_url))
    app = fresh(store_url)
    yield app
    app.close_sync()


def test_a_request_enqueues_in_its_transaction_and_the_node_runs_it_in_the_context(app, store_url):
    def ours() -> set[str]:
        return {str(one) for one in threading.enumerate() if "holdfast" in one.name}

    before = ours()  # an app of another test, which ends with the process, is not our matter
    make_orders(store_url)
    shop = Flask("shop")
    done: list[tuple[str, str]] = []

    @app.task
    def confirm(name: str) -> None:
        done.append((name, current_app.name))

    @app.task
    async def greet(name: str) -> None:
        await asyncio.sleep(0)
        done.append((name.upper(), current_app.name))

    @shop.post("/orders/<name>")
    def place(name: str) -> str:
        with transaction(store_url) as db:
            insert(db, name)
            confirm.options(within=db).enqueue_sync(name)
            if name == "mallory":
                raise PermissionError(name)
        greet.enqueue_sync(name)
        return "placed"

    node = init_app(shop, app, node=True)
    assert not node.is_running  # it begins with the first request
    client = shop.test_client()
    assert client.post("/orders/mallory").status_code == 500
    assert client.post("/orders/ada").text == "placed"
    until(lambda: len(done) == 2, 10, lambda: str(done))
    node.stop()
    node.stop()

    assert sorted(done) == [("ADA", "shop"), ("ada", "shop")]
    assert orders(store_url) == ["ada"]
    # A thread that was told to end needs a moment for it.
    until(lambda: not ours() - before, 5, lambda: str(ours() - before))


def test_tasks_that_are_registered_later_run_in_the_context_too_but_a_direct_call_does_not(app):
    init_app(Flask("shop"), app)

    @app.task
    def name() -> str:
        return current_app.name

    async def run() -> str:
        async with app.node():
            return await (await name.enqueue()).result(timeout=10)

    assert app.call(run()) == "shop"
    with pytest.raises(RuntimeError, match="application context"):
        name()


def test_without_a_node_the_program_only_enqueues(app):
    shop = Flask("shop")
    extension = init_app(shop, app)

    @app.task
    def nothing() -> None: ...

    @shop.post("/")
    def place() -> str:
        return str(nothing.enqueue_sync().id)

    id = int(shop.test_client().post("/").text)

    assert app.handle(id).state_sync() is State.SUBMITTED
    assert shop.extensions["holdfast"] is extension and not extension.is_running
    extension.stop()


def test_a_node_that_cannot_start_says_why_and_may_be_started_again(app):
    extension = init_app(Flask("shop"), app)
    with pytest.raises(ConfigurationError, match="no tasks yet"):
        extension.start()

    @app.task
    def answer() -> int:
        return 42

    extension.start()
    assert answer.enqueue_sync().result_sync(timeout=10) == 42
    extension.stop()


def test_an_application_has_one_holdfast(app):
    shop = Flask("shop")
    init_app(shop, app)

    with pytest.raises(ConfigurationError, match="has a Holdfast already"):
        init_app(shop, app)


def test_a_process_that_ends_lets_the_running_attempt_finish(app, store_url):
    done = subprocess.run(
        [sys.executable, PROGRAM, store_url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "finished in shop\n", "")

    async def states() -> list[State]:
        return [(await app.get(1)).state]

    assert app.call(states()) == [State.DONE]


def test_a_sync_call_on_the_loop_that_it_would_wait_for_is_refused_and_does_not_hang(app):
    @app.task
    async def nothing() -> None: ...

    async def wrong() -> None:
        nothing.enqueue_sync()

    with pytest.raises(RuntimeError, match="await the method without _sync"):
        app.call(wrong())
