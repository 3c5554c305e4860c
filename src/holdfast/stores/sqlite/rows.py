"""Rows and values: times are whole microseconds since 1970, tuples are our own types."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from holdfast.task import State, Task, TaskId

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
SECOND = 1_000_000  # in the unit of the stored times


def micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def span(seconds: float) -> int:
    """Seconds as microseconds; anything beyond a thousand years counts as that."""
    return int(min(seconds, 3.2e10) * 1_000_000)


@lru_cache(maxsize=4096)  # tasks of one batch share their times
def moment(value: int) -> datetime:
    return _EPOCH + timedelta(microseconds=value)


def moment_or_none(value: int | None) -> datetime | None:
    return None if value is None else moment(value)


def task(row: tuple[Any, ...]) -> Task:
    """The columns of `get` and `find`, in their order."""
    return Task(
        id=TaskId(row[0]),
        queue=row[1],
        partition=row[2],
        kind=row[3],
        state=State(row[4]),
        version=row[5],
        priority=row[6],
        payload=row[7],
        attempts=row[8],
        deliveries=row[9],
        enqueued_at=moment(row[10]),
        due_at=moment_or_none(row[11]),
        deadline_at=moment_or_none(row[12]),
        finished_at=moment_or_none(row[13]),
        node=row[14],
        fairness_key=row[15],
        ordering_key=row[16],
        metadata=row[17],
        error=row[18],
        result=row[19],
    )
