"""A Django program inside of a test: its databases, and its tasks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connections
from django.db.utils import ConnectionHandler
from django.test import override_settings

import holdfast
from callers import ways  # its import sets Django up
from holdfast.address import sqlite_path
from holdfast.integrations.django import HoldfastBackend
from holdfast.integrations.django.backend import close_all
from holdfast.integrations.django.flavour import api
from holdfast.testing.apps import migrate

assert ways
BACKEND = "holdfast.integrations.django.HoldfastBackend"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(holdfast.__file__).parents[1])}


def database(url: str) -> dict[str, Any]:
    """The address as an entry of DATABASES."""
    if url.startswith("sqlite:"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": sqlite_path(url)}
    parts = psycopg.conninfo.conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts["user"],
        "HOST": parts["host"],
        "PORT": parts["port"],
    }


@contextmanager
def databases(**given: dict[str, Any]) -> Iterator[None]:
    """DATABASES for the length of a test; it cannot be overridden as other settings can."""
    before = dict(connections.settings)
    connections.settings.update(ConnectionHandler({"default": {}} | given).settings)
    try:
        yield
    finally:
        for name in given:
            connections[name].close()
            del connections[name]
        connections.settings.clear()
        connections.settings.update(before)


@contextmanager
def tasks(**options: Any) -> Iterator[HoldfastBackend]:
    """TASKS with one backend, and no other app behind it than what the test used."""
    params = {"BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": options}
    with override_settings(TASKS={"default": params}):
        try:
            yield api.task_backends["default"]
        finally:
            close_all()


@pytest.fixture
def shop(store_url: str) -> Iterator[Any]:
    """The module of tasks, with nothing seen yet, on a database with a table of orders."""
    asyncio.run(migrate(store_url))
    with databases(default=database(store_url)), tasks():
        from integrations import shop_tasks

        shop_tasks.seen.clear()
        with connections["default"].cursor() as cursor:
            cursor.execute("CREATE TABLE orders (name TEXT)")
        yield shop_tasks
