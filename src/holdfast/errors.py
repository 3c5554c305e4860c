"""What can go wrong, by what the caller can do about it.

HoldfastError
├── Refused             the request is wrong: fix it, do not repeat it
│   ├── WrongArguments      the arguments do not fit the task's signature
│   ├── PayloadRefused      the arguments cannot be encoded, or are too large
│   ├── UnknownKind         no task of this name is registered in the app
│   ├── UnknownQueue        no task of the app uses this queue
│   ├── UnknownTask         no task has this id
│   ├── DuplicateTask       the external id or unique key is taken
│   ├── TransactionRefused  the connection given as `within` cannot carry the task
│   └── ConfigurationError  the app or its settings are not as they should be
├── TaskNotDone         the task ended in ERROR, FAILED or CANCELLED: no result
├── Unavailable         the outside failed: repeat later
│   ├── StoreUnavailable    the database cannot be reached, or refused us
│   ├── OutcomeUnknown      the connection broke during a commit
│   └── ResultTimeout       the task is not finished yet
├── SchemaError         the database is not prepared for this version of Holdfast
│   ├── SchemaMissing       run `holdfast db migrate`
│   └── SchemaTooNew        install a newer Holdfast
└── MissingExtra        install the extra named in the message
"""

from __future__ import annotations


class HoldfastError(Exception):
    """Base of every error that this library raises on purpose."""

    exit_code = 1


class Refused(HoldfastError):
    """The request is wrong.  Nothing was written."""

    exit_code = 2


class WrongArguments(Refused):
    """The arguments do not fit the task's signature."""


class PayloadRefused(Refused):
    """The arguments cannot be encoded, or are larger than `payload_bytes_max`."""


class UnknownKind(Refused):
    """No task of this name is registered."""

    exit_code = 3


class UnknownQueue(Refused):
    """No registered task uses this queue."""

    exit_code = 3


class UnknownTask(Refused):
    """No task has this id, or it was cleaned away."""

    exit_code = 3


class DuplicateTask(Refused):
    """The external id or unique key belongs to another task; `existing` is that task's id."""

    exit_code = 4

    def __init__(self, message: str, *, existing: int) -> None:
        super().__init__(message)
        self.existing = existing


class TransactionRefused(Refused):
    """The connection given as `within` cannot carry the task."""


class ConfigurationError(Refused):
    """The app or its settings are not as they should be."""


class TaskNotDone(HoldfastError):
    """The task ended without a result; `state` names its end and `error` its last message."""

    def __init__(self, message: str, *, state: str, error: str | None) -> None:
        super().__init__(message)
        self.state = state
        self.error = error


class Unavailable(HoldfastError):
    """The outside failed.  Repeat later."""

    exit_code = 6


class StoreUnavailable(Unavailable):
    """The database cannot be reached, or refused the connection.  Nothing was written."""


class OutcomeUnknown(Unavailable):
    """The connection broke during a commit: the task may or may not exist.

    `repeat_is_safe` is True when the task has a unique key or an external id:
    a repeat then finds the first one instead of adding a second.
    """

    def __init__(self, message: str, *, repeat_is_safe: bool) -> None:
        super().__init__(message)
        self.repeat_is_safe = repeat_is_safe


class ResultTimeout(Unavailable):
    """The task did not finish in the given time.  It goes on."""

    exit_code = 7


class SchemaError(HoldfastError):
    """The database is not prepared for this version of Holdfast."""

    exit_code = 4


class SchemaMissing(SchemaError):
    """The tables do not exist, or are older than this code."""


class SchemaTooNew(SchemaError):
    """The tables were made by a newer Holdfast."""


class MissingExtra(HoldfastError):
    """An optional driver is not installed."""

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f"{what} needs an optional driver: pip install 'holdfast[{extra}]'")
