"""The bus over PostgreSQL's LISTEN and NOTIFY, on connections of its own.

    publish ─▶ listeners of this process ─▶ the rest waits ─▶ NOTIFY, gathered ─▶ other processes

NOTIFY makes commits wait for one another, so it never stands in a caller's transaction: it
leaves afterwards, from one connection of this process.  The first trigger after a quiet spell
goes at once, later ones gather for 10 ms.  Beyond a few full payloads at once a queue gets a
doorbell instead of facts: under load an owner reads its arrivals in batches anyway, and the
number of notices stays the same whatever the rate.

    listening:  connect ─▶ LISTEN ─▶ ring each queue ─▶ wait ──lost──▶ back off ─▶ connect

The ring comes after LISTEN: what was committed before is read, what comes later is heard.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from holdfast.bus import Hear
from holdfast.buses.listeners import UNSENT_MAX, Listeners
from holdfast.buses.notices import DOORBELL, channel_of, payloads_of, triggers_in
from holdfast.task import Trigger
from holdfast.telemetry.events import (
    Events,
    StoreFailed,
    TriggerRefused,
    TriggersDropped,
    TriggersPublished,
)

Connect = Callable[[], Awaitable[Any]]
"""Makes a new asyncpg connection, outside of any pool that callers use."""

GATHER_S = 0.010
ANSWER_S_MAX = 5.0  # a connection that does not answer for so long is lost
PING_S = 15.0  # a connection whose peer vanished without a word is noticed after this
BACK_OFF_S, BACK_OFF_S_MAX = 0.05, 5.0

_NOTIFY = "SELECT pg_catalog.pg_notify(n.c, n.p) FROM unnest($1::text[], $2::text[]) AS n (c, p)"


class PostgresBus:
    """Carries triggers between the processes on one database.

    Works on the loop on which it was opened, or first subscribed to.  With `listens=False` it
    only sends: behind a pooler in transaction mode LISTEN does not work, and nodes find their
    tasks at the idle wait.  Whatever fails is tried again later; triggers that could not be sent
    become a doorbell.  If the process dies, what it had not sent is found by arrivals.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        schema: str,
        events: Events,
        listens: bool = True,
        unsent_max: int = UNSENT_MAX,
    ) -> None:
        self._events = events
        self._listens = listens
        self._listeners = Listeners(self._post, events=events, unsent_max=unsent_max)
        self._sender = Sender(connect, schema=schema, events=events, unsent_max=unsent_max)
        self._ear = Ear(
            connect, schema=schema, events=events, heard=self._listeners.hear, sender=self._sender
        )

    async def open(self) -> None:
        """Send on the running loop from now on.  Connects only when there is something to send."""
        self._sender.open(asyncio.get_running_loop())

    def publish(self, triggers: Sequence[Trigger]) -> None:
        if not triggers:
            return
        self._listeners.offer(triggers)
        if self._events.wanted:
            self._events.emit(TriggersPublished(len(triggers)))

    async def subscribe(self, queues: Collection[str], hear: Hear) -> None:
        """Listen; returns when the server has confirmed it, or after 5 s without the server."""
        self._sender.open(asyncio.get_running_loop())
        self._listeners.add(queues, hear)
        if self._listens:
            await self._ear.turn_to(self._listeners.queues)

    async def unsubscribe(self, hear: Hear) -> None:
        self._listeners.remove(hear)
        if self._listens:
            await self._ear.turn_to(self._listeners.queues)

    async def close(self) -> None:
        self._listeners.clear()
        await self._ear.close()
        await self._sender.close()

    def _post(self, queue: str, triggers: Sequence[Trigger]) -> None:
        self._sender.post(queue, triggers)


class Sender:
    """Gathers triggers from all threads and sends them from one connection."""

    def __init__(self, connect: Connect, *, schema: str, events: Events, unsent_max: int) -> None:
        self._connect = connect
        self._schema = schema
        self._events = events
        self._unsent_max = unsent_max
        self._adding = threading.Lock()
        self._waiting: dict[str, list[Trigger]] = {}
        self._unsent = 0
        self._rings: set[str] = set()  # queues whose facts could not be sent
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sending: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._connection: Any = None
        self.backend: int | None = None  # the server's process by which we know our own notices

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is None:
            self._loop = loop
            if self._waiting:
                self._kick()

    def post(self, queue: str, triggers: Sequence[Trigger]) -> None:
        """Take the triggers on, from any thread; drops them when too many wait, or at the end."""
        if self._closing.is_set():
            return  # a connection that was made now would never be closed
        with self._adding:
            is_full = self._unsent + len(triggers) > self._unsent_max
            if not is_full:
                self._waiting.setdefault(queue, []).extend(triggers)
                self._unsent += len(triggers)
        if is_full:
            self._events.emit(TriggersDropped(len(triggers)))
        elif self._loop is not None and self._sending is None:
            try:
                self._loop.call_soon_threadsafe(self._kick)
            except RuntimeError:  # the loop is closed; nobody will send any more
                return

    async def close(self) -> None:
        """Send what waits, with one try, and let go of the connection."""
        self._closing.set()
        self._kick()
        if self._sending is not None:
            await asyncio.wait({self._sending}, timeout=ANSWER_S_MAX)
            if self._sending is not None:
                self._sending.cancel()
                await asyncio.gather(self._sending, return_exceptions=True)
        await self._hang_up()

    def _kick(self) -> None:
        if self._sending is None and (self._waiting or self._rings) and self._loop is not None:
            self._sending = self._loop.create_task(self._send())

    async def _send(self) -> None:
        back_off_s = BACK_OFF_S
        try:
            while notices := self._notices():
                if await self._is_sent(notices):
                    back_off_s = BACK_OFF_S
                    await self._rest(GATHER_S)
                    continue
                if self._closing.is_set():
                    break
                await self._rest(back_off_s)
                back_off_s = min(back_off_s * 2, BACK_OFF_S_MAX)
        finally:
            self._sending = None
        if not self._closing.is_set():
            self._kick()  # something was posted after the last look and saw us still sending

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return

    def _notices(self) -> list[tuple[str, str]]:
        """Everything that waits, as (queue, payload)."""
        with self._adding:
            waiting, self._waiting, self._unsent = self._waiting, {}, 0
        rings, self._rings = self._rings, set()
        found = [(queue, DOORBELL) for queue in rings]
        for queue, triggers in waiting.items():
            found += [(queue, payload) for payload in payloads_of(triggers)]
        return found

    async def _is_sent(self, notices: list[tuple[str, str]]) -> bool:
        channels = [channel_of(self._schema, queue) for queue, _ in notices]
        payloads = [payload for _, payload in notices]
        # A connection that has rested may be gone without our knowing: then a new one is made.
        for is_last_try in (False, True):
            was_open = self._connection is not None
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    if self._connection is None:
                        self._connection = await self._connect()
                        self.backend = self._connection.get_server_pid()
                    await self._connection.execute(_NOTIFY, channels, payloads)
                return True
            except Exception as error:
                await self._hang_up()
                if is_last_try or not was_open:
                    self._events.emit(StoreFailed("notify", str(error)))
                    break
        self._rings.update(queue for queue, _ in notices)
        return False

    async def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        await hung_up(connection)


class Ear:
    """Keeps one connection listening to the channels of the queues, whatever happens to it."""

    def __init__(
        self,
        connect: Connect,
        *,
        schema: str,
        events: Events,
        heard: Callable[[str, Sequence[Trigger]], None],
        sender: Sender,
    ) -> None:
        self._connect = connect
        self._schema = schema
        self._events = events
        self._heard = heard
        self._sender = sender
        self._wanted: dict[str, str] = {}  # channel -> queue
        self._turned = asyncio.Event()  # set: look again at what is wanted, or at the connection
        self._confirmed: asyncio.Future[None] | None = None
        self._listening: asyncio.Task[None] | None = None

    async def turn_to(self, queues: Collection[str]) -> None:
        """Listen to these queues and no others; waits for the server, but not for ever."""
        self._wanted = {channel_of(self._schema, queue): queue for queue in queues}
        if not queues:
            await self.close()
            return
        if self._confirmed is None or self._confirmed.done():
            self._confirmed = asyncio.get_running_loop().create_future()
        self._turned.set()
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        await asyncio.wait({self._confirmed}, timeout=ANSWER_S_MAX)

    async def close(self) -> None:
        self._wanted = {}
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self) -> None:
        back_off_s = BACK_OFF_S
        while True:
            connection: Any = None
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    connection = await self._connect()
                connection.add_termination_listener(self._lost)
                await self._follow(connection)
            except Exception as error:
                self._events.emit(StoreFailed("listen", str(error) or type(error).__name__))
                if connection is not None:
                    back_off_s = BACK_OFF_S  # it worked until now: the next try is soon
            finally:
                if connection is not None:
                    connection.remove_termination_listener(self._lost)
                    await hung_up(connection)
            await asyncio.sleep(back_off_s)
            back_off_s = min(back_off_s * 2, BACK_OFF_S_MAX)

    async def _follow(self, connection: Any) -> None:
        """Listen to whatever is wanted until the connection is lost, which raises."""
        active: set[str] = set()
        while True:
            self._turned.clear()
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._tune(connection, active)
            self._confirm()
            try:
                async with asyncio.timeout(PING_S):
                    await self._turned.wait()
            except TimeoutError:
                await connection.execute("SELECT 1", timeout=ANSWER_S_MAX)
            if connection.is_closed():
                raise ConnectionError("the connection that listens was lost")

    async def _tune(self, connection: Any, active: set[str]) -> None:
        wanted = dict(self._wanted)
        for channel in active - wanted.keys():
            await connection.remove_listener(channel, self._notice)
            active.discard(channel)
        for channel in wanted.keys() - active:
            await connection.add_listener(channel, self._notice)
            active.add(channel)
            self._heard(wanted[channel], ())

    def _confirm(self) -> None:
        if self._confirmed is not None and not self._confirmed.done() and not self._turned.is_set():
            self._confirmed.set_result(None)

    def _lost(self, connection: Any) -> None:
        self._turned.set()

    def _notice(self, connection: Any, backend: int, channel: str, payload: str) -> None:
        queue = self._wanted.get(channel)
        if queue is None or backend == self._sender.backend:
            return  # our own: whoever listens in this process was asked before it was sent
        try:
            triggers = triggers_in(payload, queue)
        except ValueError as error:
            self._events.emit(TriggerRefused(f"{queue}: {error}"))
            return
        self._heard(queue, triggers)


async def hung_up(connection: Any) -> None:
    """Close the connection, politely if it still answers."""
    if connection is None:
        return
    try:
        await connection.close(timeout=1.0)
    except Exception:
        connection.terminate()
