"""What a caller needs from the app: where its store is, and how triggers leave."""

from __future__ import annotations

import os
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from holdfast.callers.scripts import play_async
from holdfast.callers.watch import Watch
from holdfast.errors import TransactionRefused
from holdfast.sql.query import Query, Script, Style, arguments, quoted, rendered
from holdfast.task import Trigger

POSTGRES, SQLITE = "postgres", "sqlite"

Publish = Callable[[Sequence[Trigger]], None]

_PLACE = Query(
    "place",
    "SELECT d.oid::text, coalesce(pg_catalog.to_regclass(:name::text)::oid::text, ''),"
    " pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE'),"
    " d.datname::text"
    " FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()",
)
_SERVER = Query(
    "server", "SELECT c.system_identifier::text FROM pg_catalog.pg_control_system() AS c"
)
_FILES = Query("files", "PRAGMA database_list")


class Place(NamedTuple):
    """Which schema of which database of which server: what a connection can tell about itself."""

    database: str  # its oid
    table: str  # the oid of the task table, empty when there is none
    server: str | None  # None when the role may not ask
    name: str = ""  # of the database, for people

    def is_same(self, other: Place) -> bool:
        if None not in (self.server, other.server) and self.server != other.server:
            return False
        return (self.database, self.table) == (other.database, other.table) and bool(self.table)


@dataclass(frozen=True)
class Kit:
    """Given to every caller of one app.

    `publish` is the bus's: any thread, never waits, never raises.  `place` (PostgreSQL) comes
    from running `placing(schema)` on a connection of the store; `path` (SQLite) is its file.
    """

    dialect: str  # POSTGRES or SQLITE
    publish: Publish
    watch: Watch
    schema: str = ""
    place: Place | None = None
    path: str | None = None
    # What we know of connections, as long as they live: that they were checked, and their hooks.
    checked: MutableMapping[Any, object] = field(default_factory=WeakKeyDictionary)
    hooks: MutableMapping[Any, Any] = field(default_factory=WeakKeyDictionary)

    @property
    def address(self) -> tuple[str, str, Place | None, str | None]:
        """What a connection was checked against."""
        return self.dialect, self.schema, self.place, self.path


async def postgres_kit(connection: Any, *, schema: str, publish: Publish, watch: Watch) -> Kit:
    """The kit for a store on PostgreSQL; `connection` is an asyncpg connection of the store's."""

    async def execute(query: Query, params: dict[str, Any]) -> list[Any]:
        text, names = rendered(query, Style.DOLLAR)
        rows: list[Any] = await connection.fetch(text, *arguments(names, params))
        return rows

    place = await play_async(placing(schema), execute)
    return Kit(POSTGRES, publish, watch, schema=schema, place=place)


def sqlite_kit(path: str, *, publish: Publish, watch: Watch) -> Kit:
    """The kit for a store in one SQLite file."""
    return Kit(SQLITE, publish, watch, path=path)


def checking(kit: Kit) -> Script[None]:
    """Make sure that the connection which runs this leads to the store; else TransactionRefused."""
    if kit.dialect == SQLITE:
        yield from _checking_file(kit)
        return
    place = yield from placing(kit.schema)
    if kit.place is None or kit.place.is_same(place):
        return
    if place.database != kit.place.database or not place.table:
        raise TransactionRefused(
            f"the connection given as within= leads to the database {place.name!r}, where the "
            f"store's schema {kit.schema!r} is not: the task and your writes could not commit "
            "together. Give a connection to the store's own database"
        )
    raise TransactionRefused(
        "the connection given as within= leads to another server than the store's; give a "
        "connection to the store's own database"
    )


def placing(schema: str) -> Script[Place]:
    """Where the connection which runs this leads to."""
    (row,) = yield _PLACE, {"name": f"{quoted(schema)}.task"}
    server = None
    if row[2]:
        ((server,),) = yield _SERVER, {}
    return Place(row[0], row[1], server, row[3])


def _checking_file(kit: Kit) -> Script[None]:
    rows = yield _FILES, {}
    file = next((row[2] for row in rows if row[1] == "main"), "")
    if not is_same_file(file, kit.path):
        raise TransactionRefused(
            f"the connection given as within= has {file or 'a database in memory'} open, but the "
            f"store is {kit.path}: the task and your writes could not commit together. "
            "Give a connection to the store's own file"
        )


def is_same_file(file: str, path: str | None) -> bool:
    try:
        return bool(file) and path is not None and os.path.samefile(file, path)
    except OSError:
        return False


def refuse_dialect(kit: Kit, dialect: str, driver: str) -> None:
    """A connection to another kind of database than the store's can never share its commit."""
    if kit.dialect != dialect:
        names = {POSTGRES: "PostgreSQL", SQLITE: "SQLite"}
        raise TransactionRefused(
            f"{driver} was given as within=, which is a connection to {names.get(dialect, dialect)}"
            f", but the store is on {names[kit.dialect]}: they cannot commit together"
        )
