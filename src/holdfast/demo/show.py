"""`holdfast demo`: the story on a screen, and what it proved."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.clock import Clock, SystemClock
from holdfast.demo.numbers import Numbers
from holdfast.demo.story import Screen, Story

CHECK_FAILED, INTERRUPTED = 8, 130
PROGRESS_EACH_S = 2.0
STATES = ("WAITING", "SUBMITTED", "PROCESSING", "DONE", "ERROR")
COLOURS = dict(zip(STATES, ("cyan", "blue", "yellow", "green", "red"), strict=True))

PASTE = """
import holdfast; app = holdfast.Holdfast("sqlite:///app.db")
@app.task
async def hello(name: str) -> str: return f"hello {name}"
"""


def run_demo(*, plain: bool = False) -> int:
    """Tell the story; answer the exit code, 8 when a promise was broken.  Leaves nothing behind."""
    console = Console(highlight=False, soft_wrap=True)
    clock = SystemClock()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        with _screen(console, clock, plain=plain) as screen:
            numbers = asyncio.run(_told(Story(folder, screen, clock=clock)))
        if numbers is None:
            return INTERRUPTED
        return _conclude(console, numbers, folder / "node.log")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _told(story: Story) -> Numbers | None:
    """The story; None when it was ended by SIGTERM or Ctrl-C, which leave nothing behind."""
    telling = asyncio.ensure_future(story.tell())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, telling.cancel)
    try:
        return await telling
    except asyncio.CancelledError:
        return None


class PlainScreen:
    """Lines, for a log file or a pipe."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._start_s = clock.seconds()
        self._shown_s = self._start_s

    def act(self, text: str) -> None:
        self._console.print(f"{self._passed():5.1f} s  {text}", markup=False)

    def progress(self, numbers: Numbers) -> None:
        if self._clock.seconds() - self._shown_s < PROGRESS_EACH_S:
            return
        self._shown_s = self._clock.seconds()
        counted = ", ".join(f"{numbers.states[name]} {name}" for name in STATES)
        self._console.print(f"{self._passed():5.1f} s    {numbers.orders} orders: {counted}")

    def _passed(self) -> float:
        return self._clock.seconds() - self._start_s


class LiveScreen:
    """The story so far, and below it bars that move."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def act(self, text: str) -> None:
        dies = text.startswith("kill")
        self._live.console.print(Text(f"▸ {text}", style="bold red" if dies else "bold"))

    def progress(self, numbers: Numbers) -> None:
        table = Table.grid(padding=(0, 2))
        for name in STATES:
            count = numbers.states[name]
            bar = ProgressBar(
                total=max(numbers.tasks, 1),
                completed=count,
                width=40,
                complete_style=COLOURS[name],
                finished_style=COLOURS[name],
            )
            table.add_row(Text(name, style=COLOURS[name]), bar, str(count))
        head = f"{numbers.orders} orders, {numbers.tasks} tasks, {numbers.retried} retried"
        self._live.update(Group(Text(head), table))


@contextmanager
def _screen(console: Console, clock: Clock, *, plain: bool) -> Iterator[Screen]:
    if plain or not console.is_terminal:
        yield PlainScreen(console, clock)
        return
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        yield LiveScreen(live)


def _conclude(console: Console, numbers: Numbers, log: Path) -> int:
    console.print("\nRead back from the store and the shop's own tables:", style="bold")
    for count, text in _summary(numbers):
        console.print(f"  {count:>7}  {text}", markup=False)
    if numbers.broken:
        for promise in numbers.broken:
            console.print(f"BROKEN: {promise}", style="red", markup=False)
        if log.is_file():
            console.print(log.read_text(encoding="utf-8", errors="replace")[-2_000:], markup=False)
        return CHECK_FAILED
    console.print("Nothing was lost, nothing was done twice.", style="bold green")
    console.print("\nYour turn. Paste these three lines into app.py:")
    console.print(PASTE, style="cyan", markup=False)
    console.print("""then:  holdfast task enqueue app hello '{"name": "you"}'""", markup=False)
    console.print("and:   holdfast worker app", markup=False)
    return 0


def _summary(numbers: Numbers) -> list[tuple[str, str]]:
    return [
        (f"{numbers.orders}", "orders committed, each with its tasks in one transaction"),
        (f"{numbers.tasks}", "tasks enqueued"),
        (f"{numbers.done}", "tasks done"),
        (f"{numbers.retried}", "attempts that failed and were retried"),
        (f"{numbers.recovered}", "tasks recovered after kill -9"),
        (
            f"{numbers.rolled_back}",
            f"transactions rolled back, leaving {numbers.left_by_rollback} tasks",
        ),
        (
            f"{numbers.express}",
            f"express orders charged first, overtaken by {numbers.overtaken} of the others",
        ),
        (
            f"{numbers.receipts}",
            f"delayed tasks, none early; half within {numbers.half_within_s:.2f} s of their time, "
            f"the last {numbers.latest_s:.2f} s after it",
        ),
    ]
