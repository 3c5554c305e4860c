"""What can be set about a node, with its defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from holdfast.booking import Booking
from holdfast.dispatch.limits import Limits
from holdfast.policy import Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    slots_async: int = 200  # handlers on the loop, at once
    slots_threads: int = 16
    slots_processes: int = 2
    slots_suspects: int = 4  # tasks whose node died, alone in processes; 0: they run as all others
    booking: Booking | None = None  # a policy of your own, on top of the slots
    order: Literal["fair", "arrival"] = "fair"
    lease_s: float = 10.0
    tick_s: float = 1.0  # between two looks at the others
    spacing: int = 3  # ticks that stand-ins wait by their distance in the ring
    renewer: Literal["process", "loop"] = "process"  # who renews the lease besides the beat
    stall_limit_s: float = 60.0  # a node whose loop stands still for so long is given up
    drain_s: float = 30.0  # how long a stopping node lets attempts finish
    deliveries_max: int = 5  # grabs without an outcome before a task is parked in ERROR
    unknown_kind_wait_s: float = 300.0
    submitted_deadline_s: float = 1800.0  # a SUBMITTED task that nobody took in is triggered again
    resume_every_s: float = 60.0  # between two looks for stuck tasks
    watch_every_s: float = 30.0  # between two looks of the watcher
    stuck_alert_s: float = 300.0  # past its deadline for so long, a task raises an incident
    coordinator: Literal["sql", "local"] = "sql"
    duties: bool = True
    retention: Retention = field(default_factory=Retention)
    limits: Limits = field(default_factory=Limits)
