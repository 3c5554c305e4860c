"""A query is one text with `:name` parameters; every driver gets its own rendering of it.

Files say `{schema}.task` (PostgreSQL) or plain names (SQLite), `:name` for a parameter and
`::type` for a cast.  They contain no `%` and no `?`, so that no rendering needs escaping.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

T = TypeVar("T")


class Style(Enum):
    """How a driver writes parameters."""

    DOLLAR = "$1"  # asyncpg
    PYFORMAT = "%(name)s"  # psycopg, Django
    NAMED = ":name"  # sqlite3
    QMARK = "?"  # sqlite3 behind SQLAlchemy


@dataclass(frozen=True, slots=True)
class Query:
    """A text with `:name` parameters, and the name of the file that it came from."""

    name: str
    text: str


Script = Generator[tuple[Query, dict[str, Any]], list[Any], T]
"""Statements to run one after the other in one transaction, whoever runs them.

The script yields a query and its parameters, is sent the rows (as sequences), and returns the
result.  It does no I/O, so the same script serves our own connections and any caller's.
"""

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")


@cache
def load(package: str, name: str, schema: str = "") -> Query:
    """The query in `queries/<name>.sql` of the package, its schema filled in."""
    text = files(package).joinpath("queries", f"{name}.sql").read_text(encoding="utf-8")
    assert "%" not in text and "?" not in text, f"{name}.sql would need escaping"
    return Query(name, text.replace("{schema}", quoted(schema) if schema else ""))


@cache
def rendered(query: Query, style: Style) -> tuple[str, tuple[str, ...]]:
    """The text as the driver wants it, and the parameters' names in the order of their places."""
    names: list[str] = []

    def place(match: re.Match[str]) -> str:
        name = match.group(1)
        if style is Style.QMARK:
            names.append(name)
            return "?"
        if name not in names:
            names.append(name)
        match style:
            case Style.DOLLAR:
                return f"${names.index(name) + 1}"
            case Style.PYFORMAT:
                return f"%({name})s"
            case _:
                return f":{name}"

    return _PARAMETER.sub(place, query.text), tuple(names)


def arguments(names: tuple[str, ...], params: Mapping[str, Any]) -> list[Any]:
    """The values in the order of their places."""
    return [params[name] for name in names]


def quoted(identifier: str) -> str:
    """A schema name as an SQL identifier; anything but letters, digits and _ is refused."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,47}", identifier):
        raise ValueError(
            f"{identifier!r} is no schema name: use up to 48 letters, digits and underscores, "
            "not beginning with a digit"
        )
    return f'"{identifier}"'
