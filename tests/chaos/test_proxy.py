"""The proxy carries, holds back, or loses replies."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from holdfast.chaos.proxy import Proxy


@asynccontextmanager
async def echo():
    """A server that answers each line with itself, through a proxy; a client and the proxy."""
    heard: list[bytes] = []

    async def serve(reader, writer):
        while line := await reader.readline():
            heard.append(line)
            writer.write(line)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with Proxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        yield proxy, reader, writer, heard
        writer.close()
    server.close()


async def test_it_carries_both_ways():
    async with echo() as (_, reader, writer, _):
        writer.write(b"hello\n")

        assert await reader.readline() == b"hello\n"


async def test_a_blackhole_holds_everything_back_until_it_is_open_again():
    async with echo() as (proxy, reader, writer, heard):
        proxy.set("blackhole")
        writer.write(b"hello\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 0.1)
        assert heard == []

        proxy.set("open")
        assert await asyncio.wait_for(reader.readline(), 5) == b"hello\n"


async def test_deaf_loses_the_reply_of_what_was_done_and_then_the_connection():
    async with echo() as (proxy, reader, writer, heard):
        proxy.set("deaf")
        writer.write(b"pay\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 0.1)
        assert heard == [b"pay\n"]

        proxy.set("open")
        with pytest.raises((ConnectionError, AssertionError)):
            assert await asyncio.wait_for(reader.readline(), 5)
