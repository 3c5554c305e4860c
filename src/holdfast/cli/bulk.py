"""Changes of many tasks at once: first counted, then done in batches, each at its version.

What moves on between the count and the change is left alone.  If the command dies in the middle,
the batches before it were done, and running it again does the rest.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from holdfast.cli.find import found_runtime, found_store
from holdfast.cli.output import Format, write_one
from holdfast.cli.problems import note
from holdfast.cli.words import tasks
from holdfast.config import Config
from holdfast.store import Answer, Change, Filter, Store
from holdfast.task import Event, State, Task

BATCH_MAX = 1_000
NAMED_MAX = 3  # kinds that a summary names

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to become of the tasks: resumed, cancelled, given up."""

    event: Event
    verb: str  # as in "would resume"
    done: str  # as in "resumed"
    reason: str | None = None

    def change(self, task: Task) -> Change:
        return Change(task.id, self.event, task.version, error=self.text(task.error))

    def text(self, error: str | None) -> str | None:
        """What is kept with the task: its error as it was, and the reason of the change."""
        if self.reason is None:
            return None
        why = f"{self.done}: {self.reason}"
        return f"{error.rstrip()}\n{why}" if error else why


def change_all(
    config: Config, wanted: Filter, wish: Wish, *, dry_run: bool, output: Format
) -> None:
    """Change every task of the filter, or with `dry_run` only say what would be changed."""
    asyncio.run(_changed_all(config, wanted, wish, dry_run, output))


async def _changed_all(
    config: Config, wanted: Filter, wish: Wish, dry_run: bool, output: Format
) -> None:
    wanted = replace(wanted, limit=BATCH_MAX)
    total: int | None = None
    if dry_run or sys.stderr.isatty():  # a bar needs to know its end
        async with found_store(config) as store:
            states, kinds = await _counted(store, wanted)
        if dry_run:
            _say_what_would_be(states, kinds, wish, output)
            return
        total = states.total()
    answers: Counter[Answer] = Counter()
    async with found_runtime(config) as runtime:
        with progress(f"{wish.verb} tasks", total) as advance:
            while page := await runtime.store.find(wanted):
                wanted = replace(wanted, after=page[-1].id)
                changed = await runtime.client.change([wish.change(task) for task in page])
                answers.update(done.answer for done in changed)
                advance(len(page))
    left = answers.total() - answers[Answer.OK]
    row = {"would": 0, wish.done.replace(" ", "_"): answers[Answer.OK], "left": left}
    _write(row, output)
    note(f"{wish.done} {tasks(answers[Answer.OK])}")
    if left:
        note(f"{tasks(left)} had moved on meanwhile and were left alone")


async def _counted(store: Store, wanted: Filter) -> tuple[Counter[State], Counter[str]]:
    states: Counter[State] = Counter()
    kinds: Counter[str] = Counter()
    while page := await store.find(wanted):
        wanted = replace(wanted, after=page[-1].id)
        states.update(task.state for task in page)
        kinds.update(task.kind for task in page)
    return states, kinds


def _say_what_would_be(
    states: Counter[State], kinds: Counter[str], wish: Wish, output: Format
) -> None:
    _write({"would": states.total(), wish.done.replace(" ", "_"): 0, "left": 0}, output)
    if not states:
        note(f"would {wish.verb} nothing: no task fits")
        return
    by_state = ", ".join(f"{state.name} {count:,}" for state, count in sorted(states.items()))
    by_kind = ", ".join(f"{kind} {count:,}" for kind, count in kinds.most_common(NAMED_MAX))
    more = ", …" if len(kinds) > NAMED_MAX else ""
    note(f"would {wish.verb} {tasks(states.total())} ({by_state}; {by_kind}{more})")
    note("run again with --yes to do it")


def _write(row: dict[str, int], output: Format) -> None:
    """For programs; a person reads the same in the note."""
    if output is not Format.TABLE:
        write_one(row, schema="holdfast.bulk.v1", output=output)


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Advance]:
    """A bar on a terminal, else nothing; the answer moves it on."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        place = bar.add_task(title, total=total)
        yield lambda count: bar.advance(place, count)
