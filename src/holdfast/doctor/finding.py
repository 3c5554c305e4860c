"""What a check answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from holdfast.errors import HoldfastError
from holdfast.words import span


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"  # it works, but not as it could, or not for long
    FAIL = "FAIL"  # something that was promised does not hold


class Finding(NamedTuple):
    """One line of the report; `fix` says what to do about it."""

    verdict: Verdict
    name: str
    what: str
    fix: str = ""


Check = Callable[[], Awaitable[list[Finding]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where on a number is worth a warning."""

    snapshot_s: float = 60.0  # the age of the oldest snapshot
    snapshot_transactions: int = 1_000_000  # ... of one that does not say its age
    dead_rows: int = 5_000  # and at least twice as many as live ones
    clock_s: float = 1.0
    commit_s: float = 0.05
    listen_s: float = 0.5
    connections_part: float = 0.8  # of max_connections
    lease_ended_s: float = 60.0
    duty_overdue_s: float = 30.0
    wal_bytes: int = 256 * 2**20
    disk_bytes_warn: int = 2**30
    disk_bytes_fail: int = 100 * 2**20
    open_files: int = 1024
    check_s: float = 20.0  # how long one check may take


def ok(name: str, what: str) -> Finding:
    return Finding(Verdict.OK, name, what)


def warn(name: str, what: str, fix: str) -> Finding:
    return Finding(Verdict.WARN, name, what, fix)


def fail(name: str, what: str, fix: str) -> Finding:
    return Finding(Verdict.FAIL, name, what, fix)


async def guarded(name: str, check: Check, thresholds: Thresholds) -> list[Finding]:
    """The findings of a check; one that cannot be made is a warning, and the others go on."""
    try:
        async with asyncio.timeout(thresholds.check_s):
            return await check()
    except HoldfastError as error:
        reason = str(error)
    except TimeoutError:
        reason = f"no answer within {span(thresholds.check_s)}"
    return [warn(name, f"could not be checked: {reason}", "mend that, then run doctor again")]
