"""The store on PostgreSQL 14 and later, through asyncpg."""

from __future__ import annotations

from holdfast.errors import MissingExtra

try:
    import asyncpg as _asyncpg
except ImportError as error:
    raise MissingExtra("postgres", "the PostgreSQL store") from error

from holdfast.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]

del _asyncpg
