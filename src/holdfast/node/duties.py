"""A node's part in what is done for all of them: its roster, and the hints that wake a duty."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

from holdfast.bus import Bus
from holdfast.clock import Clock
from holdfast.coordinator import Coordinator, View
from holdfast.duties.cleaner import Cleaner
from holdfast.duties.duty import Duty
from holdfast.duties.resumer import Plan, Resumer
from holdfast.duties.roster import Roster
from holdfast.duties.scheduler import Scheduler
from holdfast.duties.waker import Waker
from holdfast.duties.watcher import Watcher
from holdfast.handler import Registry
from holdfast.ids import NodeId
from holdfast.node.settings import NodeSettings
from holdfast.store import Store
from holdfast.task import Trigger
from holdfast.telemetry.events import Events, ScheduleChanged


def plans(registry: Registry) -> dict[str, Any]:
    """What is to become of overdue tasks, by kind, for the resumer on whichever node; see there."""
    asked = {h.kind: Plan(h.deadline.stuck, h.deadline.seconds) for h in registry}
    return {kind: list(plan) for kind, plan in asked.items() if plan.stuck != Plan().stuck}


class NodeDuties:
    """The duties of one node, as its settings want them.  With `duties=False` there are none."""

    def __init__(
        self,
        node: NodeId,
        store: Store,
        bus: Bus,
        *,
        coordinator: Coordinator,
        settings: NodeSettings,
        clock: Clock,
        events: Events,
        may_act: Callable[[], bool],
    ) -> None:
        self._events = events
        self._served: Collection[str] = ()
        self._stop_hearing: Callable[[], None] = lambda: None
        self._waker = Waker(
            store, publish=bus.publish, clock=clock, poll_s=settings.limits.idle_wait_s
        )
        self._scheduler = Scheduler(
            store, publish=bus.publish, partitions=store.partitions, clock=clock, events=events
        )
        resumer = Resumer(
            store,
            publish=bus.publish,
            clock=clock,
            events=events,
            deliveries_max=settings.deliveries_max,
            submitted_s=settings.submitted_deadline_s,
            unknown_queue_s=settings.unknown_kind_wait_s,
            every_s=settings.resume_every_s,
        )
        duties: list[Duty] = [
            self._waker,
            self._scheduler,
            resumer,
            Cleaner(store, settings.retention),
        ]
        duties.append(self._make_watcher(node, store, settings, clock))
        self._roster = Roster(
            node,
            duties if settings.duties else (),
            coordinator=coordinator,
            clock=clock,
            events=events,
            tick_s=settings.tick_s,
            spacing=settings.spacing,
            may_act=may_act,
        )

    def _make_watcher(
        self, node: NodeId, store: Store, settings: NodeSettings, clock: Clock
    ) -> Watcher:
        return Watcher(
            store,
            node,
            served=lambda: self._served,
            clock=clock,
            events=self._events,
            every_s=settings.watch_every_s,
            stuck_s=settings.stuck_alert_s,
        )

    @property
    def kept(self) -> list[str]:
        """Those that this node keeps now, as far as it knows."""
        return self._roster.kept

    def listen(self) -> None:
        """From now on a schedule that is changed in this process is looked at at once."""
        loop = asyncio.get_running_loop()

        def hear(event: object) -> None:
            if isinstance(event, ScheduleChanged):  # from whichever thread
                loop.call_soon_threadsafe(self._roster.wake, self._scheduler.name)

        self._stop_hearing = self._events.listen(hear, every_task=False)

    async def look(self, view: View) -> None:
        """One tick."""
        self._served = view.served
        await self._roster.look(view.duties, view.alive)

    def hear_of_time(self, triggers: Sequence[Trigger]) -> Sequence[Trigger]:
        """Some will be due: if this node is the waker, it may have to look sooner.

        Answers what another node should hear of.
        """
        if not self._roster.keeps(self._waker.name):
            return triggers
        times = [trigger.due_at for trigger in triggers if trigger.due_at]
        if not times or self._waker.is_sooner(min(times)):
            self._roster.wake(self._waker.name)
        return ()

    async def stop(self) -> None:
        self._stop_hearing()
        self._stop_hearing = lambda: None
        await self._roster.stop()
