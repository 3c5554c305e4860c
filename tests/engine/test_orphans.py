"""When a node is killed, its pool processes do not outlive it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

from holdfast.testing.processes import until

PROGRAM = """
import asyncio

from engine import in_processes
from holdfast.testing.build import a_grabbed
from holdfast.worker.processes import ProcessPool

async def main():
    pool = ProcessPool(1)
    handler = in_processes.pid.handler
    await pool.run(a_grabbed(kind="pid", payload=handler.arguments.seal((), {})), handler)
    print(pool.pids[0], flush=True)
    await asyncio.Event().wait()

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_pool_process_ends_when_its_node_is_killed(tmp_path):
    assert_child_goes(tmp_path, PROGRAM)


BUSY = """
import asyncio

from engine import in_processes
from holdfast.testing.build import a_grabbed
from holdfast.worker.processes import ProcessPool

async def main():
    pool = ProcessPool(1)
    handler = in_processes.hang.handler
    task = a_grabbed(kind="hang", payload=handler.arguments.seal((), {}))
    await pool.answer(task, handler, started=lambda: print(pool.pids[0], flush=True))

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_pool_process_ends_with_its_node_in_the_middle_of_an_attempt(tmp_path):
    assert_child_goes(tmp_path, BUSY)


def assert_child_goes(tmp_path, source):
    """Kill a program that has told the pid of its child."""
    program = tmp_path / "node.py"
    program.write_text(source)
    paths = [str(Path(__file__).parents[1]), *filter(None, sys.path)]
    with subprocess.Popen(
        [sys.executable, str(program)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(paths), "PATH": ""},
    ) as node:
        child = psutil.Process(int(node.stdout.readline()))
        assert child.is_running()

        node.kill()
        node.wait(10)

    until(lambda: not child.is_running(), 10.0, lambda: f"still there: {child}")
