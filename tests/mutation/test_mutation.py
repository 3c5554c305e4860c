"""The runner itself: a weak test lets mutants live, a good one kills them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mutation.__main__ import CORE, SOURCE
from mutation.mutants import mutants_of

TESTS = Path(__file__).parents[1]

TINY = """
def is_adult(age):
    return age >= 18

def price(count):
    return max(count * 3, 10)
"""
WEAK_AND_GOOD = """
from tiny import is_adult, price

def test_weak():
    assert is_adult(30)

def test_good():
    assert [price(count) for count in (-1, 3, 4, 5)] == [10, 10, 12, 15]
"""


def changes(tmp_path: Path, source: str) -> set[str]:
    path = tmp_path / "module.py"
    path.write_text(source, encoding="utf-8")
    return {f"{mutant.before} -> {mutant.after}" for mutant in mutants_of(path)}


def test_what_a_weak_test_does_not_notice_is_listed_and_a_good_one_kills_all(tmp_path):
    (tmp_path / "tiny.py").write_text(TINY, encoding="utf-8")
    (tmp_path / "test_tiny.py").write_text(WEAK_AND_GOOD, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    paths = os.pathsep.join([str(TESTS), str(tmp_path), *filter(None, sys.path)])
    quick = {"PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": "0"}

    here = [f"--source={tmp_path}", f"--test={tmp_path / 'test_tiny.py'}"]
    told = subprocess.run(
        [sys.executable, "-m", "mutation", "tiny.py", "--survivors", *here],
        cwd=tmp_path,
        env=os.environ | quick,
        capture_output=True,
        text=True,
        check=False,
    )

    assert told.returncode == 1, told.stdout + told.stderr
    assert [line for line in told.stdout.splitlines() if line] == [
        "tiny.py                 72.7 %     8 of   11 killed",
        "  tiny.py:3: age >= 18  ->  age > 18",
        "  tiny.py:3: 18  ->  19",
        "  tiny.py:3: 18  ->  17",
        "mutation score 72.7 %: 8 of 11 mutants killed",
    ]


def test_each_kind_of_change_is_made(tmp_path):
    found = changes(
        tmp_path,
        "def f(a, b):\n"
        "    if a and not b:\n"
        "        self.x = min(a[1:], a - b)\n"
        "        self.y += True\n"
        "        raise ValueError\n"
        "    return [one for one in a if one] if a < b else 2.5\n",
    )

    assert found >= {
        "a and (not b) -> a or not b",
        "a and (not b) -> not (a and (not b))",
        "not b -> b",
        "self.x = min(a[1:], a - b) -> pass",
        "min(a[1:], a - b) -> max(a[1:], a - b)",
        "1: -> :",
        "a - b -> a + b",
        "self.y += True -> self.y -= True",
        "self.y += True -> pass",
        "True -> False",
        "raise ValueError -> pass",
        "a < b -> a <= b",
        "2.5 -> 3.5",
    }
    assert any("-> return None" in change for change in found)


def test_what_decides_nothing_is_left_alone(tmp_path):
    found = changes(
        tmp_path,
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    x = 1\n"
        "Key = str | None\n"
        "@decorated(3)\n"
        "def f(a: Literal[4]) -> Literal[5]:\n"
        "    'text'\n"
        "    assert a > 6, f'{a + 7}'\n"
        "    b = a\n",
    )

    assert found == set()


def test_a_change_outside_of_functions_counts_from_the_import_on(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("SIZE = 3\ndef f(many=4):\n    return many + 5\n", encoding="utf-8")

    places = {(mutant.before, mutant.function) for mutant in mutants_of(path)}

    assert places >= {("3", ""), ("4", ""), ("5", "f"), ("many + 5", "f")}


def test_the_core_is_where_it_is_said_to_be():
    assert all((SOURCE / name).is_file() for name in CORE)
