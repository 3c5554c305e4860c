"""Connections outside of the pool, for whoever must not compete with the engine for one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

CONNECT_S_MAX = 10.0


def connector(url: str, *, name: str) -> Callable[[], Awaitable[Any]]:
    """A factory of plain connections that show up under `name` in pg_stat_activity.

    Without a statement cache, so that they also work through a pooler.
    """

    async def connect() -> Any:
        return await asyncpg.connect(
            url,
            timeout=CONNECT_S_MAX,
            statement_cache_size=0,
            server_settings={"application_name": name},
        )

    return connect
