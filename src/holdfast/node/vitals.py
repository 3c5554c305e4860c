"""How a node is doing, told at each tick: its slots.  Its loop and its lease tell of themselves."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.dispatch.slots import FixedSlots
from holdfast.ids import NodeId
from holdfast.telemetry.events import Events, SlotsCounted


class Vitals:
    """Counts one node's slots, and says so to whoever listens."""

    def __init__(self, node: NodeId, *, events: Events) -> None:
        self.slots: Mapping[str, FixedSlots] = {}  # by mode
        self._node = node
        self._events = events

    @property
    def taken(self) -> dict[str, int]:
        """The slots that are booked now, by mode."""
        return {mode: one.taken for mode, one in self.slots.items()}

    def count(self) -> None:
        """Say how many slots are booked and free now."""
        counted = tuple(
            (mode, one.taken, max(0, one.slots_max - one.taken)) for mode, one in self.slots.items()
        )
        self._events.emit(SlotsCounted(self._node, counted))
