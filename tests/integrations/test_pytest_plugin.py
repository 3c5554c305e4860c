"""The plugin as a user has it: installed, found by its entry point, in a project of theirs."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
NO_ASYNCIO = "-pno:asyncio"

APP = """
from holdfast import Holdfast, Retry

app = Holdfast("postgresql://nobody@nowhere.invalid/shop")
sent = []

@app.task(queue="mail", retry=Retry(attempts=3, delay=60))
async def send_email(to: str, subject: str = "hello") -> None:
    if to == "busy" and len(sent) < 2:
        sent.append("failed")
        raise ConnectionError
    sent.append(to)

async def sign_up(name: str) -> None:
    await send_email.enqueue(name)
    await send_email.options(delay=3600).enqueue(name, "how do you like it?")
"""
CONFTEST = """
import pytest
import app

@pytest.fixture
def holdfast_app():
    app.sent.clear()
    return app.app
"""
ASYNC_TESTS = """
from app import send_email, sent, sign_up

async def test_sign_up(holdfast):
    await sign_up("ada")
    holdfast.assert_enqueued(send_email, to="ada", subject="hello")
    await holdfast.run_until_idle()
    assert sent == ["ada"]
    holdfast.clock.advance(3600)
    await holdfast.run_until_idle()
    assert sent == ["ada", "ada"]

async def test_each_test_has_a_store_of_its_own(holdfast):
    holdfast.assert_not_enqueued(send_email)
"""
SYNC_TESTS = """
from datetime import timedelta
from app import app, send_email, sent

def test_retries(holdfast):
    send_email.enqueue_sync("busy")
    for _ in range(3):
        holdfast.run_until_idle_sync()
        holdfast.clock.advance(timedelta(minutes=2))
    assert sent == ["failed", "failed", "busy"]

def test_what_was_enqueued_is_told(holdfast):
    send_email.enqueue_sync("ada")
    holdfast.assert_enqueued(send_email, to="bob")

def test_the_app_is_given_back():
    assert "nowhere" in app.config.url
"""
OWN = """
def test_an_app_of_the_fixtures_own(holdfast):
    ran = []

    @holdfast.app.task
    def add(number: int) -> None:
        ran.append(number)

    add.enqueue_sync(1)
    holdfast.run_until_idle_sync()
    assert ran == [1]
"""
INERT = """
import sys

def test_nothing_is_imported_for_those_who_do_not_ask():
    assert "holdfast.testing.harness" not in sys.modules
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project that has this tree's entry points installed, and no other plugins by themselves."""
    with (PROJECT / "pyproject.toml").open("rb") as file:
        entries = tomllib.load(file)["project"]["entry-points"]["pytest11"]
    about = pytester.mkdir("installed") / "holdfast_of_this_tree-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: holdfast-of-this-tree\n")
    rows = "".join(f"{name} = {module}\n" for name, module in entries.items())
    (about / "entry_points.txt").write_text(f"[pytest11]\n{rows}")
    monkeypatch.setenv("PYTHONPATH", f"{about.parent}:{PROJECT / 'src'}")
    pytester.makefile(".ini", pytest="[pytest]\nfilterwarnings = error\n")
    pytester.makepyfile(app=APP)
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-q", "-p", "no:hypothesispytest", *arguments)


def test_an_async_test_moves_the_clock_and_sees_its_tasks_run(project):
    project.makeconftest(CONFTEST)
    project.makepyfile(test_async=ASYNC_TESTS)

    scope = "asyncio_default_fixture_loop_scope=function"
    run(project, "-o", "asyncio_mode=auto", "-o", scope).assert_outcomes(passed=2)


def test_a_sync_test_needs_no_other_plugin(project):
    project.makeconftest(CONFTEST)
    project.makepyfile(test_sync=SYNC_TESTS)

    done = run(project, NO_ASYNCIO)

    done.assert_outcomes(passed=2, failed=1)
    done.stdout.fnmatch_lines(
        [
            "*AssertionError: no task send_email(to='bob') was enqueued, but:",
            "*  send_email(to='ada', subject='hello')  queue=mail priority=5  SUBMITTED",
        ]
    )


def test_without_an_app_of_the_users_there_is_one_in_memory(project):
    project.makepyfile(test_own=OWN)

    run(project, NO_ASYNCIO).assert_outcomes(passed=1)


def test_the_plugin_does_nothing_for_tests_that_do_not_ask(project):
    project.makepyfile(test_inert=INERT)

    run(project, NO_ASYNCIO).assert_outcomes(passed=1)


def test_it_lives_beside_the_plugin_of_our_own_suite(project):
    project.makeconftest('pytest_plugins = ["holdfast.testing.plugin"]')
    project.makepyfile(test_own=OWN)

    run(project, NO_ASYNCIO).assert_outcomes(passed=1)
