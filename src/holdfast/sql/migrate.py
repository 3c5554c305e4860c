"""Migrations as values: numbered files of a package, in order, with their checksums.

A file is named `0001_kernel.pre.sql`: its number, a word for people, and whether it has to run
before (`pre`) or after (`post`) the code that needs it is everywhere.  A file that was released
is never changed: the checksum of what was applied is compared with the file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from holdfast.errors import SchemaError, SchemaTooNew

_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.(pre|post)\.sql")


class Migration(NamedTuple):
    """One step of the schema."""

    number: int
    name: str
    phase: str  # "pre" or "post"
    text: str
    checksum: str


@cache
def migrations(package: str) -> tuple[Migration, ...]:
    """The migrations in `migrations/` of the package, in the order of their numbers."""
    found = []
    for file in files(package).joinpath("migrations").iterdir():
        if (match := _NAME.fullmatch(file.name)) is None:
            continue
        text = file.read_text(encoding="utf-8")
        number, name, phase = match.groups()
        found.append(Migration(int(number), name, phase, text, checksum(text)))
    found.sort()
    numbers = [migration.number for migration in found]
    assert numbers == list(range(1, len(found) + 1)), f"{package}: numbers have gaps or repeat"
    return tuple(found)


def checksum(text: str) -> str:
    """Sixteen hexadecimal digits that change when the text does."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def pending(known: Sequence[Migration], applied: Mapping[int, str]) -> list[Migration]:
    """What is still to be run, given the numbers and checksums that the database has recorded.

    Raises `SchemaTooNew` for a number that this code does not know, and `SchemaError` when a
    file differs from what was applied.
    """
    by_number = {migration.number: migration for migration in known}
    for number, recorded in applied.items():
        if number not in by_number:
            raise SchemaTooNew(
                f"the database is at schema version {max(applied)}, this Holdfast knows "
                f"{len(known)}: install a newer Holdfast"
            )
        if by_number[number].checksum != recorded:
            raise SchemaError(
                f"migration {number:04d}_{by_number[number].name} was applied with another text "
                "than this Holdfast has: it is a changed build"
            )
    return [migration for migration in known if migration.number not in applied]
