"""The handlers of a simulated program.  What an attempt does, its arguments say.

All simulated processes share them: by its context an attempt knows the process that it runs in.
"""

from __future__ import annotations

import asyncio
from functools import cache

from holdfast.app import Holdfast
from holdfast.config import Config
from holdfast.handler import Handler
from holdfast.outcomes import Again, Later
from holdfast.policy import Deadline, Retry
from holdfast.simulation.world import here
from holdfast.worker.context import current_task

QUEUES = ("work", "other")
STUCK_S = 1_000.0
CONFIG = Config(url="sqlite:///:memory:")  # named, never opened


class Failed(Exception):
    """What a handler raises that was told to fail."""


async def act(takes_s: float) -> None:
    """Be an attempt of this length, and let the history know."""
    process = here()
    assert process is not None, "a handler runs in a process"
    task = current_task()
    process.tell("start", task=task.id, version=task.version, node=process.node)
    await asyncio.sleep(takes_s)
    process.tell("end", task=task.id, version=task.version, node=process.node)


@cache
def handlers() -> tuple[Handler, ...]:
    """Every kind, made once: a signature is slow to read."""
    app = Holdfast(config=CONFIG)

    @app.task(queue="work")
    async def plain(takes_s: float) -> None:
        await act(takes_s)

    @app.task(queue="work", retry=Retry(attempts=3, delay=0.5))
    async def failing(takes_s: float, failures: int) -> None:
        await act(takes_s)
        if current_task().attempt <= failures:
            raise Failed

    @app.task(queue="work")
    async def repeating(takes_s: float, times: int, delay_s: float) -> Again | None:
        await act(takes_s)
        return Again(delay_s) if current_task().deliveries <= times else None

    @app.task(queue="other", transactional=True, retry=Retry(attempts=2, delay=0.2))
    async def transactional(connection: object, takes_s: float, failures: int) -> None:
        await act(takes_s)
        if current_task().attempt <= failures:
            raise Failed

    @app.task(queue="other")
    async def later(takes_s: float) -> Later[None]:
        await act(0.0)
        report: Later[None] = Later()
        asyncio.get_running_loop().call_later(takes_s, report.done)
        return report

    @app.task(queue="other", deadline=Deadline(4.0, stuck="retry"))
    async def stuck(times: int) -> None:
        await act(STUCK_S if current_task().deliveries <= times else 0.0)

    @app.task(queue="other", time_limit=1.0, retry=Retry(attempts=2, delay=0.1))
    async def limited(takes_s: float) -> None:
        await act(takes_s)

    @app.batch_task(max=5, queue="work", retry=Retry(attempts=2, delay=0.2))
    async def batched(requests: list[str]) -> None:
        process = here()
        assert process is not None
        process.tell("batch", requests=requests, node=process.node)
        await asyncio.sleep(0.05)

    return tuple(app.registry)
