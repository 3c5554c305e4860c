"""The states of a task and the moves between them; the page about them is printed here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.task import (
    FINAL,
    HOT,
    MOVES,
    Enqueued,
    Event,
    Outcome,
    State,
    TaskId,
    clamped_priority,
    lane_of,
    trigger_of,
)
from holdfast.testing.build import START, a_new_task, a_task, a_trigger

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "states.md"

MEANINGS = {
    State.WAITING: "not before its due time: a delay, a retry, a repeat",
    State.SUBMITTED: "may run",
    State.PROCESSING: "grabbed by one node, which runs an attempt",
    State.DONE: "succeeded",
    State.ERROR: "retries used up, no handler, or unreadable: a person looks",
    State.FAILED: "given up on purpose",
    State.CANCELLED: "nobody wants it any more",
}

HEAD = """\
# The states of a task

This page is printed from the table of moves in `holdfast.task`; a test compares the two. What is
not in the table cannot happen. Each move raises the task's version by one, and each write names
the version that it expects, so whoever comes late changes nothing.
"""

TAIL = """\
`RESUMED` of a PROCESSING task needs `force`: its attempt is stopped, and its outcome is refused.
DONE, FAILED and CANCELLED are final: the row has left for the archive.
"""


def page() -> str:
    states = [f"| {state.name} | {MEANINGS[state]} |" for state in State]
    diagram = [
        f"    {before.name} --> {after.name}: {event.name}"
        for (before, event), after in MOVES.items()
    ]
    moves = [
        f"| {before.name} | {event.name} | {after.name} |"
        for (before, event), after in MOVES.items()
    ]
    return "\n".join(
        [
            HEAD,
            "| state | meaning |",
            "|---|---|",
            *states,
            "",
            "```mermaid",
            "stateDiagram-v2",
            "    [*] --> WAITING: enqueued with a delay",
            "    [*] --> SUBMITTED: enqueued",
            *diagram,
            *(f"    {state.name} --> [*]" for state in State if state in FINAL),
            "```",
            "",
            "| from | event | to |",
            "|---|---|---|",
            *moves,
            "",
            TAIL,
        ]
    )


def test_the_page_about_states_is_the_table_of_moves():
    if os.environ.get("HOLDFAST_REWRITE"):
        PAGE.write_text(page(), encoding="utf-8")

    assert PAGE.read_text(encoding="utf-8") == page(), "run again with HOLDFAST_REWRITE=1"


def test_nothing_leaves_a_final_state():
    assert {State.DONE, State.FAILED, State.CANCELLED} == FINAL
    assert not [move for move in MOVES if move[0] in FINAL]
    assert set(State) == HOT | FINAL and not HOT & FINAL


def test_only_a_submitted_task_can_be_grabbed():
    assert [state for state, event in MOVES if event is Event.GRABBED] == [State.SUBMITTED]


def test_every_state_but_the_first_two_is_reached_by_a_move():
    assert set(MOVES.values()) == set(State)


@pytest.mark.parametrize("move", MOVES, ids=lambda move: f"{move[0].name} {move[1].name}")
def test_each_move_raises_the_version_by_one_and_makes_a_new_value(move):
    state, event = move
    before = a_task(state=state, version=7)

    after = before.moved(event)

    assert (after.state, after.version) == (MOVES[move], 8)
    assert (before.state, before.version) == (state, 7)


def test_a_move_that_is_not_in_the_table_cannot_happen():
    with pytest.raises(KeyError):
        a_task(state=State.DONE).moved(Event.GRABBED)


@pytest.mark.parametrize(
    ("given", "kept"), [(-1, 0), (0, 0), (5, 5), (9, 9), (10, 9), (10**9, 9), (-(10**9), 0)]
)
def test_priorities_outside_0_to_9_are_clamped(given, kept):
    assert clamped_priority(given) == kept


def test_the_numbers_of_states_are_stored_and_never_change_their_meaning():
    assert {state.name: int(state) for state in State} == {
        "WAITING": 0,
        "SUBMITTED": 1,
        "PROCESSING": 2,
        "DONE": 3,
        "ERROR": 4,
        "FAILED": 5,
        "CANCELLED": 6,
    }


def test_what_nobody_says_of_a_task_is_the_plain_case():
    new, task, trigger = a_new_task(), a_task(), a_trigger()

    assert (new.priority, new.delay_s, new.weight, new.due_at, new.key) == (5, 0.0, 1.0, None, None)
    assert (task.attempts, task.deliveries) == (0, 0)
    assert (trigger.weight, trigger.arrived, trigger.fairness_key) == (1.0, 0, None)


def test_a_plain_outcome_counts_its_attempt_is_kept_and_forgives_what_was_lost():
    outcome = Outcome(TaskId(1), 2, Event.RETRIED)

    assert (outcome.delay_s, outcome.counts, outcome.resets) == (0.0, True, False)
    assert (outcome.keep, outcome.forgives, outcome.ends) == (True, True, None)


def test_a_result_is_not_shown_where_a_task_is_printed():
    assert "secret" not in repr(a_task(result=b"secret"))


def test_the_hint_of_a_new_task_names_its_first_version_and_where_it_waits():
    task = a_new_task(priority=2, partition=7, fairness_key="f", weight=3.0, ordering_key="o")

    trigger = trigger_of(task, Enqueued(TaskId(9), State.WAITING, True, START))

    assert trigger == a_trigger(
        9, priority=2, partition=7, fairness_key="f", weight=3.0, ordering_key="o", due_at=START
    )
    assert trigger.version == 1


def test_a_lane_is_that_of_the_ordering_key_else_of_the_fairness_key_else_of_all_without():
    assert lane_of(a_trigger(ordering_key="x", fairness_key="y")) == "ox"
    assert lane_of(a_trigger(fairness_key="x")) == "fx"
    assert lane_of(a_trigger()) == "n"
