"""The life of a pool process: one attempt after the other, until its node is gone.

The handler is found in the child's own import of the program, under the name that the node's
own handler has; nothing that a payload says is ever imported.
"""

from __future__ import annotations

import asyncio
import faulthandler
import importlib
import os
import select
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any, NamedTuple, Protocol

from holdfast.errors import Unavailable
from holdfast.handler import Handler
from holdfast.ids import NodeId
from holdfast.outcomes import Later, RetryAfter
from holdfast.payload import PayloadUnreadable
from holdfast.store import Store
from holdfast.task import Grabbed
from holdfast.worker import verdict, wire
from holdfast.worker.context import enter
from holdfast.worker.memory import peak_bytes
from holdfast.worker.running import call, ended_later
from holdfast.worker.tail import STDERR
from holdfast.worker.transactional import Recorded, run_in_transaction
from holdfast.worker.verdict import error_text

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class App(Protocol):
    """What the child asks of the app that a handler belongs to."""

    async def store(self) -> Store: ...
    async def close(self) -> None: ...
    def close_sync(self) -> None: ...


class Definition(Protocol):
    """What stands in the program under the handler's name."""

    handler: Handler
    app: App


class NotOurStore(LookupError):
    """The app that the child has imported is not on the store that the task was grabbed from."""


def serve(pipe: socket.socket, stderr: socket.socket | None = None) -> None:
    """Run what the node orders, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the node's business
    if stderr is not None:
        with stderr:
            os.dup2(stderr.fileno(), STDERR)
        faulthandler.enable(
            all_threads=False
        )  # where a deadly signal struck is the best that can be known
    pipe.setblocking(True)
    threading.Thread(target=_leave_with_node, args=(pipe,), daemon=True).start()
    pipe.sendall(wire.framed(wire.Ready()))
    with asyncio.Runner() as runner:
        while (order := _received(pipe)) is not None:
            if isinstance(order, wire.Prepare):
                _import(order.modules)
                continue
            found = _found(order, runner)
            if not isinstance(found, _Found):
                pipe.sendall(wire.framed(wire.Reply(found)))
                continue
            before = set(threading.enumerate())
            pipe.sendall(wire.framed(wire.Started(peak_bytes())))
            answer = _answer(found, order, runner)
            has_left = not set(threading.enumerate()) <= before
            pipe.sendall(wire.framed(wire.Reply(answer, has_left)))


class _Found(NamedTuple):
    definition: Definition
    store: Store | None  # of a transactional handler


def _leave_with_node(pipe: socket.socket) -> None:
    """An attempt ends with its node, as everything that runs there: its outcome is refused."""
    watch = select.poll()
    watch.register(pipe, 0)  # only for the end of it
    watch.poll()
    os._exit(0)


def _received(pipe: socket.socket) -> wire.Prepare | wire.Order | None:
    head = _read(pipe, wire.LENGTH_BYTES)
    body = _read(pipe, wire.length(head)) if head else b""
    return wire.order(body) if body else None


def _read(pipe: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = pipe.recv(min(size - len(parts), 1 << 20))
        except OSError:
            return b""
        if not part:
            return b""
        parts += part
    return bytes(parts)


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        with suppress(Exception):  # whoever needs it will be told
            importlib.import_module(module)


def _found(order: wire.Order, runner: asyncio.Runner) -> _Found | wire.Answer:
    """The handler, and its store: opened once, and kept for the next one."""
    try:
        definition = _definition(order.module, order.name, order.task.kind)
        if not definition.handler.transactional:
            return _Found(definition, None)
        return _Found(definition, runner.run(_opened(definition.app, order)))
    except Unavailable as error:
        return wire.Ended(verdict.postponed(order.task, error))
    except Exception as error:
        return wire.NotFound(_raised(error))


def _definition(module: str, name: str, kind: str) -> Definition:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    handler = getattr(found, "handler", None)
    if not isinstance(handler, Handler) or handler.kind != kind:
        raise LookupError(
            f"a process of the pool finds no handler for kind {kind!r} as {module}.{name}: "
            "keep the decorated function under its own name at the top of its module"
        )
    definition: Definition = found
    return definition


async def _opened(app: App, order: wire.Order) -> Store:
    store = await app.store()
    task = order.task
    if await store.moved_on(NodeId(order.node), {task.id: task.version}):
        raise NotOurStore(
            f"task {task.id} is not running in the store that a process of the pool has opened: "
            "give the app the same address in every process"
        )
    return store


def _answer(found: _Found, order: wire.Order, runner: asyncio.Runner) -> wire.Answer:
    definition, store = found
    handler, task = definition.handler, order.task
    try:
        enter(task)
        arguments = handler.arguments.unseal(task.payload)
    except PayloadUnreadable as error:
        return wire.Ended(verdict.unreadable(task, error))
    except Exception as error:
        return _raised(error)
    try:
        if store is not None:
            work = _run_transactional(store, handler, order, arguments)
            return runner.run(work, context=copy_context())
        if handler.mode == "async":
            return asyncio.run(_run_async(definition, task, arguments))
        return wire.Ended(verdict.of_result(task, handler, _result(handler, arguments)))
    except BaseException as error:
        return _raised(error)
    finally:
        if handler.mode != "process":
            with suppress(Exception):
                definition.app.close_sync()  # the thread of its own loop


def _result(handler: Handler, arguments: Arguments) -> Any:
    result = call(handler, *arguments)
    if not isinstance(result, Later):
        return result
    if handler.mode == "process":
        raise TypeError("a handler in a process of the pool cannot end later: nobody hears it")
    return asyncio.run(ended_later(result))


async def _run_async(definition: Definition, task: Grabbed, arguments: Arguments) -> wire.Answer:
    """On a loop of its own: whatever the attempt leaves there ends with it."""
    try:
        result = await ended_later(call(definition.handler, *arguments))
        return wire.Ended(verdict.of_result(task, definition.handler, result))
    finally:
        with suppress(Exception):
            await definition.app.close()


async def _run_transactional(
    store: Store, handler: Handler, order: wire.Order, arguments: Arguments
) -> wire.Answer:
    node = NodeId(order.node)
    match await run_in_transaction(store, order.task, handler, node=node, arguments=arguments):
        case Recorded(outcome, is_accepted):
            return wire.Settled(outcome, is_accepted)
        case outcome:
            return wire.Ended(outcome)


def _raised(error: BaseException) -> wire.Raised:
    types = [(one.__module__, one.__qualname__) for one in type(error).__mro__]
    text = error_text(error)
    message = str(error.args[0]) if error.args else text.rpartition("\n")[2]
    if isinstance(error, RetryAfter):
        return wire.Raised(types, message, text, error.delay_s, error.counts)
    return wire.Raised(types, message, text)
