"""Where the runs of a benchmark take place: an empty store for each, gone after it.

SQLite gets a file in a temporary folder.  PostgreSQL gets a schema with a name of its own: on
the server of `--url`, else on a private one that is started for the benchmark.  When the process
is killed, a schema named `holdfast_bench_…` may be left behind on the server of `--url`; nothing
else was touched there.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random

from holdfast.address import Address
from holdfast.app import Holdfast
from holdfast.bench.bare import dropped_schema
from holdfast.clock import SystemClock
from holdfast.errors import ConfigurationError
from holdfast.node.compose import make_store
from holdfast.store import Store
from holdfast.testing.postgres import PrivateServer

SQLITE, POSTGRES = "sqlite", "postgres"
ELSEWHERE = "holdfast_bench_elsewhere"


@dataclass(frozen=True, slots=True)
class Place:
    """One empty store, with our tables in it."""

    url: str
    schema: str = "holdfast"

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite:")

    @property
    def file(self) -> str:
        """The path of the SQLite file."""
        assert self.is_sqlite, "only SQLite has a file"
        return self.url.removeprefix("sqlite:///")

    def app(self) -> Holdfast:
        return Holdfast(self.url, schema=self.schema)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        """The store itself, opened for as long as the block lasts."""
        store = self.closed_store()
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    def closed_store(self) -> Store:
        address = Address(url=self.url, schema=self.schema)
        return make_store(address, clock=SystemClock(), rng=Random())


class Ground:
    """Gives out places, one after the other, each with a new name."""

    def __init__(
        self, store: str, root: str, *, elsewhere: str | None, folder: Path, is_ours: bool = True
    ) -> None:
        self.store = store
        self.is_ours = is_ours  # not the server of a user
        self.elsewhere = elsewhere  # another database of the same server, when we know one
        self.folder = folder  # where the bytes lie, as far as we know
        self._root = root
        self._tag = f"{Random().getrandbits(32):08x}"
        self._numbers = count(1)

    @property
    def is_sqlite(self) -> bool:
        return self.store == SQLITE

    @asynccontextmanager
    async def apart(self) -> AsyncIterator[Ground]:
        """Ground on which no transaction that is open here is felt, where that can be had."""
        if self.is_sqlite or not self.is_ours:
            yield self
            return
        with ground(self.store, None) as found:
            yield found

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Place]:
        """An empty store; file or schema are removed at the end of the block."""
        name = f"holdfast_bench_{self._tag}_{next(self._numbers)}"
        if self.is_sqlite:
            place = Place(f"sqlite:///{self._root}/{name}.db")
            try:
                yield place
            finally:
                _remove(self._root, f"{name}.db*")
        else:
            place = Place(self._root, name)
            try:
                await place.closed_store().migrate()
                yield place
            finally:
                await dropped_schema(place.url, place.schema)

    @asynccontextmanager
    async def schema(self) -> AsyncIterator[Place]:
        """A name for a schema that somebody else makes; it is dropped at the end of the block."""
        place = Place(self._root, f"holdfast_bench_{self._tag}_{next(self._numbers)}")
        try:
            yield place
        finally:
            await dropped_schema(place.url, place.schema)


@contextmanager
def ground(store: str, url: str | None) -> Iterator[Ground]:
    """The ground for one benchmark.  A private server stops with the block."""
    if store == SQLITE:
        if url is not None:
            raise ConfigurationError("--url is for postgres: sqlite uses a temporary file")
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            yield Ground(SQLITE, folder, elsewhere=None, folder=Path(folder))
    elif store != POSTGRES:
        raise ConfigurationError(f"--store is {SQLITE} or {POSTGRES}, not {store!r}")
    elif url is not None:
        if not url.startswith(("postgresql:", "postgres:")):
            raise ConfigurationError("--url is an address like postgresql://user@host/database")
        yield Ground(POSTGRES, url, elsewhere=None, folder=Path("/"), is_ours=False)
    else:
        with PrivateServer() as server:
            elsewhere = server.create_database(ELSEWHERE)
            yield Ground(POSTGRES, server.url(), elsewhere=elsewhere, folder=server.folder)


def _remove(folder: str, files: str) -> None:
    for file in Path(folder).glob(files):
        file.unlink()
