"""The screen of `holdfast top`: one frame on paper, or frame after frame on a terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from holdfast.address import redacted_url
from holdfast.cli.find import found_store
from holdfast.cli.frames import Frame, drawn, look
from holdfast.cli.problems import has_colour
from holdfast.clock import SystemClock
from holdfast.config import Config
from holdfast.errors import Unavailable
from holdfast.store import Store

WIDTH = 100  # of a page that is not a terminal


def print_once(config: Config) -> None:
    _console().print(drawn(asyncio.run(look_once(config)), title=_title(config)))


def watch(config: Config, every_s: float) -> None:
    asyncio.run(_watched(config, every_s))


async def look_once(config: Config) -> Frame:
    async with found_store(config) as store:
        return await look(store, SystemClock())


def _console() -> Console:
    width = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS", WIDTH))
    return Console(no_color=not has_colour(sys.stdout), highlight=False, width=width)


def _title(config: Config) -> str:
    return f"holdfast top   {redacted_url(config.url)}"


async def _watched(config: Config, every_s: float) -> None:
    """Frame after frame, until Ctrl-C or SIGTERM; that is its ordinary end."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with found_store(config) as store:
        with Live(console=_console(), screen=True, auto_refresh=False) as live:
            await _show(live, store, _title(config), every_s, stop)


async def _show(live: Live, store: Store, title: str, every_s: float, stop: asyncio.Event) -> None:
    frame: Frame | None = None
    while not stop.is_set():
        try:
            frame = await look(store, SystemClock(), frame)
            live.update(drawn(frame, title=title), refresh=True)
        except Unavailable as error:  # what was seen last stays on the screen
            trouble = Text(f"{error}; trying again", "red")
            last = drawn(frame, title=title) if frame else Text(title)
            live.update(Group(last, Text(), trouble), refresh=True)
        try:
            async with asyncio.timeout(every_s):
                await stop.wait()
        except TimeoutError:
            continue
