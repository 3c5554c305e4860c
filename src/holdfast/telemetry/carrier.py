"""The trace context that travels with a task: a field of its own in the metadata.

What the caller gave as metadata stays byte for byte as it was, and who reads metadata finds the
caller's own and nothing of ours.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

KEY = "holdfast:trace"
GIVEN = ("traceparent", "tracestate")  # options of an enqueue: the caller's own

_MARK = msgspec.json.encode(KEY)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_texts = msgspec.json.Decoder(dict[str, str])
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def with_trace(metadata: bytes | None, trace: Mapping[str, str]) -> bytes | None:
    """The metadata, and this trace context."""
    if not trace:
        return metadata
    found = _fields.decode(metadata) if metadata else {}
    return msgspec.json.encode({**found, KEY: dict(trace)})


def without_trace(metadata: bytes | None) -> bytes | None:
    """The metadata as the caller gave them."""
    if metadata is None or _MARK not in metadata:
        return metadata
    found = _read(metadata)
    if found.pop(KEY, None) is None:
        return metadata
    return msgspec.json.encode(found) if found else None


def trace_of(metadata: bytes | None) -> dict[str, str]:
    """The trace context of whoever enqueued: ours, else the one that the caller gave."""
    if not metadata:
        return {}
    found = _read(metadata)
    try:
        if KEY in found:
            return _texts.decode(found[KEY])
        return {name: msgspec.json.decode(found[name], type=str) for name in GIVEN if name in found}
    except _UNREADABLE:
        return {}  # not what a tracer writes


def _read(metadata: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _fields.decode(metadata)
    except _UNREADABLE:
        return {}
