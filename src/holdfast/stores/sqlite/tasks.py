"""The role of `Tasks`: enqueue, grab, settle, change, and a transaction that is shared."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from holdfast.clock import Clock
from holdfast.errors import TransactionRefused
from holdfast.ids import NodeId
from holdfast.sql.query import Script
from holdfast.store import Change, Changed, Grab, Transaction
from holdfast.stores.sqlite import changes as moves
from holdfast.stores.sqlite import enqueue, rows
from holdfast.stores.sqlite.grabs import Grabbing, Settling
from holdfast.stores.sqlite.statements import as_list, run
from holdfast.stores.sqlite.threads import Threads
from holdfast.stores.sqlite.writer import Loan
from holdfast.task import Enqueued, Grabbed, NewTask, Outcome, Task, TaskId, Trigger

SMALL_GRAB = 4  # triggers: taken with hardly more than the sync of one commit


class TasksRole(Threads):
    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        """See `holdfast.store.Tasks`.

        When another connection keeps the file locked for longer than our patience, this raises
        `StoreUnavailable`, and nothing is added: the caller may be waiting for its own lock.
        """
        if not tasks:
            return []
        if len(tasks) == 1 and tasks[0].key is None:
            task = tasks[0]
            answer: Enqueued = await self._writer.run(
                lambda db, now: enqueue.enqueue_one(db, now, task),
                patience_s=self._patience_s,
                is_statement=True,
            )
            return [answer]
        mine = list(tasks)  # the caller may change its own while the writer is at work
        answers: list[Enqueued] = await self._write(
            lambda db, now: enqueue.enqueue(db, now, mine), patience_s=self._patience_s
        )
        return answers

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
        """See `holdfast.store.Tasks`.  Nothing is ever undecided: no row has a lock of its own."""
        if not triggers:
            return Grab([])
        grab: Grab = await self._write(
            Grabbing(
                triggers,
                node=node,
                deadlines_s=dict(deadlines_s),
                epochs=dict(epochs),
                skip_errors_of=skip_errors_of,
                shares=shares,
                repeat=repeat,
            ),
            is_small=len(triggers) <= SMALL_GRAB,
        )
        return grab

    async def settle(self, outcomes: Sequence[Outcome], *, node: NodeId) -> list[bool]:
        outcomes = list(outcomes)
        if not outcomes:
            return []
        answers: list[bool] = await self._write(Settling(outcomes, node=node, repeats=True))
        return answers

    @asynccontextmanager
    async def transaction(self, task: Grabbed, *, node: NodeId) -> AsyncIterator[Transaction]:
        """See `holdfast.store.Tasks`.

        SQLite has one write transaction at a time: while this one is open, nothing else is
        written.  If the process dies inside, none of it happened.
        """
        loan = await self._writer.lend()
        try:
            yield SharedTransaction(loan.connection, node=node, clock=self._clock)
            if not loan.connection.in_transaction:
                raise TransactionRefused(
                    "the handler ended the transaction itself; leave commit and rollback to "
                    "Holdfast, which settles the task in the same transaction"
                )
        except BaseException:
            await _ended(loan, commit=False)
            raise
        await _ended(loan, commit=True)

    def enqueueing(self, tasks: Sequence[NewTask]) -> Script[list[Enqueued]]:
        return enqueue.enqueueing(list(tasks), rows.micros(self._clock.now()))

    async def change(self, changes: Sequence[Change]) -> list[Changed]:
        changes = list(changes)
        answers: list[Changed] = await self._write(
            lambda db, now: moves.change(db, now, changes), patience_s=self._patience_s
        )
        return answers

    async def get(self, ids: Sequence[TaskId]) -> dict[TaskId, Task]:
        wanted = as_list(set(ids))
        found = await self._read(lambda db, now: run(db, "get", ids=wanted))
        return {row[0]: rows.task(row) for row in found}


class SharedTransaction:
    """The transaction in the handler's hands; see `holdfast.store.Transaction`."""

    def __init__(self, connection: sqlite3.Connection, *, node: NodeId, clock: Clock) -> None:
        self._connection = connection
        self._node = node
        self._clock = clock

    @property
    def connection(self) -> sqlite3.Connection:
        return self._connection

    async def settle(self, outcome: Outcome) -> bool:
        # A repeat counts as superseded here: the first time committed with its own writes.
        settling = Settling([outcome], node=self._node, repeats=False)
        theirs, self._connection.row_factory = self._connection.row_factory, None
        try:
            return settling(self._connection, rows.micros(self._clock.now()))[0]
        finally:
            self._connection.row_factory = theirs


async def _ended(loan: Loan, *, commit: bool) -> None:
    """End the loan and wait for it, also when our caller is cancelled meanwhile."""
    loan.end(commit=commit)
    await asyncio.shield(loan.closing.future)
