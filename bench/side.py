"""The side of a peer: runs in the peer's own environment, with nothing but the standard library.

    python -c "import side; side.main()" celery_peer
        setup | versions | work | enqueue single|concurrent|bulk COUNT SECONDS | latency COUNT

An adapter names its queue's own verbs (`PEER`).  Everything that is measured is
measured here, in the same way for all: the tasks carry a number, a handler notes number and time in
the diary (`ran`), and the producer notes when it began and ended.  All clocks are the machine's
monotonic one.  `QUEUE_URL` says where the tasks are kept, `QUEUE_DIARY` where the notes go.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from struct import Struct
from typing import Any

PAYLOAD_BYTES = 100
NUMBER_DIGITS = 12
CALLERS = 50  # enqueue at once, where the client is asynchronous
THREADS = 16  # ... and where it is not
BULK = 1_000
LATENCY_GAP_S = 0.03
NOTE = Struct("<qd")  # number, seconds

URL = os.environ.get("QUEUE_URL", "")
DIARY = os.environ.get("QUEUE_DIARY", "")
SLOTS = int(os.environ.get("QUEUE_SLOTS", "100"))  # at once, where the peer takes a number


@dataclass(frozen=True)
class Peer:
    """What a queue can do, in its own words; each function may be async.

    `one` returns when the queue has taken the task over, `many` takes up to `BULK` at once.
    """

    packages: Sequence[str]
    setup: Callable[[], Any]
    one: Callable[[str], Any]
    work: Callable[[], Any]
    many: Callable[[list[str]], Any] | None = None
    opened: Callable[[], Any] | None = None  # the client, before the first enqueue
    closed: Callable[[], Any] | None = None


def payload(number: int) -> str:
    return f"{number:0{NUMBER_DIGITS}}".ljust(PAYLOAD_BYTES, "x")


_diary: int | None = None


def ran(text: str) -> None:
    """The handler's whole work: a note of which task it was, and when."""
    global _diary
    if _diary is None:
        _diary = os.open(DIARY, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(_diary, NOTE.pack(int(text[:NUMBER_DIGITS]), time.monotonic()))


def become(*command: str, **environment: str) -> None:
    """Go on as this command of the peer, in the folder of the adapters."""
    program = os.path.join(os.path.dirname(sys.executable), command[0])
    os.execve(program, [program, *command[1:]], {**os.environ, **environment})


def main() -> None:
    """Do what the command line says, and print what was measured as JSON."""
    adapter, *words = sys.argv[1:]
    peer: Peer = importlib.import_module(adapter).PEER
    match words:
        case ["versions"]:
            _say({name: version(name) for name in peer.packages})
        case ["setup"]:
            _run(peer.setup)
        case ["work"]:
            _run(peer.work)
        case ["enqueue", how, many, seconds]:
            asyncio.run(_enqueue(peer, how, int(many), float(seconds)))
        case ["latency", many]:
            asyncio.run(_latency(peer, int(many)))
        case _:
            raise SystemExit(f"unknown: {words}")


def _run(verb: Callable[[], Any]) -> None:
    if inspect.iscoroutinefunction(verb):
        asyncio.run(verb())
    else:
        verb()


async def _call(verb: Callable[..., Any] | None, *args: Any) -> None:
    if verb is not None and inspect.isawaitable(found := verb(*args)):
        await found


async def _enqueue(peer: Peer, how: str, many: int, seconds: float) -> None:
    await _call(peer.opened)
    began = time.monotonic()
    numbers = _until(began + seconds, count(), many)
    if how == "bulk":
        added = await _bulk(peer, many, began + seconds)
    elif how == "single":
        added = await _one_by_one(peer.one, numbers)
    elif inspect.iscoroutinefunction(peer.one):
        callers = (_one_by_one(peer.one, numbers) for _ in range(CALLERS))
        added = sum(await asyncio.gather(*callers))
    else:
        added = _by_threads(peer.one, numbers)
    took_s = time.monotonic() - began
    await _call(peer.closed)
    _say({"added": added, "took_s": took_s, "began": began})


def _until(end: float, numbers: Iterator[int], many: int) -> Iterator[int]:
    """Numbers for whoever asks, each once; no more after `many`, or after the end."""
    for number in numbers:
        if number >= many or time.monotonic() >= end:
            return
        yield number


async def _one_by_one(one: Callable[[str], Any], numbers: Iterator[int]) -> int:
    added = 0
    for number in numbers:
        found = one(payload(number))
        if inspect.isawaitable(found):
            await found
        added += 1
    return added


def _by_threads(one: Callable[[str], Any], numbers: Iterator[int]) -> int:
    added, taking = [0] * THREADS, threading.Lock()

    def caller(index: int) -> None:
        while True:
            with taking:
                number = next(numbers, None)
            if number is None:
                return
            one(payload(number))
            added[index] += 1

    threads = [threading.Thread(target=caller, args=(index,)) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(added)


async def _bulk(peer: Peer, many: int, end: float) -> int:
    added = 0
    while added < many and time.monotonic() < end:
        numbers = range(added, min(added + BULK, many))
        await _call(peer.many, [payload(number) for number in numbers])
        added += len(numbers)
    return added


async def _latency(peer: Peer, many: int) -> None:
    """One task at a time, each after the one before has had time to end."""
    await _call(peer.opened)
    called = []
    for number in range(many):
        await asyncio.sleep(LATENCY_GAP_S)
        called.append(time.monotonic())
        await _call(peer.one, payload(number))
    returned = time.monotonic()
    await _call(peer.closed)
    _say({"called": called, "returned": returned})


def _say(found: dict[str, Any]) -> None:
    print(json.dumps(found), flush=True)
