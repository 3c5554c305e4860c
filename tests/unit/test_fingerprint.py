"""Errors that are one error have one fingerprint."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.fingerprint import LINE_MAX, fingerprint, grouped
from holdfast.task import State, Task, TaskId

AT = datetime(2026, 1, 1, tzinfo=UTC)


def a_failure(id: int, error: str | None, kind: str = "pay") -> Task:
    return Task(
        id=TaskId(id),
        queue="q",
        partition=0,
        kind=kind,
        state=State.ERROR,
        version=2,
        priority=5,
        payload=b"",
        enqueued_at=AT + timedelta(seconds=id),
        error=error,
    )


@pytest.mark.parametrize(
    ("error", "print_"),
    [
        (
            "Traceback …\n  File …\nValueError: account 17 is closed",
            "ValueError: account … is closed",
        ),
        ("TimeoutError: 10.25 s after 12:30:01", "TimeoutError: … s after …"),
        ("KeyError: '9f2c41aa-77be-4c1e-9d55-0123456789ab'", "KeyError: '…'"),
        ("<Order object at 0x7f3b2c>", "<Order object at …>"),
        ("ValueError: a decade of facade", "ValueError: a decade of facade"),
        ("", "(no message)"),
        (None, "(no message)"),
    ],
)
def test_numbers_and_hexadecimal_ids_do_not_tell_errors_apart(error, print_):
    assert fingerprint(error) == print_


def test_a_fingerprint_is_short_whatever_the_error():
    assert len(fingerprint("x" * 10_000)) == LINE_MAX


def test_groups_are_counted_by_kind_and_fingerprint_the_largest_first():
    tasks = [a_failure(n, f"ValueError: {n}") for n in range(1, 4)]
    tasks += [a_failure(9, "KeyError: 'x'"), replace(tasks[0], kind="mail", id=TaskId(7))]

    first, *others = grouped(tasks)

    assert (first.kind, first.error, first.count) == ("pay", "ValueError: …", 3)
    assert (first.first_at, first.last_at) == (tasks[0].enqueued_at, tasks[2].enqueued_at)
    assert first.sample == 3
    assert [(one.kind, one.error, one.count) for one in others] == [
        ("mail", "ValueError: …", 1),
        ("pay", "KeyError: 'x'", 1),
    ]
