"""What a node and its pool processes say to each other: frames of encoded bytes, never objects.

    frame = length (4 bytes) · MessagePack

The node sends where the handler lives and the grabbed task; the child answers `Started`, then one
of the others.  Both ends run the same code, so the format may change with every release.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.task import Grabbed

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 1 << 30


class Order(msgspec.Struct, array_like=True, gc=False):
    """Run this task with the handler that the program keeps under this name."""

    module: str
    name: str
    task: Grabbed


class Started(msgspec.Struct, tag=True, array_like=True, gc=False):
    """The handler was found and runs from now on: its time limit begins."""


class Returned(msgspec.Struct, tag=True, array_like=True, gc=False):
    body: bytes | None  # the sealed result


class AskedAgain(msgspec.Struct, tag=True, array_like=True, gc=False):
    delay_s: float
    reset_attempts: bool


class AskedGone(msgspec.Struct, tag=True, array_like=True, gc=False):
    pass


class AskedEnd(msgspec.Struct, tag=True, array_like=True, gc=False):
    pass


class Raised(msgspec.Struct, tag=True, array_like=True, gc=False):
    """An exception, as text; `types` says where its class and its bases are, nearest first."""

    types: list[tuple[str, str]]
    message: str
    text: str  # with the child's own frames
    delay_s: float = 0.0  # RetryAfter
    counts: bool = True


class Unfit(msgspec.Struct, tag=True, array_like=True, gc=False):
    """The payload could not be read, or the result could not be written."""

    reason: str
    has_run: bool


Answer = Started | Returned | AskedAgain | AskedGone | AskedEnd | Raised | Unfit

_encoder = msgspec.msgpack.Encoder()
_orders = msgspec.msgpack.Decoder(Order)
_answers = msgspec.msgpack.Decoder(Answer)


def framed(content: Order | Answer) -> bytes:
    body = _encoder.encode(content)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def length(head: bytes) -> int:
    size = int.from_bytes(head, "big")
    assert size <= FRAME_BYTES_MAX, "both ends of the pipe are ours"
    return size


def order(body: bytes) -> Order:
    return _orders.decode(body)


def answer(body: bytes) -> Any:
    return _answers.decode(body)
