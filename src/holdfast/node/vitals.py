"""How a node is doing, told at each beat: its slots, its loop, its lease."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.clock import Clock
from holdfast.dispatch.slots import FixedSlots
from holdfast.ids import NodeId
from holdfast.telemetry.events import Events, LagMeasured, LeaseRenewed, SlotsCounted


class Vitals:
    """Measures one node, and says so to whoever listens."""

    def __init__(self, node: NodeId, *, lease_s: float | None, clock: Clock, events: Events):
        self.slots: Mapping[str, FixedSlots] = {}  # by mode
        self._node = node
        self._lease_s = lease_s  # None: this node has no lease
        self._clock = clock
        self._events = events
        self._asked_at: float | None = None  # the last renewal: the lease counts from the asking

    def slept(self, since: float, wanted_s: float) -> None:
        """The node slept from `since` on: what is above `wanted_s` is the lag of its loop."""
        lag_s = max(0.0, self._clock.seconds() - since - wanted_s)
        self._events.emit(LagMeasured(lag_s))

    def renewed(self, asked_at: float) -> None:
        """The lease was renewed; the asking began at `asked_at`."""
        before, self._asked_at = self._asked_at, asked_at
        if before is not None and self._lease_s is not None:
            margin_s = self._lease_s - (self._clock.seconds() - before)
            self._events.emit(LeaseRenewed(margin_s))

    def count(self) -> None:
        """Say how many slots are booked and free now."""
        counted = tuple(
            (mode, one.taken, max(0, one.slots_max - one.taken)) for mode, one in self.slots.items()
        )
        self._events.emit(SlotsCounted(self._node, counted))
