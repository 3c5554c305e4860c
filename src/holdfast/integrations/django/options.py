"""What TASKS says about a backend, and the address that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.connection import ConnectionDoesNotExist

from holdfast.config import Config, load_config
from holdfast.errors import ConfigurationError
from holdfast.policy import NO_RETRY, RetryPolicy, Seconds

NAMES = ("url", "database", "schema", "retry", "time_limit", "node")
# What libpq and Django call the same, and both drivers of ours understand in an address.
_PASSED_ON = ("sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs")


@dataclass(frozen=True, slots=True)
class Options:
    """OPTIONS of one backend.  `database` is the alias whose transactions carry its tasks."""

    alias: str
    url: str | None
    database: str | None
    schema: str | None
    retry: RetryPolicy
    time_limit: Seconds | None
    node: Mapping[str, Any]

    def config(self) -> Config:
        """The configuration, with the address of the database; ImproperlyConfigured."""
        url = self.url
        if url is None:
            assert self.database is not None
            url = address_of(self.alias, self.database)
        try:
            found = load_config({"url": url, "schema": self.schema})
            return replace(found, node=replace(found.node, **self.node))
        except (ConfigurationError, TypeError) as error:
            raise ImproperlyConfigured(f"TASKS[{self.alias!r}]: {error}") from error


def read_options(alias: str, given: Mapping[str, Any]) -> Options:
    """OPTIONS as they are meant: without an address, the tasks live in the default database."""
    for name in given:
        if name not in NAMES:
            near = get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(NAMES)}"
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: unknown option {name!r}; {hint}")
    url, database = given.get("url"), given.get("database")
    if url is None and database is None:
        database = "default"
    retry = given.get("retry", NO_RETRY)
    if not hasattr(retry, "delay_s"):
        raise ImproperlyConfigured(
            f"TASKS[{alias!r}]: retry takes a policy, such as holdfast.Retry(attempts=5)"
        )
    return Options(
        alias,
        url,
        database,
        given.get("schema"),
        retry,
        given.get("time_limit"),
        given.get("node", {}),
    )


def address_of(alias: str, database: str) -> str:
    """The address of one of DATABASES, as Holdfast writes it."""
    try:
        connection = connections[database]
    except ConnectionDoesNotExist as error:
        raise ImproperlyConfigured(
            f"TASKS[{alias!r}]: database {database!r} is not in DATABASES"
        ) from error
    settings = connection.settings_dict
    if connection.vendor == "sqlite":
        return _sqlite(alias, database, str(settings["NAME"]))
    if connection.vendor == "postgresql":
        return _postgres(alias, settings)
    raise ImproperlyConfigured(
        f"TASKS[{alias!r}]: database {database!r} is {connection.vendor}, but tasks live in "
        'PostgreSQL or SQLite; name another database, or an address as OPTIONS["url"]'
    )


def _sqlite(alias: str, database: str, name: str) -> str:
    if ":memory:" in name or "mode=memory" in name:
        raise ImproperlyConfigured(
            f"TASKS[{alias!r}]: database {database!r} is in memory, where only one connection "
            "sees it; give it a file, in tests as TEST['NAME'], or use Django's ImmediateBackend"
        )
    return f"sqlite:///{Path(name)}"


def _postgres(alias: str, settings: Mapping[str, Any]) -> str:
    given = settings.get("OPTIONS", {})
    if "service" in given or "passfile" in given or not settings["NAME"]:
        raise ImproperlyConfigured(
            f"TASKS[{alias!r}]: the address of a database with a service file or a passfile "
            'cannot be read from DATABASES; write it as OPTIONS["url"] beside "database"'
        )
    user = quote(settings["USER"] or "", safe="")
    password = settings["PASSWORD"]
    login = f"{user}:{quote(password, safe='')}" if password else user
    host, port = settings["HOST"] or "", settings["PORT"] or ""
    query = {name: given[name] for name in _PASSED_ON if name in given}
    if host.startswith("/"):  # the folder of a socket
        query = {"host": host, **({"port": port} if port else {}), **query}
        host, port = "", ""
    where = f"{host}:{port}" if port else host
    more = f"?{urlencode(query)}" if query else ""
    return f"postgresql://{login + '@' if login else ''}{where}/{quote(settings['NAME'])}{more}"
