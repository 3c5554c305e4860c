"""What a node and its renewer say to each other: lines of JSON through two pipes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, NamedTuple, Self

BEAT = b"\n"
BYE = b"bye\n"


class Order(NamedTuple):
    """The node's first line.  It may hold a password, so it travels by no other way."""

    node: str
    lease_s: float
    stall_s: float
    parent: int  # the node's process
    url: str
    schema: str
    environment: Mapping[str, str]  # what the driver would look for there

    @property
    def line(self) -> bytes:
        return json.dumps(self._asdict()).encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Self:
        return cls(**json.loads(line))

    def __repr__(self) -> str:
        return f"Order(node={self.node!r})"


class Report(NamedTuple):
    """What came of one renewal.  `asked_at` is the machine's monotonic clock before the request."""

    what: Literal["renewed", "gone", "failed"]  # gone: there is no such lease any more
    asked_at: float
    error: str = ""

    @property
    def line(self) -> bytes:
        return json.dumps(self).encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Self:
        return cls(*json.loads(line))
