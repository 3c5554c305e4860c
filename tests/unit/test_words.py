"""Numbers and lists as people say them."""

from __future__ import annotations

import pytest

from holdfast.words import counted, last_line, listed, span


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0.0 s"),
        (0.0001, "0 s"),
        (0.0206, "21 ms"),
        (2.14, "2.1 s"),
        (41.0, "41 s"),
        (119.0, "119 s"),
        (180.0, "3 min"),
        (-7_200.0, "2 h"),
        (12 * 86_400.0, "12 d"),
    ],
)
def test_a_span_is_said_in_its_largest_unit(seconds: float, said: str):
    assert span(seconds) == said


def test_a_count_that_stopped_says_so():
    assert counted(1, "task") == "1 task"
    assert counted(9_999, "task", most=10_000) == "9,999 tasks"
    assert counted(10_000, "task", most=10_000) == "at least 10,000 tasks"


def test_a_long_list_is_cut():
    assert listed([1, 2, 3]) == "1, 2, 3"
    assert listed(range(1_010)) == "0, 1, 2, 3, 4 and 1,005 more"


def test_of_an_error_the_last_line_says_most():
    assert last_line("Traceback\n  frame\nValueError: no\n") == "ValueError: no"
    assert last_line(None) == last_line("") == ""
