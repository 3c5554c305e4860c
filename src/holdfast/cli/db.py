"""`holdfast db`: the tables of the store."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import typer

from holdfast.address import redacted_url
from holdfast.cli.find import SchemaOption, UrlOption, find_config
from holdfast.cli.output import Format, JsonOption, OutputOption, chosen, write_one
from holdfast.cli.problems import note
from holdfast.clock import SystemClock
from holdfast.config import Config
from holdfast.errors import SchemaMissing, SchemaTooNew
from holdfast.node.compose import make_store

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
    code, database = asyncio.run(_status(config))
    row = {
        "address": redacted_url(config.url),
        "code": code,
        "database": database,
        "fits": code == database,
    }
    write_one(row, schema="holdfast.db.v1", output=chosen(output, as_json))
    if (database) < code:
        raise SchemaMissing(
            f"the tables are at version {database}, this code needs {code}"
            if database
            else "the store has no tables of Holdfast yet"
        )
    if (database) > code:
        raise SchemaTooNew(f"the tables are at version {database}, this code knows {code}")


@commands.command(epilog="Example: holdfast db sql > holdfast.sql")
def sql(url: UrlOption = None, schema: SchemaOption = None) -> None:
    """Print the statements of a migration from nothing, to be reviewed or run by hand."""
    typer.echo(_store(find_config(url, schema)).migration_sql().rstrip())


async def _migrated(config: Config) -> int:
    store = _store(config)
    try:
        return int(await store.migrate())
    finally:
        await store.close()


async def _status(config: Config) -> tuple[int, int]:
    """The version of the code, and of the database (0: no tables)."""
    store = _store(config)
    try:
        code, database = await store.schema_status()
    finally:
        await store.close()
    return code, database or 0


def _store(config: Config) -> Any:
    """`schema_status` and `migration_sql` are the adapters' own, beyond the contract."""
    return make_store(config.address, clock=SystemClock(), rng=Random())
