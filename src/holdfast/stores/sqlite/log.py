"""The WAL: how long it may be, and when it is carried over into the database.

A commit that only overwrites the file is synced in half the time of one that makes it longer.  So
the WAL of somebody who writes much is made long at once, begun anew after each checkpoint, and
keeps its length.  It is cut off only when a reader has kept it growing for long.

A checkpoint takes the write lock, so that nobody commits meanwhile: before SQLite 3.51.3 the two
together can damage the file.  Where others hold the lock just then, SQLite goes on without it; so
beside other writers there are fewer of them.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress

from holdfast.stores.sqlite.statements import run

PAGES = 1000  # of the WAL between two checkpoints, as SQLite does by itself
PAGES_SHARED = 8000  # the same, while others write to the file too
BYTES = 4 * 1024 * 1024  # the length that it is given at once
BYTES_KEPT = 16 * 1024 * 1024  # a longer one is cut off when nothing is written ...
BYTES_MAX = 256 * 1024 * 1024  # ... and this one at once, if no reader needs it any more
COMMITS_FIRST = 20  # before the first look at how long it is


class Log:
    """The WAL of one file, in the hands of the thread that has the connection."""

    def __init__(self, path: str, db: sqlite3.Connection, *, busy_ms: int) -> None:
        self._path = path
        self._db = db
        self._busy_ms = busy_ms  # the connection's own, to be restored
        self._commits = 0  # at the last checkpoint
        self._commits_due = COMMITS_FIRST  # until the next one
        self._version = 0
        self._left = 0  # pages that the last one had to leave where they were
        self._length_then = 0  # after the last one

    def is_due(self, commits: int, *, shared: bool = False) -> bool:
        """Whether a checkpoint is due after so many commits since the beginning.

        `shared`: others write to the file too.
        """
        due = self._commits_due * PAGES_SHARED // PAGES if shared else self._commits_due
        return commits - self._commits >= due

    def has_grown(self, *, shared: bool) -> bool:
        """Whether it is much longer than after the last checkpoint: commits became larger."""
        growth = self._length() - self._length_then
        return growth > (BYTES * PAGES_SHARED // PAGES if shared else BYTES)

    def carry_over(self, commits: int, *, idle: bool = False) -> None:
        """A checkpoint, if anything was written: the next commit begins the WAL anew.

        The answer tells how many pages the commits since the last one took, and so when the
        next is due.  When it fails, the WAL keeps everything, and the next one tries again.
        """
        ours, self._commits = commits - self._commits, commits
        is_long = self._length() > (BYTES_KEPT if idle else BYTES_MAX)
        if self._path == ":memory:" or not (self._has_foreign() or ours or is_long):
            return
        mode = "TRUNCATE" if is_long else "RESTART"
        with suppress(sqlite3.Error):
            # Without a wait: a reader in the middle of a long list is no reason to stop writing.
            self._db.execute("PRAGMA busy_timeout = 0").fetchall()
            ((_, pages, carried),) = self._db.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
            # While a reader needs older pages the log goes on where it was; cut off, it has none.
            fresh = pages - self._left if pages >= self._left else pages
            if ours and fresh:
                self._commits_due = max(1, ours * PAGES // fresh)
            self._left = 0 if carried == pages else pages
        with suppress(sqlite3.Error):
            self._db.execute(f"PRAGMA busy_timeout = {self._busy_ms}").fetchall()
        self._length_then = self._length()

    def lengthen(self) -> None:
        """Make a short WAL long, by a value that spills into it and is rolled back."""
        if self._path == ":memory:" or self._length() >= BYTES:
            return
        with suppress(sqlite3.Error):  # the file is locked, or the disk is full: another time
            self._db.execute("PRAGMA cache_size = 16").fetchall()
            self._db.execute("BEGIN IMMEDIATE")
            run(self._db, "spill", bytes=BYTES * 5 // 4)  # a part of it stays in memory
        with suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        with suppress(sqlite3.Error):
            self._db.execute("PRAGMA cache_size = -2000").fetchall()  # SQLite's own default
        self._length_then = self._length()

    def _has_foreign(self) -> bool:
        """Whether others have written since the last time."""
        try:
            version = self._db.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            return False
        before, self._version = self._version, version
        return bool(version != before)

    def _length(self) -> int:
        try:
            return os.stat(f"{self._path}-wal").st_size
        except OSError:
            return 0
