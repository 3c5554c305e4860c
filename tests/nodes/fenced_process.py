"""A node in a process that can talk to its database and to nobody else.

    python fenced_process.py URL

An audit hook refuses every other use of the network: no address is bound or listened on, and no
connection leads anywhere but to the database's port.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any
from urllib.parse import urlsplit

URL = urlsplit(sys.argv[1])
DATABASE = (URL.hostname, URL.port) if URL.hostname else None


def refuse_others(event: str, args: tuple[Any, ...]) -> None:
    if event == "socket.connect" and DATABASE is not None and tuple(args[1][:2]) == DATABASE:
        return
    if event in ("socket.bind", "socket.listen", "socket.connect", "socket.sendto"):
        sys.stdout.write(f"refused {event} {args[1:]}\n")
        sys.stdout.flush()
        raise PermissionError(f"{event}: nodes talk through the store, the bus and the coordinator")


async def main() -> None:
    from holdfast import Holdfast
    from holdfast.dispatch.limits import Limits

    app = Holdfast(sys.argv[1])

    @app.task
    async def who(pause_s: float) -> int:
        await asyncio.sleep(pause_s)
        return os.getpid()

    async with app.node(lease_s=1.0, tick_s=0.1, limits=Limits(idle_wait_s=0.5)) as node:
        sys.stdout.write(f"ready {node.id}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    sys.addaudithook(refuse_others)
    asyncio.run(main())
