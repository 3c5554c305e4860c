"""`holdfast node`: who is alive, what each of them keeps and runs, and how to end one gently."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from holdfast.cli.find import SchemaOption, UrlOption, find_config, found_store
from holdfast.cli.output import Format, JsonOption, OutputOption, chosen, fitting, write_rows
from holdfast.cli.problems import NO_NODE, NODE_ENDED, end_with, note
from holdfast.cli.words import NOTHING, age, short
from holdfast.config import Config
from holdfast.node.node import DRAIN
from holdfast.ring import DutyRecord
from holdfast.store import Member

COLUMNS = (
    "node",
    "number",
    "host",
    "pid",
    "version",
    "queues",
    "slots",
    "running",
    "rss",
    "lag",
    "lease",
    "renewer",
    "duties",
    "asked",
)
LEAVE_OUT = ("renewer", "number", "version", "slots", "pid", "rss", "duties")  # if too narrow
RIGHT = ("number", "pid", "running", "rss", "lag", "lease", "renewer")

commands = typer.Typer(no_args_is_help=True, help="Look at the nodes, and end one gently.")


@commands.command("list", epilog="Example: holdfast node list")
def list_(
    url: UrlOption = None,
    schema: SchemaOption = None,
    output: OutputOption = Format.TABLE,
    as_json: JsonOption = False,
) -> None:
    """List the nodes with what they tell of themselves, the oldest first."""
    form = chosen(output, as_json)
    members, duties = asyncio.run(_known(find_config(url, schema)))
    rows = [
        as_text(one, duties) if form is Format.TABLE else _as_row(one, duties)
        for one in in_order(members)
    ]
    write_rows(
        rows,
        schema="holdfast.node.v1",
        columns=fitting(rows, COLUMNS, LEAVE_OUT) if form is Format.TABLE else COLUMNS,
        output=form,
        right=RIGHT,
    )
    if not any(member.is_alive for member in members) and form is Format.TABLE:
        note("no node is alive: start one with `holdfast worker APP`")


@commands.command(epilog="Example: holdfast node drain 3f2a")
def drain(
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Its id, or a beginning that fits only one.")
    ],
    url: UrlOption = None,
    schema: SchemaOption = None,
) -> None:
    """Ask a node to start nothing more, finish what runs, and end.  It hears of it at its beat."""
    found = asyncio.run(_asked(find_config(url, schema), node))
    running = found.facts.get("running")
    what = "" if running is None else f" ({running} running)"
    note(f"node {short(found.node)} is asked to drain{what}; `holdfast node list` shows its end")


def in_order(members: Sequence[Member]) -> list[Member]:
    """The live ones first, each by the number of its registration."""
    return sorted(members, key=lambda one: (not one.is_alive, one.number or 0, one.node))


def as_text(member: Member, duties: Sequence[DutyRecord]) -> dict[str, str]:
    """A row for people; what the node does not tell is a dash."""
    facts = member.facts
    rss, lag = facts.get("rss_mb"), facts.get("lag_s")
    return {
        "node": short(member.node),
        "number": _told(member.number),
        "host": _told(facts.get("host")),
        "pid": _told(facts.get("pid")),
        "version": _told(facts.get("version")),
        "queues": ",".join(member.queues) or NOTHING,
        "slots": _slots(facts.get("slots")),
        "running": _told(facts.get("running")),
        "rss": NOTHING if rss is None else f"{rss:.0f} MB",
        "lag": NOTHING if lag is None else f"{lag * 1000:.0f} ms",
        "lease": age(member.left_s) if member.is_alive else "ended",
        "renewer": _told(facts.get("renewer")),
        "duties": ",".join(_duties_of(member, duties)) or NOTHING,
        "asked": _told(member.asked),
    }


def _as_row(member: Member, duties: Sequence[DutyRecord]) -> dict[str, Any]:
    started_at = member.started_at
    return {
        "node": member.node,
        "number": member.number,
        "is_alive": member.is_alive,
        "left_s": member.left_s,
        "started_at": started_at.isoformat(timespec="milliseconds") if started_at else None,
        "queues": list(member.queues),
        "kinds": list(member.kinds),
        "duties": _duties_of(member, duties),
        "asked": member.asked,
        "facts": dict(member.facts),
    }


def _duties_of(member: Member, duties: Sequence[DutyRecord]) -> list[str]:
    return [duty.name for duty in duties if duty.holder == member.node]


def _told(value: object) -> str:
    return NOTHING if value is None else str(value)


def _slots(value: object) -> str:
    """One number, or one a mode."""
    if isinstance(value, dict):
        return "/".join(str(count) for count in value.values())
    return _told(value)


async def _known(config: Config) -> tuple[list[Member], list[DutyRecord]]:
    async with found_store(config) as store:
        return await store.members(), await store.duties()


async def _asked(config: Config, beginning: str) -> Member:
    async with found_store(config) as store:
        fitting = [one for one in await store.members() if one.node.startswith(beginning)]
        if len(fitting) > 1:
            names = ", ".join(sorted(one.node for one in fitting))
            raise typer.BadParameter(f"{beginning!r} fits several nodes: {names}")
        if not fitting:
            end_with(NO_NODE, f"there is no node {beginning!r}")
        (found,) = fitting
        if not found.is_alive:
            end_with(NODE_ENDED, f"node {short(found.node)} has ended already")
        if not await store.ask(found.node, DRAIN):
            end_with(NO_NODE, f"node {short(found.node)} has left meanwhile")
        return found
