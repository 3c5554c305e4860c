"""Who may be run in another process, and what is kept of its last words."""

from __future__ import annotations

import pytest

from holdfast.testing.build import a_grabbed
from holdfast.worker import verdict
from holdfast.worker.alone import is_guarded
from holdfast.worker.tail import FATAL_LINES_MAX, LINES_MAX, Tail


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('if __name__ == "__main__":\n    main()\n', True),
        ("import x\nif '__main__' == __name__ and x:\n    main()\n", True),
        ("main()\n", False),
        ("def f():\n    if __name__ == '__main__':\n        pass\n", False),
        ("if x:\n    main()\n", False),
        ("no python at all", False),
        ("\0", False),
    ],
)
def test_a_program_may_be_imported_again_when_it_asks_for_its_name(source, expected):
    assert is_guarded(source) is expected


@pytest.fixture
def tail(capfd) -> Tail:
    return Tail()


def test_the_last_lines_are_kept_and_another_attempt_begins_anew(tail):
    tail.data_received(b"before\n")
    tail.forget()
    for number in range(100):
        tail.data_received(f"line {number}\n".encode())

    assert tail.text.splitlines() == [f"line {n}" for n in range(100 - LINES_MAX, 100)]


def test_of_a_fatal_error_the_first_lines_are_kept(tail):
    tail.data_received(b"hello\nFatal Python error: Segmentation fault\n\n")
    tail.data_received(b"".join(b"  File x, line %d\n" % n for n in range(100)))

    lines = tail.text.splitlines()
    assert lines[:2] == ["hello", "Fatal Python error: Segmentation fault"]
    assert len(lines) == 1 + FATAL_LINES_MAX


def test_a_flood_is_cut_and_halves_of_characters_do_no_harm(tail):
    tail.data_received("ä".encode() * 1_000_000)

    assert 0 < len(tail.text) < 20_000


def test_the_error_of_a_poisonous_task_ends_with_its_death_and_shows_no_password():
    lost = verdict.ProcessLost("SIGSEGV", last_words="to postgresql://me:secret@db/x")

    outcome = verdict.poisonous(a_grabbed(deliveries=2, losses=1), lost)

    assert outcome.error.splitlines() == [
        "the last lines on stderr:",
        "to postgresql://me:***@db/x",
        "",
        "delivered 2 times, and alone in a process it ended it: SIGSEGV",
    ]


def test_only_what_was_not_the_handlers_end_leaves_the_losses_counted():
    task = a_grabbed(losses=1)

    assert not verdict.handed_back(task).forgives
    assert not verdict.postponed(task, OSError("away")).forgives
    assert verdict.parked(task, "why").forgives
