"""The ring: who writes the next record, without a leader and without an election.  Pure.

Nodes stand in a circle, in the order of their keys' hashes.  Whoever wrote last is the first; the
others wait by their distance from it:

    last writer B      B ─▶ C ─▶ A ─▶ D ─▶ E ─▶ (B)
    delay in ticks     0    3    6    9    12          with a spacing of 3

A node may write one tick after the last record, plus its delay.  While the first one is healthy it
writes at every tick, and the others, who hear of each record, start to wait anew.  When it dies,
the next in the circle is the first whose delay runs out; it writes, and is first from then on.

Safety does not rest on any of this.  A record is written only if the latest one is still the one
that it follows; of two who try at once, one wins, and the other one looks again.  Clocks, delays
and views of the members may all be wrong: then nodes collide more often, or write later.

Nothing here is durable.  A node that starts anew knows no record, and reads the latest one first.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import NamedTuple

from holdfast.ids import NodeId

SPACING = 3  # ticks of delay between neighbours
KEPT = 1_000  # records


class RingRecord(NamedTuple):
    """One record of the log.  Numbers start at 1 and have no gaps."""

    number: int
    writer: NodeId
    body: bytes = b""  # means nothing here


NOTHING = RingRecord(0, NodeId(""))
"""Before the first record."""


class DutyRecord(NamedTuple):
    """Who keeps a duty, and when that node is expected to write the next record."""

    name: str
    number: int  # each record has one more; 0: nobody has ever kept it
    holder: NodeId | None  # None: given up
    due_in_s: float  # by the store's clock; negative: overdue


class Kept(NamedTuple):
    """A duty to take or to keep: the record that it follows, and the rest until the next one."""

    name: str
    number: int  # of the record that we know; it must still be the latest
    rest_s: float


def in_order(nodes: Collection[NodeId]) -> list[NodeId]:
    """The circle, from its lowest hash.  The same for all who see the same nodes."""
    return sorted(nodes, key=lambda node: (_place(node), node))


def distance(node: NodeId, nodes: Collection[NodeId], first: NodeId) -> int:
    """How far the node stands behind the first one, or behind where that one stood.

    Without any writer yet, the circle begins with its lowest hash.  A writer that has left is
    missed by nobody: whoever came after it is first.
    """
    circle = in_order(nodes)
    assert node in circle, "a node registers before it takes part"
    if first in circle:
        start = circle.index(first)
    else:
        after = (_place(first), first)
        start = next((n for n, one in enumerate(circle) if (_place(one), one) > after), 0)
        start = start if first else 0
    return (circle.index(node) - start) % len(circle)


class Turn:
    """When one node may write, as far as it knows.

    All times are ticks on the node's own clock.  The caller says what it sees, asks `due`, and
    writes `following` with a compare-and-set; then it says what came of it.
    """

    def __init__(self, node: NodeId, *, spacing: int = SPACING) -> None:
        self.node = node
        self.latest = NOTHING
        self._spacing = spacing
        self._since = 0.0  # the last record, or our last try
        self._wanted_since: float | None = None  # when there was something to write
        self._is_sure = False  # whether we know that `latest` is not older than our own writes

    def read(self, latest: RingRecord, now: float) -> None:
        """The latest record, as the coordinator has it: the only cure for not knowing."""
        self._is_sure = True
        self.heard(latest, now)

    def heard(self, record: RingRecord, now: float) -> None:
        """A record was written by somebody.  Doubled and late news change nothing."""
        if record.number > self.latest.number:
            self.latest = record
            self._since = now
            self._wanted_since = None

    def wanted(self, now: float) -> None:
        """There is something to write."""
        if self._wanted_since is None:
            self._wanted_since = now

    def empty(self) -> None:
        """There is nothing to write: an empty tick counts for nobody's delay."""
        self._wanted_since = None

    def due(self, nodes: Collection[NodeId]) -> float | None:
        """From when on this node may write; None while there is nothing to write, or to be sure of.

        The delay runs from the tick after the last record, or from when there was something.
        """
        if self._wanted_since is None or not self._is_sure or self.node not in nodes:
            return None
        behind = distance(self.node, nodes, self.latest.writer)
        return max(self._since + 1, self._wanted_since) + behind * self._spacing

    def following(self, body: bytes = b"") -> RingRecord:
        """The record to write, if the latest is still the one before it."""
        assert self._is_sure, "RING-28: after a try whose outcome is unknown, the latest is read"
        return RingRecord(self.latest.number + 1, self.node, body)

    def written(self, record: RingRecord, now: float) -> None:
        """The compare-and-set has succeeded: we are the first."""
        self.heard(record, now)

    def refused(self, now: float) -> None:
        """Somebody was faster.  Wait anew, and read the latest before the next try."""
        self._since = now
        self._is_sure = False

    def lost_reply(self, now: float) -> None:
        """Nobody knows what came of our try; it may have been written."""
        self.refused(now)


class RingLog:
    """The rules of the log: one record for each number, and the last ones are kept.

    What a coordinator keeps elsewhere follows the same rules, each call in one transaction.
    """

    def __init__(self) -> None:
        self.latest = NOTHING
        self._records: dict[int, RingRecord] = {}

    def append(self, record: RingRecord) -> bool:
        """Write the record if it follows the latest one; both change together, or nothing does."""
        if record.number != self.latest.number + 1:
            return False
        self.latest = self._records[record.number] = record
        return True

    def records(self, after: int) -> list[RingRecord]:
        """What is kept of the records above this number, in order."""
        return [record for number, record in self._records.items() if number > after]

    def rotate(self, kept: int = KEPT) -> None:
        """Let go of all but the last.  The latest is known for ever, so no number comes back."""
        for number in list(self._records)[:-kept]:
            del self._records[number]


def _place(node: NodeId) -> bytes:
    return blake2b(node.encode(), digest_size=8).digest()
