"""What a node can do for all of them: the duties, as its settings want them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.clock import Clock
from holdfast.duties.cleaner import Cleaner
from holdfast.duties.duty import Duty
from holdfast.duties.resumer import Plan, Resumer
from holdfast.duties.waker import Waker
from holdfast.handler import Registry
from holdfast.node.settings import NodeSettings
from holdfast.store import Store
from holdfast.task import Trigger
from holdfast.telemetry.events import Events


def make_waker(
    store: Store,
    settings: NodeSettings,
    *,
    publish: Callable[[Sequence[Trigger]], object],
    clock: Clock,
) -> Waker:
    return Waker(store, publish=publish, clock=clock, poll_s=settings.limits.idle_wait_s)


def make_others(
    store: Store,
    settings: NodeSettings,
    *,
    publish: Callable[[Sequence[Trigger]], object],
    clock: Clock,
    events: Events,
) -> list[Duty]:
    """All but the waker, which its node talks to."""
    resumer = Resumer(
        store,
        publish=publish,
        clock=clock,
        events=events,
        deliveries_max=settings.deliveries_max,
        submitted_s=settings.submitted_deadline_s,
        unknown_queue_s=settings.unknown_kind_wait_s,
        every_s=settings.resume_every_s,
    )
    return [resumer, Cleaner(store, settings.retention)]


def plans(registry: Registry) -> dict[str, Any]:
    """What is to become of overdue tasks, by kind, for the resumer on whichever node; see there."""
    asked = {h.kind: Plan(h.deadline.stuck, h.deadline.seconds) for h in registry}
    return {kind: list(plan) for kind, plan in asked.items() if plan.stuck != Plan().stuck}
