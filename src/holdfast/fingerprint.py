"""Errors that are one error: the same kind, and the same last line but for its numbers.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from holdfast.task import Task, TaskId

LINE_MAX = 200
_HEX = re.compile(r"\b(?:0x)?(?=[0-9a-f-]*\d)[0-9a-f]{6,}(?:-[0-9a-f]{4,})*\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Tasks in ERROR that look alike; times are those of their enqueues."""

    kind: str
    error: str
    count: int
    first_at: datetime
    last_at: datetime
    sample: TaskId  # the latest of them


def fingerprint(error: str | None) -> str:
    """The last line of an error, with numbers and hexadecimal ids as `…`."""
    lines = (error or "").strip().splitlines()
    line = lines[-1].strip() if lines else "(no message)"
    return _NUMBER.sub("…", _HEX.sub("…", line))[:LINE_MAX]


def grouped(tasks: Iterable[Task]) -> list[ErrorGroup]:
    """The groups, the largest first."""
    found: dict[tuple[str, str], ErrorGroup] = {}
    for task in tasks:
        place = (task.kind, fingerprint(task.error))
        at, id = task.enqueued_at, task.id
        known = found.get(place) or ErrorGroup(*place, 0, at, at, id)
        found[place] = ErrorGroup(
            *place,
            known.count + 1,
            min(known.first_at, at),
            max(known.last_at, at),
            max(known.sample, id),
        )
    return sorted(found.values(), key=lambda group: (-group.count, group.kind, group.error))
