"""Callers: the connections that users give as `within=`, one module a driver.

A connection is recognised by the module of its class, so that no driver is imported that is not
there already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.callers.kit import POSTGRES, SQLITE, Kit, postgres_kit, sqlite_kit
from holdfast.callers.sqlite import SQLiteCaller
from holdfast.callers.watch import Watch
from holdfast.errors import TransactionRefused
from holdfast.transactions import Caller

__all__ = ["POSTGRES", "SQLITE", "Kit", "Watch", "postgres_kit", "sqlite_kit", "wrap"]


def wrap(connection: object, *, kit: Kit) -> Caller:
    """The caller for this connection, or TransactionRefused with what to do instead.

    Refuses a connection that has no open transaction where the driver can tell; that it leads to
    the store's own database is checked with the first statement.
    """
    if isinstance(connection, str):
        return _django(connection, kit)
    for module in (cls.__module__.split(".")[0] for cls in type(connection).__mro__):
        if module in _WRAPPERS:
            return _WRAPPERS[module](connection, kit)
    raise TransactionRefused(
        f"a {type(connection).__module__}.{type(connection).__qualname__} was given as within=; "
        "give a connection of asyncpg, psycopg or sqlite3, a Session or Connection of "
        "SQLAlchemy, or the name of a database of Django's"
    )


def _sqlite3(connection: Any, kit: Kit) -> Caller:
    if not hasattr(connection, "in_transaction"):
        raise _not_a_connection(connection, "cursor.connection")
    return SQLiteCaller(connection, kit=kit)


def _asyncpg(connection: Any, kit: Kit) -> Caller:
    from holdfast.callers.asyncpg import AsyncpgCaller

    if not hasattr(connection, "is_in_transaction"):
        raise _not_a_connection(connection, "async with pool.acquire() as connection:")
    return AsyncpgCaller(connection, kit=kit)


def _psycopg(connection: Any, kit: Kit) -> Caller:
    import psycopg

    from holdfast.callers.psycopg import AsyncPsycopgCaller, PsycopgCaller

    if isinstance(connection, psycopg.AsyncConnection):
        return AsyncPsycopgCaller(connection, kit=kit)
    if isinstance(connection, psycopg.Connection):
        return PsycopgCaller(connection, kit=kit)
    raise _not_a_connection(connection, "cursor.connection")


def _sqlalchemy(connection: Any, kit: Kit) -> Caller:
    from holdfast.callers.sqlalchemy import (
        AsyncSQLAlchemyCaller,
        SQLAlchemyCaller,
        is_async,
        unwrapped,
    )

    given = unwrapped(connection)
    if is_async(given):
        return AsyncSQLAlchemyCaller(given, kit=kit)
    return SQLAlchemyCaller(given, kit=kit)


def _django(connection: Any, kit: Kit) -> Caller:
    from holdfast.callers.django import DjangoCaller, connection_named

    if isinstance(connection, str):
        connection = connection_named(connection)
    if type(connection).__name__ == "ConnectionProxy":
        connection = connection_named(connection._alias)  # django.db.connection
    if not hasattr(connection, "in_atomic_block"):
        raise _not_a_connection(connection, "django.db.connections[name]")
    return DjangoCaller(connection, kit=kit)


_WRAPPERS: dict[str, Callable[[Any, Kit], Caller]] = {
    "sqlite3": _sqlite3,
    "asyncpg": _asyncpg,
    "psycopg": _psycopg,
    "sqlalchemy": _sqlalchemy,
    "django": _django,
}


def _not_a_connection(given: object, instead: str) -> TransactionRefused:
    return TransactionRefused(
        f"a {type(given).__module__}.{type(given).__qualname__} was given as within=, "
        f"which is no connection; use {instead}"
    )
