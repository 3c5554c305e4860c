"""Rows of the database as values of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.task import State, Task

_FIELDS = (
    "id",
    "queue",
    "partition",
    "kind",
    "state",
    "version",
    "priority",
    "payload",
    "attempts",
    "deliveries",
    "enqueued_at",
    "due_at",
    "deadline_at",
    "finished_at",
    "node",
    "fairness_key",
    "ordering_key",
    "metadata",
    "error",
    "result",
)


def task_of(row: Sequence[Any]) -> Task:
    """A row of get.sql or find.sql."""
    fields = dict(zip(_FIELDS, row, strict=True))
    fields["state"] = State(fields["state"])
    return Task(**fields)
