"""What `holdfast doctor` asks of a PostgreSQL server, beyond what a store promises."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Table(NamedTuple):
    """One of our tables, as the server keeps it."""

    name: str
    options: tuple[str, ...]  # such as "fillfactor=70"
    live: int
    dead: int


class Holder(NamedTuple):
    """Somebody who keeps dead rows from being removed."""

    name: str  # such as "pid 4711" or "replication slot reports"
    user: str
    since_s: float | None  # None: nobody can tell
    transactions: int  # begun since
    state: str
    query: str


class ServerProbe(Protocol):
    """Each call is bounded in time; an error of the server is a `HoldfastError`."""

    async def settings(self) -> dict[str, str]:
        """Settings, version and connections in use, as the server reports them."""
        ...

    async def lacking_rights(self) -> list[str]:
        """What this user may not do with our tables."""
        ...

    async def tables(self) -> list[Table]: ...

    async def holders(self) -> list[Holder]:
        """Whoever holds the oldest snapshots: sessions, slots, prepared transactions, standbys."""
        ...

    async def clock_ahead_s(self) -> float:
        """How far the store's clock is ahead of this machine's."""
        ...

    async def commit_s(self) -> float:
        """How long a small commit takes."""
        ...

    async def listen_s(self) -> float | None:
        """How long a notification takes to come back; None: it does not."""
        ...

    async def has_pooler(self) -> bool:
        """Whether something between us and the server hands its sessions around."""
        ...
