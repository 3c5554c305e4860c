"""What the driver's errors mean for the caller: mapped here and nowhere else.

No message repeats a password or a text of the database: the place is host, port and database.
"""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import asyncpg

from holdfast.errors import (
    HoldfastError,
    OutcomeUnknown,
    Refused,
    SchemaMissing,
    StoreUnavailable,
)

DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a server that goes away in the middle of a batch may end so
    OSError,
    TimeoutError,
)
"""Everything that the outside can do to a call; all else is our own mistake."""

CONFLICTS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""The server chose us to give way: nothing was written, the same call may be repeated at once."""

_SCHEMA = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidSchemaNameError,
    asyncpg.UndefinedObjectError,
)

LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""The connection is gone, or will be in a moment."""


def place(url: str) -> str:
    """Where the database is, without user and password."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or parse_qs(parts.query).get("host", ["localhost"])[0]
        return f"{host}:{parts.port or 5432}{parts.path or ''}"
    except ValueError:
        return "an address that cannot be read"


def not_connected(error: BaseException, where: str) -> HoldfastError:
    """Why no connection could be had, and what to do about it."""
    match error:
        case asyncpg.InvalidCatalogNameError():
            advice = "the database does not exist: create it, or correct its name in the URL"
        case asyncpg.InvalidAuthorizationSpecificationError():
            advice = "it refused the user or the password: check them in the URL"
        case asyncpg.InsufficientPrivilegeError():
            advice = "the user may not connect: GRANT CONNECT on the database to it"
        case asyncpg.TooManyConnectionsError():
            advice = "it has no connection left: lower connections_max or raise max_connections"
        case asyncpg.CannotConnectNowError():
            advice = "it is starting or stopping: try again in a moment"
        case TimeoutError():
            advice = (
                "no connection in time: check host and port, or raise connections_max if all "
                "connections are in use"
            )
        case OSError():
            advice = "check that it runs, and host and port in the URL"
        case _:
            advice = f"the connection failed ({type(error).__name__})"
    return StoreUnavailable(f"PostgreSQL at {where} cannot be reached: {advice}")


def failed(
    error: BaseException, where: str, *, may_have_happened: bool, repeat_is_safe: bool
) -> HoldfastError | None:
    """What a failed call means; None for an error that is our own mistake.

    `may_have_happened` says that a commit was under way when the connection broke.
    """
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return StoreUnavailable(f"PostgreSQL at {where} is read-only: connect to the primary")
    if isinstance(error, _SCHEMA):
        return SchemaMissing(
            f"the tables of Holdfast are missing in {where}; run: holdfast db migrate"
        )
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreUnavailable(
            f"PostgreSQL at {where} refused us: grant this user the rights on Holdfast's tables"
        )
    if isinstance(error, (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError)):
        return StoreUnavailable(
            f"PostgreSQL at {where} took too long and the statement was stopped: "
            "look for long locks or a slow disk"
        )
    if isinstance(error, (asyncpg.InsufficientResourcesError, *CONFLICTS)):
        return StoreUnavailable(
            f"PostgreSQL at {where} could not do it ({type(error).__name__}): try again later"
        )
    if isinstance(error, LOST) or _is_closed(error):
        if may_have_happened:
            return OutcomeUnknown(
                f"the connection to PostgreSQL at {where} broke during a commit: "
                "it may or may not have happened",
                repeat_is_safe=repeat_is_safe,
            )
        return StoreUnavailable(
            f"the connection to PostgreSQL at {where} was lost: nothing was written"
        )
    if isinstance(error, asyncpg.DataError):
        return Refused(
            "PostgreSQL cannot hold a value of this call: texts without the character NUL, "
            "numbers and times within range"
        )
    return None


def _is_closed(error: BaseException) -> bool:
    """The driver reports a connection that was closed under it as a wrong use of its interface."""
    return isinstance(error, asyncpg.InterfaceError) and not isinstance(error, asyncpg.DataError)


def is_missing_day(error: BaseException) -> bool:
    """Whether a settle found no day table of the archive."""
    return isinstance(error, asyncpg.CheckViolationError) and error.constraint_name is None
