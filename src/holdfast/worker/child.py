"""The life of a pool process: one attempt after the other, until its node is gone.

The handler is found in the child's own import of the program, under the name that the node's
own handler has; nothing that a payload says is ever imported.
"""

from __future__ import annotations

import importlib
import signal
import socket
from typing import Any

from holdfast.errors import PayloadRefused
from holdfast.handler import Handler
from holdfast.outcomes import Again, EndSchedule, Gone, Later, RetryAfter
from holdfast.payload import PayloadUnreadable, sealed
from holdfast.policy import seconds
from holdfast.task import Grabbed
from holdfast.worker import wire
from holdfast.worker.context import enter
from holdfast.worker.verdict import error_text


def serve(pipe: socket.socket) -> None:
    """Run what the node orders; return when it has closed the pipe or died."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the node's business
    pipe.setblocking(True)
    while (order := _received(pipe)) is not None:
        try:
            handler = _handler(order.module, order.name, order.task.kind)
        except Exception as error:
            pipe.sendall(wire.framed(_raised(error)))
            continue
        pipe.sendall(wire.framed(wire.Started()))
        pipe.sendall(wire.framed(_run(handler, order.task)))


def _received(pipe: socket.socket) -> wire.Order | None:
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


def _handler(module: str, name: str, kind: str) -> Handler:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    handler = getattr(found, "handler", None)
    if not isinstance(handler, Handler) or handler.kind != kind:
        raise LookupError(
            f"a process of the pool finds no handler for kind {kind!r} as {module}.{name}: "
            "keep the decorated function under its own name at the top of its module"
        )
    return handler


def _run(handler: Handler, task: Grabbed) -> wire.Answer:
    try:
        enter(task)
        args, kwargs = handler.arguments.unseal(task.payload)
    except PayloadUnreadable as error:
        return wire.Unfit(str(error), has_run=False)
    except Exception as error:
        return _raised(error)
    try:
        return _returned(handler, handler.function(*args, **kwargs))
    except PayloadRefused as error:
        return wire.Unfit(str(error), has_run=True)
    except BaseException as error:
        return _raised(error)


def _returned(handler: Handler, result: Any) -> wire.Answer:
    match result:
        case None:
            return wire.Returned(None)
        case Again(delay, reset_attempts):
            return wire.AskedAgain(seconds(delay), reset_attempts)
        case Gone():
            return wire.AskedGone()
        case EndSchedule():
            return wire.AskedEnd()
        case Later():
            raise TypeError("a handler in a process of the pool cannot end later: nobody hears it")
        case _:
            return wire.Returned(sealed(handler.result.encode(result)))


def _raised(error: BaseException) -> wire.Raised:
    types = [(one.__module__, one.__qualname__) for one in type(error).__mro__]
    text = error_text(error)
    message = str(error.args[0]) if error.args else text.rpartition("\n")[2]
    if isinstance(error, RetryAfter):
        return wire.Raised(types, message, text, error.delay_s, error.counts)
    return wire.Raised(types, message, text)
