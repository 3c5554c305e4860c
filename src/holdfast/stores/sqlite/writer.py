"""The writer: one thread that alone writes to the file, many operations a commit.

    callers ─▶ queue ─▶ gather all that wait ─▶ BEGIN IMMEDIATE ─▶ run each ─▶ COMMIT ─▶ answer

An operation is answered only after the commit that contains it.  When one of a batch fails, the
whole batch is rolled back and its halves run again, each in a transaction of its own, until the
wrong one stands alone: only that one fails.

The write lock is fair to nobody: whoever asks at the right moment gets it.  So the writer rests
after a commit while others write to the file too; as long as it sees no foreign commit
(`data_version` changes only by others), it rests rarely, just often enough for a newcomer to
get in and be seen.

A transaction that is lent out (`lend`) is an item of the same queue: the writer opens it, waits
until the borrower has ended it, and commits or rolls back.  Thus two are never open together,
and nothing of ours waits for a lock that we hold ourselves.

A single caller does not wait for two threads to change places: while the writer is idle and its
last commit was quick, small work runs on the caller's own thread and the writer's connection.  A
single statement may do so while we are alone on the file (`INLINE_MAX` times, then the writer looks
around again); anything small may after a quiet moment, so that a loop is never held up often.

Only this thread checkpoints: a checkpoint on one connection while another commits can damage
the file in SQLite before 3.51.3.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, OutcomeUnknown, StoreUnavailable
from holdfast.stores.sqlite.connection import (
    BUSY_MS,
    is_busy,
    is_io_failure,
    is_mistake,
    unavailable,
)
from holdfast.stores.sqlite.log import Log
from holdfast.stores.sqlite.operations import Operation, Work, answer, nothing
from holdfast.stores.sqlite.rows import micros

# SQLite asks for a lock after 1, 2, 5, 10 ms and ever more rarely.  Others who commit all the time
# leave short gaps, so the writer begins anew before the waits grow long.
BEGIN_BUSY_MS = 8
WATCH_S = 0.25  # how often those who lost their patience are looked for during a loan
GATHERED_MAX = 1000  # operations in one commit
REST_S = 0.002
NEIGHBOUR_S = 5.0  # a foreign commit within this time means: others write too
LOOK_S = 0.002  # between two looks for others' commits
KNOCK_S = 0.25  # how long the writer goes without a rest when it believes to be alone
IDLE_S = 1.0  # after this the WAL is carried over into the database
INLINE_MAX = 200  # commits on the caller's own thread, before the writer looks around
INLINE_S = 0.001  # a commit that takes longer must not hold up an event loop
QUIET_S = 0.005  # after a commit: then small work runs on the caller's own thread, whoever writes
YIELD_S = 0.002  # how long a caller in a loop may keep the others of its loop waiting
WAIT: Final = object()


@dataclass(eq=False)
class Loan:
    """A write transaction in the hands of a borrower, who must end it."""

    connection: sqlite3.Connection
    opening: Operation
    closing: Operation
    ended: threading.Event = field(default_factory=threading.Event)
    commits: bool = False

    def end(self, *, commit: bool) -> None:
        self.commits = commit
        self.ended.set()


class Writer:
    """Started by `start`, ended by `stop`; in between the connection is used by turns."""

    def __init__(
        self, path: str, *, connect: Callable[[], sqlite3.Connection], clock: Clock
    ) -> None:
        self._path = path
        self._connect = connect
        self._clock = clock
        self._queue: SimpleQueue[Operation | Loan | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="holdfast-writer", daemon=True)
        self._door = threading.Lock()  # nothing is put into the queue after its end
        self._is_open = False
        self._pause = threading.Event()  # never set: waiting for it is a rest
        self._turn = threading.Lock()  # whoever has it may use the connection
        self._inline_left = 0
        self._is_quick = False  # the last commit, which was for one caller
        self._yielded_at = 0.0  # when an inline caller last let the others of its loop go on
        self._kept: Loan | None = None  # a loan met while gathering
        self._seen_version = 0
        self._neighbour_at = -NEIGHBOUR_S
        self._rested_at = 0.0
        self._looked_at = 0.0
        self.foreign_commits = 0  # seen, not counted: how often others had committed
        self._committed_at = 0.0
        self.commits = 0

    def start(self) -> None:
        """Connect and begin to work; raises what connecting raises."""
        self._db = self._connect()
        try:
            # Only BEGIN and a checkpoint ever wait for a lock, and BEGIN must not wait for long.
            self._db.execute(f"PRAGMA busy_timeout = {BEGIN_BUSY_MS}").fetchall()
            self._guest = self._db if self._path == ":memory:" else self._connect()
            self._seen_version = self._data_version()
            self._log = Log(self._path, self._db, busy_ms=BEGIN_BUSY_MS)
        except BaseException:
            self._db.close()
            raise
        self._is_open = True
        self._thread.start()

    async def run(
        self,
        work: Work,
        *,
        patience_s: float | None = None,
        is_statement: bool = False,
        is_small: bool = False,
    ) -> Any:
        """Run the work in a transaction and answer after its commit.

        With `patience_s` the operation is given up, with nothing written, when the file
        stays locked for so long.  Work that is one small statement, or a few, may run on this
        thread, which then stands still for a fraction of a millisecond.
        """
        is_ours = is_statement and self._inline_left > 0
        if is_ours or ((is_statement or is_small) and self._is_quiet()):
            result = self._run_here(work, is_statement=is_statement)
            if result is not WAIT:
                if self._committed_at - self._yielded_at > YIELD_S:
                    await asyncio.sleep(0)  # a caller in a loop must not shut out the others
                    self._yielded_at = self._clock.seconds()
                return result
        ends = None if patience_s is None else self._clock.seconds() + patience_s
        operation = Operation(work, patience_ends=ends, is_statement=is_statement)
        self._put(operation)
        return await operation.future

    def _is_quiet(self) -> bool:
        return self._is_quick and self._clock.seconds() - self._committed_at > QUIET_S

    def _run_here(self, work: Work, *, is_statement: bool) -> Any:
        """Run the work on this thread, or answer WAIT: it has to wait for the writer."""
        if not self._queue.empty() or not self._turn.acquire(blocking=False):
            return WAIT
        try:
            if not self._is_open:
                return WAIT
            self._inline_left -= 1
            began = self._clock.seconds()
            try:
                result = self._transacted(work, is_statement=is_statement)
            except Exception as error:
                self._inline_left, self._is_quick = 0, False
                self._roll_back(self._db)
                if isinstance(error, sqlite3.Error) and is_busy(error):
                    return WAIT
                raise self._as_ours(error) from error
            self._committed_at = self._clock.seconds()
            is_due = self._log.is_due(self.commits)  # a checkpoint, which is the writer's
            self._is_quick = self._committed_at - began < INLINE_S and not is_due
            if not self._is_quick:
                self._inline_left = 0
            return result
        finally:
            self._turn.release()

    def _transacted(self, work: Work, *, is_statement: bool) -> Any:
        if is_statement:  # it is its own transaction
            try:
                result = work(self._db, micros(self._clock.now()))
            except sqlite3.Error as error:
                raise self._unless_unknown(error) from error
            self.commits += 1
        else:
            self._db.execute("BEGIN IMMEDIATE")
            result = work(self._db, micros(self._clock.now()))
            self._commit(self._db)
        return result

    async def lend(self) -> Loan:
        """A write transaction for the caller alone; nothing else is written until it ends."""
        loan = Loan(self._guest, Operation(nothing), Operation(nothing))
        self._put(loan)
        try:
            await loan.opening.future
        except BaseException:
            loan.end(commit=False)
            raise
        return loan

    async def stop(self) -> None:
        """Do what was accepted, then end.  Safe to repeat."""
        with self._door:
            was_open, self._is_open = self._is_open, False
        if was_open:
            self._farewell = Operation(nothing)
            self._queue.put(None)
            await asyncio.shield(self._farewell.future)
            self._thread.join()

    def _put(self, item: Operation | Loan) -> None:
        with self._door:
            if not self._is_open:
                raise StoreUnavailable(f"{self._path}: the store is closed")
            self._queue.put(item)

    # What follows runs on the thread.

    def _work(self) -> None:
        while (item := self._next()) is not None:
            with self._turn:
                self._rest()
                self._inline_left = 0
                if isinstance(item, Loan):
                    self._lend(item)
                    self._committed_at = self._clock.seconds()
                else:
                    self._write_one_or_more(item)
                self._checkpoint_when_due()
        with self._turn:
            self._tidy_up()

    def _checkpoint_when_due(self) -> None:
        shared = self._has_neighbour(self._committed_at)
        if self._log.is_due(self.commits, shared=shared) or self._log.has_grown(shared=shared):
            self._log.carry_over(self.commits)
            self._log.lengthen()

    def _has_neighbour(self, now: float) -> bool:
        """Whether others have written to the file lately."""
        return now - self._neighbour_at < NEIGHBOUR_S

    def _next(self) -> Operation | Loan | None:
        if self._kept is not None:
            kept, self._kept = self._kept, None
            return kept
        while True:
            try:
                return self._queue.get(timeout=IDLE_S)
            except Empty:
                with self._turn:
                    self._log.carry_over(self.commits, idle=True)

    def _gathered(self, count: int) -> list[Operation]:
        """Whatever waits in the queue, without waiting for more; a loan ends the line."""
        found: list[Operation] = []
        while len(found) < count and self._kept is None:
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
            if item is None:
                self._queue.put(None)
                break
            if isinstance(item, Loan):
                self._kept = item
            elif not item.future.cancelled():
                found.append(item)
        return found

    def _write_one_or_more(self, first: Operation) -> None:
        batch = [first, *self._gathered(GATHERED_MAX - 1)]
        began = self._clock.seconds()
        self._write(batch)
        self._committed_at = self._clock.seconds()
        is_single = len(batch) == 1 and self._path != ":memory:"
        self._is_quick = is_single and self._committed_at - began < INLINE_S
        if self._is_quick and first.is_statement and not self._has_neighbour(began):
            self._inline_left = INLINE_MAX

    def _write(self, batch: list[Operation]) -> None:
        try:
            if self._begin(self._db, batch):
                self._run_all(batch)
                self._commit(self._db)
        except Exception as error:
            self._roll_back(self._db)
            if isinstance(error, OutcomeUnknown) or len(batch) == 1:
                self._fail(batch, error)
            else:
                half = len(batch) // 2
                self._write(batch[:half])
                self._write(batch[half:])
        else:
            answer(batch)

    def _run_all(self, batch: list[Operation]) -> None:
        for operation in batch:
            operation.result = operation.work(self._db, micros(self._clock.now()))

    def _begin(self, db: sqlite3.Connection, waiting: list[Operation]) -> bool:
        """Take the write lock, however long others hold it.  False: nobody waits any more."""
        while True:
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                waiting += self._gathered(GATHERED_MAX - len(waiting))
                waiting[:] = self._still_patient(waiting)
                if not waiting:
                    return False
            else:
                return True

    def _still_patient(self, waiting: list[Operation]) -> list[Operation]:
        now = self._clock.seconds()
        late = [one for one in waiting if one.patience_ends is not None and now > one.patience_ends]
        self._fail(late, StoreUnavailable(f"{self._path}: {_LOCKED}"))
        return [one for one in waiting if one not in late]

    def _commit(self, db: sqlite3.Connection) -> None:
        try:
            db.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._unless_unknown(error) from error
        self.commits += 1

    def _unless_unknown(self, error: sqlite3.Error) -> Exception:
        """The error of a commit, or OutcomeUnknown when nobody can tell what became of it."""
        if not is_io_failure(error):
            return error
        # The frames may stand in the WAL although the sync of it failed.
        text = f"{self._path}: the disk failed during a commit ({error})"
        return OutcomeUnknown(text, repeat_is_safe=False)

    def _roll_back(self, db: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):  # what cannot be rolled back was rolled back by SQLite
            if db.in_transaction:
                db.execute("ROLLBACK")

    def _fail(self, operations: list[Operation], error: Exception) -> None:
        for operation in operations:
            operation.error = self._as_ours(error)
        answer(operations)

    def _as_ours(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error) and not is_mistake(error):
            return _with_cause(unavailable(error, self._path), error)
        return error

    def _lend(self, loan: Loan) -> None:
        waiting = [loan.opening]
        try:
            if not self._begin_loan(loan):
                return
            answer(waiting)
            while not loan.ended.wait(WATCH_S):
                self._kept_waiting()
                if loan.opening.loop.is_closed():
                    break  # the borrower can never come back
            self._end_loan(loan)
        except Exception as error:
            self._roll_back(loan.connection)
            self._fail([loan.closing if loan.ended.is_set() else loan.opening], error)

    def _begin_loan(self, loan: Loan) -> bool:
        # The borrower before may have left his own ways of reading rows.
        loan.connection.row_factory, loan.connection.text_factory = None, str
        while not loan.ended.is_set():
            try:
                loan.connection.execute(f"PRAGMA busy_timeout = {BEGIN_BUSY_MS}").fetchall()
                loan.connection.execute("BEGIN IMMEDIATE")
                loan.connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}").fetchall()
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                self._kept_waiting()
            else:
                return True
        return False

    def _end_loan(self, loan: Loan) -> None:
        if loan.commits:
            self._commit(loan.connection)
            self._seen_version = self._data_version()  # that was no neighbour
        else:
            self._roll_back(loan.connection)
        answer([loan.closing])

    def _kept_waiting(self) -> None:
        """While the file is lent out, give up those who cannot wait and keep the others' order."""
        items: list[Operation | Loan | None] = []
        while not self._queue.empty():
            items.append(self._queue.get())
        patient = self._still_patient([one for one in items if isinstance(one, Operation)])
        for item in items:
            if not isinstance(item, Operation) or item in patient:
                self._queue.put(item)

    def _rest(self) -> None:
        """Leave the file alone for a moment after the last commit, where others may want it."""
        if self._path == ":memory:":
            return
        now = self._clock.seconds()
        if now - self._looked_at > LOOK_S:
            self._looked_at = now
            version = self._data_version()
            if version != self._seen_version:
                self._seen_version = version
                self._neighbour_at = now
                self.foreign_commits += 1
        remaining_s = REST_S - (now - self._committed_at)
        if remaining_s <= 0:
            self._rested_at = now
        elif self._has_neighbour(now) or now - self._rested_at > KNOCK_S:
            self._rested_at = now
            self._pause.wait(remaining_s)

    def _data_version(self) -> int:
        try:
            version: int = self._db.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            return self._seen_version  # only a hint; the next statement reports the trouble
        return version

    def _tidy_up(self) -> None:
        if self._guest is not self._db:
            self._guest.close()
        self._db.close()
        answer([self._farewell])


_LOCKED = (
    "another connection keeps an open write transaction. If it is your own, the task cannot be "
    "added beside it: give the connection as enqueue(..., within=connection) to add the task in "
    "that transaction, or commit first"
)


def _with_cause(error: HoldfastError, cause: BaseException) -> HoldfastError:
    error.__cause__ = cause
    return error
