"""Numbers and lists as people say them."""

from __future__ import annotations

from collections.abc import Sequence

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
SHOWN_MAX = 5


def span(seconds: float) -> str:
    """A duration in its largest unit: 2.1 s, 41 s, 3 min, 5 h, 12 d."""
    seconds = abs(seconds)
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    if 0 < seconds < 0.95:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else "0 s"
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"


def counted(number: int, noun: str, *, most: int | None = None) -> str:
    """`1 task`, `41 tasks`, and `at least 10,000 tasks` where counting stopped."""
    bound = "at least " if most is not None and number >= most else ""
    return f"{bound}{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[object], *, most: int = SHOWN_MAX) -> str:
    """The first few of them, and how many more there are."""
    shown = ", ".join(map(str, names[:most]))
    left = len(names) - most
    return f"{shown} and {left:,} more" if left > 0 else shown


def last_line(text: str | None) -> str:
    """The line of an error that says most."""
    lines = (text or "").strip().splitlines()
    return lines[-1].strip() if lines else ""
