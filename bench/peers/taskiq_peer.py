"""taskiq on Redis streams, which acknowledge."""

from __future__ import annotations

from taskiq_redis import RedisStreamBroker

import side

broker = RedisStreamBroker(url=side.URL)


@broker.task(task_name="noop")
async def noop(text: str) -> None:
    side.ran(text)


async def setup() -> None:
    await broker.startup()
    await broker.shutdown()


async def one(text: str) -> None:
    await noop.kiq(text)


def work() -> None:
    side.become("taskiq", "worker", "taskiq_peer:broker", "--log-level", "WARNING")


PEER = side.Peer(
    packages=["taskiq", "taskiq-redis", "redis"],
    setup=setup,
    opened=broker.startup,
    one=one,
    closed=broker.shutdown,
    work=work,
)
