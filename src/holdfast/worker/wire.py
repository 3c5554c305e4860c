"""What a node and its pool processes say to each other: frames of encoded bytes, never objects.

    frame = length (4 bytes) · MessagePack

A child says `Ready` once.  The node sends where the handler lives and the grabbed task; the child
answers `Started`, then a `Reply`, or only that when there is nothing that it can run.  Both ends
run the same code, so the format may change with every release.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.task import Grabbed, Outcome

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 1 << 30


class Prepare(msgspec.Struct, tag=True, array_like=True, gc=False):
    """Import these: an order for one of their handlers may follow.  There is no answer."""

    modules: list[str]


class Order(msgspec.Struct, tag=True, array_like=True, gc=False):
    """Run this task with the handler that the program keeps under this name."""

    module: str
    name: str
    task: Grabbed
    node: str = ""  # whose task it is: only a transactional handler needs to know


class Ready(msgspec.Struct, tag=True, array_like=True, gc=False):
    """The process runs, and hears."""


class Started(msgspec.Struct, tag=True, array_like=True, gc=False):
    """The handler was found and runs from now on: its time limit begins."""

    peak_bytes: int  # the most memory that the process has had so far


class Ended(msgspec.Struct, tag=True, array_like=True, gc=False):
    """The outcome, to be recorded by the node."""

    outcome: Outcome


class Settled(msgspec.Struct, tag=True, array_like=True, gc=False):
    """The outcome that the handler's own transaction has recorded, or was refused there."""

    outcome: Outcome
    is_accepted: bool


class Raised(msgspec.Struct, tag=True, array_like=True, gc=False):
    """An exception, as text; `types` says where its class and its bases are, nearest first."""

    types: list[tuple[str, str]]
    message: str
    text: str  # with the child's own frames
    delay_s: float = 0.0  # RetryAfter
    counts: bool = True


class NotFound(msgspec.Struct, tag=True, array_like=True, gc=False):
    """No line of the handler has run: the child cannot find it, or not its store."""

    raised: Raised


Answer = Ended | Settled | Raised | NotFound


class Reply(msgspec.Struct, tag=True, array_like=True, gc=False):
    answer: Answer
    left_threads: bool = False  # what the attempt started may still run


_encoder = msgspec.msgpack.Encoder()
_orders = msgspec.msgpack.Decoder(Prepare | Order)
_replies = msgspec.msgpack.Decoder(Ready | Started | Reply)


def framed(content: Prepare | Order | Ready | Started | Reply) -> bytes:
    body = _encoder.encode(content)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def length(head: bytes) -> int:
    size = int.from_bytes(head, "big")
    assert size <= FRAME_BYTES_MAX, "both ends of the pipe are ours"
    return size


def order(body: bytes) -> Prepare | Order:
    found: Prepare | Order = _decoded(_orders, body)
    return found


def reply(body: bytes) -> Any:
    return _decoded(_replies, body)


def _decoded(decoder: msgspec.msgpack.Decoder[Any], body: bytes) -> Any:
    """What the frame says, or `msgspec.DecodeError`."""
    try:
        return decoder.decode(body)
    except UnicodeDecodeError as error:  # a text that is none, which msgspec lets pass
        raise msgspec.DecodeError(str(error)) from error
