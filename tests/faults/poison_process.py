"""A node in a process of its own, whose handlers end it.

python poison_process.py URL
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import sys
import threading
from pathlib import Path

from holdfast import Holdfast
from holdfast.dispatch.limits import Limits

app = Holdfast(sys.argv[1])  # a process for suspects is started with the same arguments

NEIGHBOURS = 20
ROOM_BYTES = 200 << 20  # of address space that a memory hog leaves itself
IS_ALONE = __name__ != "__main__"

begun: list[int] = []
struck = threading.Event()


@app.task
async def on_the_loop(number: int) -> None:
    await beside_the_culprit([number])


@app.task
def in_a_thread(number: int) -> None:
    begun.append(number)
    if not IS_ALONE:
        struck.wait()


@app.batch_task(max=10)
async def in_a_batch(numbers: list[int]) -> None:
    assert not IS_ALONE or len(numbers) == 1
    await beside_the_culprit(numbers)


@app.task
async def poison(how: str) -> None:
    """Strikes when all its neighbours run."""
    while not IS_ALONE and len(begun) < NEIGHBOURS:
        await asyncio.sleep(0.01)
    struck.set()
    strike(how)


@app.task(time_limit=0.5)
def endless() -> None:
    while not IS_ALONE and len(begun) < NEIGHBOURS:
        threading.Event().wait(0.01)
    struck.set()
    threading.Event().wait()


class Deep:
    def __repr__(self) -> str:
        return repr(self)


def strike(how: str) -> None:
    match how:
        case "exit":
            sys.stderr.write("cannot go on, see postgresql://app:secret@db/app\n")
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
        case "killed":
            kept = b"x" * (300 << 20)
            os.kill(os.getpid(), signal.SIGKILL + 0 * len(kept))
        case "stack":
            sys.setrecursionlimit(10**8)
            repr(Deep())
        case "recursion":
            repr(Deep())
        case "memory":
            in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (in_use + ROOM_BYTES,) * 2)
            parts = []
            while True:
                parts.append(bytearray(1 << 20))


async def beside_the_culprit(numbers: list[int]) -> None:
    begun.extend(numbers)
    while not IS_ALONE and not struck.is_set():
        await asyncio.sleep(0.01)


async def main() -> None:
    limits = Limits(idle_wait_s=1.0)
    async with app.node(lease_s=2.0, tick_s=0.3, limits=limits) as node:
        sys.stdout.write(f"ready {node.id}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
