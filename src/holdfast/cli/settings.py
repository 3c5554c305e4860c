"""`holdfast config`: which settings hold, and where each came from."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.find import SchemaOption, UrlOption, find_config
from holdfast.cli.output import Format, JsonOption, OutputOption, chosen, write_rows

commands = typer.Typer(no_args_is_help=True, help="Look at the configuration.")


@commands.callback()
def config() -> None:
    """Look at the configuration."""


@commands.command(epilog="Example: holdfast config show --resolved")
def show(
    resolved: Annotated[
        bool, typer.Option("--resolved", help="Also the settings that were left to their default.")
    ] = False,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Print the settings with their sources; passwords are never shown."""
    rows = [
        row._asdict()
        for row in find_config(url, schema).describe()
        if resolved or row.source != "default"
    ]
    write_rows(
        rows,
        schema="holdfast.setting.v1",
        columns=("name", "value", "source"),
        output=chosen(output, as_json),
    )
