"""The track record: counts of all runs so far, and figures of the last one, kept in the docs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from holdfast.chaos.epoch import Tally

START, END = "<!-- counts: make chaos -->", "<!-- end of counts -->"
SOAK_START, SOAK_END = "<!-- slopes: make soak -->", "<!-- end of slopes -->"
ROW = re.compile(r"^\| (?P<name>[^|]+?) \| (?P<count>[\d,]+) \|$")
HEAD = "| lived through | so far |\n|---|---|"


def counted(tally: Tally) -> Counter[str]:
    """What a run adds to the table."""
    found = Counter(tally.faults)
    found["tasks"] += tally.tasks
    found["attempts"] += tally.attempts
    found["tasks lost"] += tally.lost
    found["double recorded outcomes"] += tally.doubled
    return found


def add(path: Path, found: Counter[str]) -> None:
    """Add the counts to the table of the page; a page without its marks is refused."""
    table = _between(path, START, END)
    counts: Counter[str] = Counter()
    for line in table.splitlines():
        if row := ROW.match(line):
            counts[row["name"]] = int(row["count"].replace(",", ""))
    for name, count in found.items():
        counts[name] += count
    rows = "\n".join(f"| {name} | {count:,} |" for name, count in counts.items())
    replace(path, f"{HEAD}\n{rows}", START, END)


def replace(path: Path, text: str, start: str, end: str) -> None:
    """Put the text between the marks of the page; a page without them is refused."""
    old = f"{start}{_between(path, start, end)}{end}"
    page = path.read_text(encoding="utf-8")
    path.write_text(page.replace(old, f"{start}\n{text}\n{end}"), encoding="utf-8")


def _between(path: Path, start: str, end: str) -> str:
    _, found, rest = path.read_text(encoding="utf-8").partition(start)
    text, closed, _ = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{path} has no {start} … {end}")
    return text
