"""A node in a process of its own, to be held up, stopped and killed; it logs to stdout as JSON.

python leased_process.py URL SETTINGS_AS_JSON
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
import time

from holdfast import Holdfast
from holdfast.dispatch.limits import Limits
from holdfast.telemetry.logs import LOGGER, JsonFormatter

app = Holdfast(sys.argv[1] if __name__ == "__main__" else None)


@app.task
async def crunch(seconds: float) -> None:
    """Holds the interpreter in one call into C."""
    size, began = 20_000_000, time.thread_time()
    sum(range(size))
    sum(range(int(size * seconds / (time.thread_time() - began))))


@app.task
def backtrack(seconds: float) -> None:
    """The same in a thread: the time grows with the fourth power of the text's length."""
    size, began = 200, time.thread_time()
    re.match("a*a*a*a*c", "a" * size)
    ratio = seconds / (time.thread_time() - began)
    re.match("a*a*a*a*c", "a" * int(size * ratio**0.25))


@app.task
async def stubborn(seconds: float) -> None:
    """Cannot be stopped: what it did is told, whoever has its task by then."""
    ends_at = time.monotonic() + seconds
    while (left_s := ends_at - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left_s)
        except asyncio.CancelledError:
            continue


@app.task
async def fork(seconds: float) -> None:
    """Leaves a process behind that holds every pipe of ours open."""
    if os.fork() == 0:
        os.close(sys.stdout.fileno())  # but for this one, which the test reads to its end
        time.sleep(seconds)  # noqa: ASYNC251
        os._exit(0)
    await asyncio.Event().wait()


async def main() -> None:
    settings = {"limits": Limits(idle_wait_s=0.5), "renewer": "process"} | json.loads(sys.argv[2])
    async with app.node(**settings) as node:
        sys.stdout.write(json.dumps({"ready": node.id}) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    asyncio.run(main())
