"""Each checker finds what it is for, and nothing in a history that is sound."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.verify.checkers import LIVENESS, SAFETY, verify
from holdfast.verify.history import Line, read_history, write_history


def line(t: float, op: str, **fields: Any) -> Line:
    return {"t": t, "op": op, **fields}


def an_idle_node(**fields: Any) -> Line:
    return line(5, "idle", node="n", **({"booked": 0, "shares": 0, "remembered": 0} | fields))


def created(t: float, task: int, **fields: Any) -> Line:
    known = {"version": 1, "state": "SUBMITTED", "kind": "k", "queue": "q", "request": None}
    return line(t, "created", task=task, **(known | fields))


def moved(t: float, task: int, version: int, event: str, before: str, to: str, **more: Any) -> Line:
    named = {"node": "n", "from": before, "to": to}
    return line(t, "moved", task=task, version=version, event=event, **(named | more))


def grabbed(t: float, task: int, version: int = 2, **more: Any) -> Line:
    return moved(t, task, version, "GRABBED", "SUBMITTED", "PROCESSING", **more)


def settled(t: float, task: int, version: int = 3, to: str = "DONE", **more: Any) -> Line:
    return moved(t, task, version, "SUCCEEDED", "PROCESSING", to, **more)


def ran(t: float, task: int, version: int = 2, node: str = "n") -> Line:
    return line(t, "start", task=task, version=version, node=node)


def asked(phase: str, request: str = "r", **fields: Any) -> Line:
    return line(0.0, "enqueue", phase=phase, request=request, **fields)


SOUND = [
    asked("invoke"),
    created(1.0, 1, request="r", ordering_key="a"),
    asked("ok", task=1),
    line(1.0, "leased", node="n", until=20.0),
    grabbed(2.0, 1),
    ran(2.0, 1),
    moved(3.0, 1, 3, "RETRIED", "PROCESSING", "WAITING", due=4.0),
    moved(4.0, 1, 4, "DUE", "WAITING", "SUBMITTED"),
    grabbed(4.0, 1, 5),
    ran(4.0, 1, 5),
    created(4.0, 2, ordering_key="a"),
    settled(5.0, 1, 6),
    grabbed(6.0, 2),
    ran(6.0, 2),
    settled(7.0, 2),
    line(7.0, "fired", schedule="s", slot=7.0),
    line(8.0, "fired", schedule="s", slot=8.0),
    *(line(8.0, "ring", ring="r", number=number) for number in (1, 2, 3)),
    line(8.0, "idle", node="n", booked=0, shares=0, remembered=0),
]

LIMIT = {"name": "one", "queue": "q", "kind": None, "key": None, "concurrency": 1, "from": 0.0}

BROKEN: dict[str, list[tuple[str, list[Line]]]] = {
    "C1 no loss": [
        ("is still SUBMITTED", [created(1, 1)]),
        ("is not there", [asked("ok", task=7)]),
    ],
    "C2 no invention": [
        ("task 9 was started and does not exist", [ran(1, 9)]),
        ("never asked for", [created(1, 1, request="x"), grabbed(1, 1), settled(2, 1)]),
        ("never asked for", [asked("info"), created(1, 1, request="r")]),
    ],
    "C3 one outcome": [
        ("after its end", [created(1, 1), grabbed(1, 1), settled(2, 1), grabbed(3, 1, 4)]),
        ("at version 2, not at its grab's", [created(1, 1), grabbed(1, 1, 4), settled(2, 1, 3)]),
        ("at version 1, not at its grab's", [created(1, 1), settled(2, 1, 2)]),
    ],
    "C4 lease exclusion": [
        (
            "whose lease had 6 s",
            [
                created(1, 1),
                line(1, "leased", node="n", until=9.0),
                grabbed(2, 1),
                moved(3, 1, 3, "LEASE_LOST", "PROCESSING", "SUBMITTED"),
            ],
        ),
        (
            "whose lease had 0.5 s",
            [
                created(1, 1),
                line(1, "leased", node="n", until=9.0),
                grabbed(2, 1),
                moved(8.5, 1, 3, "LEASE_LOST", "PROCESSING", "SUBMITTED"),
            ],
        ),
    ],
    "C6 serial per key": [
        (
            "at the same time",
            [
                created(1, 1, ordering_key="a"),
                created(1, 2, ordering_key="a"),
                grabbed(2, 1),
                grabbed(3, 2),
            ],
        ),
        (
            "before its elder 1",
            [created(1, n, ordering_key="a") for n in (1, 2, 3)] + [grabbed(2, 3)],
        ),
        (
            "before its elder 1",
            [
                created(1, 1, ordering_key="a", state="WAITING"),
                created(1, 2, ordering_key="a"),
                moved(2, 1, 2, "DUE", "WAITING", "SUBMITTED"),
                grabbed(3, 2),
            ],
        ),
    ],
    "C7 bounded duplicates": [
        ("task 1 was started at version 2 without a grab", [created(1, 1), ran(2, 1)]),
        (
            "task 1 was started twice at version 2",
            [created(1, 1), grabbed(2, 1), ran(2, 1), ran(3, 1)],
        ),
        ("task 1 was grabbed by n, ran on m", [created(1, 1), grabbed(2, 1), ran(2, 1, node="m")]),
        ("2 times, for nothing", [created(1, 1), grabbed(2, 1), grabbed(3, 1, 4)]),
        ("2 times, for nothing", [created(1, 1), grabbed(2, 1), settled(3, 1), grabbed(4, 1, 4)]),
        (
            "3 times, for nothing",
            [
                *(created(1, 1), grabbed(2, 1)),
                moved(3, 1, 3, "LEASE_LOST", "PROCESSING", "SUBMITTED"),
                *(grabbed(4, 1, 4), grabbed(5, 1, 5)),
            ],
        ),
    ],
    "C11 one task a request": [
        (
            "added tasks 1 and 2",
            [asked("invoke"), created(1, 1, request="r"), created(2, 2, request="r")],
        ),
        (
            "added tasks 2 and 3",
            [
                created(1, 1),
                asked("ok", request="s", created=False, task=1),
                *(created(1, 2, request="r"), created(2, 3, request="r")),
            ],
        ),
        ("not its own", [asked("invoke"), created(1, 1, request="r"), asked("ok", task=2)]),
        ("was refused", [asked("invoke"), created(1, 1, request="r"), asked("fail")]),
    ],
    "C13 never early": [
        ("started 6 s before it was due", [created(1, 1, due=9.0), grabbed(3, 1), ran(3, 1)]),
        ("started 0.5 s before it was due", [created(1, 1, due=9.0), ran(8.5, 1)]),
    ],
    "C13 slots": [
        (
            "slot 5 of schedule s fired twice",
            [line(5, "fired", schedule="s", slot=5.0), line(6, "fired", schedule="s", slot=5.0)],
        ),
        ("slot 5 of schedule s fired at 4", [line(4, "fired", schedule="s", slot=5.0)]),
    ],
    "C14 limits": [
        (
            "2 ran at 3",
            [
                line(0, "limit", **LIMIT),
                created(1, 1),
                created(1, 2),
                grabbed(2, 1),
                grabbed(3, 2),
            ],
        ),
        (
            "limit one is 1",
            [
                line(0, "limit", **(LIMIT | {"name": "other", "queue": "p"})),
                line(0, "limit", **(LIMIT | {"from": 3.0})),
                *(created(1, 1), created(1, 2), grabbed(2, 1), grabbed(3, 2)),
            ],
        ),
    ],
    "ring log": [
        (
            "record 1 was written after 1",
            [line(1, "ring", ring="r", number=1), line(2, "ring", ring="r", number=1)],
        ),
        ("record 2 was written after 0", [line(1, "ring", ring="r", number=2)]),
    ],
    "C14 counts": [
        ("still counts 1", [an_idle_node(booked=1)]),
        ("still has 2 slots of limits", [an_idle_node(shares=2)]),
        ("still remembers 3 tasks", [an_idle_node(remembered=3)]),
    ],
    "no bug": [("it broke", [line(5, "bug", what="it broke")])],
}


def test_a_sound_history_breaks_nothing():
    assert verify(SOUND) == []


@pytest.mark.parametrize(
    ("checker", "words", "lines"),
    [(name, words, lines) for name, cases in BROKEN.items() for words, lines in cases],
)
def test_each_checker_finds_what_it_is_for(checker, words, lines):
    found = [violation.what for violation in verify(lines) if violation.checker == checker]

    assert any(words in what for what in found), found


def test_every_checker_has_a_history_that_breaks_it():
    assert {name for name, _ in (*SAFETY, *LIVENESS)} == BROKEN.keys()


def test_in_the_middle_of_a_history_what_has_to_happen_may_still_come():
    assert verify([created(1, 1)], is_over=False) == []


def test_a_task_that_skips_errors_passes_a_parked_elder_and_no_other():
    def history(end: str, to: str) -> list[Line]:
        young = created(1, 2, ordering_key="a", skips_errors=True)
        elder = [created(1, 1, ordering_key="a"), grabbed(2, 1)]
        return [*elder, young, moved(3, 1, 3, end, "PROCESSING", to), grabbed(4, 2)]

    assert verify(history("PARKED", "ERROR"), is_over=False) == []
    assert verify(history("RETRIED", "WAITING"), is_over=False)


def test_an_attempt_that_begins_late_is_not_early_for_the_next_one():
    """Its node stood still between grab and start, and another one ran the task meanwhile."""
    lost = moved(2, 1, 3, "LEASE_LOST", "PROCESSING", "SUBMITTED")
    retried = moved(4, 1, 5, "RETRIED", "PROCESSING", "WAITING", node="m", due=9.0)
    other = [grabbed(3, 1, 4, node="m"), ran(3, 1, 4, node="m"), retried]
    history = [created(1, 1), grabbed(1, 1), lost, *other, ran(5, 1, 2)]

    assert verify(history, is_over=False) == []
    assert verify([*history, grabbed(6, 1, 7), ran(6, 1, 7)], is_over=False)


def test_a_violation_is_told_with_the_rule_that_it_breaks():
    assert [str(found) for found in verify([ran(1, 9)], is_over=False)] == [
        "C2 no invention: task 9 was started and does not exist",
        "C7 bounded duplicates: task 9 was started at version 2 without a grab",
    ]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(
            [
                line(0.1, "leased", node="n", until=9.0),
                *(created(1, 1), grabbed(2, 1)),
                moved(3, 1, 3, "LEASE_LOST", "PROCESSING", "SUBMITTED", is_overdue=True),
            ],
            id="a deadline may take a task from a live node",
        ),
        pytest.param(
            [
                line(0.1, "leased", node="n", until=2.0),
                *(created(0.2, 1), grabbed(0.3, 1)),
                moved(2.5, 1, 3, "LEASE_LOST", "PROCESSING", "SUBMITTED"),
                grabbed(2.6, 1, 4),
            ],
            id="after the lease has ended a task may be taken and grabbed again",
        ),
        pytest.param(
            [
                *(created(0.1, 1), grabbed(0.2, 1)),
                moved(0.3, 1, 3, "LEASE_LOST", "PROCESSING", "SUBMITTED"),
            ],
            id="a node that never had a lease may be robbed",
        ),
        pytest.param(
            [
                *(created(1, 1, ordering_key="a"), created(1, 2, ordering_key="a")),
                moved(2, 1, 2, "RESCHEDULED", "SUBMITTED", "WAITING", due=9.0),
                grabbed(3, 2),
            ],
            id="an elder that was put off before it ever ran lets the younger pass",
        ),
        pytest.param(
            [
                created(1, 1, state="WAITING", due=9.0),
                moved(2, 1, 2, "RESUMED", "WAITING", "SUBMITTED"),
                *(grabbed(3, 1, 3), ran(3, 1, 3)),
            ],
            id="what a person resumes may start before it was due",
        ),
        pytest.param(
            [created(0, 1), grabbed(0, 1), ran(0, 1)], id="what was never put off starts at once"
        ),
        pytest.param(
            [
                line(0, "limit", **LIMIT),
                *(created(1, 1), created(1, 2)),
                *(grabbed(2, 1), settled(3, 1), grabbed(4, 2), settled(5, 2)),
            ],
            id="one after the other keeps a limit of one",
        ),
        pytest.param(
            [
                line(0, "limit", **(LIMIT | {"kind": "other"})),
                line(0, "limit", **(LIMIT | {"name": "two", "queue": "p"})),
                line(0, "limit", **(LIMIT | {"name": "three", "key": "*"})),
                line(0, "limit", **(LIMIT | {"name": "four", "key": "acme"})),
                *(created(1, 1), created(1, 2), grabbed(2, 1), grabbed(2, 2)),
            ],
            id="limits of another kind or queue or of keys count nothing else",
        ),
    ],
)
def test_a_sound_history_is_not_blamed(lines):
    assert verify(lines, is_over=False) == []


def test_a_limit_counts_from_its_own_time_on():
    def history(t: float) -> list[Line]:
        limit = line(1, "limit", **(LIMIT | {"from": 3.0}))
        return [limit, created(1, 1), created(1, 2), grabbed(2, 1), grabbed(t, 2)]

    assert verify(history(2.5), is_over=False) == []
    assert verify(history(3.0), is_over=False)


def test_a_limit_of_each_key_counts_the_tasks_of_that_key():
    limit = line(0, "limit", **(LIMIT | {"key": "*"}))
    lines = [limit, *(created(1, n, fairness_key=f"t{n % 2}") for n in range(1, 4))]
    sound = [*lines, grabbed(2, 1), grabbed(2, 2)]

    assert verify(sound, is_over=False) == []
    assert verify([*sound, grabbed(3, 3)], is_over=False)


def test_a_history_survives_its_file(tmp_path):
    path = tmp_path / "history.jsonl"
    write_history(SOUND, path)

    assert read_history(path) == SOUND
    path.write_text('{"t": 1, "op": "created"}\nnot json\n', encoding="utf-8")
    with pytest.raises(ValueError, match="line 2"):
        read_history(path)
