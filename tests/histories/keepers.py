"""The books of a node, one call at a time: a step asks, one does, one hears the answer.

The coroutines are the node's own.  What they ask of the store is kept until the history comes to
it, so anything may happen while a call is on its way.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from random import Random
from typing import Any

from histories.columns import PARTITION, Call
from holdfast.dispatch.books import Books
from holdfast.dispatch.intake import Intake
from holdfast.dispatch.limits import Limits
from holdfast.dispatch.table import TriggerTable
from holdfast.errors import StoreUnavailable
from holdfast.store import Arrivals, Cursor, Entry, LevelCursor, Record
from holdfast.telemetry.events import Events


class Asked:
    """A call of the store; whoever drives the coroutine sends its answer."""

    def __init__(self, *call: Any) -> None:
        self._call: Call = call

    def __await__(self) -> Generator[Call, Any, Any]:
        return (yield self._call)


class AskedStore:
    """The verbs of the books, as questions to the history."""

    async def arrivals(
        self, queue: str, cursors: Sequence[Cursor], *, limit: int, exact: bool
    ) -> Arrivals:
        return await Asked("arrivals", cursors[0], limit, exact)

    async def levels(self, queue: str, cursors: Sequence[LevelCursor]) -> list[list[Entry]]:
        return [await Asked("levels", cursor) for cursor in cursors]

    async def record(self, queue: str, records: Sequence[Record]) -> set[int]:
        (record,) = records
        return set() if await Asked("record", record) else {PARTITION}


class Ticks:
    """A clock that goes on with the steps of the history."""

    def __init__(self) -> None:
        self.at = 1.0

    def seconds(self) -> float:
        return self.at


class Keeper:
    """One node's memory of the queue, and the call of its books that is on its way."""

    def __init__(self, queue: str, limits: Limits, clock: Ticks) -> None:
        self.table = TriggerTable(rng=Random(0), size_max=limits.look_ahead)
        self.intake = Intake(queue, self.table, limits, handles=lambda _: True)
        self.clock = clock
        self.books = Books(
            AskedStore(),  # type: ignore[arg-type]
            self.intake,
            clock=clock,  # type: ignore[arg-type]
            events=Events(),
            offered=lambda: None,
            runs_low=lambda: True,
        )
        self.call: Call | None = None  # on its way to the store, or answered
        self.answer: tuple[Any] | None = None  # what the store has said
        self._work: Coroutine[Call, Any, Any] | None = None

    def start(self, name: str) -> None:
        """Begin a part of a turn, unless one is under way."""
        if self._work is None:
            self._work = getattr(self, name)()
            self._go(None)

    def hear(self) -> None:
        """The answer arrives."""
        if self.answer is not None:
            (answer,), self.answer = self.answer, None
            self._go(answer)

    def fail(self) -> None:
        """An error arrives instead of an answer: nobody knows what was done."""
        if self._work is not None:
            self.call, self.answer = None, None
            try:
                self.call = self._work.throw(StoreUnavailable("as the history has it"))
            except (StopIteration, StoreUnavailable):
                self._work = None

    def end(self) -> None:
        """The process dies."""
        if self._work is not None:
            self._work.close()

    def _go(self, answer: Any) -> None:
        assert self._work is not None
        self.call = None
        try:
            self.call = self._work.send(answer)
        except StopIteration:
            self._work = None

    async def append(self) -> None:
        self.intake.stored.spill(self.clock.seconds())
        await self.books._append()

    async def read_early(self) -> None:
        await self.books._read_early()

    async def read_exact(self) -> None:
        await self.books._read_exact()

    async def read_levels(self) -> None:
        await self.books._read_levels()
        self.intake.offer_again()

    async def trim(self) -> None:
        await self.books._trim()
