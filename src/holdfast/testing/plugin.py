"""The pytest plugin of the suite: it counts requirement lines and allows only listed skips.

    @pytest.mark.req("TASK-14")      the test proves this line; at most two lines a test
    tests/skips.txt                  which tests may be skipped on a developer's machine, and why
    --requirements-json FILE         after a run of the whole suite, write what is proven;
                                     a run of what failed there (--last-failed) is added to it

With CI set in the environment nothing may be skipped: what is missing there is a failure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.testing.requirements import (
    STORES,
    Line,
    Lists,
    Proof,
    WrongLists,
    checked,
    counted,
    described,
    read_lists,
    write_counts,
)

# The contract suites are tests too: a failed assertion of theirs shows its values.
pytest.register_assert_rewrite("holdfast.testing.contracts")

LINES, STORE, COLLECTED = "holdfast_lines", "holdfast_store", "holdfast_collected"
STORE_FIXTURES = ("store_url", "store")
UNKNOWN = "unknown"
PROOFS = "holdfast/proofs"  # in pytest's cache, beside the names of what failed


class Skip(NamedTuple):
    """One line of the skip list: which tests, for which reason."""

    tests: str
    reason: str


class Counting:
    """Hears what every test did, also from the processes of a distributed run."""

    def __init__(self, config: pytest.Config, lists: Lists, out: Path | None) -> None:
        self._config = config
        self._lists = lists
        self._out = out
        self._proofs: dict[str, Proof] = {}
        self._expected = 0
        self._deselected = 0
        self.prefixes: dict[str, dict[str, Any]] | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        try:
            for item in items:
                names = [name for mark in item.iter_markers("req") for name in mark.args]
                lines = checked(item.nodeid, names, self._lists)
                # Properties travel with the reports, so they reach the controller of workers too.
                item.user_properties.append((LINES, [str(line) for line in lines]))
                item.user_properties.append((STORE, _store_of(item)))
        except WrongLists as error:
            raise pytest.UsageError(str(error)) from error

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._deselected += len(items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._expected = len(session.items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found: dict[str, Any] = dict(report.user_properties)
        if LINES not in found:
            return
        has_passed = report.outcome == "passed" and not hasattr(report, "wasxfail")
        before = self._proofs.get(report.nodeid)
        lines = tuple(_line(name) for name in found[LINES])
        self._proofs[report.nodeid] = Proof(
            report.nodeid, lines, found[STORE], has_passed and (not before or before.has_passed)
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # Every worker collects the whole suite and runs a part of it.
        expected, deselected = getattr(node, "workeroutput", {}).get(COLLECTED, (0, 0))
        self._expected = max(self._expected, expected)
        self._deselected = max(self._deselected, deselected)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[COLLECTED] = (self._expected, self._deselected)
            return
        if not self._is_whole(session):
            return
        cache = self._config.cache
        if cache is not None and self._config.getoption("lf", False):
            earlier = cache.get(PROOFS, None)
            if earlier is None:
                return
            self._proofs = {**{one[0]: _proof(one) for one in earlier}, **self._proofs}
        if cache is not None:
            kept = [[p.test, [*map(str, p.lines)], *p[2:]] for p in self._proofs.values()]
            cache.set(PROOFS, kept)
        self.prefixes = counted(self._proofs.values(), self._lists)
        if self._out is not None:
            write_counts(self._out, self.prefixes, self._config.rootpath)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._out is None:
            return
        terminalreporter.section("requirements")
        if self.prefixes is None:
            terminalreporter.write_line("not counted: this was not a run of the whole suite")
        for row in described(self.prefixes or {}):
            terminalreporter.write_line(row.partition(" missing")[0])

    def _is_whole(self, session: pytest.Session) -> bool:
        """Whether every test of the suite ran: a part proves less, and must not overwrite more."""
        from_testpaths = self._config.args_source is pytest.Config.ArgsSource.TESTPATHS
        ran = 0 < self._expected <= len(self._proofs)
        return from_testpaths and ran and not self._deselected and not session.shouldstop


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("requirement_lists", "folder of the requirement lists", default="")
    parser.addini("skip_list", "file with the tests that may be skipped", default="")
    parser.getgroup("holdfast").addoption(
        "--requirements-json", metavar="FILE", help="write what the whole suite proves to FILE"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "req(*lines): the requirement lines that the test proves")
    config.stash[_SKIPS] = _read_skips(config)
    folder = config.getini("requirement_lists")
    if not folder:
        return
    try:
        lists = read_lists(config.rootpath / folder)
    except WrongLists as error:
        raise pytest.UsageError(str(error)) from error
    out = config.getoption("--requirements-json")
    config.pluginmanager.register(Counting(config, lists, Path(out).absolute() if out else None))


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    if report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        _judge(item.config, report)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, None]:
    outcome = yield
    report: pytest.CollectReport = outcome.get_result()
    if report.outcome == "skipped":
        _judge(collector.config, report)


_SKIPS = pytest.StashKey[list[Skip]]()


def _judge(config: pytest.Config, report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip that is not allowed into a failure."""
    reason = _reason(report)
    if os.environ.get("CI"):
        problem = "nothing may be skipped in CI"
    elif any(_allows(skip, report.nodeid, reason) for skip in config.stash[_SKIPS]):
        return
    else:
        problem = f"this skip is not listed in {config.getini('skip_list') or 'a skip list'}"
    report.outcome = "failed"
    report.longrepr = f"{problem}: {report.nodeid}: {reason}"


def _allows(skip: Skip, nodeid: str, reason: str) -> bool:
    return fnmatchcase(nodeid, skip.tests) and skip.reason in reason


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def _read_skips(config: pytest.Config) -> list[Skip]:
    name = config.getini("skip_list")
    path = config.rootpath / name
    if not name or not path.is_file():
        return []
    skips = []
    for row in path.read_text(encoding="utf-8").splitlines():
        if not row.strip() or row.startswith("#"):
            continue
        tests, bar, reason = (part.strip() for part in row.partition(" | "))
        if not bar or not reason:
            raise pytest.UsageError(f"{name}: {row!r} names no reason; write `tests | reason`")
        skips.append(Skip(tests, reason))
    return skips


def _store_of(item: pytest.Item) -> str | None:
    """The store that a test runs on, when a store takes part in it.

    It is known by the test's parameter, by its mark, or by the name of its class or module.
    """
    callspec = getattr(item, "callspec", None)
    if callspec is not None:
        # By value or by id, so that a parameter may also be what opens the store.
        values = {value for value in callspec.params.values() if isinstance(value, str)}
        if found := _only(values | set(callspec.id.split("-"))):
            return found
    if mark := item.get_closest_marker("store"):
        return str(mark.args[0])
    if not {*STORE_FIXTURES} & {*getattr(item, "fixturenames", ())}:
        return None
    # A line whose tests run on a store that nobody can name stays unproven: better than too much.
    return _only(set(re.findall("|".join(STORES), item.nodeid.lower()))) or UNKNOWN


def _only(names: set[str]) -> str | None:
    stores = names & STORES
    return stores.pop() if len(stores) == 1 else None


def _proof(kept: list[Any]) -> Proof:
    test, lines, store, has_passed = kept
    return Proof(test, tuple(map(_line, lines)), store, has_passed)


def _line(name: str) -> Line:
    prefix, _, number = name.partition("-")
    return Line(prefix, int(number))
