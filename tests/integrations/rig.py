"""What the tests of the frameworks share: a program's own table, in the store's database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from holdfast.address import sqlite_path

MAKE = "CREATE TABLE orders (name TEXT)"


def connected(url: str) -> Any:
    """A connection of the program's own."""
    if url.startswith("sqlite:"):
        return closing(sqlite3.connect(sqlite_path(url)))
    return closing(psycopg.connect(url))


@contextmanager
def transaction(url: str) -> Iterator[Any]:
    """Commits at its end, rolls back when it is left with an error."""
    with connected(url) as db:
        try:
            yield db
        except BaseException:
            db.rollback()
            raise
        db.commit()


def make_orders(url: str) -> None:
    with transaction(url) as db:
        db.execute(MAKE)


def insert(db: Any, name: str) -> None:
    db.execute(f"INSERT INTO orders VALUES ('{name}')")


def orders(url: str) -> list[str]:
    with transaction(url) as db:
        return [name for (name,) in db.execute("SELECT name FROM orders").fetchall()]
