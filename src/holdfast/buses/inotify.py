"""Being told by the kernel that a file was written to, where it can tell: on Linux.

A write of SQLite's log is seen before its commit is; so whoever has committed may touch the file,
which says that there is something to read by now.  A hint like any other: whoever uses it looks by
itself as well, only less often.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from struct import Struct

_MODIFIED, _TOUCHED = 0x2, 0x4
_EVENT = Struct("iIII")  # the watch, what happened, a number, the length of a name: of a file, none
_FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_READ_BYTES = 1 << 16


class FileWatch:
    """Readable when the file was written to since the last `drain`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def drain(self) -> bool:
        """Forget what happened; True when somebody has touched the file."""
        is_touched, found = False, b"more"
        with suppress(BlockingIOError):
            while found:
                found = os.read(self._descriptor, _READ_BYTES)
                whole = found[: len(found) // _EVENT.size * _EVENT.size]
                is_touched |= any(what & _TOUCHED for _, what, _, _ in _EVENT.iter_unpack(whole))
        return is_touched

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
    if libc.inotify_add_watch(descriptor, os.fsencode(path), _MODIFIED | _TOUCHED) < 0:
        os.close(descriptor)
        return None
    return FileWatch(descriptor)


def touch(path: str) -> None:
    """Tell whoever watches the file; nothing happens where that cannot be done."""
    with suppress(OSError):
        os.utime(path)
