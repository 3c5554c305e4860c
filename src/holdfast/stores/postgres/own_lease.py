"""One node's lease, for the renewer's process: by one connection, without pools or a loop to wait
in between."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.errors import StoreUnavailable
from holdfast.sql.query import Style, arguments, load, rendered
from holdfast.stores.postgres.direct import connector
from holdfast.stores.postgres.failures import DRIVER_ERRORS, failed, not_connected, place

PACKAGE = "holdfast.stores.postgres"
PATIENCE_PART = 3  # of the lease: a call that hangs must leave time for another


class PostgresOwnLease:
    """Plain calls, for one thread.

    Each is one explicit transaction, so that a pooler may stand in between.
    """

    def __init__(self, url: str, node: str, *, schema: str, lease_s: float) -> None:
        self._connect = connector(url, name="holdfast renewer")
        self._where = place(url)
        self._node = node
        self._schema = schema
        self._lease_s = lease_s
        self._runner = asyncio.Runner()
        self._connection: Any = None

    def prolong(self) -> bool:
        """Keep the lease for its length from now on; False: there is none."""
        return bool(self._run("prolong", {"node": self._node, "lease_s": self._lease_s}))

    def end(self) -> None:
        """Say that the node is dead: lease, partitions and duties are free from now on."""
        self._run("end_leases", {"nodes": [self._node]})

    def close(self) -> None:
        self._drop()
        self._runner.close()

    def _run(self, name: str, params: dict[str, Any]) -> list[Any]:
        # A connection that broke while nobody used it says so only now: that is no failure yet.
        is_fresh = self._connection is None
        try:
            return self._runner.run(self._once(name, params))
        except StoreUnavailable:
            if is_fresh:
                raise
        return self._runner.run(self._once(name, params))

    async def _once(self, name: str, params: dict[str, Any]) -> list[Any]:
        text, names = rendered(load(PACKAGE, name, self._schema), Style.DOLLAR)
        try:
            async with asyncio.timeout(self._lease_s / PATIENCE_PART):
                if self._connection is None:
                    self._connection = await self._connect()
                async with self._connection.transaction():
                    rows: list[Any] = await self._connection.fetch(text, *arguments(names, params))
                    return rows
        except DRIVER_ERRORS as error:
            is_connected = self._connection is not None
            self._drop()
            if not is_connected:
                raise not_connected(error, self._where) from error
            known = failed(error, self._where, may_have_happened=False, repeat_is_safe=True)
            raise known or error from error

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
