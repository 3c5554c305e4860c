"""Power loss for SQLite: a disk that forgets what was not synced.

    store ──▶ SQLite ──▶ files                what the process sees: every write
                └─ sync ─▶ disk               what a power loss leaves: synced writes, and of the
                                              others any, torn or whole, or none

The VFS notes each write until the file is synced.  A power loss is a copy of the disk at any
moment, beside the answers that had been given by then: each of them must be found in the copy.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import apsw

SECTOR_BYTES = 512


class Disk:
    """What has reached the platters, by file; the rest is in the cache of the drive."""

    def __init__(self) -> None:
        self._synced: dict[str, bytearray] = {}
        self._cached: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
        self._lock = threading.Lock()

    def write(self, path: str, data: bytes, offset: int) -> None:
        with self._lock:
            self._cached[path].append((offset, bytes(data)))

    def truncate(self, path: str, size: int) -> None:
        """As a write that has no data: -1 cuts at `size`."""
        with self._lock:
            self._cached[path].append((-1 - size, b""))

    def sync(self, path: str) -> None:
        with self._lock:
            image = self._synced.setdefault(path, bytearray())
            for offset, data in self._cached.pop(path, ()):
                _put(image, offset, data)

    def delete(self, path: str) -> None:
        with self._lock:
            self._synced.pop(path, None)
            self._cached.pop(path, None)

    def after_power_loss(self, folder: Path, rng: Random) -> None:
        """Write the files as they are found afterwards."""
        with self._lock:
            images = {path: bytearray(image) for path, image in self._synced.items()}
            cached = {path: list(writes) for path, writes in self._cached.items()}
        for path, writes in cached.items():
            image = images.get(path)
            if image is None:
                continue  # a file whose name was never synced
            for offset, data in writes:
                _maybe_put(image, offset, data, rng)
        for path, image in images.items():
            (folder / Path(path).name).write_bytes(image)


def _put(image: bytearray, offset: int, data: bytes) -> None:
    if offset < 0:
        del image[-1 - offset :]
        return
    if len(image) < offset:
        image.extend(bytes(offset - len(image)))
    image[offset : offset + len(data)] = data


def _maybe_put(image: bytearray, offset: int, data: bytes, rng: Random) -> None:
    """Nothing of it, all of it, or some of its sectors: drives write in any order."""
    match rng.randrange(3):
        case 1:
            _put(image, offset, data)
        case 2 if offset >= 0:
            for start in range(0, len(data), SECTOR_BYTES):
                if rng.random() < 0.5:
                    _put(image, offset + start, data[start : start + SECTOR_BYTES])


class ForgetfulVfs(apsw.VFS):
    """The usual one of this machine, with a disk that is told of everything."""

    def __init__(self, name: str, disk: Disk) -> None:
        self.disk = disk
        self.name = name
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _File(self.disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.disk.delete(filename)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.write(self._path, data, offset)
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._disk.truncate(self._path, newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        self._disk.sync(self._path)


class Connection:
    """An apsw connection that speaks as much of `sqlite3` as the store does."""

    def __init__(self, path: str, vfs: str, timeout_s: float) -> None:
        self._db = apsw.Connection(path, vfs=vfs)
        self._db.set_busy_timeout(int(timeout_s * 1000))
        self.row_factory = None

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    @property
    def total_changes(self) -> int:
        return self._db.total_changes()

    def execute(self, sql: str, parameters: Any = ()) -> Cursor:
        return Cursor(self._db, sql, [parameters], is_many=False)

    def executemany(self, sql: str, rows: Any) -> Cursor:
        return Cursor(self._db, sql, rows, is_many=True)

    def close(self) -> None:
        self._db.close()


class Cursor:
    """The rows of one statement; all are read at once."""

    def __init__(self, db: apsw.Connection, sql: str, rows: Any, *, is_many: bool) -> None:
        before = db.total_changes()
        try:
            cursor = db.cursor()
            if is_many:
                cursor.executemany(sql, rows)
                self._rows: list[tuple[Any, ...]] = list(cursor)
            else:
                (parameters,) = rows
                self._rows = list(cursor.execute(sql, parameters or None))
        except apsw.Error as error:
            raise _translated(error) from error
        self.rowcount = db.total_changes() - before
        self.lastrowid = db.last_insert_rowid()
        self._next = 0

    def fetchall(self) -> list[tuple[Any, ...]]:
        found, self._next = self._rows[self._next :], len(self._rows)
        return found

    def fetchone(self) -> tuple[Any, ...] | None:
        if self._next >= len(self._rows):
            return None
        self._next += 1
        return self._rows[self._next - 1]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())


def _translated(error: apsw.Error) -> sqlite3.Error:
    code = getattr(error, "extendedresult", 0) or getattr(error, "result", 1)
    kinds: dict[str, type[sqlite3.Error]] = {
        "SQLITE_CONSTRAINT": sqlite3.IntegrityError,
        "SQLITE_CORRUPT": sqlite3.DatabaseError,
        "SQLITE_NOTADB": sqlite3.DatabaseError,
    }
    name = apsw.mapping_result_codes.get(code & 0xFF, "SQLITE_ERROR")
    found = kinds.get(str(name), sqlite3.OperationalError)(str(error))
    found.sqlite_errorcode = code
    found.sqlite_errorname = str(apsw.mapping_extended_result_codes.get(code, name))
    return found


def connector(vfs: ForgetfulVfs) -> Any:
    """In place of `sqlite3.connect`, on the disk that forgets."""

    def connect(path: str, *, timeout: float = 5.0, **_: Any) -> Connection:
        try:
            return Connection(os.path.abspath(path), vfs.name, timeout)
        except apsw.Error as error:
            raise _translated(error) from error

    return connect


def missing(file: Path, ids: Sequence[int], done: Sequence[int]) -> list[str]:
    """What was answered, and is not in the file: tasks that were added, outcomes recorded."""
    db = sqlite3.connect(file)
    try:
        verdict = [text for (text,) in db.execute("PRAGMA integrity_check")]
        if verdict != ["ok"]:
            return [f"the file is damaged: {verdict[0]}"]
        hot = {id for (id,) in db.execute("SELECT id FROM holdfast_task")}
        kept = dict(db.execute("SELECT id, count(*) FROM holdfast_archive GROUP BY id"))
    except sqlite3.Error as error:
        return [f"the file cannot be read: {error}"]
    finally:
        db.close()
    there = hot | kept.keys()
    lost = [f"task {id} was answered and is not there" for id in ids if id not in there]
    lost += [f"the outcome of task {id} was recorded and is not there" for id in done if id in hot]
    lost += [f"task {id} has {count} outcomes" for id, count in kept.items() if count > 1]
    return lost
