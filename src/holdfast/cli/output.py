"""How data leaves: a table for people, JSON, JSON lines or CSV for programs, always on stdout."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from shutil import get_terminal_size
from typing import Annotated, Any

import typer

from holdfast.cli.problems import has_colour

Row = Mapping[str, Any]


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


OutputOption = Annotated[
    Format, typer.Option("--output", "-o", help="How the data is written to stdout.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Short for --output json.")]

WHOLE = ("id", "state", "queue", "node", "first_at", "last_at")  # never on two lines
COLOURS = {
    "WAITING": "cyan",
    "SUBMITTED": "blue",
    "PROCESSING": "yellow",
    "DONE": "green",
    "ERROR": "red",
    "FAILED": "red",
    "CANCELLED": "bright_black",
}


def chosen(output: Format, as_json: bool) -> Format:
    return Format.JSON if as_json else output


def write_rows(
    rows: Sequence[Row],
    *,
    schema: str,
    columns: Sequence[str],
    output: Format,
    around: Mapping[str, Any] | None = None,
    right: Collection[str] = (),
) -> None:
    """Write a list.  `schema` names the shape of one row, such as holdfast.task.v1.

    JSON is one object {"schema", "items", …around}; JSON lines are one object a row.  Columns
    named in `right` are numbers: a table aligns them on the right.
    """
    match output:
        case Format.JSON:
            _echo_json({"schema": schema, "items": rows, **(around or {})})
        case Format.JSONL:
            for row in rows:
                _echo_json({"schema": schema, **row}, indent=None)
        case Format.CSV:
            _echo_csv(rows, list(rows[0]) if rows else list(columns))
        case Format.TABLE:
            _echo_table(rows, columns, right)


def write_one(row: Row, *, schema: str, output: Format) -> None:
    """Write one thing: name and value a line for people, one object for programs."""
    if output is Format.CSV:
        _echo_csv([row], list(row))
    elif output is Format.TABLE:
        width = max(map(len, row), default=0)
        for name, value in row.items():
            head = f"{name:<{width}}  "
            typer.echo(head + _text(value).replace("\n", "\n" + " " * len(head)))
    else:
        _echo_json({"schema": schema, **row}, indent=2 if output is Format.JSON else None)


def fitting(rows: Sequence[Row], columns: Sequence[str], leave_out: Sequence[str]) -> Sequence[str]:
    """The columns that fit side by side on this terminal; those in `leave_out` go first.

    What is no terminal gets all of them.
    """
    if not sys.stdout.isatty():
        return columns
    left = list(columns)
    widths = {
        name: max([len(name), *(len(_line(row.get(name))) for row in rows)]) for name in columns
    }
    for name in leave_out:
        if sum(widths[one] + 2 for one in left) - 2 <= get_terminal_size().columns:
            break
        left.remove(name)
    return left


def _echo_json(value: object, indent: int | None = 2) -> None:
    typer.echo(json.dumps(value, indent=indent, ensure_ascii=False, default=str))


def _echo_csv(rows: Sequence[Row], columns: Sequence[str]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_text(row.get(name)) for name in columns] for row in rows)
    typer.echo(text.getvalue(), nl=False)


def _echo_table(rows: Sequence[Row], columns: Sequence[str], right: Collection[str]) -> None:
    if has_colour(sys.stdout):
        _echo_rich(rows, columns, right)
        return
    lines = [list(columns), *([_line(row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    sides = [">" if name in right else "<" for name in columns]
    for line in lines:
        places = zip(line, sides, widths, strict=True)
        cells = (f"{cell:{side}{width}}" for cell, side, width in places)
        typer.echo("  ".join(cells).rstrip())


def _echo_rich(rows: Sequence[Row], columns: Sequence[str], right: Collection[str]) -> None:
    # Only a person at a terminal waits for this import.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        side: Any = "right" if name in right else "left"
        is_whole = name in WHOLE or name in right
        table.add_column(name, no_wrap=is_whole, justify=side, overflow="fold")
    for row in rows:
        cells = (_line(row.get(name)) for name in columns)
        # Text, not markup: what stands in a row is data, and may hold brackets.
        table.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in cells))
    Console().print(table)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _line(value: object) -> str:
    return _text(value).replace("\n", " ")
