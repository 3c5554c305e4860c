"""A node in a process of its own, to be killed.  Its handlers leave rows that outlive it.

python node_process.py URL
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from holdfast import Holdfast, Retry
from holdfast.dispatch.limits import Limits

# Processes for suspects import this file under the second name, with the same arguments.
app = Holdfast(sys.argv[1] if __name__ in ("__main__", "__mp_main__") else None)

EFFECTS = "CREATE TABLE IF NOT EXISTS effect (number INTEGER NOT NULL, version INTEGER NOT NULL)"


@app.task(transactional=True, retry=Retry(attempts=3, delay=0.1))
async def pay(tx: Any, number: int) -> None:
    """The effect and the settle commit together."""
    if hasattr(tx, "fetch"):
        await tx.execute("INSERT INTO effect VALUES ($1, 0)", number)
    else:
        tx.execute("INSERT INTO effect VALUES (?, 0)", (number,))


@app.task
async def linger(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def main() -> None:
    limits = Limits(idle_wait_s=1.0)
    async with app.node(lease_s=2.0, tick_s=0.3, slots_async=100, limits=limits) as node:
        sys.stdout.write(f"ready {node.id}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
