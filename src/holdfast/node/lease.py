"""A node's own lease: what it believes of it, who renews it, and what it says when in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from holdfast.clock import Clock
from holdfast.ids import NodeId
from holdfast.node.renewal import Order, Report
from holdfast.node.renewer import Renewer
from holdfast.node.trust import Trust
from holdfast.telemetry.events import (
    Events,
    LeaseDoubtful,
    LeaseEnded,
    LeaseLost,
    LeaseRegained,
    LeaseRenewed,
)

NEWS_S = 0.05
LONGEST_S = 3600.0  # a rest that nothing ends but news


class NodeLease:
    """Whether this node may act.

    Renewed by the node's beat and, when there is an order for one, by a renewer; `went_on` is
    called when the node may act again.  While it may not, what runs goes on: the versions in the
    store decide whose outcome counts.
    """

    def __init__(
        self,
        node: NodeId,
        trust: Trust,
        *,
        order: Order | None,
        clock: Clock,
        events: Events,
        went_on: Callable[[], None],
    ) -> None:
        self._node = node
        self._trust = trust
        self._clock = clock
        self._events = events
        self._went_on = went_on
        self._renewer = None
        if order is not None:
            self._renewer = Renewer(order, heard=self._hear, clock=clock, events=events)
        self._changed = asyncio.Event()
        self._doubted_at: float | None = None
        self._ended: set[NodeId] = set()

    @property
    def renewer_pid(self) -> int | None:
        return None if self._renewer is None else self._renewer.pid

    def holds(self) -> bool:
        return self._trust.holds(self._clock.seconds())

    def renewed(self, asked_at: float) -> None:
        """A renewal succeeded that was asked for at this reading of the clock."""
        held, until = self.holds(), self._trust.until
        margin_s = self._trust.renewed(asked_at)
        if margin_s == 0:  # it had ended: we stood still, and hear of it by its renewal
            self._doubt(until)
        if margin_s is not None:
            self._events.emit(LeaseRenewed(margin_s))
        self._changed.set()
        if held or not self.holds():
            return
        if self._doubted_at is not None:
            for_s = self._clock.seconds() - self._doubted_at
            self._doubted_at = None
            self._events.emit(LeaseRegained(self._node, for_s))
        self._went_on()

    def see(self, ended: Collection[NodeId]) -> None:
        """Tell of others whose leases have ended: once, though they are seen until resumed."""
        for node in set(ended) - self._ended:
            self._events.emit(LeaseEnded(node))
        self._ended = set(ended)

    async def keep(self) -> None:
        """Watch over the lease, and over its renewer, until we are cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(), name="holdfast trust")
            if self._renewer is not None:
                group.create_task(self._renewer.keep(), name="holdfast renewer")

    async def _watch(self) -> None:
        while True:
            self._changed.clear()
            if not self.holds():
                # After a pause of ours, what the renewer wrote meanwhile is still to be read.
                await asyncio.sleep(NEWS_S)
                if not self.holds():
                    self._doubt(self._trust.until)
            left_s = self._trust.until - self._clock.seconds()
            try:
                async with asyncio.timeout(left_s if 0 < left_s < LONGEST_S else LONGEST_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _doubt(self, since: float) -> None:
        if self._doubted_at is None:
            self._doubted_at = since
            self._events.emit(LeaseDoubtful(self._node))

    def _hear(self, report: Report) -> None:
        if report.what == "renewed":
            self.renewed(report.asked_at)
        elif report.what == "gone" and self._trust.lost(report.asked_at):
            if self._doubted_at is None:
                self._doubted_at = self._clock.seconds()
            self._events.emit(LeaseLost(self._node))
