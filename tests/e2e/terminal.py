"""A command on a terminal of its own, as a person would see it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

from holdfast.testing.processes import until

PATIENCE_S = 30.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


class Terminal:
    """Starts the command; `close` ends it, whatever became of it."""

    def __init__(self, folder: Path, environ: Mapping[str, str], *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", *arguments],
            cwd=folder,
            env={**environ, "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._raw = b""

    @property
    def raw(self) -> str:
        self._read()
        return self._raw.decode(errors="replace")

    @property
    def shown(self) -> str:
        """Everything that was written so far, without colours and moves of the cursor."""
        return _CONTROL.sub("", self.raw)

    def has_shown(self, text: str, times: int = 1) -> None:
        until(
            lambda: self.shown.count(text) >= times,
            PATIENCE_S,
            lambda: f"no {text!r}: {self.shown}",
        )

    def ends(self, number: signal.Signals | None = None) -> int:
        """The exit code, after a signal or by itself."""
        if number is not None:
            self.process.send_signal(number)
        until(lambda: self._has_ended(), PATIENCE_S, lambda: f"still running: {self.shown}")
        return self.process.wait(PATIENCE_S)

    def _has_ended(self) -> bool:
        self._read()  # a full terminal would stop it
        return self.process.poll() is not None

    def _read(self) -> None:
        try:
            while select.select([self._ours], [], [], 0)[0]:
                self._raw += os.read(self._ours, 65_536)
        except OSError:
            pass  # the terminal's way to say that the other end is closed

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        self._read()
        os.close(self._ours)
