"""One node's lease in the lease file, for the renewer's process: the main file is never opened."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.ids import NodeId
from holdfast.stores.sqlite.leases import LeaseFile
from holdfast.stores.sqlite.rows import micros


class SQLiteOwnLease:
    """Plain calls, for one thread."""

    def __init__(self, path: str, node: str, *, lease_s: float, clock: Clock) -> None:
        self._file = LeaseFile(f"{path}-leases")
        self._node = NodeId(node)
        self._lease_s = lease_s
        self._clock = clock

    def prolong(self) -> bool:
        """Keep the lease for its length from now on; False: there is none."""
        return self._file.prolong(self._node, self._now(), lease_s=self._lease_s)

    def end(self) -> None:
        """Say that the node is dead: what it owned follows from the end of its lease."""
        self._file.end([self._node], self._now())

    def close(self) -> None:
        self._file.close()

    def _now(self) -> int:
        return micros(self._clock.now())
