"""How the counters of a column's busiest keys are written down, the same in every store."""

from __future__ import annotations

import json

from holdfast.store import Counters


def packed(counters: Counters) -> str:
    """As JSON: a list of pairs, because a key may be None."""
    return json.dumps(list(counters.items()), separators=(",", ":"))


def unpacked(text: str) -> dict[str | None, int]:
    return {key: pass_ for key, pass_ in json.loads(text)}
