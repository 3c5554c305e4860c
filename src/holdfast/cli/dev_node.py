"""The child of `holdfast dev`: a node that says how to enqueue a first task."""

from __future__ import annotations

import asyncio
import inspect
import json
import shlex
import sys
from pathlib import Path
from typing import Any, get_type_hints

from holdfast.address import redacted_url
from holdfast.app import Holdfast
from holdfast.cli.dev import DEV_URL, FOLDER
from holdfast.cli.find import find_app
from holdfast.cli.problems import note
from holdfast.cli.worker import log_to_stderr, serve, served_queues
from holdfast.handler import Handler

EXAMPLES: dict[Any, Any] = {str: "hello", int: 1, float: 1.5, bool: True, list: [], dict: {}}


def run_node(app: str, *, greets: bool) -> None:
    """Serve all queues of the app until stdin ends; a greeting says how to begin."""
    log_to_stderr(sys.stderr.isatty() or None)
    found = find_app(app)
    if found.config.url == DEV_URL:
        Path(FOLDER).mkdir(exist_ok=True)
        Path(FOLDER, ".gitignore").write_text("*\n", encoding="utf-8")
    queues = served_queues(found, None)
    if greets:
        note(f"tasks are kept in {redacted_url(found.config.url)}")
        if line := first_enqueue(found, app):
            note(f"a first task:  {line}")
    asyncio.run(serve([(found, queues)], until_stdin_ends=True))


def first_enqueue(app: Holdfast, name: str) -> str | None:
    """A line for a second terminal that enqueues a task of the first kind that it can fill in."""
    for handler in app.registry:
        arguments = _examples(handler)
        if arguments is not None:
            words = ["holdfast", "task", "enqueue", name, handler.kind]
            text = shlex.join([*words, json.dumps(arguments)])
            is_own = app.config.sources.get("url") == "argument"
            return text if is_own else f"HOLDFAST_URL={shlex.quote(_shown(app))} {text}"
    return None


def _shown(app: Holdfast) -> str:
    return redacted_url(app.config.url)


def _examples(handler: Handler) -> dict[str, Any] | None:
    """Values for the parameters that must be given; None: we cannot tell."""
    if handler.batch_max is not None:
        return None
    try:
        hints = get_type_hints(handler.function)
    except Exception:  # names that exist only for type checkers
        return None
    parameters = list(inspect.signature(handler.function).parameters.values())
    needed = [
        one.name
        for one in parameters[1 if handler.transactional else 0 :]
        if one.default is inspect.Parameter.empty
    ]
    kinds = {name: getattr(hints.get(name), "__origin__", hints.get(name)) for name in needed}
    if any(kind not in EXAMPLES for kind in kinds.values()):
        return None
    return {name: EXAMPLES[kind] for name, kind in kinds.items()}
