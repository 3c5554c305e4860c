"""A node in a process of its own with a schedule in its code, to be killed.

python schedule_process.py URL EVERY_S
"""

from __future__ import annotations

import asyncio
import sys

from holdfast import Every, Holdfast
from holdfast.dispatch.limits import Limits

app = Holdfast(sys.argv[1] if __name__ == "__main__" else None)


@app.task
async def tick() -> None: ...


async def main() -> None:
    tick.schedule("often", Every(float(sys.argv[2]), catch_up="all"))
    async with app.node(lease_s=2.0, tick_s=0.3, limits=Limits(idle_wait_s=1.0)):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
