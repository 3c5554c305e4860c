"""Where the tasks are kept: a private PostgreSQL, a private Redis, a folder for SQLite files.

Each cell gets an empty one.  PostgreSQL syncs before a commit returns (`fsync`,
`synchronous_commit`), SQLite's peers decide by themselves, and Redis appends each command to a file
that it syncs before it answers (`appendfsync always`), or once a second.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import IO, Literal, Self

import psycopg

from bench.catalog import Keeper
from holdfast.testing.postgres import PrivateServer
from holdfast.testing.processes import ended, free_port, spawn, unprivileged, until, work_folder

Fsync = Literal["always", "everysec"]
START_S_MAX = 10.0
STOP_S_MAX = 10.0


class Redis:
    """One server of our own on loopback, with an append-only file."""

    def __init__(self, fsync: Fsync) -> None:
        self._fsync = fsync
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        program = shutil.which("redis-server")
        if program is None:
            raise SystemExit("redis-server is missing: apt-get install redis-server")
        user = unprivileged()
        self.folder, self.port = work_folder("holdfast-redis-", user), free_port()
        options = f"--port {self.port} --bind 127.0.0.1 --save --appendonly yes"
        command = [program, *options.split(" "), "--appendfsync", self._fsync]
        command[command.index("--save") + 1 : command.index("--save") + 1] = [""]
        self._log: IO[bytes] = (self.folder / "redis.log").open("ab")
        self._process = spawn(command, cwd=self.folder, user=user, log=self._log)
        until(self._is_ready, START_S_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        ended(self._process, [signal.SIGTERM, signal.SIGKILL], STOP_S_MAX)
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def version(self) -> str:
        said = self._say("INFO server")
        return said.partition("redis_version:")[2].split()[0]

    def empty(self) -> None:
        assert self._say("FLUSHALL").startswith("+OK"), "an empty Redis"

    def _say(self, words: str) -> str:
        with socket.create_connection(("127.0.0.1", self.port)) as line:
            line.sendall(words.encode() + b"\r\n")
            return line.recv(65_536).decode()

    def _is_ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Keepers:
    """All servers, started when the first peer needs them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._postgres: PrivateServer | None = None
        self._redis: dict[Fsync, Redis] = {}
        self._numbers = count(1)

    def __enter__(self) -> Self:
        self.folder = work_folder("holdfast-bench-", None)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def postgres(self) -> PrivateServer:
        if self._postgres is None:
            self._postgres = self._stack.enter_context(PrivateServer())
        return self._postgres

    def redis_version(self) -> str | None:
        """Of the servers that ran, if any did."""
        return next((redis.version for redis in self._redis.values()), None)

    @contextmanager
    def empty(self, keeper: Keeper, fsync: Fsync = "always") -> Iterator[str]:
        """The address of an empty store, which is gone after the block."""
        name = f"peer_{next(self._numbers)}"
        if keeper == "postgres":
            url = self.postgres.create_database(name)
            try:
                yield url
            finally:
                self.postgres.drop_database(name)
                self.postgres.execute("CHECKPOINT")  # nobody pays for the one before
        elif keeper == "redis":
            redis = self._redis.get(fsync)
            if redis is None:
                redis = self._redis[fsync] = self._stack.enter_context(Redis(fsync))
            redis.empty()
            yield redis.url
        else:
            try:
                yield f"sqlite:///{self.folder}/{name}.db"
            finally:
                for file in self.folder.glob(f"{name}.db*"):
                    file.unlink()

    @contextmanager
    def snapshot(self, url: str) -> Iterator[None]:
        """A transaction that reads once and stays open: no row that dies meanwhile is removed."""
        with psycopg.connect(url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("SELECT count(*) FROM pg_class")
            yield
            connection.rollback()
