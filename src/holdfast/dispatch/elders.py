"""Who is the eldest of each ordering key in the trigger table, wherever it stands there.

A key's tasks run in the order of their ids, whatever their priorities, kinds and levels: a retry
goes to the end of its line, and its younger siblings may then stand before it.

A key may wait for an elder that is not in the table: as soon as one comes in, by whatever way, the
key may be asked again.
"""

from __future__ import annotations

from heapq import heappop, heappush

from holdfast.task import TaskId, Trigger


class _Line:
    """The tasks of one key; those in the heap that are not alive have left."""

    __slots__ = ("alive", "heap")

    def __init__(self) -> None:
        self.alive: set[TaskId] = set()
        self.heap: list[TaskId] = []


class Elders:
    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self.awaited: dict[str, TaskId] = {}  # keys that wait for an elder, and of which task
        self._came: list[str] = []

    def await_elder(self, key: str, id: TaskId) -> None:
        """The store refused this task for an elder; unless that came meanwhile, the key waits."""
        first = self.first(key)
        if first is None or first >= id:
            self.awaited[key] = id

    def is_awaited(self, trigger: Trigger) -> bool:
        """Whether its key waits for an elder, and this is one."""
        key = trigger.ordering_key
        return key is not None and trigger.id < self.awaited.get(key, trigger.id)

    def came(self) -> list[str]:
        """Keys whose wait has ended since this was asked last."""
        came, self._came = self._came, []
        return came

    def add(self, key: str, id: TaskId) -> None:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        if id not in line.alive:
            line.alive.add(id)
            heappush(line.heap, id)
            if id < self.awaited.get(key, id):
                del self.awaited[key]
                self._came.append(key)

    def leave(self, key: str, id: TaskId) -> None:
        line = self._lines[key]
        line.alive.discard(id)
        if not line.alive:
            del self._lines[key]

    def first(self, key: str) -> TaskId | None:
        """The task of the key with the lowest id."""
        line = self._lines.get(key)
        if line is None:
            return None
        while line.heap[0] not in line.alive:
            heappop(line.heap)
        return line.heap[0]
