"""Being told by the kernel that a file was written to, where it can tell: on Linux.

A hint like any other: whoever uses it looks by itself as well, only less often.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

_MODIFIED = 0x2
_FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_READ_BYTES = 1 << 16


class FileWatch:
    """Readable when the file was written to since the last `drain`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def drain(self) -> None:
        with suppress(BlockingIOError):
            while len(os.read(self._descriptor, _READ_BYTES)) == _READ_BYTES:
                pass

    def close(self) -> None:
        os.close(self._descriptor)


def watch(path: str) -> FileWatch | None:
    """A watch over the file, or None where there is no such thing."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = libc.inotify_init1(_FLAGS)
    except (OSError, AttributeError):
        return None
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(path), _MODIFIED) < 0:
        os.close(descriptor)
        return None
    return FileWatch(descriptor)
