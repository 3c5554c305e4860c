"""What ended nodes were running is submitted again, also when it is found late."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from holdfast.bus import Bus
from holdfast.coordinator import Coordinator, View
from holdfast.ids import NodeId
from holdfast.node.lease import NodeLease
from holdfast.store import Store
from holdfast.telemetry.events import Events, TaskResumed

BATCH = 1_000
ORPHANS_S = 600.0  # between two looks for tasks whose node left no lease behind
LATE_LOOKS = 3  # at a node that is gone, each a lease after the other


class Departed:
    """Nodes that nobody sees any more, to be looked at a few times more.

    A request of a node may be carried out after its lease has ended and everything that it ran
    was resumed: the network, or the store, had it.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._seen: frozenset[NodeId] = frozenset()
        self._looks: dict[NodeId, list[float]] = {}  # when, the last first

    def see(self, nodes: frozenset[NodeId], now: float) -> None:
        """These are there now, alive or ended."""
        for node in self._seen - nodes:
            self._looks[node] = [now + n * self._lease_s for n in range(LATE_LOOKS, 0, -1)]
        for node in nodes & self._looks.keys():
            del self._looks[node]
        self._seen = nodes

    def due(self, now: float) -> list[NodeId]:
        """Those to look at now; each look is answered once."""
        found = [node for node, looks in self._looks.items() if looks[-1] <= now]
        for node in found:
            self._looks[node].pop()
            if not self._looks[node]:
                del self._looks[node]
        return found


class Resuming:
    """One node's part in it: every node does the same, and the store lets one of them win."""

    def __init__(
        self,
        node: NodeId,
        *,
        store: Store,
        bus: Bus,
        coordinator: Coordinator,
        lease: NodeLease,
        events: Events,
        lease_s: float,
        deliveries_max: int,
        now: float,
    ) -> None:
        self._node = node
        self._store = store
        self._bus = bus
        self._coordinator = coordinator
        self._lease = lease
        self._events = events
        self._deliveries_max = deliveries_max
        self._departed = Departed(lease_s)
        self._orphans_at = now

    async def see(self, view: View, now: float) -> None:
        """Resume what the ended ones ran, and forget them; look again at those that are gone."""
        self._departed.see(view.alive.union(view.ended), now)
        if not self._lease.holds():
            return
        if ended := [node for node in view.ended if node != self._node]:
            await self.resume(ended)
            if self._lease.holds():  # else there may be more of it
                await self._coordinator.forget(ended)
        await self.resume(self._departed.due(now))

    async def resume(self, nodes: Collection[NodeId]) -> None:
        """Submit again what others of these nodes ran, if the store agrees that they have ended."""
        others = sorted(node for node in nodes if node != self._node)
        while others and self._lease.holds():
            triggers = await self._store.resume_lost(
                others, deliveries_max=self._deliveries_max, limit=BATCH
            )
            for trigger in triggers:
                self._events.emit(TaskResumed(trigger.id, trigger.version))
            self._bus.publish(triggers)
            if len(triggers) < BATCH:
                break

    async def look_for_orphans(
        self, owned: Iterator[tuple[str, Sequence[int]]], now: float
    ) -> None:
        """Tasks of our partitions whose node left without an end; the store knows who lives."""
        if now - self._orphans_at < ORPHANS_S:
            return
        self._orphans_at = now
        for queue, partitions in owned:
            loaded = await self._store.load(queue, partitions)
            await self.resume({running.node for part in loaded for running in part.running})
