"""A disk with little room: a file system in memory that can be filled up, and emptied again."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.errors import ConfigurationError

CHUNK = bytes(1 << 16)


class SmallDisk:
    """`with SmallDisk(256) as disk`: so many megabytes under `disk.folder`.  Needs root.

    When the process is killed, the file system stays mounted until the machine restarts.
    """

    def __init__(self, megabytes: int) -> None:
        self._megabytes = megabytes
        self.folder = Path()

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-disk-"))
        options = f"size={self._megabytes}m,mode=1777"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.folder.rmdir()
            raise ConfigurationError(
                f"a full disk needs a file system of its own, which only root may mount: "
                f"{done.stderr.strip()}"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
        self.folder.rmdir()

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def fill(self) -> None:
        """Leave no room; what is freed meanwhile is taken at the next call."""
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(CHUNK)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        """There is room again.  Safe to repeat."""
        self._ballast.unlink(missing_ok=True)

    @property
    def is_full(self) -> bool:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize < len(CHUNK)
