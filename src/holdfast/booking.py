"""Booking: a trigger is grabbed only once it holds a slot.

`book` and `free` are called on the node's event loop only, so a policy needs no lock.  A policy
object is registered once and lives as long as the node; its counts return to zero when nothing
runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from holdfast.task import Trigger


@dataclass(frozen=True, slots=True)
class Full:
    """No slot now.

    `until` is set when time, not a finished task, makes room.  `key_only` means that only the
    trigger's fairness key is refused, not its whole kind.
    """

    until: datetime | None = None
    key_only: bool = False


class Booking(Protocol):
    def book(self, trigger: Trigger, *, now: datetime) -> Full | None:
        """Take a slot for the trigger and answer None, or say why not and take nothing."""
        ...

    def free(self, trigger: Trigger) -> None:
        """Give back what `book` took.  Freeing what was not booked raises `AssertionError`."""
        ...


@runtime_checkable
class Explains(Protocol):
    """A policy that can say in a sentence how it decides, for `holdfast why`."""

    def explain(self, trigger: Trigger) -> str: ...
