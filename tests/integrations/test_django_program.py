"""Django's tasks on Holdfast, from outside: the settings, the commands, and the other Django.

The tests of Django run on whichever is there: the backport on this Python, and once more on
Django 6 when HOLDFAST_TEST_PYTHON312 names an interpreter that has it beside the packages of this
suite.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.test import override_settings

from holdfast import Holdfast
from holdfast.integrations.django import HoldfastBackend
from holdfast.integrations.django.backend import close_all
from holdfast.integrations.django.flavour import api
from holdfast.integrations.django.options import address_of
from holdfast.testing.processes import until
from integrations.django_rig import BACKEND, ENVIRONMENT, database, databases, shop, tasks

__all__ = ["shop"]

PYTHON312 = os.environ.get("HOLDFAST_TEST_PYTHON312")


# ── settings ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"OPTIONS": {"ulr": "sqlite:///a.db"}}, "unknown option 'ulr'; did you mean 'url'"),
        ({"OPTIONS": {"retry": 5}}, "retry takes a policy"),
        ({"QUEUES": []}, "name the queues as QUEUES"),
    ],
)
def test_settings_that_cannot_be_right_are_refused_when_they_are_read(params, reason):
    with pytest.raises(ImproperlyConfigured, match=reason):
        HoldfastBackend("default", params)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"database": "other"}, "database 'other' is not in DATABASES"),
        ({}, "is in memory"),
        ({"url": "sqlite:///a.db", "node": {"slots": 3}}, "unexpected keyword argument 'slots'"),
        ({"url": "sqlite:///a.db", "schema": "1"}, "schema must be"),
    ],
)
def test_settings_that_do_not_fit_are_told_by_the_check_and_at_the_first_use(options, reason):
    memory = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    with databases(default=memory), tasks(**options) as backend:
        (message,) = backend.check()
        assert message.id == "holdfast.E001"
        with pytest.raises(ImproperlyConfigured, match=reason):
            backend.holdfast  # noqa: B018
        assert reason in message.msg


def test_a_database_that_cannot_hold_tasks_is_refused():
    dummy = {"ENGINE": "django.db.backends.dummy"}
    with databases(default=dummy), pytest.raises(ImproperlyConfigured, match="PostgreSQL or SQL"):
        address_of("default", "default")


def test_two_backends_with_the_same_queue_of_one_store_are_refused(tmp_path):
    first = {"BACKEND": BACKEND, "OPTIONS": {"url": f"sqlite:///{tmp_path / 'a.db'}"}}
    second = first | {"QUEUES": ["default", "mail"]}
    with override_settings(TASKS={"a": first, "b": second, "c": first | {"QUEUES": ["c"]}}):
        found = [message for one in api.task_backends.all() for message in one.check()]

    assert [message.id for message in found] == ["holdfast.E002"]
    assert "share the queues default of one store" in found[0].msg


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({"NAME": "shop"}, "postgresql:///shop"),
        ({"NAME": "shop", "USER": "a", "HOST": "h", "PORT": 1}, "postgresql://a@h:1/shop"),
        (
            {"NAME": "sh op", "USER": "a@b", "PASSWORD": "p:/", "HOST": "h"},
            "postgresql://a%40b:p%3A%2F@h/sh%20op",
        ),
        (
            {"NAME": "shop", "USER": "a", "HOST": "/run/pg", "PORT": "5433"},
            "postgresql://a@/shop?host=%2Frun%2Fpg&port=5433",
        ),
        (
            {"NAME": "shop", "HOST": "h", "OPTIONS": {"sslmode": "require", "pool": True}},
            "postgresql://h/shop?sslmode=require",
        ),
    ],
)
def test_the_address_of_a_postgres_database_is_read_from_its_settings(settings, url):
    engine = {"ENGINE": "django.db.backends.postgresql"}
    with databases(other=engine | settings):
        assert address_of("default", "other") == url


def test_an_address_that_only_a_service_file_knows_is_asked_for():
    settings = {"ENGINE": "django.db.backends.postgresql", "OPTIONS": {"service": "shop"}}
    with databases(other=settings), pytest.raises(ImproperlyConfigured, match="as OPTIONS"):
        address_of("default", "other")


# ── commands ──────────────────────────────────────────────────────────────────────────────────

SETTINGS = """
USE_TZ = True
SECRET_KEY = "test"
DATABASES = {{"default": {database!r}}}
INSTALLED_APPS = ["shop", "holdfast.integrations.django"]
TASKS = {{
    "default": {{"BACKEND": {backend!r}, "QUEUES": ["default", "mail"]}},
    "other": {{"BACKEND": {backend!r}, "QUEUES": ["other"]}},
}}
"""
MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
SHOP = f"""
import os
from {api.__name__} import task

@task
def add(one, two):
    return [one + two, os.getpid()]
"""
ENQUEUE = """
from shop.tasks import add
print(*[add.using(queue_name=q, backend=b).enqueue(1, 2).id
        for b, q in (("default", "default"), ("default", "mail"), ("other", "other"))])
"""


class Program:
    """A Django program in a folder, run by its manage.py."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        (folder / "shop").mkdir()
        (folder / "shop" / "__init__.py").touch()
        (folder / "shop" / "tasks.py").write_text(SHOP)
        (folder / "manage.py").write_text(MANAGE)
        settings = SETTINGS.format(database=database(url), backend=BACKEND)
        (folder / "settings.py").write_text(settings)

    def run(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=self._folder,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @contextmanager
    def worker(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "holdfast_worker", *arguments],
            cwd=self._folder,
            env=ENVIRONMENT,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=30)
            assert process.returncode == 0, said
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def enqueue(self) -> list[int]:
        """A task for each queue; their ids, in the order default, mail, other."""
        return [int(id) for id in self.run("shell", "--verbosity=0", "-c", ENQUEUE).split()]


@pytest.fixture
def program(tmp_path: Path, store_url: str) -> Program:
    return Program(tmp_path, store_url)


@pytest.fixture
def states(store_url: str) -> Iterator[Callable[[list[int]], list[str]]]:
    """The states of the tasks with these ids."""
    app = Holdfast(store_url)
    yield lambda ids: [app.handle(id).state_sync().name for id in ids]
    app.close_sync()


@pytest.mark.parametrize("processes", [1, 2])
def test_migrate_makes_the_tables_and_the_command_runs_the_tasks_of_all_backends(
    program, states, processes
):
    program.run("migrate", "--verbosity=0")
    program.run("migrate", "--verbosity=0")  # and again does no harm
    ids = program.enqueue()

    with program.worker(f"--processes={processes}"):
        until(lambda: states(ids) == ["DONE"] * 3, 60, lambda: str(states(ids)))


def test_the_command_serves_the_queues_and_backends_that_are_named(program, states):
    program.run("migrate", "--verbosity=0")
    ids = program.enqueue()

    with program.worker("--queue=mail"):
        until(lambda: "DONE" in states(ids), 60, lambda: "nothing ran")
    assert states(ids) == ["SUBMITTED", "DONE", "SUBMITTED"]
    with program.worker("--backend=other"):
        until(lambda: states(ids)[2] == "DONE", 60, lambda: "nothing ran")
    assert states(ids)[0] == "SUBMITTED"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--queue=mial"], "no backend has the queue mial; known: default, mail, other"),
        (["--backend=nobody"], "TASKS has no backend of Holdfast called nobody"),
        (["--processes=0"], "--processes is a number from 1 to 256"),
    ],
)
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_the_command_refuses_what_is_not_there(program, arguments, reason):
    assert reason in program.run("holdfast_worker", *arguments, code=1)


def test_without_either_of_the_two_the_extra_is_named():
    code = (
        "import sys\n"
        "sys.modules['django.tasks'] = sys.modules['django_tasks'] = None\n"
        "import holdfast.integrations.django"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )

    assert "pip install 'holdfast[django]'" in done.stderr.splitlines()[-1]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # from Python 3.12 on
def test_a_forked_process_makes_an_app_of_its_own(shop):
    shop.add.enqueue(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            connections.close_all()
            os.write(writer, shop.add.enqueue(2).id.encode())
            close_all()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        id = told.read()
    os.waitpid(child, 0)

    assert shop.add.get_result(id).args == [2]


if PYTHON312:

    def test_all_of_this_on_django_6():
        files = sorted(Path(__file__).parent.glob("test_django*.py"))
        kept = {k: v for k, v in os.environ.items() if k != "HOLDFAST_TEST_PYTHON312"}
        done = subprocess.run(
            [PYTHON312, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
            cwd=Path(__file__).parents[2],
            env=kept | {"PYTHONPATH": "src"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
