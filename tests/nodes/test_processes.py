"""Nodes in processes of their own: nothing is between them but the store, bus and coordinator."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from holdfast import Holdfast
from holdfast.testing.apps import opened

CHILD = Path(__file__).with_name("fenced_process.py")
Process = asyncio.subprocess.Process


@asynccontextmanager
async def nodes(url: str, count: int) -> AsyncIterator[list[Process]]:
    made: list[Process] = []
    try:
        for _ in range(count):
            pipe = asyncio.subprocess.PIPE
            made.append(
                await asyncio.create_subprocess_exec(sys.executable, str(CHILD), url, stdout=pipe)
            )
        for node in made:
            assert node.stdout is not None
            line = await asyncio.wait_for(node.stdout.readline(), 30)
            assert line.startswith(b"ready"), line
        yield made
    finally:
        for node in made:
            if node.returncode is None:
                node.kill()
            await node.communicate()


def connections(node: Process) -> list[tuple[str, int | None]]:
    """State and remote port of every network connection that the process has."""
    found = psutil.Process(node.pid).net_connections(kind="inet")
    return [(one.status, one.raddr.port if one.raddr else None) for one in found]


@pytest.mark.req("TASK-64")
async def test_with_all_traffic_between_nodes_blocked_everything_works(store_url):
    app = Holdfast(store_url)

    @app.task
    async def who(pause_s: float) -> int:
        return 0

    async def ran_by(count: int) -> set[int]:
        handles = await who.enqueue_many([(0.02,)] * count)
        return set(await asyncio.gather(*(handle.result(timeout=20) for handle in handles)))

    async with opened(app), nodes(store_url, 3) as fleet:
        pids = {node.pid for node in fleet}
        async with asyncio.timeout(20):
            while await ran_by(64) != pids:  # until the partitions are shared
                await asyncio.sleep(0.05)
        seen = [one for node in fleet for one in connections(node)]

        fleet[0].kill()  # what it was running, and its partitions, go to the others
        await fleet[0].wait()
        rest = await ran_by(64)

        assert rest == pids - {fleet[0].pid}
        assert set(seen) <= {("ESTABLISHED", urlsplit(store_url).port)}
        assert bool(seen) is (urlsplit(store_url).port is not None)
