"""Names of nodes.  Ids of tasks are 64-bit integers given by the store inside the insert."""

from __future__ import annotations

from random import Random
from typing import NewType

NodeId = NewType("NodeId", str)


def new_node_id(rng: Random) -> NodeId:
    """A fresh identity for every start of a process: a host name comes back, this never."""
    return NodeId(f"{rng.getrandbits(64):016x}")
