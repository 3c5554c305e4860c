"""The plugin that counts requirement lines: what it counts, what it does not, what it refuses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from holdfast.testing.requirements import (
    Line,
    Lists,
    Proof,
    WrongLists,
    counted,
    described,
    is_current,
    main,
    proven,
    read_lists,
    tree_of,
    write_counts,
)

ONE, TWO, THREE = Line("TASK", 1), Line("TASK", 2), Line("TASK", 3)
LISTS = Lists(frozenset({ONE, TWO, THREE}), frozenset())

SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
testpaths = tests
requirement_lists = lists
skip_list = skips.txt
addopts = -p no:hypothesispytest -p holdfast.testing.plugin --requirements-json=counts.json
markers = store(name): one store
"""
STORES = """
import pytest
@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request):
    return request.param
"""


class Suite:
    """A small project with three lines, and the tests that one of our tests gives it."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        pytester.makefile(".ini", pytest=SETTINGS)
        self.list("- TASK-1 one\n- TASK-2 two\n- TASK-3 three\n")

    def list(self, text: str, name: str = "task.md") -> None:
        folder = self._pytester.path / "lists"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)

    def run(self, tests: str, *arguments: str) -> pytest.RunResult:
        folder = self._pytester.path / "tests"
        folder.mkdir(exist_ok=True)
        (folder / "test_it.py").write_text(STORES + tests)
        return self._pytester.runpytest_inprocess(*arguments)

    def proven(self) -> list[int]:
        return self.counts()["prefixes"]["TASK"]["proven"]

    def counts(self) -> dict:
        return json.loads((self._pytester.path / "counts.json").read_text())


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.delenv("CI", raising=False)
    return Suite(pytester)


def test_a_line_is_proven_by_a_passed_test_and_missing_without_one(suite: Suite):
    suite.run('@pytest.mark.req("TASK-2")\ndef test_two(): pass')

    assert suite.counts()["prefixes"] == {
        "TASK": {"proven": [2], "partial": [], "missing": [1, 3], "total": 3}
    }


def test_one_failed_test_takes_the_line_away(suite: Suite):
    suite.run(
        '@pytest.mark.req("TASK-1")\ndef test_good(): pass\n'
        '@pytest.mark.req("TASK-1", "TASK-2")\ndef test_bad(): assert False\n'
        '@pytest.mark.req("TASK-3")\ndef test_other(): pass\n'
    )

    assert suite.proven() == [3]


def test_a_test_that_breaks_in_its_teardown_proves_nothing(suite: Suite):
    suite.run(
        "@pytest.fixture\ndef leaky():\n    yield\n    assert False\n"
        '@pytest.mark.req("TASK-1")\ndef test_it(leaky): pass\n'
    )

    assert suite.proven() == []


def test_a_skipped_test_counts_as_missing(suite: Suite, pytester: pytest.Pytester):
    (pytester.path / "skips.txt").write_text("tests/*::test_skipped | no machine\n")

    result = suite.run(
        '@pytest.mark.req("TASK-1")\ndef test_ran(): pass\n'
        '@pytest.mark.req("TASK-1")\ndef test_skipped(): pytest.skip("no machine for it")\n'
    )

    result.assert_outcomes(passed=1, skipped=1)
    assert suite.proven() == []


def test_an_expected_failure_counts_as_missing(suite: Suite):
    suite.run(
        '@pytest.mark.req("TASK-1")\n@pytest.mark.xfail(strict=True)\ndef test_it(): assert False'
    )

    assert suite.proven() == []


def test_where_a_store_takes_part_both_stores_must_pass(suite: Suite):
    suite.run(
        '@pytest.mark.req("TASK-1")\ndef test_both(store_url): pass\n'
        '@pytest.mark.req("TASK-2")\ndef test_one(store_url): assert store_url == "sqlite"\n'
        '@pytest.mark.req("TASK-3")\n@pytest.mark.parametrize("store_url", ["sqlite"])\n'
        "def test_only_one(store_url): pass\n"
    )

    assert suite.proven() == [1]


def test_a_store_is_also_known_by_the_name_of_its_parameter(suite: Suite):
    suite.run(
        '@pytest.mark.req("TASK-1")\n'
        '@pytest.mark.parametrize("store", [pytest.param([], id="sqlite")])\n'
        "def test_one(store): pass\n"
        '@pytest.mark.req("TASK-2")\n'
        '@pytest.mark.parametrize("store", [[], [1]], ids=["sqlite", "postgres"])\n'
        "def test_both(store): pass\n"
    )

    assert suite.proven() == [2]


def test_a_contract_suite_counts_for_the_store_that_its_class_names(suite: Suite):
    suite.run(
        "class Contract:\n"
        "    @pytest.fixture\n    def store(self): return 1\n"
        '    @pytest.mark.req("TASK-1")\n    def test_it(self, store): pass\n'
        "class TestSQLiteStore(Contract):\n"
        '    @pytest.mark.req("TASK-2")\n    def test_two(self, store): pass\n'
        "class TestPostgresStore(Contract): pass\n"
        "class TestOtherStore(Contract):\n"
        '    @pytest.mark.req("TASK-3")\n    def test_three(self, store): pass\n'
    )

    assert suite.proven() == [1]


def test_two_suites_of_one_store_each_prove_a_line_together(suite: Suite):
    suite.run(
        'class Contract:\n    @pytest.mark.req("TASK-1")\n    def test_it(self): pass\n'
        '@pytest.mark.store("sqlite")\nclass TestSQLite(Contract): pass\n'
        '@pytest.mark.store("postgres")\nclass TestPostgres(Contract): pass\n'
        '@pytest.mark.store("postgres")\n@pytest.mark.req("TASK-2")\ndef test_alone(): pass\n'
    )

    assert suite.proven() == [1]


@pytest.mark.parametrize(
    ("mark", "problem"),
    [
        ('"TASK-1", "TASK-2", "TASK-3"', "*marked with 3 lines, at most 2 may be*"),
        ('"TASK-4"', "*marked with TASK-4, which no list holds*"),
        ('"Task 1"', "*is not of the form TASK-14*"),
    ],
)
def test_a_wrong_mark_stops_the_run(suite: Suite, mark: str, problem: str):
    result = suite.run(f"@pytest.mark.req({mark})\ndef test_it(): pass")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([problem])


def test_marks_of_class_and_function_are_counted_together(suite: Suite):
    result = suite.run(
        '@pytest.mark.req("TASK-1", "TASK-2")\nclass TestIt:\n'
        '    @pytest.mark.req("TASK-3")\n    def test_it(self): pass'
    )

    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_skip_that_is_not_listed_fails_the_suite(suite: Suite, pytester: pytest.Pytester):
    (pytester.path / "skips.txt").write_text("tests/*::test_other | no machine\n")

    result = suite.run('def test_it(): pytest.skip("no machine")')

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not listed in skips.txt*no machine*"])


def test_a_skip_for_another_reason_than_the_listed_one_fails(suite, pytester):
    (pytester.path / "skips.txt").write_text("tests/* | no machine\n")

    suite.run('def test_it(): pytest.skip("no time")').assert_outcomes(failed=1)


def test_in_ci_no_skip_is_allowed_not_even_a_listed_one(suite, pytester, monkeypatch):
    (pytester.path / "skips.txt").write_text("tests/* | no machine\n")
    monkeypatch.setenv("CI", "true")

    result = suite.run('@pytest.mark.skip(reason="no machine")\ndef test_it(): pass')

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*nothing may be skipped in CI*"])


def test_a_module_that_skips_itself_fails_too(suite: Suite):
    result = suite.run('pytest.skip("no machine", allow_module_level=True)')

    result.assert_outcomes(errors=1)


def test_a_listed_skip_needs_a_reason(suite: Suite, pytester: pytest.Pytester):
    (pytester.path / "skips.txt").write_text("tests/*\n")

    result = suite.run("def test_it(): pass")

    assert result.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    "arguments", [["-k", "one"], ["tests/test_it.py"], ["-x"], ["-n", "2", "-k", "one"]]
)
def test_a_part_of_the_suite_is_not_counted(suite: Suite, pytester, arguments: list[str]):
    suite.run(
        '@pytest.mark.req("TASK-1")\ndef test_one(): assert "k" in "no"\ndef test_two(): pass\n',
        *arguments,
    )

    assert not (pytester.path / "counts.json").exists()


@pytest.mark.parametrize("arguments", [[], ["-n", "2"]], ids=["one process", "two workers"])
def test_a_second_run_of_what_failed_is_added_to_the_first(
    suite: Suite, pytester, arguments: list[str]
):
    text = (
        "import os\n"
        '@pytest.mark.req("TASK-1")\ndef test_one(): pass\n'
        '@pytest.mark.req("TASK-2")\ndef test_two(): assert os.path.exists("mended")\n'
        '@pytest.mark.req("TASK-3")\ndef test_three(): assert False\n'
    )
    suite.run(text, *arguments)
    assert suite.proven() == [1]
    (pytester.path / "mended").touch()

    suite.run(text, *arguments, "--last-failed")

    assert suite.proven() == [1, 2]


def test_the_counts_of_an_earlier_run_do_not_hide_the_suite(suite: Suite, pytester):
    # Until the plugin is loaded, pytest takes a word after an unknown option for a test to run: the
    # Makefile therefore writes the option and its file as one word.
    pytester.makefile(".ini", pytest=SETTINGS.partition("addopts")[0])
    (pytester.path / "tests").mkdir()
    (pytester.path / "tests/conftest.py").write_text('pytest_plugins = ["holdfast.testing.plugin"]')

    for _ in range(2):
        result = suite.run("def test_it(): pass", "--requirements-json=counts.json")
        result.assert_outcomes(passed=1)
    assert suite.proven() == []


def test_an_excepted_line_is_never_proven_and_there_are_at_most_three(suite: Suite):
    suite.list("- TASK-1 because it contradicts itself\n", "exceptions.md")
    suite.run('@pytest.mark.req("TASK-1")\ndef test_it(): pass')
    assert suite.proven() == []

    suite.list("".join(f"- TASK-{number} because\n" for number in range(4)), "exceptions.md")
    assert suite.run("def test_it(): pass").ret == pytest.ExitCode.USAGE_ERROR


def test_a_line_without_a_store_stands_beside_one_with_stores():
    proofs = [Proof("a", (ONE,), "sqlite", True), Proof("b", (ONE,), None, True)]
    assert proven(proofs, LISTS) == set()

    proofs.append(Proof("c", (ONE,), "postgres", True))
    assert proven(proofs, LISTS) == {ONE}


def test_the_counts_are_printed_one_line_for_each_prefix():
    lists = Lists(LISTS.lines | {Line("ALL", 1)}, frozenset())

    rows = described(counted([Proof("a", (TWO, Line("ALL", 1)), None, True)], lists))

    assert rows == ["ALL 1/1", "TASK 1/3 missing: 1 3"]


def test_a_line_that_is_listed_twice_is_refused(tmp_path: Path):
    (tmp_path / "task.md").write_text("- TASK-1 one\n- TASK-1 again\n")

    with pytest.raises(WrongLists, match="TASK-1"):
        read_lists(tmp_path)


def test_the_lists_of_this_project_are_complete(request: pytest.FixtureRequest):
    lists = read_lists(request.config.rootpath / "docs/reference/requirements")

    totals = {prefix: count["total"] for prefix, count in counted([], lists).items()}
    assert totals == {"ALL": 10, "FAIR": 81, "PIPE": 124, "RING": 48, "STAGE": 64, "TASK": 95}


def test_counts_are_current_until_a_commit_or_a_file_changes(tmp_path: Path):
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True
        )

    counts = tmp_path / ".git" / "counts.json"
    git("init")
    assert not is_current(counts, tmp_path)
    (tmp_path / "code.py").write_text("one")
    git("add", ".")
    git("commit", "--message", "one")

    write_counts(counts, counted([], LISTS), tmp_path)
    assert is_current(counts, tmp_path) and not tree_of(tmp_path)["dirty"]
    (tmp_path / "code.py").write_text("two")
    assert not is_current(counts, tmp_path) and tree_of(tmp_path)["dirty"]
    write_counts(counts, counted([], LISTS), tmp_path)
    assert is_current(counts, tmp_path)
    (tmp_path / "new.py").write_text("three")
    assert not is_current(counts, tmp_path)


def test_the_command_prints_the_counts_as_text_and_as_json(tmp_path: Path, capsys):
    counts = tmp_path / "counts.json"
    assert main([str(counts)]) == 1
    capsys.readouterr()
    write_counts(counts, counted([Proof("a", (ONE,), None, True)], LISTS), tmp_path)

    assert main([str(counts)]) == 0
    assert capsys.readouterr().out == "TASK 1/3 missing: 2 3\n"
    assert main(["--json", str(counts)]) == 0
    assert json.loads(capsys.readouterr().out)["prefixes"]["TASK"]["missing"] == [2, 3]
