"""Composition: which adapters serve an address.  Nobody else names a concrete adapter."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.address import Address, redacted_url, sqlite_path
from holdfast.bus import Bus
from holdfast.callers import Kit, Watch, postgres_kit, sqlite_kit, wrap
from holdfast.client import Client
from holdfast.clock import Clock, SystemClock
from holdfast.coordinator import Coordinator
from holdfast.coordinators.local import LocalCoordinator
from holdfast.coordinators.sql import SqlCoordinator
from holdfast.errors import ConfigurationError, MissingExtra
from holdfast.handler import Registry
from holdfast.ids import NodeId, new_node_id
from holdfast.node.node import Node
from holdfast.node.renewal import Order
from holdfast.node.renewer import drivers_environment, is_startable
from holdfast.node.settings import NodeSettings
from holdfast.store import Store
from holdfast.task import Trigger
from holdfast.telemetry.events import Events, TaskEnqueued
from holdfast.transactions import Caller

if TYPE_CHECKING:
    from holdfast.telemetry.tracing import Tracing


def make_store(address: Address, *, clock: Clock, rng: Random) -> Store:
    """A store for the address, not opened yet."""
    scheme = urlsplit(address.url).scheme
    if scheme == "sqlite":
        from holdfast.stores.sqlite.store import SQLiteStore

        path = sqlite_path(address.url)
        return SQLiteStore(path, clock=clock, rng=rng, durability=address.durability)
    if scheme in ("postgresql", "postgres"):
        try:
            from holdfast.stores.postgres.store import PostgresStore
        except ImportError as error:
            raise MissingExtra("postgres", "PostgreSQL") from error
        return PostgresStore(
            address.url,
            schema=address.schema,
            clock=clock,
            rng=rng,
            connections_max=address.connections_max,
            pooled=address.pooled,
        )
    raise ConfigurationError(
        f"cannot use the address {redacted_url(address.url)!r}: "
        "write sqlite:///file.db or postgresql://user@host/database"
    )


@dataclass(slots=True)
class Runtime:
    """An open store with its bus and client, bound to one event loop."""

    store: Store
    bus: Bus
    client: Client
    kit: Kit
    loop: asyncio.AbstractEventLoop
    address: Address
    owns_store: bool = True

    def caller(self, connection: object) -> Caller:
        """The user's open transaction, or TransactionRefused with what to do instead."""
        return wrap(connection, kit=self.kit)

    async def close(self) -> None:
        await self.client.close()
        await self.kit.watch.close()
        await self.bus.close()
        if self.owns_store:
            await self.store.close()


async def open_runtime(
    address: Address,
    store: Store,
    *,
    events: Events,
    owns_store: bool,
    wrap_bus: Callable[[Bus], Bus] | None = None,
) -> Runtime:
    """Make the store's bus, and open the store itself when it is ours alone.

    Nothing is left open when it fails but a store that others share.
    """
    async with AsyncExitStack() as unless_done:
        if owns_store:
            await store.open()
            unless_done.push_async_callback(store.close)
        bus = await _make_bus(address, store, events)
        wrapped = bus if wrap_bus is None else wrap_bus(bus)
        unless_done.push_async_callback(wrapped.close)
        kit = await _make_kit(address, store, wrapped, events)
        unless_done.pop_all()
    if hasattr(bus, "is_expecting"):
        bus.is_expecting = lambda: kit.watch.is_waiting
    bus = wrapped
    client = Client(store, bus, events=events)
    return Runtime(store, bus, client, kit, asyncio.get_running_loop(), address, owns_store)


async def _make_kit(address: Address, store: Store, bus: Bus, events: Events) -> Kit:
    """What the callers' own transactions need to send their triggers after the commit."""
    is_sqlite = urlsplit(address.url).scheme == "sqlite"

    def publish(triggers: Sequence[Trigger]) -> None:
        bus.publish(triggers)
        if events.wanted:
            for trigger in triggers:
                events.emit(TaskEnqueued(trigger.id, trigger.queue, trigger.kind))

    watch = Watch(
        store.get,
        publish,
        loop=asyncio.get_running_loop(),
        events=events,
        data_version=store.data_version if is_sqlite else None,  # type: ignore[attr-defined]
    )
    if is_sqlite:
        return sqlite_kit(sqlite_path(address.url), publish=publish, watch=watch)
    from holdfast.stores.postgres.direct import connector

    connection = await connector(address.url, name="holdfast")()
    try:
        return await postgres_kit(connection, schema=address.schema, publish=publish, watch=watch)
    finally:
        await connection.close()


async def _make_bus(address: Address, store: Store, events: Events) -> Bus:
    if urlsplit(address.url).scheme == "sqlite":
        from holdfast.buses.sqlite import SQLiteBus

        return SQLiteBus(
            store.data_version,  # type: ignore[attr-defined]
            own_commits=lambda: store.commits,  # type: ignore[attr-defined]
            log_path=f"{sqlite_path(address.url)}-wal",
            events=events,
        )
    from holdfast.buses.postgres import PostgresBus
    from holdfast.stores.postgres.direct import connector

    bus = PostgresBus(
        connector(address.listen_url or address.url, name="holdfast bus"),
        schema=address.schema,
        events=events,
        listens=address.listen_url is not None or not store.is_pooled,  # type: ignore[attr-defined]
    )
    await bus.open()
    return bus


def make_node(
    runtime: Runtime,
    registry: Registry,
    queues: Sequence[str],
    settings: NodeSettings,
    *,
    clock: Clock,
    rng: Random,
    events: Events,
    tracing: Tracing | None = None,
) -> Node:
    """A node on an open runtime."""
    id = new_node_id(rng)
    return Node(
        id=id,
        queues=queues,
        store=runtime.store,
        bus=runtime.bus,
        coordinator=_coordinator(runtime.store, id, queues, registry, settings),
        registry=registry,
        clock=clock,
        rng=rng,
        events=events,
        settings=settings,
        tracing=tracing,
        order=_order(runtime.address, id, settings, clock),
    )


def _order(address: Address, id: NodeId, settings: NodeSettings, clock: Clock) -> Order | None:
    """What a renewer has to know; None where the node's own beat must do."""
    # A process tells time by the machine's clock, so it can only serve a node that does the same.
    is_real = settings.coordinator == "sql" and isinstance(clock, SystemClock)
    if settings.renewer != "process" or not is_real or not is_startable():
        return None
    url = address.url
    if urlsplit(url).scheme == "sqlite":
        if (path := sqlite_path(url)) == ":memory:":
            return None
        url = f"sqlite:///{os.path.abspath(path)}"
    return Order(
        node=id,
        lease_s=settings.lease_s,
        stall_s=settings.stall_limit_s,
        parent=os.getpid(),
        url=url,
        schema=address.schema,
        environment=drivers_environment(),
    )


def _coordinator(
    store: Store, id: NodeId, queues: Sequence[str], registry: Registry, settings: NodeSettings
) -> Coordinator:
    kinds = sorted(handler.kind for handler in registry)
    if settings.coordinator == "local":
        return LocalCoordinator(store, id, queues=queues, kinds=kinds)
    return SqlCoordinator(store, id, queues=queues, kinds=kinds, lease_s=settings.lease_s)
