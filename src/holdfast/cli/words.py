"""How numbers read: ages, counts and nodes in few letters."""

from __future__ import annotations

NOTHING = "\u2013"
SHORT = 8  # letters of a node's id that tell nodes apart, as a rule


def age(seconds: float | None) -> str:
    """A length of time in its largest fitting unit: 0.4 s, 41 s, 12 min, 3.5 h, 2.1 d."""
    if seconds is None:
        return NOTHING
    if abs(seconds) < 9.95:
        return f"{seconds:.1f} s"
    for size_s, unit in ((1.0, "s"), (60.0, "min")):
        if abs(seconds) < 100 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{seconds / 3600:.1f} h" if abs(seconds) < 48 * 3600 else f"{seconds / 86400:.1f} d"


def many(count: int, count_max: int | None = None) -> str:
    """A count with its thousands; one that stopped at its maximum says so."""
    return f"{count:,}" + ("+" if count_max is not None and count >= count_max else "")


def short(node: str | None) -> str:
    return node[:SHORT] if node else NOTHING


def tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count:,} tasks"
