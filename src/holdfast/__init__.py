"""Holdfast: a durable, distributed, universal task queue for OLTP systems.

A task that is added in your transaction and commits is executed to a recorded end.
"""

from holdfast.app import Holdfast
from holdfast.booking import Booking, Full
from holdfast.dispatch.size import BacklogSize
from holdfast.dispatch.slots import AllOf, FixedSlots, PerKey, PerKind
from holdfast.errors import HoldfastError
from holdfast.limit import Limit, Rules
from holdfast.node.node import Node
from holdfast.node.settings import NodeSettings
from holdfast.outcomes import (
    Again,
    CancelTask,
    EndSchedule,
    GiveUp,
    Gone,
    Later,
    ParkInError,
    RetryAfter,
)
from holdfast.policy import Deadline, Retention, Retry, Sharding, Spread, Unique
from holdfast.queues import Queue
from holdfast.schedule import Schedule, ScheduleSlot
from holdfast.schedules import Schedules
from holdfast.store import Answer
from holdfast.task import State, Task
from holdfast.tasks import Handle, TaskDefinition
from holdfast.timing import At, Cron, Every
from holdfast.worker.context import CurrentTask, current_task
from holdfast.worker.memory import collect_seldom

__version__ = "0.1.0"

__all__ = [
    "Again",
    "AllOf",
    "Answer",
    "At",
    "BacklogSize",
    "Booking",
    "CancelTask",
    "Cron",
    "CurrentTask",
    "Deadline",
    "EndSchedule",
    "Every",
    "FixedSlots",
    "Full",
    "GiveUp",
    "Gone",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "Later",
    "Limit",
    "Node",
    "NodeSettings",
    "ParkInError",
    "PerKey",
    "PerKind",
    "Queue",
    "Retention",
    "Retry",
    "RetryAfter",
    "Rules",
    "Schedule",
    "ScheduleSlot",
    "Schedules",
    "Sharding",
    "Spread",
    "State",
    "Task",
    "TaskDefinition",
    "Unique",
    "collect_seldom",
    "current_task",
]
