"""Wires the caller's transaction to this process's bus."""

from __future__ import annotations

from typing import Any

from holdfast.errors import TransactionRefused
from holdfast.node.compose import Address, Runtime
from holdfast.transactions import Caller


def wrap_caller(connection: Any, runtime: Runtime, address: Address) -> Caller:
    raise TransactionRefused("within= is not wired yet")
