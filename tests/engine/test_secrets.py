"""Secrets stay where they are: not in texts, not in `ps`, not in the errors of tasks."""

from __future__ import annotations

import traceback

import psutil
import pytest

from conditions import until
from engine import in_processes
from engine.in_processes import own
from holdfast import Holdfast, State
from holdfast.errors import HoldfastError
from holdfast.telemetry.events import StoreFailed

SECRET = "hunter2-canary"
URL = f"postgresql://me:{SECRET}@127.0.0.1:1/nowhere"


async def test_a_password_is_in_no_repr_and_in_no_error_of_ours():
    app = Holdfast(URL)
    heard: list[object] = []
    app.events.listen(heard.append)

    @app.task
    async def work() -> None: ...

    with pytest.raises(HoldfastError) as refused:
        await work.enqueue()

    texts = [repr(app), repr(app.config), str(app.config), repr(work), repr(app.registry)]
    texts += ["".join(traceback.format_exception_only(refused.value)), str(refused.value)]
    texts += [repr(event) for event in heard]
    assert not [text for text in texts if SECRET in text]
    await app.close()


async def test_a_secret_in_a_handlers_variables_is_not_kept_with_the_error(app):
    @app.task
    async def work() -> None:
        password = SECRET + "!"
        raise ValueError(f"refused after {len(password)} characters by {URL}")

    async with app.node() as node:
        handle = await work.enqueue()
        await node.drained(10)

    task = await handle.task()
    assert task.state is State.ERROR and "refused after" in task.error
    assert SECRET not in task.error


async def test_the_children_of_a_node_have_no_address_in_their_arguments(make_app, store_url):
    app = await make_app()
    hang = own(app, in_processes.hang, time_limit=5)
    place = store_url.split("://", 1)[1]
    events: list[object] = []
    app.events.listen(events.append)
    async with app.node(slots_processes=1) as node:
        handle = await hang.enqueue()
        await until(lambda: bool(children()), timeout_s=20)
        shown = [" ".join(child.cmdline()) for child in children()]
        await handle.cancel()
        await until(lambda: node.in_flight == 0)

    assert shown and not [text for text in shown if place in text]
    assert not [event for event in events if isinstance(event, StoreFailed)]


def children() -> list[psutil.Process]:
    """The pool processes of this process."""
    found = psutil.Process().children()
    return [child for child in found if any("spawn_main" in part for part in child.cmdline())]
