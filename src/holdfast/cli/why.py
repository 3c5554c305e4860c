"""`holdfast why`: what a task waits for, rule by rule."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from holdfast.app import Holdfast
from holdfast.booking import Explains
from holdfast.cli.find import SchemaOption, UrlOption, find_app, find_config, found_store
from holdfast.cli.output import Format, JsonOption, OutputOption, chosen, write_rows
from holdfast.config import Config
from holdfast.errors import UnknownTask
from holdfast.task import Task, TaskId, Trigger
from holdfast.why.explain import head_of, reasons_of
from holdfast.why.known import Known, gather

SCHEMA = "holdfast.why.v1"
MARK = "<- waits here"


def why(
    id: Annotated[int, typer.Argument(metavar="TASK", help="The task's id.")],
    app: Annotated[
        str | None,
        typer.Option("--app", help="Also let the booking policies of this app explain themselves."),
    ] = None,
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Say what a task waits for, as the store knows it now.  Nothing is changed."""
    found = None if app is None else find_app(app)
    config = find_config(url, schema) if found is None else found.config
    known = asyncio.run(_known(config, TaskId(id), found))
    task = known.standing.task
    reasons = reasons_of(known)
    if chosen(output, as_json) is Format.TABLE:
        typer.echo(head_of(known))
        width = max((len(reason.rule) for reason in reasons), default=0)
        for reason in reasons:
            mark = f"  {MARK}" if reason.waits_here else ""
            typer.echo(f"  {reason.rule:<{width}}  {reason.value}{mark}")
        return
    write_rows(
        [reason._asdict() for reason in reasons],
        schema=SCHEMA,
        columns=("rule", "value", "waits_here"),
        output=chosen(output, as_json),
        around={
            "id": str(task.id),
            "kind": task.kind,
            "queue": task.queue,
            "state": task.state.name,
            "priority": task.priority,
        },
    )


async def _known(config: Config, id: TaskId, app: Holdfast | None) -> Known:
    async with found_store(config) as store:
        task = (await store.get([id])).get(id)
        policies = {} if app is None or task is None else _policies(app, task)
        known = await gather(store, id, policies=policies)
    if known is None:
        raise UnknownTask(f"no task has the id {id}; it may have been cleaned away")
    return known


def _policies(app: Holdfast, task: Task) -> dict[str, str]:
    """What the booking policies that concern the task say of themselves, where they can.

    They are those of this process: a policy that counts what runs knows nothing of the nodes.
    """
    handler = app.registry.get(task.kind)
    policies: list[object] = [app.config.node.booking, handler.booking if handler else None]
    fields = {name: getattr(task, name) for name in Trigger._fields if hasattr(task, name)}
    trigger = Trigger(**fields)
    able = [policy for policy in policies if isinstance(policy, Explains)]
    said = {type(policy).__name__: policy.explain(trigger) for policy in able}
    return {name: text for name, text in said.items() if text}
