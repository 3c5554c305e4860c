"""Suspects: tasks that were running when their node's process died.

One of them may be the culprit, and nobody knows which.  Each is run alone, in a process of its
own: the culprit then ends only that process, is parked with what is known of the death, and its
neighbours end as they would have.

    node dies with k tasks ──▶ losses = 1 ──▶ grabbed again ──▶ alone ─┬▶ an outcome: as ever
                                                                       └▶ its process dies: ERROR
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from holdfast.handler import Handler
from holdfast.ids import NodeId
from holdfast.task import Grabbed, Outcome
from holdfast.telemetry.events import AloneRefused, Events, SuspectStarted
from holdfast.worker import verdict, wire
from holdfast.worker.alone import reason_against
from holdfast.worker.processes import ProcessPool, judged
from holdfast.worker.transactional import Recorded
from holdfast.worker.verdict import ProcessLost

IDLE_S = 10.0
ROOM_S = 3.0  # a suspect that found no process for so long goes back to the store


class Suspects:
    """Runs suspects, at most `size` at once; the others wait, and then go back.

    A dead node's tasks come to the owner of their partition, all at once.  Who finds no process
    soon waits in the store instead of here: its slot is free for tasks that are no suspects,
    another node may have room for it later, and if this node dies too, that is no loss of a task
    which had not begun.
    """

    def __init__(self, size: int, *, node: NodeId, events: Events) -> None:
        self._size = size
        self._events = events
        self._pool = ProcessPool(size, node=node, idle_s=IDLE_S, is_strict=True)
        self._refused: set[str] = set()  # kinds that no other process can run

    @property
    def pids(self) -> list[int]:
        """The processes that are alive now."""
        return self._pool.pids

    async def run(self, task: Grabbed, handler: Handler) -> Outcome | Recorded | None:
        """Run the suspect alone and answer its outcome; None: it can only be run in the node.

        When there is no room for it, the outcome is a short wait, and it stays a suspect.

        Raises what the handler raised, `ProcessLost` when it ended its process, or
        `TimeLimitExceeded`.  When it is cancelled, its process is killed before it returns.
        """
        if not self._size or self._is_refused(handler):
            return None
        room = self._pool.room()
        try:
            async with asyncio.timeout(ROOM_S):
                await room.acquire()
        except TimeoutError:
            return verdict.put_back(task)
        try:
            if handler.kind in self._refused:  # meanwhile
                return None
            return await self._run(task, handler)
        finally:
            room.release()

    def expect(self, handlers: Iterable[Handler]) -> None:
        """A node is about to be taken for dead: start processes now, so that nobody waits for one.

        Starting one takes longer than most suspects run.  They end soon when none comes.
        """
        modules = {h.function.__module__ for h in handlers if reason_against(h) is None}
        if modules:
            self._pool.prepare(self._size, sorted(modules))

    def close(self) -> None:
        """Kill every process.  Safe to repeat."""
        self._pool.close()

    async def _run(self, task: Grabbed, handler: Handler) -> Outcome | Recorded | None:
        started = SuspectStarted(task.id, task.kind, task.losses)
        try:
            answer = await self._pool.answer(
                task, handler, started=lambda: self._events.emit(started)
            )
        except ProcessLost as lost:
            if lost.has_started:
                raise
            words = lost.last_words.rpartition("\n")[2]
            self._refuse(handler, f"its process died at the start ({lost.how}): {words}")
            return None
        except OSError as error:
            return verdict.postponed(task, error)  # no room for one more process
        if isinstance(answer, wire.NotFound):
            self._refuse(handler, answer.raised.message)
            return None
        return judged(answer)

    def _is_refused(self, handler: Handler) -> bool:
        if handler.kind in self._refused:
            return True
        reason = reason_against(handler)
        if reason is not None:
            self._refuse(handler, reason)
        return reason is not None

    def _refuse(self, handler: Handler, reason: str) -> None:
        if handler.kind not in self._refused:
            self._refused.add(handler.kind)
            self._events.emit(AloneRefused(handler.kind, verdict.storable(reason)))
