"""One line of an explanation."""

from __future__ import annotations

from typing import NamedTuple


class Reason(NamedTuple):
    """One rule with its present value, and whether the task waits for it now."""

    rule: str
    value: str
    waits_here: bool = False
