"""People's wishes: decided by the table of moves over rows that are held meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.store import Answer, Change, Changed
from holdfast.stores.postgres.connection import Session
from holdfast.task import FINAL, MOVES, WISHES, Event, State, Trigger


async def changed(session: Session, changes: Sequence[Change]) -> list[Changed]:
    """Carry the changes out in the session's transaction, one answer for each."""
    answers: dict[int, Changed] = {}
    places = list(range(len(changes)))
    while places:  # a task that is named twice is changed in two rounds
        firsts: dict[int, int] = {}
        for place in places:
            firsts.setdefault(changes[place].id, place)
        answers |= await _round(session, changes, sorted(firsts.values()))
        places = [place for place in places if place not in answers]
    return [answers[place] for place in range(len(changes))]


async def _round(
    session: Session, changes: Sequence[Change], places: Sequence[int]
) -> dict[int, Changed]:
    ids = sorted(changes[place].id for place in places)
    await session.run("hold", {"ids": ids})
    held = {row[0]: (State(row[1]), row[2]) for row in await session.run("held", {"ids": ids})}
    missing = [id for id in ids if id not in held]
    archived = dict(await session.run("archived_versions", {"ids": missing})) if missing else {}
    answers: dict[int, Changed] = {}
    moves: list[tuple[int, Change, State, State, int]] = []
    for place in places:
        change = changes[place]
        if change.id not in held:
            answers[place] = Changed(_answer_without(change, archived.get(change.id)))
            continue
        state, version = held[change.id]
        target = _target(change, state)
        if change.version is not None and change.version != version:
            answers[place] = Changed(Answer.FAILED)
        elif target is None:
            answers[place] = Changed(Answer.NOT_ALLOWED)
        else:
            moves.append((place, change, state, target, version))
    triggers = await _moved(session, moves)
    for place, change, state, target, _ in moves:
        is_told = target is State.SUBMITTED or state is State.PROCESSING
        answers[place] = Changed(Answer.OK, triggers[change.id] if is_told else None)
    return answers


def _answer_without(change: Change, archived: int | None) -> Answer:
    """The answer for a task that is not hot, given its version in the archive."""
    if archived is None:
        return Answer.NOT_FOUND
    is_stale = change.version is not None and change.version != archived
    return Answer.FAILED if is_stale else Answer.NOT_ALLOWED


def _target(change: Change, state: State) -> State | None:
    needs_force = change.event is Event.RESUMED and state is State.PROCESSING
    if change.event not in WISHES or (needs_force and not change.force):
        return None
    return MOVES.get((state, change.event))


async def _moved(
    session: Session, moves: Sequence[tuple[int, Change, State, State, int]]
) -> dict[int, Trigger]:
    """Carry out what was decided, and answer the triggers of the tasks at their new versions."""
    ending = sorted((move for move in moves if move[3] in FINAL), key=lambda move: move[1].id)
    going_on = sorted((move for move in moves if move[3] not in FINAL), key=lambda move: move[1].id)
    triggers: dict[int, Trigger] = {}
    if going_on:
        params = _params(going_on) | {"delays_s": [move[1].delay_s for move in going_on]}
        triggers |= {row[0]: Trigger._make(row) for row in await session.run("change", params)}
    if ending:
        params = _params(ending)
        rows = await session.run("triggers_of", {"ids": params["ids"]})
        triggers |= {row[0]: Trigger(*row) for row in rows}
        each = {"version": None, "state": None, "error": None}  # all of them are in the arrays
        rest = {"result": None, "results": (), "keep": True, "keeps": (), "any_state": True}
        rest["node"] = None  # nobody ran it to this end
        await session.run("finish", params | each | rest)
    assert len(triggers) == len(moves), "a row that is held does not move"
    return triggers


def _params(moves: Sequence[tuple[int, Change, State, State, int]]) -> dict[str, Any]:
    return {
        "ids": [change.id for _, change, _, _, _ in moves],
        "versions": [version for _, _, _, _, version in moves],
        "states": [target for _, _, _, target, _ in moves],
        "errors": [change.error for _, change, _, _, _ in moves],
    }
