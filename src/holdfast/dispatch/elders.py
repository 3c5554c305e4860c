"""Who is the eldest of each ordering key in the trigger table, wherever it stands there.

A key's tasks run in the order of their ids, whatever their priorities, kinds and levels: a retry
goes to the end of its line, and its younger siblings may then stand before it.
"""

from __future__ import annotations

from heapq import heappop, heappush

from holdfast.task import TaskId


class _Line:
    """The tasks of one key; those in the heap that are not alive have left."""

    __slots__ = ("alive", "heap")

    def __init__(self) -> None:
        self.alive: set[TaskId] = set()
        self.heap: list[TaskId] = []


class Elders:
    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def add(self, key: str, id: TaskId) -> None:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        if id not in line.alive:
            line.alive.add(id)
            heappush(line.heap, id)

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
