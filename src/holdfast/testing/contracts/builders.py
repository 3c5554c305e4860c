"""Short ways to a task in a given state, for the suites."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from holdfast.ids import NodeId
from holdfast.store import START, Cursor, Store
from holdfast.task import Event, Grabbed, NewTask, Outcome, Task, TaskId, Trigger

T = TypeVar("T")

QUEUE = "contract"
NODE, OTHER = NodeId("node-a"), NodeId("node-b")
PATIENCE_S = 15.0


def a_task(**changes: Any) -> NewTask:
    fields: dict[str, Any] = {"queue": QUEUE, "partition": 0, "kind": "email", "payload": b"hello"}
    return NewTask(**(fields | changes))


async def eventually(ask: Callable[[], Awaitable[T]]) -> T:
    """The first answer that counts as true; the store's clock cannot be hurried, only awaited."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if answer := await ask():
                return answer
            await asyncio.sleep(0.01)


async def enqueued(store: Store, *tasks: NewTask) -> list[TaskId]:
    return [answer.id for answer in await store.enqueue(tasks or [a_task()])]


async def waiting_triggers(store: Store, queue: str = QUEUE) -> list[Trigger]:
    """Everything SUBMITTED, by partition and arrival."""
    cursors = [Cursor(partition, START) for partition in range(store.partitions)]
    found = await store.arrivals(queue, cursors, limit=100_000, exact=False)
    return found.triggers


async def trigger_of(store: Store, id: TaskId) -> Trigger:
    (trigger,) = [one for one in await waiting_triggers(store) if one.id == id]
    return trigger


async def grab(
    store: Store, triggers: Sequence[Trigger], node: NodeId = NODE, **options: Any
) -> list[Grabbed]:
    deadlines_s = {trigger.kind: 60.0 for trigger in triggers}
    options = {"deadlines_s": deadlines_s, "epochs": {}} | options
    return (await store.grab(triggers, node=node, **options)).tasks


async def grabbed(
    store: Store, *tasks: NewTask, node: NodeId = NODE, **options: Any
) -> list[Grabbed]:
    """New tasks, PROCESSING on the node."""
    ids = await enqueued(store, *tasks)
    return await grab(store, [await trigger_of(store, id) for id in ids], node, **options)


async def settle(store: Store, task: Grabbed, event: Event, **fields: Any) -> bool:
    (answer,) = await store.settle([Outcome(task.id, task.version, event, **fields)], node=NODE)
    return answer


async def claimed(store: Store, node: NodeId = NODE, queue: str = QUEUE) -> dict[int, int]:
    """All partitions that the node can get, with their epochs."""
    seen = {holding.partition: holding.epoch for holding in await store.holdings(queue)}
    return await store.claim(queue, seen, node=node)


async def look(store: Store, id: TaskId) -> Task:
    return (await store.get([id]))[id]
