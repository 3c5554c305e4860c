"""Servers that tests start: unprivileged, in a folder of their own, ended for certain."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from holdfast.clock import SystemClock
from holdfast.errors import StoreUnavailable

# Either exists on every Linux; neither owns anything that a test server could damage.
USERS = ("nobody", "postgres")
SOCKET_PATH_MAX = 90  # the kernel's limit is 107, and the server appends a file name
LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with fewer rights than root."""

    name: str
    uid: int
    gid: int

    def options(self) -> dict[str, Any]:
        """What `subprocess` needs to run a program as this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def unprivileged() -> User | None:
    """Whom to run a server as: None when we are not root, and may run it ourselves."""
    if os.geteuid() != 0:
        return None
    for name in USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return User(name, entry.pw_uid, entry.pw_gid)
    raise StoreUnavailable(f"root cannot run a server, and there is no user {' or '.join(USERS)}")


def work_folder(prefix: str, user: User | None, parent: Path | None = None) -> Path:
    """A new folder that the user owns and can reach, with a path short enough for a socket."""
    parent = parent or Path(tempfile.gettempdir())
    if len(str(parent)) + len(prefix) > SOCKET_PATH_MAX or not _is_open_to_all(parent):
        parent = Path("/tmp")
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    if user is not None:
        os.chown(folder, user.uid, user.gid)
    return folder


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def spawn(
    command: Sequence[str], *, cwd: Path, user: User | None, log: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a server.  With `setpriv`, and from the main thread, it gets SIGINT if we die."""
    prefix: list[str] = []
    setpriv = shutil.which("setpriv")
    # The kernel watches the thread that started the child, so only the main thread may ask for it.
    if setpriv and threading.current_thread() is threading.main_thread():
        prefix = [setpriv, "--pdeathsig", "INT"]
        if user is not None:
            prefix += ["--reuid", str(user.uid), "--regid", str(user.gid), "--clear-groups"]
    # Its own session: Ctrl-C in the terminal is ours to handle, not the server's.
    return subprocess.Popen(
        [*prefix, *command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        **(user.options() if user is not None and not prefix else {}),
    )


def ended(
    process: subprocess.Popen[bytes], signals: Sequence[signal.Signals], wait_s: float
) -> None:
    """End the process: with the first signal, or with a stronger one when it does not hear."""
    for number in signals:
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            continue


def until(
    is_so: Callable[[], bool],
    timeout_s: float,
    why_not: Callable[[], str] = lambda: "nothing happened",
) -> None:
    """Wait for a condition outside of this process, or raise `StoreUnavailable`."""
    clock, pause = SystemClock(), threading.Event()
    start_s = clock.seconds()
    while not is_so():
        if clock.seconds() - start_s > timeout_s:
            raise StoreUnavailable(f"after {timeout_s:.0f} s: {why_not()}")
        pause.wait(LOOK_S)


def _is_open_to_all(folder: Path) -> bool:
    return all(step.stat().st_mode & 0o001 for step in (folder, *folder.parents))
