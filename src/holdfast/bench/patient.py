"""The app of workers that are killed: each attempt leaves a line when it starts and when it ends.

`HOLDFAST_URL` and `HOLDFAST_SCHEMA` say where the tasks are, `HOLDFAST_BENCH_DIARY` where the lines
go: `start 12 3 1 345.678 4711 4700` names the task, its version and delivery, the machine's
monotonic clock, the process and its parent (a suspect runs in a child of its node).  A line is one
small write to the end of the file, so it is whole whoever else writes, and survives its writer.
"""

from __future__ import annotations

import asyncio
import os

from holdfast.app import Holdfast
from holdfast.bench.load import QUEUE
from holdfast.bench.workers import DIARY
from holdfast.clock import SystemClock
from holdfast.worker.context import current_task

WORK_S = 0.1

app = Holdfast()
_clock = SystemClock()


@app.task(name="work", queue=QUEUE)
async def work(number: int, seconds: float = WORK_S) -> None:
    note("start")
    await asyncio.sleep(seconds)
    note("end")


def note(what: str) -> None:
    """Write a line about the current attempt."""
    task = current_task()
    at = f"{task.version} {task.deliveries} {_clock.seconds():.6f}"
    line = f"{what} {task.id} {at} {os.getpid()} {os.getppid()}\n"
    diary = os.open(os.environ[DIARY], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(diary, line.encode())
    finally:
        os.close(diary)
