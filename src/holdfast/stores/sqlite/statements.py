"""Running the statements in `queries/` on a sqlite3 connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

from holdfast.sql.query import Query, Script, Style, load, rendered

T = TypeVar("T")

_PACKAGE = "holdfast.stores.sqlite"


@cache
def query(name: str) -> Query:
    return load(_PACKAGE, name)


@cache
def _text(name: str) -> str:
    return query(name).text


@cache
def _places(name: str) -> str:
    return rendered(query(name), Style.QMARK)[0]


def run(db: sqlite3.Connection, name: str, /, **params: Any) -> list[tuple[Any, ...]]:
    """All rows of one statement."""
    return db.execute(_text(name), params).fetchall()


@cache
def _unanswered(name: str) -> str:
    text, returning, _ = _places(name).rpartition("RETURNING")
    assert returning, f"{name} answers nothing"
    return text


def run_one(db: sqlite3.Connection, name: str, row: tuple[Any, ...]) -> int:
    """Insert one row, with the values in the order of the parameters' places; answers its id.

    Without the statement's RETURNING, for which SQLite makes a table.
    """
    id = db.execute(_unanswered(name), row).lastrowid
    assert id is not None, "an insert has a row"
    return id


def run_many(db: sqlite3.Connection, name: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """One statement for many rows; the values stand in the order of the parameters' places."""
    db.executemany(_places(name), rows)


def run_script(db: sqlite3.Connection, script: Script[T]) -> T:
    """Play a script to its end on this connection."""
    try:
        asked, params = next(script)
        while True:
            asked, params = script.send(db.execute(asked.text, params).fetchall())
    except StopIteration as end:
        result: T = end.value
        return result


def as_list(values: Iterable[object]) -> str:
    """Values as one parameter, to be taken apart by `json_each`."""
    return json.dumps(list(values))
