"""How much a node ended lately, and how long that took: what `holdfast top` shows of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.clock import Clock
from holdfast.task import Event
from holdfast.worker.settler import Ended

KINDS_MAX = 8  # the slowest; a lease carries no more


class Pace:
    """Adds up what ended since it was told last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s = clock.seconds()
        self._out: dict[str, int] = {}
        self._kinds: dict[str, list[float]] = {}  # attempts, seconds, the longest of them

    def add(self, queue: str, batch: Sequence[Ended]) -> None:
        """These attempts have ended; all but the repeated ones leave the queue."""
        left, kinds = 0, self._kinds
        for task, outcome, ran_s, _ in batch:
            left += outcome.event is not Event.REPEATED
            tally = kinds.get(task.kind)
            if tally is None:
                tally = kinds[task.kind] = [0, 0.0, 0.0]
            tally[0] += 1
            tally[1] += ran_s
            tally[2] = max(tally[2], ran_s)
        self._out[queue] = self._out.get(queue, 0) + left

    def told(self) -> dict[str, Any]:
        """What ended since the last call, by queue and for the slowest kinds; counts anew."""
        now_s = self._clock.seconds()
        over_s, self._since_s = now_s - self._since_s, now_s
        out, self._out = self._out, {}
        kinds, self._kinds = self._kinds, {}
        slowest = sorted(kinds.items(), key=lambda kind: kind[1][1] / kind[1][0], reverse=True)
        return {
            "over_s": round(over_s, 3),
            "out": out,
            "kinds": {
                kind: {"attempts": int(count), "sum_s": round(sum_s, 6), "max_s": round(max_s, 6)}
                for kind, (count, sum_s, max_s) in slowest[:KINDS_MAX]
            },
        }
