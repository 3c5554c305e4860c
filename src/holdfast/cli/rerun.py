"""`holdfast task rerun`: the same work once more, as a new task that names the old one."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.find import SchemaOption, UrlOption, find_config, found_runtime
from holdfast.cli.output import Format, JsonOption, OutputOption, chosen, write_one
from holdfast.cli.problems import note
from holdfast.config import Config
from holdfast.errors import UnknownTask
from holdfast.task import HOT, NewTask, Task, TaskId

LINK = "rerun_of"  # in the new task's metadata


def rerun(
    id: Annotated[int, typer.Argument(metavar="ID")],
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Enqueue a new task with the payload, queue, priority and keys of this one.

    Its metadata links to the old one.  A unique key is not copied: it belongs to the old task.
    """
    old, new = asyncio.run(_rerun(find_config(url, schema), TaskId(id)))
    row = {"id": str(new), "kind": old.kind, "queue": old.queue, LINK: str(old.id)}
    write_one(row, schema="holdfast.rerun.v1", output=chosen(output, as_json))
    if old.state in HOT:
        note(f"task {old.id} itself is {old.state.name} and goes its own way")


async def _rerun(config: Config, id: TaskId) -> tuple[Task, TaskId]:
    async with found_runtime(config) as runtime:
        old = await runtime.client.get(id)
        if old is None:
            raise UnknownTask(f"no task has the id {id}; it may have been cleaned away")
        return old, (await runtime.client.enqueue(again(old))).id


def again(old: Task) -> NewTask:
    """The same work as a new task."""
    metadata: dict[str, Any] = msgspec.json.decode(old.metadata) if old.metadata else {}
    return NewTask(
        queue=old.queue,
        partition=old.partition,
        kind=old.kind,
        payload=old.payload,
        priority=old.priority,
        fairness_key=old.fairness_key,
        ordering_key=old.ordering_key,
        metadata=msgspec.json.encode(metadata | {LINK: str(old.id)}),
    )
