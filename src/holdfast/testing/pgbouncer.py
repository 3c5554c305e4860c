"""A private PgBouncer in transaction mode, to prove that Holdfast works behind a pooler."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from urllib.parse import urlsplit

from holdfast.errors import StoreUnavailable
from holdfast.testing.processes import (
    User,
    ended,
    free_port,
    spawn,
    unprivileged,
    until,
    work_folder,
)

START_S_MAX = 10.0
STOP_S_MAX = 5.0

SETTINGS = """\
[databases]
* = host={server_host} port={server_port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 500
default_pool_size = {pool_size}
logfile = {folder}/pgbouncer.log
pidfile = {folder}/pgbouncer.pid
ignore_startup_parameters = extra_float_digits
"""


def program() -> str | None:
    """Where pgbouncer is; Debian puts it in a folder that ordinary users do not search."""
    return shutil.which("pgbouncer", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin"]))


def is_installed() -> bool:
    return program() is not None


class PgBouncer:
    """One pooler of our own, in front of the server at `url`.

    Every transaction may run on another server connection, so whatever a client keeps in a
    connection between two transactions (SET, LISTEN, prepared statements) is lost here.  It is
    gone after the block; if we are killed first it gets SIGINT, see `processes.spawn`.
    """

    def __init__(self, url: str, *, pool_size: int = 20) -> None:
        self._server = urlsplit(url)
        self._pool_size = pool_size
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self.port = 0
        self.folder = Path()

    def __enter__(self) -> Self:
        found = program()
        if found is None:
            raise StoreUnavailable("pgbouncer is not installed")
        user = unprivileged()
        self.folder = work_folder("holdfast-pgb-", user)
        try:
            self._start(found, user)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def url(self, database: str = "postgres") -> str:
        """The address of a database of the server, through the pooler."""
        return f"postgresql://{self._server.username}@127.0.0.1:{self.port}/{database}"

    def _start(self, found: str, user: User | None) -> None:
        self.port = free_port()
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(
            SETTINGS.format(
                server_host=self._server.hostname,
                server_port=self._server.port or 5432,
                user=self._server.username,
                port=self.port,
                pool_size=self._pool_size,
                folder=self.folder,
            )
        )
        self._log = (self.folder / "output.log").open("ab")
        self._process = spawn([found, str(settings)], cwd=self.folder, user=user, log=self._log)
        until(self._is_ready, START_S_MAX, self._why_not)

    def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise StoreUnavailable(self._why_not())
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _why_not(self) -> str:
        tail = (self.folder / "output.log").read_text(errors="replace")[-1_000:]
        return f"pgbouncer did not start: {tail.strip() or 'it said nothing'}"

    def _stop(self) -> None:
        if self._process is not None:
            ended(self._process, [signal.SIGTERM, signal.SIGKILL], STOP_S_MAX)
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None
        shutil.rmtree(self.folder, ignore_errors=True)
