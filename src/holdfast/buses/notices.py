"""How triggers look on a PostgreSQL channel: one channel a queue, many triggers a payload.

    [[id, version, partition, kind, priority, fairness key, weight, ordering key, due_at], …]

The queue is the channel's, so it does not travel.  An empty list is a doorbell: look yourself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec

from holdfast.task import TaskId, Trigger

PAYLOAD_BYTES_MAX = 7_900  # the server takes less than 8,000
PAYLOADS_MAX = 4  # more than this for one queue at once: one read serves the owner better
DOORBELL = "[]"

_Moment = Annotated[datetime, msgspec.Meta(tz=True)]  # one without a zone cannot be compared
_Row = tuple[int, int, int, str, int, str | None, float, str | None, _Moment | None]

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[_Row])


def channel_of(schema: str, queue: str) -> str:
    """The channel's name: told apart by its hash, told by people from its beginning."""
    name = hashlib.blake2b(f"{schema}\0{queue}".encode(), digest_size=8).hexdigest()
    return f"holdfast_{schema[:30]}_{name}"


def payloads_of(triggers: Sequence[Trigger]) -> list[str]:
    """The triggers in as few payloads as they fit in, or one doorbell for very many."""
    payloads: list[str] = []
    rows: list[bytes] = []
    size = 2
    for trigger in triggers:
        row = _encoded(trigger)
        if len(row) + 2 > PAYLOAD_BYTES_MAX:
            return [DOORBELL]  # a key of many kilobytes: the owner reads it from the store
        if size + len(row) > PAYLOAD_BYTES_MAX:
            payloads.append(_joined(rows))
            if len(payloads) == PAYLOADS_MAX:
                return [DOORBELL]
            rows, size = [], 2
        rows.append(row)
        size += len(row) + 1
    return [*payloads, _joined(rows)] if rows else payloads


def triggers_in(payload: str, queue: str) -> list[Trigger]:
    """The triggers of a payload; raises ValueError for anything that is not one."""
    try:
        rows = _decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    return [
        Trigger(TaskId(id), version, queue, partition, kind, priority, key, weight, order, due_at)
        for id, version, partition, kind, priority, key, weight, order, due_at in rows
    ]


def _encoded(trigger: Trigger) -> bytes:
    return _encoder.encode(
        (
            trigger.id,
            trigger.version,
            trigger.partition,
            trigger.kind,
            trigger.priority,
            trigger.fairness_key,
            trigger.weight,
            trigger.ordering_key,
            trigger.due_at,
        )
    )


def _joined(rows: list[bytes]) -> str:
    return f"[{b','.join(rows).decode()}]"
