"""How long a node may believe in its lease.  Pure: every time comes in as a parameter.

The store judges a lease by its own clock, from the moment when the renewal reached it.  That was
after we asked, so a lease that was renewed lasts until `asked_at + lease_s` at least, by our own
monotonic clock.  A node stops acting a margin before that, and so before anybody takes over:

    asked_at ├──────────── trusted ────────────┤ margin │ others may take over
             └ renewed ▶ begins anew; failed ▶ unknown, which changes nothing until the margin
"""

from __future__ import annotations

from math import inf

MARGIN_S_MIN = 0.5
MARGIN_PART = 10  # of the lease ...
MARGIN_PART_SHORT = 4  # ... and of one so short that the least margin would eat it up


def margin_s(lease_s: float) -> float:
    """How long before its end a node stops to believe in a lease."""
    return min(max(lease_s / MARGIN_PART, MARGIN_S_MIN), lease_s / MARGIN_PART_SHORT)


class Trust:
    """What one node knows of its lease; None for a node that needs none."""

    def __init__(self, lease_s: float | None) -> None:
        self._lease_s = inf if lease_s is None else lease_s
        self._good_for_s = inf if lease_s is None else lease_s - margin_s(lease_s)
        self._asked_at = -inf

    @property
    def until(self) -> float:
        """When to stop acting; before the first renewal that is at once."""
        return inf if self._good_for_s == inf else self._asked_at + self._good_for_s

    def holds(self, now: float) -> bool:
        return now < self.until

    def renewed(self, asked_at: float) -> float | None:
        """A renewal succeeded that was asked for then; late news of an earlier one change nothing.

        Answers how much of the lease was left when it was asked for; None for the first.
        """
        before, self._asked_at = self._asked_at, max(self._asked_at, asked_at)
        return None if before == -inf else max(0.0, before + self._lease_s - self._asked_at)

    def lost(self, asked_at: float) -> bool:
        """The store was asked then and knew no such lease; False: it was renewed after that."""
        if asked_at < self._asked_at:
            return False
        self._asked_at = -inf
        return True
