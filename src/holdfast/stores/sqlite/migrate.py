"""The schema: numbered files, applied in order, each in the transaction that records it.

The version stands in our own table; `PRAGMA user_version` belongs to the file's owner.
"""

from __future__ import annotations

import sqlite3
from functools import cache
from importlib.resources import files

from holdfast.errors import SchemaMissing, SchemaTooNew
from holdfast.stores.sqlite.statements import run


@cache
def migrations() -> dict[int, str]:
    """The texts by number, without gaps from 1."""
    folder = files("holdfast.stores.sqlite").joinpath("migrations")
    texts = {
        int(file.name.split("_")[0]): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }
    assert sorted(texts) == list(range(1, len(texts) + 1)), "migrations are numbered without gaps"
    return dict(sorted(texts.items()))


def code_version() -> int:
    return max(migrations())


def database_version(db: sqlite3.Connection) -> int:
    """0 for a file without our tables."""
    if not run(db, "has_meta")[0][0]:
        return 0
    return int(run(db, "meta", name="schema")[0][0])


def migrate(db: sqlite3.Connection) -> int:
    """Bring the schema to this code's version, inside the caller's write transaction.

    Safe to run twice and at the same time: the write lock lets one through, and the others
    find nothing left to do.
    """
    version = database_version(db)
    if version > code_version():
        raise too_new(version)
    for number in range(version + 1, code_version() + 1):
        for statement in statements(migrations()[number]):
            db.execute(statement)
        run(db, "schema_set", version=number)
    return code_version()


def check(db: sqlite3.Connection) -> None:
    """Raise what keeps this code from working with the file."""
    version = database_version(db)
    # Newer tables are no obstacle as long as they name this code's version or an older one.
    code_min = run(db, "meta", name="code_min") if version > code_version() else []
    if version > code_version() and (not code_min or code_version() < code_min[0][0]):
        raise too_new(version)
    if version < code_version():
        raise SchemaMissing(
            f"the tables have version {version}, this code needs {code_version()}: "
            "run `holdfast db migrate`"
        )


def too_new(version: int) -> SchemaTooNew:
    return SchemaTooNew(
        f"the tables have version {version}, this code knows {code_version()}: "
        "install a newer Holdfast"
    )


def statements(text: str) -> list[str]:
    """A text's statements, one by one: running them all at once would commit in between."""
    found = []
    current = ""
    for line in text.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current.strip())
            current = ""
    assert not current.strip(), "a migration ends with a semicolon"
    return found
