"""The store: the truth.  Everything else is a hint.

A store is a set of small roles; each part of the engine asks for the narrowest one:

    Tasks      client and worker      enqueue · grab · settle · transaction · change · get
    Backlogs   dispatcher             claim · load · arrivals · record · levels · count_levels
    Leases     coordinator            renew · look · members · end · leave · ask · let_go …
    Duties     roster                 duties · keep_duties
    Agenda     duties                 submit_due · submit_overdue · overdue · resume_lost · park …
    Rulebook   node, CLI              rules · change_rules · allot
    Rings      ring                   ring_latest · ring_append · ring_records · ring_rotate
    Timetable  scheduler, CLI         schedules · put_schedule · fire_schedule (holdfast.schedule)
    Search     CLI, node              find · counts · survey · unknown_queues
    Insight    people                 standing · waiting_kinds · troubles (`holdfast.insight`)

Promises that hold for every verb:

* All verbs are plural; one task is a list of one.  A call is one transaction: all or nothing,
  durable before it returns.
* One number guards every move: a row that changed since its version was read is left alone,
  and the answer says so.  A call may therefore be repeated after any error.
* If the process dies in the middle, either the whole call happened or none of it.
* Times are judged by the store's own clock.
* `StoreUnavailable` means nothing was written; `OutcomeUnknown` that nobody can tell.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from holdfast.ids import NodeId
from holdfast.insight import Insight
from holdfast.limit import Limit, Mode, Rules, Share, Want
from holdfast.ring import DutyRecord, Kept, RingRecord
from holdfast.schedule import Timetable
from holdfast.sql.query import Script
from holdfast.store.values import (
    NO_FACTS as NO_FACTS,
)
from holdfast.store.values import (
    NO_WEIGHTS as NO_WEIGHTS,
)
from holdfast.store.values import (
    START as START,
)
from holdfast.store.values import (
    ZERO as ZERO,
)
from holdfast.store.values import (
    Answer as Answer,
)
from holdfast.store.values import (
    Arrivals as Arrivals,
)
from holdfast.store.values import (
    Change as Change,
)
from holdfast.store.values import (
    Changed as Changed,
)
from holdfast.store.values import (
    Column as Column,
)
from holdfast.store.values import (
    Counters as Counters,
)
from holdfast.store.values import (
    Cursor as Cursor,
)
from holdfast.store.values import (
    Due as Due,
)
from holdfast.store.values import (
    Entry as Entry,
)
from holdfast.store.values import (
    Filter as Filter,
)
from holdfast.store.values import (
    Grab as Grab,
)
from holdfast.store.values import (
    Holding as Holding,
)
from holdfast.store.values import (
    Level as Level,
)
from holdfast.store.values import (
    LevelCursor as LevelCursor,
)
from holdfast.store.values import (
    Loaded as Loaded,
)
from holdfast.store.values import (
    Look as Look,
)
from holdfast.store.values import (
    Mark as Mark,
)
from holdfast.store.values import (
    Member as Member,
)
from holdfast.store.values import (
    Overdue as Overdue,
)
from holdfast.store.values import (
    Position as Position,
)
from holdfast.store.values import (
    Record as Record,
)
from holdfast.store.values import (
    Running as Running,
)
from holdfast.store.values import (
    Tail as Tail,
)
from holdfast.task import Enqueued, Grabbed, NewTask, Outcome, State, Task, TaskId, Trigger
from holdfast.telemetry.events import QueueSurvey


class Transaction(Protocol):
    """A store transaction that a handler shares with the settle."""

    @property
    def connection(self) -> Any:
        """The driver's own connection: asyncpg's, or sqlite3's."""
        ...

    async def settle(self, outcome: Outcome) -> bool:
        """Record the outcome in this transaction.  False: superseded, so roll back."""
        ...


class Tasks(Protocol):
    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """Add the tasks, in order, in one transaction of their own.

        A task whose key is taken is not added; its answer is the older task with
        `created=False`, and the others are added all the same.
        """
        ...

    async def grab(
        self,
        triggers: Sequence[Trigger],
        *,
        node: NodeId,
        deadlines_s: Mapping[str, float],
        epochs: Mapping[int, int],
        skip_errors_of: Collection[str] = (),
        shares: Collection[int] = (),
        repeat: bool = False,
    ) -> Grab:
        """Move SUBMITTED tasks to PROCESSING, each at its trigger's version; exactly one grab wins.

        Records the node, counts a delivery and sets the deadline (seconds by kind).  A task with
        an ordering key also needs its partition's epoch in `epochs`, no PROCESSING sibling and no
        elder (smaller id) that is SUBMITTED, WAITING for a retry, or in ERROR; kinds in
        `skip_errors_of` do not wait for an elder in ERROR.  When one of the `shares` is no longer
        the node's, nothing is grabbed and tasks are undecided.  With `repeat` (the reply of the
        first call was lost) rows that this node holds at version + 1 are returned again, whoever
        has the partition and the shares by now: nobody else knows that they run here.
        A grabbed task says how many of its deliveries since the last outcome were lost.
        """
        ...

    async def settle(self, outcomes: Sequence[Outcome], *, node: NodeId) -> list[bool]:
        """Record outcomes, each at the version of its grab; False for a superseded one.

        Finished rows leave for the archive in the same transaction.  Safe to repeat: a row that
        this node already settled in this way counts as settled.  An outcome ends the counting of
        losses, unless it does not forgive: a task that was handed back has proven nothing.
        """
        ...

    def transaction(
        self, task: Grabbed, *, node: NodeId
    ) -> AbstractAsyncContextManager[Transaction]:
        """A transaction for the handler's own writes and the settle of `task`.

        Commits at the end of the block, rolls back when it raises.
        """
        ...

    def enqueueing(self, tasks: Sequence[NewTask]) -> Script[list[Enqueued]]:
        """The statements of `enqueue`, for a transaction that belongs to the caller."""
        ...

    async def change(self, changes: Sequence[Change]) -> list[Changed]:
        """Carry out people's wishes, each at its version and only where MOVES allows."""
        ...

    async def get(self, ids: Sequence[TaskId]) -> dict[TaskId, Task]:
        """The tasks as they are now, hot or archived.  Unknown ids are missing from the answer."""
        ...


class Backlogs(Protocol):
    async def claim(self, queue: str, wanted: Mapping[int, int], *, node: NodeId) -> dict[int, int]:
        """Take partitions at the epochs seen; answer those taken, with their new epochs.

        Raises each epoch by one and waits for the old owner's writes under way, so that
        whatever it wrote is visible to our next call and whatever it writes later is refused.
        Partitions whose owner has a live lease are left out of the answer.
        """
        ...

    async def load(self, queue: str, partitions: Collection[int]) -> list[Loaded]:
        """What the owner needs to start: position, marks, backlog ends, PROCESSING rows."""
        ...

    async def arrivals(
        self, queue: str, cursors: Sequence[Cursor], *, limit: int, exact: bool
    ) -> Arrivals:
        """SUBMITTED rows above each cursor, at most `limit` a partition, in order.

        `exact` shows only rows below the horizon, so that nothing can still appear among them;
        otherwise every visible row.
        """
        ...

    async def record(self, queue: str, records: Sequence[Record]) -> set[int]:
        """Write entries, positions, marks and deletes; answer the partitions that were refused.

        A record counts only while its epoch is the partition's; the others are unaffected.
        """
        ...

    async def levels(self, queue: str, cursors: Sequence[LevelCursor]) -> list[list[Entry]]:
        """Backlog entries above each cursor, in level order, one list a cursor."""
        ...

    async def count_levels(self, queue: str, cursors: Sequence[LevelCursor]) -> list[int]:
        """How many entries lie above each cursor; no more than its limit are counted."""
        ...


class Leases(Protocol):
    async def renew(
        self,
        node: NodeId,
        *,
        lease_s: float,
        queues: Sequence[str],
        kinds: Sequence[str],
        facts: Mapping[str, Any] = NO_FACTS,
    ) -> None:
        """Keep the node's lease for `lease_s` from now on; make it when it does not exist.

        A node that is registered keeps its number; a new one, or one that was forgotten, takes the
        highest number and one more.  Two nodes never have the same.
        """
        ...

    async def members(self) -> list[Member]:
        """All nodes with a lease row, live or ended."""
        ...

    async def end(self, nodes: Collection[NodeId]) -> None:
        """Say that these nodes are dead: their leases end now, and they let go of partitions and
        duties.

        What they were running can be resumed at once; until then they stay in the list of members.
        """
        ...

    async def ask(self, node: NodeId, what: str | None) -> bool:
        """Leave a person's wish with the node's lease; False: no such node."""
        ...

    async def leave(self, nodes: Collection[NodeId], *, ended_only: bool = False) -> None:
        """Forget the nodes' leases and let go of their partitions and duties.

        With `ended_only`, nodes whose lease is live are left alone.
        """
        ...

    async def look(self, queues: Collection[str]) -> Look:
        """All members, the holdings of these queues, all duties: in as few statements as it takes.

        For every tick of every node, so it has to be cheap while nothing changes.
        """
        ...

    async def holdings(self, queue: str) -> list[Holding]:
        """Every partition of the queue; the rows are made when the queue is new."""
        ...

    async def let_go(self, queue: str, partitions: Collection[int], *, node: NodeId) -> None:
        """Give up partitions that the node owns, for whoever wants them."""
        ...

    async def wish(self, queue: str, partitions: Collection[int], *, node: NodeId) -> None:
        """Ask the owners of these partitions to let go of them."""
        ...


class Duties(Protocol):
    """Who keeps which duty.  Safe whoever is wrong about whom: one record for each number."""

    async def duties(self) -> list[DutyRecord]:
        """The latest record of each duty that was ever kept, by name."""
        ...

    async def keep_duties(self, kept: Sequence[Kept], *, node: NodeId) -> set[str]:
        """Write the next record of each duty, in one statement; answer those that were written.

        The others have moved on from the number named: somebody else keeps them.
        """
        ...


class Agenda(Protocol):
    async def submit_due(self, *, limit: int) -> Due:
        """Submit WAITING tasks of all queues whose time has come, oldest first."""
        ...

    async def submit_overdue(self, *, deadline_s: float, limit: int) -> list[Trigger]:
        """Triggers of SUBMITTED tasks that nobody has taken in for `deadline_s`.

        A task at or below its partition's position stands in the backlog and is left alone.  The
        others get a new deadline, at their version, so that the next call does not answer them
        again.  Since when a task is SUBMITTED is known of new ones only; one that has moved gets
        its deadline at the first look.
        """
        ...

    async def overdue(self, *, limit: int) -> list[Overdue]:
        """PROCESSING tasks past their deadline, the latest first."""
        ...

    async def resume_overdue(
        self, tasks: Mapping[TaskId, int], *, deliveries_max: int
    ) -> list[Trigger]:
        """Submit again PROCESSING tasks at these versions: their attempts are superseded.

        A task that was delivered `deliveries_max` times without an outcome is parked in ERROR.
        """
        ...

    async def postpone(self, tasks: Mapping[TaskId, int], *, deadline_s: float) -> None:
        """Give PROCESSING tasks at these versions a new deadline; no version is raised."""
        ...

    async def resume_lost(
        self, nodes: Collection[NodeId], *, deliveries_max: int, limit: int
    ) -> list[Trigger]:
        """Submit again what these nodes were running, unless their lease is live after all.

        A task that was delivered `deliveries_max` times without an outcome is parked in ERROR.
        """
        ...

    async def running_of(self, node: NodeId) -> list[Running]:
        """The PROCESSING rows of the node.

        May take long where a store cannot clean up behind its writers: not for every beat.
        """
        ...

    async def moved_on(self, node: NodeId, held: Mapping[TaskId, int]) -> list[TaskId]:
        """Of these tasks, those that the node no longer runs at this version."""
        ...

    async def park(self, tasks: Mapping[TaskId, int], error: str) -> list[TaskId]:
        """Move SUBMITTED or PROCESSING tasks to ERROR at these versions; answer those moved."""
        ...

    async def clean(self, *, keep_days: float, limit: int) -> int:
        """Prepare the archive for the days ahead and drop what is older than `keep_days`.

        With it go schedules of run time whose last slot fired before then and that have ended.
        """
        ...


class Rulebook(Protocol):
    """What people set while nodes run, and the shares that nodes have of it."""

    async def rules_version(self) -> int:
        """A number that grows with each change, of whichever queue."""
        ...

    async def rules(self, queue: str) -> Rules:
        """The limits and weights of the queue."""
        ...

    async def change_rules(
        self,
        queue: str,
        *,
        limits: Sequence[Limit] = (),
        dropped: Collection[str] = (),
        weights: Mapping[str, float | None] = NO_WEIGHTS,
        fairness: Mode | None = None,
    ) -> int:
        """Set limits by their names, drop others, set weights of keys (None: drop it), and say how
        keys are charged.

        Answers the new version.  More than 1,000 weights of a queue are refused.
        """
        ...

    async def allot(self, queue: str, wants: Sequence[Want], *, node: NodeId) -> list[Share]:
        """Give the node its share of each limit, in the order of `wants`.

        All shares of a limit and key never add up to more than the limit, except for what was
        booked before the limit was lowered.  A limit that does not exist gives nothing.
        """
        ...


class Rings(Protocol):
    """Logs that nodes write in turns, each under a name; see `holdfast.ring`."""

    async def ring_latest(self, ring: str) -> RingRecord:
        """The latest record, or NOTHING."""
        ...

    async def ring_append(self, ring: str, record: RingRecord) -> bool:
        """Write the record if it follows the latest one: log and latest together, or neither.

        `OutcomeUnknown` or `Unavailable` when nobody can tell: read the latest before anything
        else, it may be this one.
        """
        ...

    async def ring_records(self, ring: str, *, after: int, limit: int) -> list[RingRecord]:
        """What is kept of the records above this number, in order."""
        ...

    async def ring_rotate(self, ring: str, *, kept: int) -> None:
        """Let go of all records but the last ones.  Their numbers are never given again."""
        ...


class Search(Protocol):
    async def find(self, filter: Filter) -> list[Task]:
        """Tasks by the filter, by id."""
        ...

    async def counts(self) -> dict[State, int]:
        """How many tasks are in each state, hot and archived."""
        ...

    async def survey(self, *, count_max: int = 10_000) -> list[QueueSurvey]:
        """What waits in each queue, by name: every queue that has tasks or was ever served.

        Bounded work: each count stops at `count_max`, and a store that has no index by queue may
        stop earlier, at ten times that over all queues.  The age is that of the task that became
        SUBMITTED first, from its enqueue; `stuck` are PROCESSING tasks past their deadline.
        """
        ...

    async def unknown_queues(self) -> list[str]:
        """Queues that have SUBMITTED tasks and that no node has ever served."""
        ...


class Store(
    Tasks,
    Backlogs,
    Leases,
    Duties,
    Agenda,
    Rulebook,
    Rings,
    Timetable,
    Search,
    Insight,
    Protocol,
):
    """All roles, and the life of the thing itself."""

    @property
    def partitions(self) -> int:
        """How many partitions a queue has; fixed when the schema was made."""
        ...

    async def open(self) -> None:
        """Connect and check the schema: `SchemaMissing`, `SchemaTooNew` or `StoreUnavailable`."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then let go of every connection and thread."""
        ...

    async def migrate(self) -> int:
        """Bring the schema to this code's version; safe to run twice and at the same time."""
        ...

    async def durability(self) -> dict[str, str]:
        """The settings on which durability rests, as the server reports them."""
        ...
