"""Trials: which tests run which line, and which of them notice a mutant."""

from __future__ import annotations

import gc
import importlib.machinery
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from _pytest.runner import runtestprotocol

from mutation.mutants import Mutant, mutants_of

EXAMPLES_MAX = 12  # of one property
# Constants of test modules, so that a test takes moments.
FEWER = {"HISTORIES": 100, "LANE_HISTORIES": 100}
SLOW = (  # seconds each, and about what faster ones see too
    "test_counters_that_say_nothing_any_more_leave_memory",
    "test_in_all_small_histories_no_number_is_written_twice_and_none_is_skipped",
    "test_keys_that_are_alike_fare_alike[500-50000]",
    "test_keys_that_are_alike_fare_alike[50-1000]",
    "test_busy_keys_wait_and_the_many_gain[exact]",
    "grows_with_the_logarithm_of_kinds_and_triggers[arrival]",
    "grows_with_the_logarithm_of_kinds_and_triggers[fair]",
    "no_version_twice[sqlite]",
    "loses_no_acknowledged_write[model]",
    "loses_no_acknowledged_write[sqlite]",
    "test_arguments_and_results_of_tasks_are_checked_by_their_types",
)
PATIENCE = 5  # times as long as a test needs without a mutant ...
GRACE_S = 1.0  # ... and this; both of processor time, so that a busy machine changes nothing
WALL_S = 600.0  # for a mutant that waits for ever
FRESH_S = 60.0  # of processor time, for a mutant in a fresh interpreter
MEMORY_BYTES_MAX = 4 << 30
# With plain assertions no import is rewritten on its way, so that it can be a mutant's.
QUIET = ("-qq", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", "--tb=native")
NOT_IMPORTED = 99
SURVIVED, BROKEN = "survived", "cannot be put in place"
UNCHANGED = -1  # the number of the mutant that is none


class Fast:
    """A plugin of pytest: only fast tests, which do the same every time."""

    def __init__(self, only: Sequence[str] = ()) -> None:
        """With `only`, these tests in this order; words on the command line may be ambiguous."""
        self._only = {test: place for place, test in enumerate(only)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        items[:] = [item for item in items if is_fast(item)]
        if self._only:
            items[:] = [item for item in items if item.nodeid in self._only]
            items.sort(key=lambda item: self._only[item.nodeid])
        for plugin in config.pluginmanager.get_plugins():
            if hasattr(plugin, "complaints"):
                # To look for what a test left behind takes longer than most tests, and here
                # everything ends with its process.
                plugin.running = lambda: None
                plugin.complaints = lambda before, servers: []


class Trials(Fast):
    """The tests are run once, and then once more for every mutant."""

    def __init__(self, tests: Sequence[Path]) -> None:
        super().__init__()
        self._tests = tests
        self._modules: Mapping[str, tuple[Path, Sequence[str]]] = {}
        self._items: Sequence[pytest.Item] = ()
        self._took_s: list[float] = []
        self._runs: dict[tuple[str, int], set[int]] = defaultdict(set)  # path and line -> tests
        self._live: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        self._kills: Counter[tuple[str, int]] = Counter()  # by path and test
        self._scores: list[tuple[int, int]] = []
        self._survivors = False
        self._error = ""
        self._out = os.fdopen(os.dup(1), "w", buffering=1)  # beside what pytest captures

    def run(
        self, modules: Mapping[str, tuple[Path, Sequence[str]]], *, survivors: bool
    ) -> list[tuple[int, int]]:
        """Try the mutants of all modules; answers (killed, all) for each."""
        self._modules, self._survivors = modules, survivors
        ended = pytest.main([*QUIET, *map(str, self._tests)], plugins=[self])
        if ended not in (0, pytest.ExitCode.NO_TESTS_COLLECTED) or self._error:
            raise SystemExit(self._error or f"the tests cannot be collected: {ended}")
        return self._scores

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("not collected")
        self._items = session.items
        self._learn()
        if not self._error:
            mutants = {
                name: [one for one in mutants_of(path) if not some or one.function in some]
                for name, (path, some) in self._modules.items()
            }
            self._try_unchanged([one for found in mutants.values() for one in found])
            for name, found in mutants.items():
                self._try_module(name, found)
        return True

    def _learn(self) -> None:
        """Run each test once, and see which lines it runs."""
        import coverage  # only here: the rest is tested without it

        paths = {str(path) for path, _ in self._modules.values()}
        cover = coverage.Coverage(
            data_file=None, config_file=False, include=list(paths), messages=False
        )
        cover.start()
        for number, item in enumerate(self._items):
            cover.switch_context(str(number))
            began = time.process_time()
            if not passes(item):
                self._error = f"{item.nodeid} fails without any mutant"
                break
            self._took_s.append(time.process_time() - began)
        cover.stop()
        data = cover.get_data()
        for path in paths & data.measured_files():
            for line, contexts in data.contexts_by_lineno(path).items():
                self._runs[path, line] = {int(number) for number in contexts if number}
        gc.collect()
        for function in gc.get_objects():
            if isinstance(function, FunctionType) and function.__code__.co_filename in paths:
                self._live[key_of(function.__code__)].append(function)
        gc.freeze()  # the forked processes then share what is here

    def _try_module(self, name: str, mutants: Sequence[Mutant]) -> None:
        lived = [mutant for mutant in mutants if not self._is_killed(mutant)]
        killed = len(mutants) - len(lived)
        self._scores.append((killed, len(mutants)))
        percent = 100 * killed / max(len(mutants), 1)
        self._out.write(f"{name:22} {percent:5.1f} %  {killed:4} of {len(mutants):4} killed\n")
        for mutant in lived if self._survivors else ():
            told = "" if self._tests_of(mutant) else "  (no test runs it)"
            self._out.write(f"  {name}:{mutant}{told}\n")

    def _try_unchanged(self, mutants: Sequence[Mutant]) -> None:
        """A test that fails when it is run again would kill every mutant for nothing."""
        while (said := self._tried(None, self._used())).isdecimal():
            self._out.write(f"not used, fails when run twice: {self._items[int(said)].nodeid}\n")
            for found in self._runs.values():
                found.discard(int(said))
        assert said == SURVIVED, "without a mutant the tests do not end in time"
        paths = {mutant.path: None for mutant in mutants if not mutant.function}
        tests = sorted(set().union(*map(self._all_of, paths)))
        for path in list(paths)[:1]:
            assert not self._is_killed_afresh(path, UNCHANGED, tests), "they fail afresh"

    def _used(self) -> list[int]:
        return sorted(set().union(*self._runs.values()))

    def _tests_of(self, mutant: Mutant) -> list[int]:
        """The tests that may notice it."""
        path = str(mutant.path)
        if not mutant.function:  # what is set at import counts wherever the module is used
            return self._in_order(mutant.path, self._all_of(mutant.path))
        found = (self._runs.get((path, line), set()) for line in mutant.lines)
        return self._in_order(mutant.path, set().union(*found))

    def _all_of(self, path: Path) -> set[int]:
        """The tests of every file in which one runs the module: others may only look at it."""
        used = set().union(*(found for (at, _), found in self._runs.items() if at == str(path)))
        files = {self._items[n].path for n in used}
        return {n for n, item in enumerate(self._items) if item.path in files}

    def _in_order(self, path: Path, tests: Iterable[int]) -> list[int]:
        """Those first that are likely to notice it in little time."""
        return sorted(tests, key=lambda n: self._took_s[n] / (1 + self._kills[str(path), n]))

    def _is_killed(self, mutant: Mutant) -> bool:
        tests = self._tests_of(mutant)
        if not tests:
            return False
        if not mutant.function:
            return self._is_killed_afresh(mutant.path, mutant.number, tests)
        said = self._tried(mutant, tests)
        assert not said.startswith(BROKEN), f"{mutant.path}:{mutant}: {said}"
        if said.isdecimal():
            self._kills[str(mutant.path), int(said)] += 1
        return said != SURVIVED

    def _is_killed_afresh(self, path: Path, number: int, tests: Iterable[int]) -> bool:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(self._items[n].nodeid for n in tests))
            file.flush()
            done = subprocess.run(
                [sys.executable, "-m", "mutation", "--fresh", str(path), str(number), file.name],
                cwd=self._items[0].config.rootpath,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
        assert done.returncode != NOT_IMPORTED, f"{path} was not imported"
        return done.returncode != 0

    def _tried(self, mutant: Mutant | None, tests: Sequence[int]) -> str:
        """In a process of its own: the test that noticed the mutant; "" when it did not end."""
        reader, writer = os.pipe()
        if not (child := os.fork()):
            os.close(reader)
            self._play(mutant, tests, writer)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        return said

    def _play(self, mutant: Mutant | None, tests: Sequence[int], writer: int) -> None:
        """In the forked process: be the mutant, and say which test noticed it."""
        said = BROKEN
        try:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
            for code in codes(mutant.code()) if mutant else ():
                for function in self._live.get(key_of(code), ()):
                    function.__code__ = code
            said = ""
            noticed = next((n for n in tests if not self._passes_in_time(n)), None)
            said = SURVIVED if noticed is None else str(noticed)
        finally:
            os.write(writer, said.encode())
            os._exit(0)

    def _passes_in_time(self, number: int) -> bool:
        """Whether the test passes; the process ends when it takes too long."""
        signal.setitimer(signal.ITIMER_PROF, GRACE_S + PATIENCE * self._took_s[number])
        signal.setitimer(signal.ITIMER_REAL, WALL_S)
        return passes(self._items[number])


def is_fast(item: pytest.Item) -> bool:
    """Whether the test needs no server; it is then told to do the same every time, and little."""
    needs_server = any("postgres" in name for name in getattr(item, "fixturenames", ()))
    if needs_server or item.name.endswith(SLOW):
        return False
    for name, few in FEWER.items():
        if hasattr(item.module, name):
            setattr(item.module, name, few)
    from hypothesis import HealthCheck, Phase, settings  # before, pytest wants to import it itself

    function = item.obj
    if hasattr(function, "hypothesis"):
        function = getattr(function, "__func__", function)
        asked: settings = function._hypothesis_internal_use_settings
        function._hypothesis_internal_use_settings = settings(
            asked,
            max_examples=min(asked.max_examples, EXAMPLES_MAX),
            derandomize=True,
            database=None,
            deadline=None,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )
    return True


def passes(item: pytest.Item) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code of every function in it."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes(constant)


def key_of(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def fresh(path: Path, number: int, tests: Sequence[str]) -> int:
    """In a fresh interpreter: import the mutant in place of its module, and run the tests."""
    mutants = mutants_of(path)
    true_code = importlib.machinery.SourceFileLoader.get_code
    imported: list[str] = []

    def get_code(self: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
        if self.path != str(path):
            return true_code(self, name)
        imported.append(name)
        return true_code(self, name) if number == UNCHANGED else mutants[number].code()

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[assignment]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    signal.setitimer(signal.ITIMER_PROF, FRESH_S)
    files = {test.partition("::")[0] for test in tests}
    ended = int(pytest.main([*QUIET, "-x", *sorted(files)], plugins=[Fast(tests)]))
    return ended if imported else NOT_IMPORTED
