"""A queue as people steer it while nodes run: limits, pauses, weights.

    billing = app.queue("billing")
    await billing.limit("total", concurrency=30)
    await billing.limit("payouts", concurrency=15, kind="payout")
    await billing.limit("partner", concurrency=3, kind="payout", key="*")
    await billing.weight("acme", 5.0)
    await billing.pause(key="bolt")

Everything is kept in the store and holds for all nodes, within a second.  Whoever dies in the
middle of a call has changed all of it or nothing; calling again does no harm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.errors import ConfigurationError
from holdfast.limit import ALL_KEYS, BURST_S, FAIRNESS, PAUSED_PARTITION, Limit, Mode, Rules
from holdfast.store import Store

PAUSE = "pause"


class Queue:
    """What can be changed of one queue at run time."""

    def __init__(self, name: str, store: Callable[[], Awaitable[Store]]) -> None:
        self.name = name
        self._store = store

    async def rules(self) -> Rules:
        """The limits and weights that are set now."""
        return await (await self._store()).rules(self.name)

    async def limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: float | None = None,
        kind: str | None = None,
        key: str | None = None,
        burst: float = BURST_S,
        local: bool = False,
    ) -> None:
        """Set the limit of this name; see `holdfast.Limit`.  It replaces the one before."""
        found = Limit(
            name=name,
            queue=self.name,
            concurrency=concurrency,
            rate=rate,
            kind=kind,
            key=key,
            burst=burst,
            local=local,
        )
        await (await self._store()).change_rules(self.name, limits=[found])

    async def drop_limit(self, name: str) -> None:
        """Take a limit away.  One that does not exist is no error."""
        await (await self._store()).change_rules(self.name, dropped=[name])

    async def pause(
        self, *, kind: str | None = None, key: str | None = None, partition: int | None = None
    ) -> None:
        """Start nothing more of the queue, or of a kind, a fairness key or a partition of it.

        What runs goes on.  Tasks of a paused partition that wait for a time stay WAITING.
        """
        name = await self._pause_name(kind, key, partition)
        await self.limit(name, concurrency=0, kind=kind, key=key)

    async def resume(
        self, *, kind: str | None = None, key: str | None = None, partition: int | None = None
    ) -> None:
        """Undo the pause with the same words."""
        await self.drop_limit(await self._pause_name(kind, key, partition))

    async def _pause_name(self, kind: str | None, key: str | None, partition: int | None) -> str:
        if partition is None:
            return pause_name(kind, key)
        if kind is not None or key is not None:
            raise ConfigurationError("a partition is paused as a whole: leave out kind and key")
        count = (await self._store()).partitions
        if not 0 <= partition < count:
            raise ConfigurationError(
                f"queue {self.name!r} has the partitions 0 to {count - 1}, not {partition}"
            )
        return f"{PAUSED_PARTITION}{partition}"

    async def fairness(self, mode: Mode) -> None:
        """How fairness keys are charged for their turns, whatever waits already.

        "count": one a task.  "cost": by the measured run time of their handlers, so that slow
        tasks do not take more than their share of the workers.  "off": first come, first served.
        What waits when the queue is switched to or from "off" goes first, in its old order.
        """
        if mode not in FAIRNESS:
            raise ConfigurationError(f"fairness is one of {', '.join(FAIRNESS)}, not {mode!r}")
        await (await self._store()).change_rules(self.name, fairness=mode)

    async def weight(self, key: str, weight: float | None) -> None:
        """Set the weight of a fairness key, whatever its tasks say; None takes it away.

        It counts for triggers that reach the backlog from now on.
        """
        await (await self._store()).change_rules(self.name, weights={key: weight})


def pause_name(kind: str | None, key: str | None) -> str:
    """The name under which a pause is kept: one for each kind and key."""
    words = [PAUSE, *([f"kind {kind}"] if kind else []), *([f"key {key}"] if key else [])]
    return " ".join(words)


def is_pause(limit: Limit) -> bool:
    key = None if limit.key == ALL_KEYS else limit.key
    names = (pause_name(limit.kind, key), f"{PAUSED_PARTITION}{limit.paused_partition}")
    return limit.pauses and limit.name in names
