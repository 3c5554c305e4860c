"""A small TCP proxy in front of a server, with a network that can be told to fail.

client ──▶ proxy ──▶ server       open · blackhole (nothing is carried, nothing is said)
       ◀──       ◀──              · deaf (requests arrive, replies are lost)
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Literal, Self

Mode = Literal["open", "blackhole", "deaf"]
CHUNK_BYTES = 65_536


class Proxy:
    """Listens on a port of loopback as long as the block lasts."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._mode: Mode = "open"
        self._lines: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.drop()
        await asyncio.gather(*self._lines, return_exceptions=True)

    def set(self, mode: Mode) -> None:
        """From now on.  What was held back arrives; after a loss every connection is cut."""
        if self._mode == "deaf" and mode != "deaf":
            self.drop()
        self._mode = mode
        if mode == "blackhole":
            self._is_open.clear()
        else:
            self._is_open.set()

    def drop(self) -> None:
        """Cut every connection."""
        for line in self._lines:
            line.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.current_task()
        assert line is not None, "a server calls it in a task"
        self._lines.add(line)
        try:
            await self._is_open.wait()
            there = await asyncio.open_connection(*self._target)
            await asyncio.gather(
                self._carry(reader, there[1], is_reply=False),
                self._carry(there[0], writer, is_reply=True),
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._lines.discard(line)
            writer.transport.abort()
            with suppress(UnboundLocalError):
                there[1].transport.abort()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_reply: bool
    ) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._is_open.wait()
            if self._mode == "deaf" and is_reply:
                continue
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError("one side is gone")
