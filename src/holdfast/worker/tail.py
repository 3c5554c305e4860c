"""What a child writes to stderr: passed on as it comes, and its last lines kept."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

STDERR = 2
KEPT_BYTES_MAX = 16_000
LINES_MAX = 30
FATAL = "Fatal Python error"  # what `faulthandler` says first; the handler's own frames follow
FATAL_LINES_MAX = 20


class Tail(asyncio.Protocol):
    """The node's end of a child's stderr."""

    def __init__(self) -> None:
        self._kept = b""
        self.is_over = False

    @property
    def text(self) -> str:
        """The last lines since `forget`, and of a fatal error the first ones."""
        lines = self._kept.decode("utf-8", "replace").splitlines()
        fatal = [number for number, line in enumerate(lines) if line.startswith(FATAL)]
        if fatal:
            del lines[fatal[-1] + FATAL_LINES_MAX :]
        return "\n".join(lines[-LINES_MAX:]).strip()

    def forget(self) -> None:
        """What comes from now on belongs to another attempt."""
        self._kept = b""

    def data_received(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-KEPT_BYTES_MAX:]
        with suppress(OSError):  # the program has closed its stderr
            os.write(STDERR, data)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_over = True
