"""The client's and the worker's role: enqueue, grab, settle, change, get."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from operator import attrgetter
from typing import Any

import asyncpg

from holdfast.ids import NodeId
from holdfast.sql.query import Script
from holdfast.store import Change, Changed, Grab, Transaction
from holdfast.stores.postgres.changing import changed
from holdfast.stores.postgres.connection import PLANNER, Database, Session, local
from holdfast.stores.postgres.enqueueing import (
    arrays_of,
    created,
    enqueue_many,
    enqueueing,
    params_of,
)
from holdfast.stores.postgres.failures import is_missing_day
from holdfast.stores.postgres.rows import alike, made, task_of
from holdfast.task import (
    FINAL,
    MOVES,
    Enqueued,
    Event,
    Grabbed,
    NewTask,
    Outcome,
    State,
    Task,
    TaskId,
    Trigger,
)

Statement = tuple[str, dict[str, Any]]
"""A query with its parameters."""

_ID = attrgetter("id")


class PostgresTasks:
    """`holdfast.store.Tasks`: the promises are written there."""

    _database: Database

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        if not tasks:
            return []
        if all(task.key is None for task in tasks):
            if len(tasks) == 1:
                query, params = "enqueue_one", params_of(tasks[0], None)
            else:
                query, params = "enqueue_many", arrays_of(tasks)
            rows = await self._database.write(query, params, repeat_is_safe=False)
            return [created(row) for row in rows]
        repeat_is_safe = all(task.key is not None for task in tasks)
        if len(tasks) == 1:
            rows = await self._database.write("enqueue_keyed", params_of(tasks[0], None))
            if rows:
                return [created(rows[0])]
        return await self._database.together(
            lambda session: enqueue_many(session, tasks), repeat_is_safe=repeat_is_safe
        )

    def enqueueing(self, tasks: Sequence[NewTask]) -> Script[list[Enqueued]]:
        return enqueueing(self._database, tasks)

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
        if not triggers:
            return Grab([])
        # Locks are taken in the order of ids, so that two waiting grabs never form a circle.
        in_order = sorted(triggers, key=_ID)
        statements: list[Statement] = []
        if free := [trigger for trigger in in_order if trigger.ordering_key is None]:
            statements.append(("grab", _wanted(free, node, deadlines_s)))
        if ordered := [trigger for trigger in in_order if trigger.ordering_key is not None]:
            params = _wanted(ordered, node, deadlines_s) | _fence(ordered, epochs)
            params["skip_errors_of"] = list(skip_errors_of)
            params["queues"] = [trigger.queue for trigger in ordered]
            params["partitions"] = [trigger.partition for trigger in ordered]
            statements.append(("grab_ordered", params))
        held = _held(in_order, node) if repeat else []
        rows, has_shares = await self._grabbed(held, statements, shares, node)
        tasks = [made(Grabbed, row) for row in rows if len(row) > 1]  # hold answers ids
        assert len(tasks) <= len(triggers), "INV-2: a grab changes one row for each trigger"
        if len(tasks) == len(triggers):
            return Grab(tasks)
        if not has_shares:
            returned = {task.id for task in tasks}
            return Grab(tasks, [trigger.id for trigger in in_order if trigger.id not in returned])
        return await self._missed(in_order, tasks, epochs, skip_errors_of)

    async def settle(self, outcomes: Sequence[Outcome], *, node: NodeId) -> list[bool]:
        if not outcomes:
            return []
        statements = _settling(outcomes, node)
        if any(outcome.ends for outcome in outcomes):
            settled = await self._settle_and_end(statements, outcomes)
        else:
            settled = {row[0] for row in await self._run(statements)}
        missing = [outcome for outcome in outcomes if outcome.id not in settled]
        if missing:
            rows = await self._database.read("settled_before", _before(missing) | {"node": node})
            settled |= {row[0] for row in rows}
        return [outcome.id in settled for outcome in outcomes]

    def transaction(
        self, task: Grabbed, *, node: NodeId
    ) -> AbstractAsyncContextManager[Transaction]:
        return self._transaction(node)

    async def change(self, changes: Sequence[Change]) -> list[Changed]:
        if not changes:
            return []
        return await self._database.together(lambda session: changed(session, changes))

    async def get(self, ids: Sequence[TaskId]) -> dict[TaskId, Task]:
        if not ids:
            return {}
        rows = await self._database.read("get", {"ids": list(dict.fromkeys(ids))})
        return {task.id: task for task in map(task_of, rows)}

    async def _run(self, statements: list[Statement]) -> list[Any]:
        """One statement is its own transaction, more are put into one."""
        if len(statements) == 1:
            return await self._database.write(*statements[0])
        return await self._database.together(lambda session: _all(session, statements))

    async def _grabbed(
        self,
        held: list[Statement],
        statements: list[Statement],
        shares: Collection[int],
        node: NodeId,
    ) -> tuple[list[Any], bool]:
        """What is held and what is taken; False: a share is gone, so nothing was taken."""
        if not (held or shares):
            return await self._run(statements), True

        async def both(session: Session) -> tuple[list[Any], bool]:
            params = {"numbers": sorted(shares), "node": node}
            has_shares = not shares or len(await session.run("hold_shares", params)) == len(shares)
            return await _all(session, held + statements if has_shares else held), has_shares

        return await self._database.together(both)

    async def _settle_and_end(
        self, statements: list[Statement], outcomes: Sequence[Outcome]
    ) -> set[int]:
        """The ids that were settled; the schedules that they name have ended with them."""

        async def both(session: Session) -> set[int]:
            settled = {row[0] for each in statements for row in await session.run(*each)}
            names = {one.ends for one in outcomes if one.ends and one.id in settled}
            await session.run("end_schedules", {"names": sorted(names)})
            return settled

        return await self._database.together(both)

    async def _missed(
        self,
        triggers: Sequence[Trigger],
        tasks: list[Grabbed],
        epochs: Mapping[int, int],
        skip_errors_of: Collection[str],
    ) -> Grab:
        """Look again at what the grab did not return: decided, locked by someone, or blocked."""
        returned = {task.id for task in tasks}
        missed = {trigger.id: trigger for trigger in triggers if trigger.id not in returned}
        params = {
            "ids": list(missed),
            "versions": [trigger.version for trigger in missed.values()],
            "epochs": [epochs.get(trigger.partition) for trigger in missed.values()],
            "skip_errors_of": list(skip_errors_of),
        }
        undecided: list[TaskId] = []
        blocked: list[TaskId] = []
        for id, is_blocked, is_ours, key in await self._database.read("grab_missed", params):
            if not is_ours or key != missed[id].ordering_key:
                continue  # the partition's owner will be offered it
            (blocked if is_blocked else undecided).append(TaskId(id))
        elders = await self._elders([missed[id] for id in sorted(blocked)])
        named = {trigger.id for trigger in triggers}
        elders = [trigger for trigger in elders if trigger.id not in named]
        return Grab(tasks, undecided, blocked, elders)

    async def _elders(self, blocked: Sequence[Trigger]) -> list[Trigger]:
        """The eldest that stand before these and may be grabbed now, as far as it is known."""
        if not blocked:
            return []
        youngest = {(one.queue, one.ordering_key): one.id for one in blocked}  # they come by id
        params = {
            "queues": [queue for queue, _ in youngest],
            "ordering_keys": [key for _, key in youngest],
            "ids": list(youngest.values()),
        }
        return [made(Trigger, row) for row in await self._database.read("elders", params)]

    @asynccontextmanager
    async def _transaction(self, node: NodeId) -> AsyncIterator[Transaction]:
        async with self._database.transaction(plain=True) as session:
            yield PostgresTransaction(session, self._database, node=node)


class PostgresTransaction:
    """A handler's transaction: its own writes and the settle commit together."""

    def __init__(self, session: Session, database: Database, *, node: NodeId) -> None:
        self._session = session
        self._database = database
        self._node = node

    @property
    def connection(self) -> Any:
        return self._session.connection

    async def settle(self, outcome: Outcome) -> bool:
        """As `settle` of the store, but a repeat answers False: it must not commit twice."""
        ((query, params),) = _settling([outcome], self._node)
        # The engine's plans for one statement; the savepoint is for the day that is missing.
        await self.connection.execute(f"SAVEPOINT holdfast_settle; {local(PLANNER)}")
        try:
            rows = await self._session.run(query, params)
        except asyncpg.CheckViolationError as error:
            if not is_missing_day(error):
                raise
            await self.connection.execute("ROLLBACK TO SAVEPOINT holdfast_settle")
            await self._database.make_archive_days()
            rows = await self._session.run(query, params)
        if rows and outcome.ends:
            await self._session.run("end_schedules", {"names": [outcome.ends]})
        return bool(rows)


async def _all(session: Session, statements: list[Statement]) -> list[Any]:
    return [row for statement in statements for row in await session.run(*statement)]


def _held(triggers: Sequence[Trigger], node: NodeId) -> list[Statement]:
    """What an earlier call has grabbed already: nobody else is at work on it when it is read."""
    wanted = sorted({(trigger.id, trigger.version) for trigger in triggers})
    ids, versions = [id for id, _ in wanted], [version for _, version in wanted]
    before = {"ids": ids, "versions": versions, "node": node}
    return [("hold", {"ids": ids}), ("grabbed_before", before)]


def _wanted(
    triggers: Sequence[Trigger], node: NodeId, deadlines_s: Mapping[str, float]
) -> dict[str, Any]:
    return {
        "ids": [trigger.id for trigger in triggers],
        **alike("version", "versions", [trigger.version for trigger in triggers]),
        "kinds": list(deadlines_s),
        "deadlines_s": list(deadlines_s.values()),
        "node": node,
    }


def _fence(triggers: Sequence[Trigger], epochs: Mapping[int, int]) -> dict[str, Any]:
    """The partitions' rows to lock, in one order for everybody."""
    partitions = sorted({(trigger.queue, trigger.partition) for trigger in triggers})
    return {
        "fence_queues": [queue for queue, _ in partitions],
        "fence_partitions": [partition for _, partition in partitions],
        "fence_epochs": [epochs.get(partition) for _, partition in partitions],
    }


def _settling(outcomes: Sequence[Outcome], node: NodeId) -> list[Statement]:
    """The statements for these outcomes: finished rows leave, the others go on."""
    finished: list[tuple[Outcome, State]] = []
    moved: list[tuple[Outcome, State]] = []
    event, state = Event.SUCCEEDED, State.DONE
    for outcome in sorted(outcomes, key=_ID):
        if outcome.event is not event:
            event, state = outcome.event, MOVES[State.PROCESSING, outcome.event]
        (finished if state in FINAL else moved).append((outcome, state))
    statements: list[Statement] = []
    if finished:
        params = _at_versions(finished) | {
            **alike("result", "results", [outcome.result for outcome, _ in finished]),
            **alike("keep", "keeps", [_is_kept(*each) for each in finished]),
            "any_state": False,
            "node": node,
        }
        statements.append(("finish", params))
    if moved:
        params = _at_versions(moved) | {
            "delays_s": [outcome.delay_s for outcome, _ in moved],
            "counts": [int(outcome.counts) for outcome, _ in moved],
            "resets": [outcome.resets for outcome, _ in moved],
            "forgives": [outcome.forgives for outcome, _ in moved],
            "node": node,
        }
        statements.append(("move", params))
    return statements


def _at_versions(outcomes: Sequence[tuple[Outcome, State]]) -> dict[str, Any]:
    return {
        "ids": [outcome.id for outcome, _ in outcomes],
        **alike("version", "versions", [outcome.version for outcome, _ in outcomes]),
        **alike("state", "states", [state for _, state in outcomes]),
        **alike("error", "errors", [outcome.error for outcome, _ in outcomes]),
    }


def _before(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    states = [MOVES[State.PROCESSING, outcome.event] for outcome in outcomes]
    return {
        "ids": [outcome.id for outcome in outcomes],
        "versions": [outcome.version for outcome in outcomes],
        "states": states,
        "keeps": [_is_kept(*each) for each in zip(outcomes, states, strict=True)],
    }


def _is_kept(outcome: Outcome, state: State) -> bool:
    """Whether the archive gets a row: only success may leave none."""
    return outcome.keep or state is not State.DONE
