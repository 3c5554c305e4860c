"""`holdfast top`: a live view of queues, nodes, what runs, and what a person should look at."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from holdfast.cli.find import SchemaOption, UrlOption, find_config
from holdfast.cli.output import Format, write_one
from holdfast.config import duration

EVERY_S_MIN = 0.2


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
    every: Annotated[str, typer.Option(help="How often to look.")] = "2s",
    as_json: Annotated[bool, typer.Option("--json", help="One frame as one object.")] = False,
    url: UrlOption = None,
    schema: SchemaOption = None,
) -> None:
    """Watch queues, nodes, what runs, and what should be looked at.  Ctrl-C ends it.

    Without a terminal it prints one frame.  `trend` is how fast SUBMITTED and PROCESSING grow,
    `out` how many left; nodes tell that, and of the slowest kinds, when they renew their lease.
    """
    try:
        every_s = max(duration(every), EVERY_S_MIN)
    except ValueError as error:
        raise typer.BadParameter(f"--every is {error}") from None
    config = find_config(url, schema)
    # Only who asks for a screen pays for the import of its parts.
    from holdfast.cli.screen import look_once, print_once, watch

    if as_json:
        frame = asyncio.run(look_once(config))
        write_one(frame.as_json(), schema="holdfast.top.v1", output=Format.JSON)
    elif once or not sys.stdout.isatty():
        print_once(config)
    else:
        watch(config, every_s)
