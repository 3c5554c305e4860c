"""FastAPI and Starlette: the store opens and closes with the program, and a node may run in it.

    api = FastAPI(lifespan=lifespan(holdfast))

Neither is imported here: a lifespan is a function of the program that is started.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from holdfast.app import Holdfast

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def lifespan(
    holdfast: Holdfast,
    *,
    node: bool = True,
    queues: str | Sequence[str] | None = None,
    around: Lifespan | None = None,
    **settings: Any,
) -> Lifespan:
    """What `FastAPI(lifespan=…)` takes: the store is open while the program serves requests.

    With `node` the program also runs tasks, of all queues unless some are named; `settings` are
    fields of NodeSettings.  At the end running attempts finish first, for at most `drain_s`.
    `around` is a lifespan of your own: it begins before and ends after, and its state is kept.
    """

    @asynccontextmanager
    async def living(api: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            state = None if around is None else await stack.enter_async_context(around(api))
            # Last of ours: what sync endpoints have opened on the portal.
            stack.push_async_callback(asyncio.to_thread, holdfast.close_sync)
            await stack.enter_async_context(holdfast)
            if node:
                await stack.enter_async_context(holdfast.node(queues, **settings))
            yield state

    return living
