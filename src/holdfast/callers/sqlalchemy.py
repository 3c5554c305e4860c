"""A SQLAlchemy Session or Connection of the caller's, sync or async.

A Session says when it has committed.  A Connection only says that it is about to: then the store
is asked, at once and until it sees the tasks.  A Session that was given somebody else's
Connection commits nothing itself; its triggers wait for that Connection.

The hooks are added once to each Session and Connection and live as long as they do (SQLAlchemy
cannot remove a hook while it runs); after the end of a transaction they hold nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from holdfast.callers.kit import POSTGRES, SQLITE, Kit, checking, refuse_dialect
from holdfast.callers.scripts import OnlyAsync, OnlySync, play, play_async
from holdfast.callers.sqlite import is_locked, locked_because
from holdfast.callers.watch import Held, has_ended
from holdfast.errors import TransactionRefused
from holdfast.sql.query import Query, Script, Style, arguments, rendered
from holdfast.task import Trigger

T = TypeVar("T")

COMMITTING_S = 0.1  # how long a Session's commit may take before the store is asked about it
_DIALECTS = {"postgresql": POSTGRES, "sqlite": SQLITE}
_STYLES = {
    "pyformat": Style.PYFORMAT,
    "numeric_dollar": Style.DOLLAR,
    "qmark": Style.QMARK,
}
_CHECKED = "holdfast_checked"


class _Caller:
    """What the sync and the async form share."""

    _kit: Kit
    _hook: Hook | None

    def after_commit(self, triggers: Sequence[Trigger]) -> None:
        assert self._hook is not None, "the script runs before its triggers are held"
        self._hook.hold(triggers)

    def _prepare(self, connection: Any) -> bool:
        """Refuse what cannot work, add the hook; whether the database has yet to be checked."""
        name = connection.dialect.name
        refuse_dialect(self._kit, _DIALECTS.get(name, name), "a SQLAlchemy connection")
        if connection.dialect.paramstyle not in _STYLES:
            raise TransactionRefused(
                f"SQLAlchemy's driver {connection.dialect.driver!r} is not supported as within=; "
                "use psycopg, asyncpg, sqlite3 or aiosqlite"
            )
        if _is_autocommit(connection):
            raise TransactionRefused(
                "the SQLAlchemy connection given as within= has the isolation level AUTOCOMMIT, "
                "so there is no transaction to add the task to; use another isolation level"
            )
        hook = self._kit.hooks.get(connection)
        if hook is None:
            hook = self._kit.hooks[connection] = Hook(connection, self._kit)
        self._hook = hook
        # The dict stays with the driver's connection while it goes in and out of the pool.
        return bool(connection.info.get(_CHECKED) != self._kit.address)

    def _checked(self, connection: Any) -> None:
        connection.info[_CHECKED] = self._kit.address


class SQLAlchemyCaller(_Caller, OnlySync):
    """A Session, or a Connection, on the thread that uses it."""

    def __init__(self, given: Any, *, kit: Kit) -> None:
        self._given = given
        self._kit = kit
        self._hook = None

    def run_sync(self, script: Script[T]) -> T:
        session = self._given if hasattr(self._given, "get_bind") else None
        connection = self._given if session is None else session.connection()

        def execute(query: Query, params: dict[str, Any]) -> list[Any]:
            return _rows(connection.exec_driver_sql(*_statement(connection, query, params)))

        if self._prepare(connection):
            play(checking(self._kit), execute)
            self._checked(connection)
        if session is not None:
            _hook_session(session, connection, self._kit)
        if self._kit.dialect == SQLITE:
            connection.exec_driver_sql("PRAGMA wal_autocheckpoint = 0")  # only the store does
        try:
            return play(script, execute)
        except DBAPIError as error:
            if is_locked(error.orig):
                raise TransactionRefused(locked_because(error.orig)) from error
            raise


class AsyncSQLAlchemyCaller(_Caller, OnlyAsync):
    """An AsyncSession, or an AsyncConnection."""

    def __init__(self, given: Any, *, kit: Kit) -> None:
        self._given = given
        self._kit = kit
        self._hook = None

    async def run(self, script: Script[T]) -> T:
        session = getattr(self._given, "sync_session", None)
        connection = self._given if session is None else await self._given.connection()

        async def execute(query: Query, params: dict[str, Any]) -> list[Any]:
            return _rows(await connection.exec_driver_sql(*_statement(connection, query, params)))

        below = connection.sync_connection
        if self._prepare(below):
            await play_async(checking(self._kit), execute)
            self._checked(below)
        if session is not None:
            _hook_session(session, below, self._kit)
        if self._kit.dialect == SQLITE:
            await connection.exec_driver_sql("PRAGMA wal_autocheckpoint = 0")
        try:
            return await play_async(script, execute)
        except DBAPIError as error:
            if is_locked(error.orig):
                raise TransactionRefused(locked_because(error.orig)) from error
            raise


class Hook:
    """Sees what becomes of a Connection's transactions, and sends or drops their triggers."""

    def __init__(self, connection: Any, kit: Kit) -> None:
        self.session_commits = False  # a Session will tell when the commit is done
        self._kit = kit
        self._triggers: list[Trigger] = []
        self._in_doubt = False
        self._unfinished = 0  # statements that began and did not succeed
        self._committing: Held | None = None
        self._was_in_doubt = False  # about what is being committed
        event.listen(connection, "commit", self._before_commit)
        event.listen(connection, "commit_twophase", self._before_commit)
        event.listen(connection, "rollback", self._rolled_back)
        event.listen(connection, "rollback_twophase", self._rolled_back)
        event.listen(connection, "rollback_savepoint", self._savepoint_rolled_back)
        event.listen(connection, "before_cursor_execute", self._statement_began)
        event.listen(connection, "after_cursor_execute", self._statement_succeeded)

    def hold(self, triggers: Sequence[Trigger]) -> None:
        self._triggers += triggers

    def committed(self) -> None:
        """The Session has committed this Connection."""
        held, self._committing = self._committing, None
        if held is None:
            return  # it was somebody else's transaction, and that one is still open
        if triggers := held.take():
            if self._was_in_doubt:
                self._kit.watch.add(triggers, probe=has_ended)
            else:
                self._kit.publish(triggers)

    def _before_commit(self, connection: Any, *_: Any) -> None:
        triggers, in_doubt = self._triggers, self._in_doubt or self._unfinished > 0
        self._reset()
        if not triggers:
            return
        if self.session_commits:
            # The Session's word comes in a moment and costs no statement; should it not come,
            # because the Connection was committed directly, the watch asks.
            self._committing = self._kit.watch.add(triggers, wait_s=COMMITTING_S)
            self._was_in_doubt = in_doubt
        else:
            self._kit.watch.add(triggers)

    def _rolled_back(self, connection: Any, *_: Any) -> None:
        self._reset()

    def _savepoint_rolled_back(self, connection: Any, name: Any, context: Any) -> None:
        self._in_doubt = True

    def _statement_began(self, connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        self._unfinished += 1
        if statement.lstrip()[:8].upper() == "ROLLBACK":
            self._in_doubt = True  # to a savepoint, written by hand

    def _statement_succeeded(self, connection: Any, *_: Any) -> None:
        self._unfinished -= 1

    def _reset(self) -> None:
        self._triggers, self._in_doubt, self._unfinished = [], False, 0


def _hook_session(session: Any, connection: Any, kit: Kit) -> None:
    """Let the Session tell the Connection's hook when it has committed."""
    hook = kit.hooks[connection]
    hook.session_commits = True
    known = kit.hooks.get(session)
    if known is None:
        known = kit.hooks[session] = SessionHook(session)
    known.below = hook


class SessionHook:
    """Passes on that the Session's outermost transaction was committed."""

    def __init__(self, session: Any) -> None:
        self.below: Hook | None = None
        event.listen(session, "after_commit", self._after_commit)

    def _after_commit(self, session: Any) -> None:
        # The same event tells of released savepoints.
        if self.below is not None and not session.in_nested_transaction():
            self.below.committed()


def is_async(given: Any) -> bool:
    return hasattr(given, "sync_session") or hasattr(given, "sync_connection")


def unwrapped(given: Any) -> Any:
    """The Session behind a scoped session; anything that is no Session or Connection is refused."""
    if hasattr(given, "registry") and callable(given):
        return given()
    if hasattr(given, "exec_driver_sql") or hasattr(given, "get_bind"):
        return given
    raise TransactionRefused(
        f"a SQLAlchemy {type(given).__name__} was given as within=; "
        "give the Session or the Connection whose transaction is to carry the task"
    )


def _statement(connection: Any, query: Query, params: dict[str, Any]) -> tuple[str, Any]:
    """The text and its values as the driver below wants them."""
    style = _STYLES[connection.dialect.paramstyle]
    text, names = rendered(query, style)
    return text, params if style is Style.PYFORMAT else tuple(arguments(names, params))


def _rows(result: Any) -> list[Any]:
    return list(result.fetchall()) if result.returns_rows else []


def _is_autocommit(connection: Any) -> bool:
    if connection.dialect.name == "postgresql":
        driver = connection.connection.dbapi_connection
        return bool(connection.dialect.detect_autocommit_setting(driver))
    # On SQLite the driver's own setting says little: many people begin by hand, with an event.
    level = connection.get_execution_options().get("isolation_level")
    if level is None:
        # What create_engine(isolation_level=…) was given; SQLAlchemy shows it to nobody.
        level = getattr(connection.dialect, "_on_connect_isolation_level", None)
    return bool(level == "AUTOCOMMIT")
