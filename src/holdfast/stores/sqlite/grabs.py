"""Grabbing and settling, as operations on a connection that holds the write lock.

Whoever holds the write lock is alone: what was read is still true when it is written.  So each
operation looks at all its rows, decides in plain code, and writes what it decided.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from holdfast.ids import NodeId
from holdfast.store import Grab
from holdfast.stores.sqlite.rows import moment, span
from holdfast.stores.sqlite.statements import as_list, run, run_many
from holdfast.task import FINAL, MOVES, Event, Grabbed, Outcome, State, TaskId, Trigger

_SUBMITTED, _PROCESSING = int(State.SUBMITTED), int(State.PROCESSING)
_VERSION, _KIND, _QUEUE, _PARTITION, _ORDERING_KEY, _STATE, _NODE = 1, 2, 7, 8, 11, 15, 16


class Grabbing:
    """One call of `grab`: its conditions, and what it decides."""

    def __init__(
        self,
        triggers: Sequence[Trigger],
        *,
        node: NodeId,
        deadlines_s: Mapping[str, float],
        epochs: Mapping[int, int],
        skip_errors_of: Collection[str],
        shares: Collection[int],
        repeat: bool,
    ) -> None:
        self._shares = set(shares)
        self._wanted = {(trigger.id, trigger.version) for trigger in triggers}
        self._node = node
        self._deadlines_s = deadlines_s
        self._epochs = epochs
        self._skip_errors_of = frozenset(skip_errors_of)
        self._repeat = repeat

    def __call__(self, db: sqlite3.Connection, now: int) -> Grab:
        won: list[tuple[Any, ...]] = []
        blocked: list[tuple[Any, ...]] = []
        rows = run(db, "grab_look", ids=as_list({id for id, _ in self._wanted}))
        held = [row for row in rows if self._repeat and self._is_held(row)]
        if self._shares and not self._has_shares(db):
            undecided = {id for id, _ in self._wanted} - {row[0] for row in held}
            return Grab([_grabbed(row, 0) for row in held], undecided=sorted(undecided))
        for row in rows:
            if row[_STATE] == _SUBMITTED and (row[0], row[1]) in self._wanted:
                if row[_ORDERING_KEY] is None:
                    won.append(row)
                elif self._is_owned(db, row):
                    (blocked if self._is_blocked(db, row) else won).append(row)
        self._take(db, now, won)
        tasks = [_grabbed(row, 1) for row in won] + [_grabbed(row, 0) for row in held]
        refused = [TaskId(row[0]) for row in blocked]
        return Grab(tasks, blocked=refused, elders=self._elders(db, blocked))

    def _has_shares(self, db: sqlite3.Connection) -> bool:
        numbers = as_list(self._shares)
        held: int = run(db, "shares_held", numbers=numbers, node=self._node)[0][0]
        return held == len(self._shares)

    def _elders(self, db: sqlite3.Connection, blocked: list[tuple[Any, ...]]) -> list[Trigger]:
        """Who goes before those that were blocked, and was not asked for."""
        named = {id for id, _ in self._wanted}
        youngest = {(row[_QUEUE], row[_ORDERING_KEY]): row[0] for row in blocked}  # by id
        found = [
            row
            for (queue, key), id in youngest.items()
            for row in run(db, "elder_submitted", queue=queue, ordering_key=key, id=id)
        ]
        return [Trigger._make(row) for row in found if row[0] not in named]

    def _is_held(self, row: tuple[Any, ...]) -> bool:
        """Grabbed by the first call, whose answer was lost."""
        return (
            row[_STATE] == _PROCESSING
            and row[_NODE] == self._node
            and (row[0], row[_VERSION] - 1) in self._wanted
        )

    def _is_owned(self, db: sqlite3.Connection, row: tuple[Any, ...]) -> bool:
        epoch = run(db, "epoch", queue=row[_QUEUE], partition=row[_PARTITION])
        return bool(epoch) and epoch[0][0] == self._epochs.get(row[_PARTITION])

    def _is_blocked(self, db: sqlite3.Connection, row: tuple[Any, ...]) -> bool:
        # Rows come by id and are moved after all were looked at: of two siblings in one call
        # the younger still sees the elder SUBMITTED.
        place = {"queue": row[_QUEUE], "ordering_key": row[_ORDERING_KEY]}
        skip_errors = row[_KIND] in self._skip_errors_of
        return bool(
            run(db, "sibling_runs", **place)
            or run(db, "elder_waits", **place, id=row[0], skip_errors=skip_errors)
        )

    def _take(self, db: sqlite3.Connection, now: int, won: list[tuple[Any, ...]]) -> None:
        by_kind: dict[str, list[int]] = defaultdict(list)
        for row in won:
            by_kind[row[_KIND]].append(row[0])
        for kind, ids in by_kind.items():
            seconds = self._deadlines_s.get(kind)
            deadline_at = None if seconds is None else now + span(seconds)
            run(db, "grab", node=self._node, deadline_at=deadline_at, ids=as_list(ids))


def _grabbed(row: tuple[Any, ...], raised: int) -> Grabbed:
    """The columns stand in the order of the fields; two of them count this grab."""
    id, version, kind, payload, attempt, deliveries, *facts, enqueued_at, losses, _, _ = row
    counted = (id, version + raised, kind, payload, attempt, deliveries + raised)
    return Grabbed._make((*counted, *facts, moment(enqueued_at), losses))


class Settling:
    """One call of `settle`.  With `repeats`, what this node settled before counts as settled."""

    def __init__(self, outcomes: Sequence[Outcome], *, node: NodeId, repeats: bool) -> None:
        self._outcomes = outcomes
        self._node = node
        self._repeats = repeats

    def __call__(self, db: sqlite3.Connection, now: int) -> list[bool]:
        ids = as_list({outcome.id for outcome in self._outcomes})
        rows = {id: rest for id, *rest in run(db, "settle_look", ids=ids)}
        settled: list[tuple[Outcome, State]] = []
        answers: list[bool] = []
        for outcome in self._outcomes:
            target = MOVES[State.PROCESSING, outcome.event]
            row = rows.get(outcome.id)
            is_ours = row is not None and row[:2] == [outcome.version, State.PROCESSING]
            if is_ours:
                settled.append((outcome, target))
                rows[outcome.id] = [outcome.version + 1, target, self._node]
            answers.append(is_ours)
        if self._repeats and not all(answers):
            self._forgive_repeats(db, rows, answers)
        self._finish(db, now, [pair for pair in settled if pair[1] in FINAL])
        self._move_on(db, now, [pair for pair in settled if pair[1] not in FINAL])
        for outcome, _ in settled:
            if outcome.ends:
                run(db, "schedule_end", name=outcome.ends)
        return answers

    def _forgive_repeats(
        self, db: sqlite3.Connection, rows: dict[int, list[Any]], answers: list[bool]
    ) -> None:
        missing = [outcome.id for outcome in self._outcomes if outcome.id not in rows]
        archived = run(db, "settle_look_archive", ids=as_list(missing)) if missing else []
        known = rows | {id: rest for id, *rest in archived}
        for index, outcome in enumerate(self._outcomes):
            row = known.get(outcome.id)
            if row is None:
                # Only a settle that keeps no row leaves none.
                answers[index] = outcome.event is Event.SUCCEEDED and not outcome.keep
            elif not answers[index]:
                target = MOVES[State.PROCESSING, outcome.event]
                answers[index] = row == [outcome.version + 1, target, self._node]

    def _finish(
        self, db: sqlite3.Connection, now: int, ended: Sequence[tuple[Outcome, State]]
    ) -> None:
        if not ended:
            return
        plain: dict[State, list[int]] = defaultdict(list)
        with_words = []
        dropped = []
        for outcome, state in ended:
            if state is State.DONE and not outcome.keep:
                dropped.append(outcome.id)
            elif outcome.error is None and outcome.result is None:
                plain[state].append(outcome.id)
            else:
                with_words.append(
                    (int(state), now, self._node, outcome.error, outcome.result, outcome.id)
                )
        for state, ids in plain.items():
            run(db, "archive_plain", state=int(state), now=now, node=self._node, ids=as_list(ids))
        run_many(db, "archive", with_words)
        if dropped:
            run(db, "key_drop", ids=as_list(dropped))
        run(db, "remove", ids=as_list(outcome.id for outcome, _ in ended))

    def _move_on(
        self, db: sqlite3.Connection, now: int, moved: Sequence[tuple[Outcome, State]]
    ) -> None:
        again = any(state is State.SUBMITTED for _, state in moved)
        number = run(db, "next_arrived")[0][0] if again else 0
        run_many(
            db,
            "settle_again",
            [
                (
                    int(state),
                    0 if outcome.resets else 1,
                    int(outcome.counts and not outcome.resets),
                    int(not outcome.forgives),
                    number if state is State.SUBMITTED else 0,
                    now + span(outcome.delay_s) if state is State.WAITING else None,
                    self._node,
                    outcome.error,
                    outcome.id,
                )
                for outcome, state in moved
            ],
        )
