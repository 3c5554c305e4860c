"""The Django app: `manage.py migrate` makes the tables of Holdfast too."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS
from django.db.models.signals import post_migrate

from holdfast.address import Address
from holdfast.clock import SystemClock
from holdfast.node.compose import make_store


class HoldfastConfig(AppConfig):  # type: ignore[misc]
    name = "holdfast.integrations.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        post_migrate.connect(make_tables, sender=self)


def make_tables(sender: Any, using: str, verbosity: int = 1, **kwargs: Any) -> None:
    """Bring the tables of every backend on this database to the version of this code."""
    from holdfast.integrations.django.backend import holdfast_backends

    for backend in holdfast_backends():
        options = backend.holdfast_options
        if (options.database or DEFAULT_DB_ALIAS) != using:
            continue
        try:
            config = options.config()
        except ImproperlyConfigured:
            continue  # such as a test's database in memory; whoever uses the backend is told
        asyncio.run(_migrate(config.address))


async def _migrate(address: Address) -> None:
    store = make_store(address, clock=SystemClock(), rng=Random())
    try:
        await store.migrate()
    finally:
        await store.close()
