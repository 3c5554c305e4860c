"""Tasks of a Django program, for the tests: at module level, where a worker finds them."""

from __future__ import annotations

import threading

from django.db import connection

from holdfast import GiveUp
from holdfast.integrations.django.flavour import api

seen: list[object] = []


@api.task
def add(one: int, two: int = 1) -> int:
    seen.append((one, threading.current_thread().name))
    return one + two


@api.task
async def greet(name: str) -> dict[str, object]:
    seen.append(name)
    return {"hello": name, "bytes": b"ok"}


@api.task(takes_context=True)
def count(context, step: int) -> dict[str, object]:
    result = context.task_result
    return {
        "attempt": context.attempt,
        "id": result.id,
        "status": result.status,
        "args": result.args,
        "queue": result.task.queue_name,
        "priority": result.task.priority,
    }


@api.task(takes_context=True)
async def count_async(context, step: int) -> int:
    return context.attempt + step


@api.task
def flaky(fails: int) -> str:
    seen.append("flaky")
    if len(seen) <= fails:
        raise ConnectionError("not yet\nby no means: at all")
    return "at last"


class Broken(Exception):
    """An error of the program's own."""


@api.task
def broken() -> None:
    raise Broken("as ever")


@api.task
def give_up() -> None:
    raise GiveUp("no use")


@api.task
def strange() -> object:
    return object()


@api.task
def look() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM orders ORDER BY name")
        return [name for (name,) in cursor.fetchall()]


@api.task
async def look_async() -> int:
    from asgiref.sync import sync_to_async

    return len(await sync_to_async(look.func)())


def helper() -> None:
    seen.append("helper")


def _hidden() -> None: ...


renamed = api.task(_hidden)
