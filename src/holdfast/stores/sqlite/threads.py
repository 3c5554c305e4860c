"""What the roles ask of the store that they are part of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.clock import Clock
from holdfast.stores.sqlite.leases import LeaseFile
from holdfast.stores.sqlite.operations import Work
from holdfast.stores.sqlite.writer import Writer


class Threads:
    """Ways to run work on one of the store's threads."""

    _clock: Clock
    _writer: Writer
    _patience_s: float

    def data_version(self) -> int:
        """A number that changes when anybody has committed to the file."""
        raise NotImplementedError

    @property
    def partitions(self) -> int:
        raise NotImplementedError

    async def _write(
        self, work: Work, *, patience_s: float | None = None, is_small: bool = False
    ) -> Any:
        """In the writer's next transaction; answered after its commit."""
        raise NotImplementedError

    async def _read(self, work: Work) -> Any:
        """A small read for the engine."""
        raise NotImplementedError

    async def _browse(self, work: Work) -> Any:
        """A read that may take long."""
        raise NotImplementedError

    async def _ask_leases(self, work: Callable[[LeaseFile, int], Any]) -> Any:
        raise NotImplementedError
