"""Configuration: one frozen tree.  Argument > environment > file > default; unset is no value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.node.compose import Address
from holdfast.node.settings import NodeSettings
from holdfast.payload import PAYLOAD_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    url: str
    schema: str = "holdfast"
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    connections_max: int = 8
    node: NodeSettings = field(default_factory=NodeSettings)

    @property
    def address(self) -> Address:
        return Address(url=self.url, schema=self.schema, connections_max=self.connections_max)


def load_config(given: Mapping[str, Any]) -> Config:
    return Config(**{name: value for name, value in given.items() if value is not None})
