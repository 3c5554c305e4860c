"""What a node tells of itself with each renewal, for people who list the nodes."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from holdfast.handler import Registry
from holdfast.node.duties import plans
from holdfast.node.settings import NodeSettings

_STATM = Path("/proc/self/statm")


class Facts:
    """What stays the same over a node's life, and what is told of the moment."""

    def __init__(self, settings: NodeSettings, registry: Registry) -> None:
        self._fixed = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": _version(),
            "python": platform.python_version(),
            "slots": {
                "async": settings.slots_async,
                "thread": settings.slots_threads,
                "process": settings.slots_processes,
            },
            # Of the kinds that do not run on the loop.
            "modes": {h.kind: h.mode for h in registry if h.mode != "async"},
            # What becomes of tasks past their deadline, by kind.
            "stuck": plans(registry),
        }

    def told(
        self,
        *,
        renewer_pid: int | None,
        lag_s: float,
        running: int,
        taken: Mapping[str, int],
        pace: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Plain values by name; `rss_mb` is None where the system does not tell."""
        return self._fixed | {
            "renewer": renewer_pid,
            "rss_mb": _rss_mb(),
            "lag_s": round(lag_s, 3),
            "running": running,
            "taken": taken,  # of the slots
            "pace": pace,  # what ended since the renewal before
        }


@cache
def _version() -> str:
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return "unknown"


def _rss_mb() -> float | None:
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)
