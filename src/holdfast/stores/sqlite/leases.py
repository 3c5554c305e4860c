"""The lease file: who is alive, in a second small file beside the user's own.

A lease row is written every few seconds by processes that must never wait behind a long write
to the main file, so it has a file of its own, with a rollback journal and without syncs.  It
holds nothing worth saving: when it cannot be read after a crash it is made anew.  A young file
knows nothing about the nodes of yesterday, so until a lease and a margin have passed since its
birth, a node without a row counts as alive.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.ids import NodeId
from holdfast.store import NO_FACTS, Member
from holdfast.stores.sqlite.connection import Connect, is_damage, is_mistake, make_file, unavailable
from holdfast.stores.sqlite.rows import SECOND, moment, span
from holdfast.stores.sqlite.statements import as_list, run

T = TypeVar("T")

LEASE_S_DEFAULT = 10.0  # assumed of nodes that have not been seen in a young file
MARGIN_S = 1.0
BUSY_MS = 2000
LOOK_EVERY = 3  # renewals between two looks whether other processes use the file
SAFE_FOR_SEVERAL = (3, 51, 3)  # before this a checkpoint beside another process's commit may damage

# What a file of an older version lacks.
_ADDED = {
    "number": "number INTEGER",
    "started_at": "started_at INTEGER NOT NULL DEFAULT 0",
    "facts": "facts TEXT NOT NULL DEFAULT '{}'",
    "asked": "asked TEXT",
}

_log = logging.getLogger("holdfast.stores.sqlite")


class LeaseFile:
    """Plain calls, for one thread; the renewer's process uses it without any store.

    `had_owners` asks whether the main file names nodes already when this one is made: a pair of
    new files has no yesterday.
    """

    def __init__(
        self,
        path: str,
        *,
        connect: Connect = sqlite3.connect,
        had_owners: Callable[[], bool] = lambda: True,
    ) -> None:
        self._path = path
        self._connect = connect
        self._had_owners = had_owners
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        self._lease_s_longest = LEASE_S_DEFAULT
        self._has_warned = False
        self._renewals = 0

    def renew(
        self,
        node: NodeId,
        now: int,
        *,
        lease_s: float,
        queues: Sequence[str],
        kinds: Sequence[str],
        facts: Mapping[str, Any] = NO_FACTS,
    ) -> None:
        """Keep the node's lease until `now + lease_s`; may be repeated."""
        params = {
            "node": node,
            "queues": json.dumps(list(queues)),
            "kinds": json.dumps(list(kinds)),
            "pid": os.getpid(),
            "until": now + span(lease_s),
            "facts": json.dumps(dict(facts)),
            "now": now,
        }

        def work(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            if lease_s > self._lease_s_longest:
                run(db, "lease_grace", grace=span(lease_s + MARGIN_S))
            run(db, "lease_renew", **params)
            is_looking = self._renewals % LOOK_EVERY == 0
            return run(db, "lease_members") if is_looking else []

        others = [row for row in self._asked(now, work) if row[0] != node and row[4] > now]
        self._renewals += 1
        self._lease_s_longest = max(self._lease_s_longest, lease_s)
        self._warn_of(row[3] for row in others)

    def prolong(self, node: NodeId, now: int, *, lease_s: float) -> bool:
        """Keep a lease that exists until `now + lease_s`, and change nothing else; False: none."""
        until = now + span(lease_s)
        return bool(self._asked(now, lambda db: run(db, "lease_prolong", node=node, until=until)))

    def members(self, now: int) -> list[Member]:
        rows = self._asked(now, lambda db: run(db, "lease_members"))
        return [
            Member(
                NodeId(node),
                tuple(json.loads(queues)),
                tuple(json.loads(kinds)),
                until > now,
                number,
                (until - now) / SECOND,
                moment(started_at),
                json.loads(facts),
                asked,
            )
            for node, queues, kinds, _, until, number, started_at, facts, asked in rows
        ]

    def end(self, nodes: Collection[NodeId], now: int) -> None:
        """These nodes are dead: nobody has to wait for their leases."""
        self._asked(now, lambda db: run(db, "lease_end", nodes=as_list(nodes), now=now))

    def ask(self, node: NodeId, now: int, what: str | None) -> bool:
        return bool(self._asked(now, lambda db: run(db, "lease_ask", node=node, what=what)))

    def is_alive(self, now: int) -> Callable[[str], bool]:
        """A judge of nodes by this moment: live row, or no row in a file that is still young."""
        rows, birth = self._asked(now, lambda db: (run(db, "lease_members"), _birth(db)))
        until = {row[0]: row[4] for row in rows}
        unknown_until = sum(birth)
        return lambda node: until.get(node, unknown_until) > now

    def drop(self, nodes: Collection[NodeId], now: int) -> None:
        self._asked(now, lambda db: run(db, "lease_drop", nodes=as_list(nodes)))

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _asked(self, now: int, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run the work; make the file anew, once, when it cannot be read."""
        try:
            return work(self._ready(now))
        except sqlite3.Error as error:
            if is_mistake(error):
                raise
            if not is_damage(error) and os.path.exists(self._path):
                raise unavailable(error, self._path) from error
            _log.warning("%s cannot be read and is made anew: %s", self._path, error)
        try:
            self._remove()
            return work(self._ready(now))
        except (sqlite3.Error, OSError) as error:
            failure = error if isinstance(error, sqlite3.Error) else sqlite3.Error(str(error))
            raise unavailable(failure, self._path) from error

    def _ready(self, now: int) -> sqlite3.Connection:
        """The connection; opened anew when another process has replaced the file."""
        if self._db is not None and self._path != ":memory:" and _inode(self._path) != self._inode:
            self.close()
        if self._db is None:
            self._db = self._opened(now)
        return self._db

    def _opened(self, now: int) -> sqlite3.Connection:
        if self._path != ":memory:":
            make_file(self._path)
        db = self._connect(
            self._path, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False
        )
        try:
            db.execute("PRAGMA journal_mode = TRUNCATE").fetchall()
            db.execute("PRAGMA synchronous = OFF")
            run(db, "lease_make")
            known = {name for (name,) in run(db, "lease_columns")}
            for column in _ADDED.keys() - known:
                db.execute(f"ALTER TABLE holdfast_lease ADD COLUMN {_ADDED[column]}")
            run(db, "lease_make_birth")
            if not run(db, "lease_birth"):
                born_at = now if self._had_owners() else 0
                grace = span(self._lease_s_longest + MARGIN_S) if born_at else 0
                run(db, "lease_born", born_at=born_at, grace=grace)
        except BaseException:
            db.close()
            raise
        self._inode = _inode(self._path)
        return db

    def _remove(self) -> None:
        self.close()
        for ending in ("", "-journal"):
            if os.path.exists(self._path + ending):
                os.unlink(self._path + ending)

    def _warn_of(self, pids: Any) -> None:
        if self._has_warned or sqlite3.sqlite_version_info >= SAFE_FOR_SEVERAL:
            return
        ours = (os.getpid(), os.getppid())
        # A node that was killed keeps its lease for a while, but it writes no more.
        if any(pid not in ours and _is_running(pid) for pid in pids):
            self._has_warned = True
            _log.warning(
                "several node processes use %s with SQLite %s; that is safe from 3.51.3 on: "
                "run one node, or update SQLite, or use PostgreSQL",
                self._path.removesuffix("-leases"),
                sqlite3.sqlite_version,
            )


def _birth(db: sqlite3.Connection) -> tuple[int, int]:
    born_at, grace = run(db, "lease_birth")[0]
    return born_at, grace


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0
