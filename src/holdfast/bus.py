"""The bus: carries triggers from whoever committed a task to whoever owns its partition.

Everything on a bus is a hint.  It may lose, double, delay and reorder triggers; the owner's
arrivals repair all of it.  So a bus never blocks its caller and never fails a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from holdfast.task import Trigger

WAKER = ""
"""Where hints for the waker go, whatever the queue of the task: one node wakes all of them."""

Hear = Callable[[str, Sequence[Trigger]], Sequence[Trigger]]
"""Called with a queue and triggers of it; no triggers means "look yourself" (a doorbell).

Answers the triggers that the listener has no use for, because it does not own their partition:
a bus that reaches further than this process carries only those on.  What it owns but has no room
for is not among them: it emits `TriggersTurnedAway` while the sender is still in `publish`.
"""


class Bus(Protocol):
    def publish(self, triggers: Sequence[Trigger]) -> None:
        """Send triggers of committed tasks.  Never waits, never raises, from any thread.

        More unsent triggers than the bus holds are dropped with a warning: arrivals find the tasks.
        """
        ...

    async def subscribe(self, queues: Collection[str], hear: Hear) -> None:
        """From now on call `hear` on the running loop for these queues, and for no others.

        When a connection was lost and made again, `hear(queue, [])` is called for each queue
        *after* listening began anew, so that whatever was missed is looked for.
        """
        ...

    async def unsubscribe(self, hear: Hear) -> None:
        """Stop calling `hear`.  Safe to repeat."""
        ...

    async def close(self) -> None:
        """Send what was accepted, then let go of everything."""
        ...
