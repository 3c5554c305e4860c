"""The track record: counts of all runs so far, kept in a table of the docs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from holdfast.chaos.epoch import Tally

START, END = "<!-- counts: make chaos -->", "<!-- end of counts -->"
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
    text = path.read_text(encoding="utf-8")
    before, start, rest = text.partition(START)
    table, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"{path} has no {START} … {END}")
    counts: Counter[str] = Counter()
    for line in table.splitlines():
        if row := ROW.match(line):
            counts[row["name"]] = int(row["count"].replace(",", ""))
    for name, count in found.items():
        counts[name] += count
    rows = "\n".join(f"| {name} | {count:,} |" for name, count in counts.items())
    path.write_text(f"{before}{START}\n{HEAD}\n{rows}\n{END}{after}", encoding="utf-8")
