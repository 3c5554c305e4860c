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
    booking: Booking | None = None  # a policy of your own, on top of the slots
    order: Literal["fair", "arrival"] = "fair"
    lease_s: float = 10.0
    renewer: Literal["process", "loop"] = "process"  # who renews the lease besides the beat
    stall_limit_s: float = 60.0  # a node whose loop stands still for so long is given up
    beat_s: float = 1.0
    drain_s: float = 30.0  # how long a stopping node lets attempts finish
    deliveries_max: int = 5  # grabs without an outcome before a task is parked in ERROR
    unknown_kind_wait_s: float = 300.0
    coordinator: Literal["sql", "local"] = "sql"
    duties: bool = True
    retention: Retention = field(default_factory=Retention)
    limits: Limits = field(default_factory=Limits)
