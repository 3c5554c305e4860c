"""Bringing the schema to this code's version.

Everything happens in one transaction under an advisory lock that ends with it, so that several
nodes may migrate at the same time, through a pooler too: the first does the work, the others
wait and find it done.  If the process dies, nothing has changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.errors import SchemaMissing, SchemaTooNew
from holdfast.sql.migrate import Migration, migrations, pending
from holdfast.sql.query import quoted
from holdfast.stores.postgres.connection import DAYS_AHEAD, PACKAGE, Database, Session


class SchemaStatus(NamedTuple):
    code: int  # the version that this code knows
    database: int | None  # None: no tables at all


async def migrate(database: Database) -> int:
    """Run what is missing and answer the schema version.  Safe to repeat."""
    async with database.alone() as connection, connection.transaction():
        await connection.execute("SET LOCAL lock_timeout = '60s'")
        await connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
            f"{quoted(database.schema)}.migration",
        )
        await connection.execute(_text(database, _recorder()))
        for migration in pending(migrations(PACKAGE), await _applied(connection, database)):
            await connection.execute(_text(database, migration.text))
            await connection.execute(
                _text(
                    database,
                    "INSERT INTO {schema}.migration (number, name, checksum) VALUES ($1, $2, $3)",
                ),
                migration.number,
                migration.name,
                migration.checksum,
            )
        await upkeep(Session(connection, database))
    return len(migrations(PACKAGE))


async def upkeep(session: Session) -> None:
    """What a start puts right: transaction numbers of a restored dump, and the days ahead."""
    await session.run("rearrive", {})
    await session.run("reset_positions", {})
    await session.run("make_archive_days", {"days": DAYS_AHEAD})


async def schema_status(database: Database) -> SchemaStatus:
    """Which version the code knows, and which the database has."""
    async with database.alone() as connection, connection.transaction():
        name = f"{quoted(database.schema)}.migration"
        if await connection.fetchval("SELECT to_regclass($1)", name) is None:
            return SchemaStatus(len(migrations(PACKAGE)), None)
        applied = await _applied(connection, database)
    return SchemaStatus(len(migrations(PACKAGE)), max(applied, default=None))


def migration_sql(database: Database) -> str:
    """The statements of a migration from nothing, for those who run their SQL themselves."""
    parts = ["BEGIN;", _text(database, _recorder())]
    for migration in migrations(PACKAGE):
        parts.append(_text(database, migration.text).strip())
        parts.append(_text(database, _record(migration)))
    return "\n\n".join([*parts, "COMMIT;", ""])


def check(found: int | None, where: str, *, code_min: int | None = None) -> None:
    """Raise unless this code can work with the tables as they are.

    Newer tables are no obstacle as long as they name this code's version or an older one: so
    nodes of both versions run side by side, and can be restarted, until all are replaced.
    """
    code = len(migrations(PACKAGE))
    if found is None or found < code:
        raise SchemaMissing(
            f"the tables of Holdfast in {where} are at version {found or 0}, "
            f"this code needs {code}; run: holdfast db migrate"
        )
    if found > code and (code_min is None or code < code_min):
        raise SchemaTooNew(
            f"the tables of Holdfast in {where} are at version {found}, this code knows {code}: "
            "install a newer Holdfast"
        )


async def _applied(connection: Any, database: Database) -> dict[int, str]:
    rows = await connection.fetch(
        _text(database, "SELECT number, checksum FROM {schema}.migration")
    )
    return dict(rows)


def _recorder() -> str:
    return (
        "CREATE SCHEMA IF NOT EXISTS {schema};\n"
        "CREATE TABLE IF NOT EXISTS {schema}.migration (\n"
        "    number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,\n"
        "    applied_at timestamptz NOT NULL DEFAULT now()\n"
        ");"
    )


def _record(migration: Migration) -> str:
    return (
        "INSERT INTO {schema}.migration (number, name, checksum) "
        f"VALUES ({migration.number}, '{migration.name}', '{migration.checksum}');"
    )


def _text(database: Database, text: str) -> str:
    return text.replace("{schema}", quoted(database.schema))
