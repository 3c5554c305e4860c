"""The roster: which duties this node keeps, and the loops that keep them.

    each tick    records and live nodes ─▶ take what is ours to take ─▶ write what we keep
    each duty    step ─▶ rest ─▶ step …            only while it is ours

A duty's record says who keeps it and when that node will have written the next one.  The holder
writes after its steps, all its duties in one statement, and only when the promise of the last
record runs out.  A node that finds a promise broken waits by its distance in the ring and then
takes the duty; of two who try at once, one wins.  When a holder's lease has ended, the node behind
it does not wait at all.  A step that hangs is not covered by any promise: somebody else takes over.

Two nodes that both believe to keep a duty do no harm: every move of a duty names a version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from holdfast.clock import Clock
from holdfast.coordinator import Coordinator
from holdfast.duties.duty import Duty, Keeper
from holdfast.ids import NodeId
from holdfast.ring import SPACING, DutyRecord, Kept, distance
from holdfast.telemetry.events import DutyLost, DutyTaken, Events

GRACE = 4  # ticks that a promise is longer than the rest: an idle node writes seldom
TOGETHER = 4  # ticks: what runs out within them is written with what runs out now


class Post:
    """One duty as this node sees it."""

    def __init__(self, duty: Duty, keeper: Keeper) -> None:
        self.duty = duty
        self.keeper = keeper
        self.number = 0  # of the latest record that we know
        self.promised_until = 0.0  # ours: by our clock, when the next record is due
        self.steps_written = 0  # how many steps of ours the last record tells of
        self.gone_since: float | None = None  # nobody alive keeps it, as far as we see
        self.loop: asyncio.Task[None] | None = None

    @property
    def is_ours(self) -> bool:
        return self.loop is not None


class Roster:
    """The duties of one node.  `look` is called at every tick; `stop` ends all loops."""

    def __init__(
        self,
        node: NodeId,
        duties: Sequence[Duty],
        *,
        coordinator: Coordinator,
        clock: Clock,
        events: Events,
        tick_s: float,
        spacing: int = SPACING,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self._node = node
        self._coordinator = coordinator
        self._clock = clock
        self._events = events
        self._tick_s = tick_s
        self._spacing = spacing
        self._posts = {
            duty.name: Post(duty, Keeper(duty, events=events, may_act=may_act)) for duty in duties
        }

    @property
    def kept(self) -> list[str]:
        """The duties that this node keeps now, as far as it knows."""
        return sorted(name for name, post in self._posts.items() if post.is_ours)

    def keeps(self, name: str) -> bool:
        post = self._posts.get(name)
        return post is not None and post.is_ours

    def wake(self, name: str) -> None:
        """Let the duty do its next step now, if it is ours."""
        if self.keeps(name):
            self._posts[name].keeper.wake()

    async def look(self, records: Collection[DutyRecord], alive: Collection[NodeId]) -> None:
        """One tick: take, keep and lose duties, given what the coordinator has just said."""
        known = {record.name: record for record in records}
        wanted = []
        is_urgent = False
        for name, post in self._posts.items():
            record = known.get(name) or DutyRecord(name, 0, None, 0.0)
            self._see(post, record)
            if post.is_ours:
                is_urgent |= self._runs_out(post, within=1)
            elif self._may_take(post, record, alive):
                wanted.append(Kept(name, record.number, 2 * self._tick_s))
        if is_urgent:
            # All that run out soon go with it: an idle node writes seldom.
            wanted += [one for post in self._posts.values() for one in self._promise(post)]
        if wanted:
            written = await self._coordinator.keep(wanted)
            self._write_down(wanted, written)

    async def stop(self) -> None:
        loops = [post.loop for post in self._posts.values() if post.loop is not None]
        for post in self._posts.values():
            post.loop = None
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    # ── what a tick decides ───────────────────────────────────────────────────────────────

    def _see(self, post: Post, record: DutyRecord) -> None:
        """Another node has written a record since ours: the duty is not ours any more."""
        if post.is_ours and (record.number != post.number or record.holder != self._node):
            self._lose(post)
        post.number = record.number

    def _may_take(self, post: Post, record: DutyRecord, alive: Collection[NodeId]) -> bool:
        if self._node not in alive:
            return False  # we register before we take part
        now = self._clock.seconds()
        if record.holder is not None and record.holder in alive:
            post.gone_since = None
            behind = distance(self._node, alive, record.holder)
            # Behind itself by nothing: a node that came back to its own record goes on with it.
            return record.due_in_s + (behind * self._spacing + 1) * self._tick_s <= 0
        if post.gone_since is None:
            post.gone_since = now
        # Where nobody stands the circle begins; each duty has its own beginning, so they spread.
        start = record.holder or NodeId(record.name)
        behind = distance(self._node, alive, start)
        return now >= post.gone_since + behind * self._spacing * self._tick_s

    def _runs_out(self, post: Post, *, within: int) -> bool:
        """Whether the promise of our last record ends within so many ticks."""
        left_s = post.promised_until - self._clock.seconds()
        return post.is_ours and left_s <= within * self._tick_s

    def _promise(self, post: Post) -> list[Kept]:
        """The next record of a duty of ours, if the last one's promise runs out."""
        if not self._runs_out(post, within=TOGETHER):
            return []
        if post.keeper.steps == post.steps_written and not post.keeper.is_resting:
            return []  # its step hangs: let others have it
        rest_s = max(post.keeper.rest_left_s(), self._tick_s) + GRACE * self._tick_s
        return [Kept(post.duty.name, post.number, rest_s)]

    def _write_down(self, wanted: Sequence[Kept], written: Collection[str]) -> None:
        now = self._clock.seconds()
        for name, number, rest_s in wanted:
            post = self._posts[name]
            if name not in written:
                if post.is_ours:
                    self._lose(post)
                continue
            post.number = number + 1
            post.promised_until = now + rest_s
            post.steps_written = post.keeper.steps
            if not post.is_ours:
                self._take(post)

    def _take(self, post: Post) -> None:
        post.gone_since = None
        post.loop = asyncio.create_task(post.keeper.keep(), name=f"holdfast {post.duty.name}")
        self._events.emit(DutyTaken(self._node, post.duty.name))

    def _lose(self, post: Post) -> None:
        if post.loop is not None:
            post.loop.cancel()
            post.loop = None
            self._events.emit(DutyLost(self._node, post.duty.name))
