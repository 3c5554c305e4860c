"""What a test leaves behind fails that test, not the next one."""

from __future__ import annotations

import pytest

LEAKY = {
    "asyncio tasks left": """
import asyncio
left = []
async def test_it():
    left.append(asyncio.create_task(asyncio.sleep(30)))
""",
    "left behind: child process": """
import subprocess
left = []
def test_it():
    left.append(subprocess.Popen(["sleep", "30"]))
def test_end():
    left[0].kill()
    left[0].wait()
""",
    "left behind: thread": """
import threading
stop = threading.Event()
def test_it():
    threading.Thread(target=stop.wait, name="forgotten").start()
def test_end():
    stop.set()
""",
}
SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
addopts = -p no:hypothesispytest
"""
CONFTEST = """
import leaks, pytest
from leaks import no_task_left
def pytest_collection_modifyitems(items): leaks.watch_tasks(items)
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item): item.before = leaks.running()
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    yield
    left = leaks.complaints(item.before, ())
    assert not left, "left behind: " + "; ".join(left)
"""


@pytest.mark.parametrize("complaint", LEAKY)
def test_what_a_test_leaves_behind_fails_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, complaint: str
):
    monkeypatch.setattr("leaks.GRACE_S", 0.05)
    pytester.makefile(".ini", pytest=SETTINGS)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(LEAKY[complaint])

    result = pytester.runpytest_inprocess()

    assert result.parseoutcomes()["errors"] == 1
    result.stdout.fnmatch_lines([f"*{complaint}*"])
