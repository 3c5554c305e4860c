"""Connections to the user's file: how they are opened, and what their errors mean.

The file belongs to the user; only tables that begin with `holdfast_` are ours.  It is never
opened by other means than SQLite: closing any other descriptor of it would drop the locks of
every connection of this process.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, StoreUnavailable

Connect = Callable[..., sqlite3.Connection]

BUSY_MS = 5000  # how long a statement waits for a lock, before it fails
SYNCHRONOUS = {"full": "FULL", "fast": "NORMAL"}

_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")

_SENTENCES = {
    "SQLITE_FULL": "the disk is full; free some space and the store goes on by itself",
    "SQLITE_READONLY": "the file or its folder cannot be written to; check their permissions",
    "SQLITE_CANTOPEN": "the file cannot be opened; check that its folder exists and may be used",
    "SQLITE_PERM": "the file may not be opened; check its permissions",
    "SQLITE_AUTH": "the file may not be opened; check its permissions",
    "SQLITE_NOTADB": "this is not an SQLite database; name another file",
    "SQLITE_CORRUPT": "the database is damaged; restore it from a backup",
    "SQLITE_IOERR": "reading or writing the file failed; check the disk",
    "SQLITE_BUSY": "another connection keeps the file locked",
    "SQLITE_LOCKED": "another connection keeps the file locked",
}


def make_file(path: str) -> None:
    """Make the file, for its owner's eyes only, unless it exists."""
    try:
        # Exclusive: when we made the file, no connection can have locks on it yet.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise StoreUnavailable(f"{path}: the file cannot be made: {error.strerror}") from error


def opened(path: str, connect: Connect, *, durability: str) -> sqlite3.Connection:
    """A connection as every one of ours is: WAL, no implicit transactions, no checkpoints."""
    try:
        db = connect(path, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise unavailable(error, path) from error
    try:
        _set_up(db, durability)
    except sqlite3.Error as error:
        db.close()
        raise unavailable(error, path) from error
    return db


def _set_up(db: sqlite3.Connection, durability: str) -> None:
    pause = threading.Event()
    for tries_left in reversed(range(100)):
        try:
            ((mode,),) = db.execute("PRAGMA journal_mode = WAL").fetchall()
            break
        except sqlite3.OperationalError as error:
            # Changing the mode does not wait for locks as other statements do.
            if not is_busy(error) or not tries_left:
                raise
            pause.wait(0.05)
    if mode not in ("wal", "memory"):
        raise sqlite3.OperationalError(f"the journal mode stays {mode}, but has to be WAL")
    db.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
    db.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    db.execute("PRAGMA mmap_size = 0").fetchall()
    db.execute(f"PRAGMA busy_timeout = {BUSY_MS}").fetchall()


def settings(db: sqlite3.Connection) -> dict[str, str]:
    """What durability rests on, as this connection reports it."""
    names = ("journal_mode", "synchronous", "wal_autocheckpoint", "mmap_size")
    found = {name: _pragma(db, name) for name in names}
    found["synchronous"] = {"0": "OFF", "1": "NORMAL", "2": "FULL", "3": "EXTRA"}[
        found["synchronous"]
    ]
    return found | {"sqlite": sqlite3.sqlite_version}


def _pragma(db: sqlite3.Connection, name: str) -> str:
    row = db.execute(f"PRAGMA {name}").fetchone()
    return str(row[0]) if row else ""


def is_busy(error: sqlite3.Error) -> bool:
    return _primary(error) in _BUSY


def is_io_failure(error: BaseException) -> bool:
    return isinstance(error, sqlite3.Error) and _primary(error) == "SQLITE_IOERR"


def is_damage(error: sqlite3.Error) -> bool:
    return _primary(error) in ("SQLITE_CORRUPT", "SQLITE_NOTADB")


def is_mistake(error: sqlite3.Error) -> bool:
    """A wrong statement or a value that cannot be stored: ours or the caller's, not the file's."""
    return isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError)


def unavailable(error: sqlite3.Error, path: str) -> HoldfastError:
    """The same failure as one of our errors, saying what to do about it."""
    sentence = _SENTENCES.get(_primary(error), "the database refused the request")
    return StoreUnavailable(f"{path}: {sentence} ({error})")


def _primary(error: sqlite3.Error) -> str:
    """SQLITE_IOERR for SQLITE_IOERR_FSYNC: the extended codes share the first two words."""
    name = getattr(error, "sqlite_errorname", None) or ""
    return "_".join(name.split("_")[:2])


def same_file(connection: Any, path: str | Path) -> bool:
    """Whether this sqlite3 connection has the store's file open as its main database."""
    for _, name, file in connection.execute("PRAGMA database_list").fetchall():
        if name == "main":
            try:
                return bool(file) and os.path.samefile(file, path)
            except OSError:
                return False
    return False
