"""`holdfast db`: the tables of the store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import typer

from holdfast.cli.find import SchemaOption, UrlOption, find_config, is_sqlite
from holdfast.cli.output import Format, JsonOption, OutputOption, chosen, write_one
from holdfast.cli.problems import note
from holdfast.clock import SystemClock
from holdfast.config import Config, redacted_url
from holdfast.errors import SchemaMissing, SchemaTooNew
from holdfast.node.compose import make_store, sqlite_path
from holdfast.stores.sqlite.migrate import code_version

commands = typer.Typer(no_args_is_help=True, help="Prepare and check the tables of the store.")


@commands.command(epilog="Example: HOLDFAST_URL=postgresql://app@db/app holdfast db migrate")
def migrate(url: UrlOption = None, schema: SchemaOption = None) -> None:
    """Bring the tables to this code's version.  Safe to run twice and at the same time."""
    config = find_config(url, schema)
    version = asyncio.run(_migrated(config))
    note(f"the tables of {redacted_url(config.url)} are at version {version}")


@commands.command(epilog="Example: holdfast db status")
def status(
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Compare the tables with this code; exit 4 when they do not fit."""
    config = find_config(url, schema)
    has_file = not is_sqlite(config) or Path(sqlite_path(config.url)).exists()
    code, database = asyncio.run(_status(config, has_file=has_file))
    row = {
        "address": redacted_url(config.url),
        "code": code,
        "database": database or 0,
        "fits": code == database,
    }
    write_one(row, schema="holdfast.db.v1", output=chosen(output, as_json))
    if (database or 0) < code:
        raise SchemaMissing(
            f"the tables are at version {database or 0}, this code needs {code}"
            if database
            else "the store has no tables of Holdfast yet"
        )
    if (database or 0) > code:
        raise SchemaTooNew(f"the tables are at version {database}, this code knows {code}")


@commands.command(epilog="Example: holdfast db sql > holdfast.sql")
def sql(url: UrlOption = None, schema: SchemaOption = None) -> None:
    """Print the statements of a migration from nothing, to be reviewed or run by hand."""
    typer.echo(_store(find_config(url, schema)).migration_sql().rstrip())


async def _migrated(config: Config) -> int:
    store = _store(config)
    if not is_sqlite(config):
        try:
            return int(await store.migrate())
        finally:
            await store.close()
    await store.open()  # on SQLite opening makes the file and its first tables
    try:
        return int(await store.migrate())
    finally:
        await store.close()


async def _status(config: Config, *, has_file: bool) -> tuple[int, int | None]:
    """The version of the code, and of the database (None: no tables)."""
    store = _store(config)
    if is_sqlite(config):
        # Asking makes no file.
        return await _file_status(store) if has_file else (code_version(), None)
    try:
        code, database = await store.schema_status()
    finally:
        await store.close()
    return code, database


async def _file_status(store: Any) -> tuple[int, int | None]:
    await store.open()
    try:
        code, database = await store.schema_status()
        return code, database or None
    finally:
        await store.close()


def _store(config: Config) -> Any:
    """`schema_status` and `migration_sql` are the adapters' own, beyond the contract."""
    return make_store(config.address, clock=SystemClock(), rng=Random())
