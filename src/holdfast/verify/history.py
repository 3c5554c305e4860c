"""A history: what happened, one line an event, in the order in which it happened.

    {"t": 1.25, "op": "moved", "task": 17, "version": 2, "to": "PROCESSING", "node": "n1", …}

Operations, and what their lines have besides the time `t`:

    enqueue   phase (invoke, ok, fail, info), request, task: a caller added a task; `info` means
              that nobody knows whether it was added
    created   task, version, state, request, kind, queue, ordering_key: the store has a new task;
              `skips_errors`: it does not wait for an elder of its key that is parked in ERROR
    moved     task, version, event, from, to, node: the store moved a task on
    leased    node, until: the store has this lease of the node, up to this time
    start     task, version, node: a handler was called; many tasks of one call are many lines
    end       task, version, node: it returned or raised
    fired     schedule, slot: the store added the task of a slot
    wish      event, task: an operator changed a task, and the store agreed
    limit     name, concurrency, kind, key, from: from then on at most so many at once
    ring      ring, number, writer: the store has one more record of this log
    fault     what, node: what was done to the cluster
    healed    no faults from now on
    idle      node, booked, shares, remembered: nothing is left to do, what the node still counts
              as running, how many slots of limits the store still has for it, and of how many
              tasks the node still knows something
    bug       what: the engine has seen something that cannot happen
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

Line = dict[str, Any]


class History:
    """Lines in memory, written by whoever sees something happen."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def add(self, t: float, op: str, **fields: Any) -> None:
        self.lines.append({"t": round(t, 6), "op": op, **fields})

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)


def write_history(lines: Iterable[Line], path: Path) -> None:
    with path.open("wb") as file:
        for line in lines:
            file.write(msgspec.json.encode(line) + b"\n")


def read_history(path: Path) -> list[Line]:
    """The lines of a file; ValueError names the line that cannot be read."""
    found: list[Line] = []
    for number, text in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            line = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        if not isinstance(line, dict) or "op" not in line or "t" not in line:
            raise ValueError(f"{path}, line {number}: a line has a time `t` and an operation `op`")
        found.append(line)
    return found
