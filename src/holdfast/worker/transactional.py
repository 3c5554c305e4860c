"""One attempt of a transactional handler: its writes and the settle commit together."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.errors import Unavailable
from holdfast.handler import Handler
from holdfast.ids import NodeId
from holdfast.outcomes import Later, ParkInError
from holdfast.store import Tasks
from holdfast.task import Event, Grabbed, Outcome
from holdfast.worker import verdict
from holdfast.worker.running import limited


class Recorded(NamedTuple):
    """An outcome that the handler's own transaction has settled."""

    outcome: Outcome
    is_accepted: bool  # False: somebody else has moved the task on, and nothing was committed


class _Superseded(Exception):
    """Whatever this attempt did must not be recorded."""


async def run_in_transaction(
    store: Tasks,
    task: Grabbed,
    handler: Handler,
    *,
    node: NodeId,
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
) -> Recorded | Outcome:
    """The handler's writes and the settle commit together, or neither does.

    Answers what was recorded, or an outcome that is still to be recorded: the store failed at the
    beginning or at the commit, not the handler.  Raises what the handler raised.
    """
    args, kwargs = arguments
    is_running = False
    try:
        async with store.transaction(task, node=node) as transaction:
            is_running = True
            work = handler.function(transaction.connection, *args, **kwargs)
            result = await limited(handler, work)
            if isinstance(result, Later):
                raise TypeError("a transactional handler cannot end later")
            outcome = verdict.of_result(task, handler, result)
            if outcome.event is Event.PARKED:
                raise ParkInError(outcome.error)
            is_running = False
            if not await transaction.settle(outcome):
                raise _Superseded
    except _Superseded:
        return Recorded(outcome, is_accepted=False)
    except Unavailable as error:
        if is_running:
            raise
        return verdict.postponed(task, error)
    return Recorded(outcome, is_accepted=True)
