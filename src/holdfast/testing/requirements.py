"""Which lines of the requirement lists are proven by tests, counted from what the tests did.

A line is proven when at least one test marked with it passed, none marked with it failed or was
skipped, and, where its tests run on stores, they passed on every store.  Everything here is pure
but `main`, which prints the counts of the last run of the suite.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

STORES = frozenset({"sqlite", "postgres"})
IDS_PER_TEST_MAX = 2
EXCEPTIONS_MAX = 3
EXCEPTIONS = "exceptions.md"
PARTIAL = "partial.md"  # lines of which only a part can hold yet, with the part

_LINE = re.compile(r"^- ([A-Z]+)-([0-9]+)\s", re.MULTILINE)


class Line(NamedTuple):
    """The name of one line: TASK-14."""

    prefix: str
    number: int

    def __str__(self) -> str:
        return f"{self.prefix}-{self.number}"


class Proof(NamedTuple):
    """What one test did for the lines that it is marked with."""

    test: str
    lines: tuple[Line, ...]
    store: str | None  # the store that it ran on, when it runs on every one in turn
    has_passed: bool


@dataclass(frozen=True, slots=True)
class Lists:
    """The lines that exist, and those that were excepted with a reason."""

    lines: frozenset[Line]
    excepted: frozenset[Line]
    partial: frozenset[Line] = frozenset()


class WrongLists(Exception):
    """The lists, or the marks of a test, break the rules of counting."""


def read_lists(folder: Path) -> Lists:
    """The lists in the folder; `WrongLists` when a line stands there twice."""
    found: list[Line] = []
    for path in sorted(folder.glob("*.md")):
        if path.name not in (EXCEPTIONS, PARTIAL):
            found += _lines(path)
    twice = sorted({str(line) for line in found if found.count(line) > 1})
    if twice:
        raise WrongLists(f"listed twice: {' '.join(twice)}")
    excepted = _lines(folder / EXCEPTIONS) if (folder / EXCEPTIONS).exists() else []
    if len(excepted) > EXCEPTIONS_MAX:
        raise WrongLists(
            f"{EXCEPTIONS} holds {len(excepted)} lines, at most {EXCEPTIONS_MAX} may be"
        )
    partial = _lines(folder / PARTIAL) if (folder / PARTIAL).exists() else []
    return Lists(frozenset(found), frozenset(excepted), frozenset(partial))


def checked(test: str, names: Sequence[str], lists: Lists) -> tuple[Line, ...]:
    """The lines that a test is marked with; `WrongLists` when they are unknown or too many."""
    if len(set(names)) > IDS_PER_TEST_MAX:
        raise WrongLists(
            f"{test} is marked with {len(set(names))} lines, at most {IDS_PER_TEST_MAX} may be: "
            "a test that proves many lines asserts none of them"
        )
    lines = tuple(_named(test, name) for name in dict.fromkeys(names))
    unknown = [str(line) for line in lines if line not in lists.lines]
    if unknown:
        raise WrongLists(f"{test} is marked with {' '.join(unknown)}, which no list holds")
    return lines


def proven(proofs: Iterable[Proof], lists: Lists) -> set[Line]:
    """The lines that hold, by what the tests did."""
    by_line: dict[Line, list[Proof]] = defaultdict(list)
    for proof in proofs:
        for line in proof.lines:
            by_line[line].append(proof)
    return {
        line
        for line, found in by_line.items()
        if line in lists.lines - lists.excepted and _is_proven(found)
    }


def counted(proofs: Iterable[Proof], lists: Lists) -> dict[str, dict[str, Any]]:
    """For each prefix the numbers proven, the numbers missing, and the total."""
    done = proven(proofs, lists)
    prefixes: dict[str, dict[str, Any]] = {}
    for prefix in sorted({line.prefix for line in lists.lines}):
        numbers = sorted(line.number for line in lists.lines if line.prefix == prefix)
        whole = done - lists.partial
        prefixes[prefix] = {
            "proven": [number for number in numbers if Line(prefix, number) in whole],
            "partial": [number for number in numbers if Line(prefix, number) in done - whole],
            "missing": [number for number in numbers if Line(prefix, number) not in done],
            "total": len(numbers),
        }
    return prefixes


def described(prefixes: dict[str, dict[str, Any]]) -> list[str]:
    """One line of text for each prefix."""
    rows = []
    for prefix, count in prefixes.items():
        row = f"{prefix} {len(count['proven'])}/{count['total']}"
        for name in ("partial", "missing"):
            if numbers := count.get(name):
                row += f" {name}: {' '.join(str(number) for number in numbers)}"
        rows.append(row)
    return rows


def tree_of(folder: Path) -> dict[str, Any]:
    """Which code this is: the commit, whether files differ from it, and a hash of the difference.

    Without git, or before the first commit, the commit is empty.
    """
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD").decode().strip()
    if not commit:
        return {"commit": "", "dirty": True, "difference": ""}
    difference = hashlib.sha256(_git(folder, "diff", "--binary", "HEAD"))
    untracked = _git(folder, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
    for name in sorted(filter(None, untracked)):
        path = folder / name.decode()
        difference.update(name + b"\0" + (path.read_bytes() if path.is_file() else b""))
    dirty = bool(_git(folder, "status", "--porcelain").strip())
    return {"commit": commit, "dirty": dirty, "difference": difference.hexdigest() if dirty else ""}


def write_counts(path: Path, prefixes: dict[str, dict[str, Any]], root: Path) -> None:
    """Keep the counts, with the code that they are of; a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".half")
    half.write_text(json.dumps(tree_of(root) | {"prefixes": prefixes}, indent=1) + "\n")
    half.replace(path)


def is_current(path: Path, root: Path) -> bool:
    """Whether the counts in the file are those of the code as it is now."""
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return False
    now = tree_of(root)
    return bool(now["commit"]) and all(found.get(name) == value for name, value in now.items())


def main(arguments: Sequence[str]) -> int:
    """`FILE` prints the counts, `--json FILE` the same as one object.

    `--is-current FILE` answers by its exit code.
    """
    options, [name] = set(arguments[:-1]), arguments[-1:]
    path = Path(name)
    if "--is-current" in options:
        return 0 if is_current(path, Path.cwd()) else 1
    if not path.exists():
        sys.stderr.write(f"{path} is missing: run the whole suite first\n")
        return 1
    found = json.loads(path.read_text())
    rows = [json.dumps(found)] if "--json" in options else described(found["prefixes"])
    sys.stdout.write("\n".join(rows) + "\n")
    return 0


def _lines(path: Path) -> list[Line]:
    text = path.read_text(encoding="utf-8")
    return [Line(prefix, int(number)) for prefix, number in _LINE.findall(text)]


def _named(test: str, name: str) -> Line:
    prefix, dash, number = name.partition("-")
    if not dash or not number.isdigit():
        raise WrongLists(f"{test} is marked with {name!r}, which is not of the form TASK-14")
    return Line(prefix, int(number))


def _is_proven(proofs: Sequence[Proof]) -> bool:
    if not all(proof.has_passed for proof in proofs):
        return False
    stores = {proof.store for proof in proofs if proof.store is not None}
    # Where a store takes part, passing on one of them says nothing about the other.
    return not stores or stores >= STORES


def _git(folder: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, check=False, timeout=30
        )
    except OSError:
        return b""
    return done.stdout if done.returncode == 0 else b""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
