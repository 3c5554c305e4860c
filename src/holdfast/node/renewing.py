"""What the renewer's process does: it renews one node's lease, whatever that node computes.

A call into C that holds the interpreter stops every thread of its process, and with it any renewal
from there; a process of its own is never late.  It runs no code of the user's and imports little.

    beats come                 renew every third of the lease, with jitter
    no beat for `stall_s`      renew no more: the node hangs, and the lease ends by itself;
                               when beats come back, go on
    end of file, other parent  the node's process died: end the lease at once, and go
    bye                        the node leaves and says so itself: go

Signals that a terminal or a service manager sends to all processes of a service are ignored: the
node decides, and it needs its lease until its last attempt has ended.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from random import Random
from typing import Literal, Protocol

from holdfast.clock import Clock, SystemClock
from holdfast.errors import HoldfastError
from holdfast.node.renewal import BYE, Order, Report

LOOK_S = 0.5  # between two looks whether the parent is still the same
RENEW_PART, REPEAT_PART = 3, 10  # of the lease, after a success and after a failure
REPEAT_S_MAX = 1.0
JITTER = 0.8
LINE_BYTES_MAX = 1 << 16


class OwnLease(Protocol):
    """The lease of one node, by a connection of its own.  All raise when the store is away."""

    def prolong(self) -> bool:
        """Keep the lease for its length from now on; False: there is none."""
        ...

    def end(self) -> None:
        """Say that the node is dead."""
        ...

    def close(self) -> None: ...


class Schedule:
    """When to renew.  Pure."""

    def __init__(self, *, lease_s: float, stall_s: float, now: float, rng: Random) -> None:
        self._lease_s = lease_s
        self._stall_s = stall_s
        self._rng = rng
        self._beaten_at = self._next_at = now

    def beaten(self, now: float) -> None:
        if self.is_stalled(now):
            self._next_at = now
        self._beaten_at = now

    def is_stalled(self, now: float) -> bool:
        return now - self._beaten_at >= self._stall_s

    def is_due(self, now: float) -> bool:
        return now >= self._next_at and not self.is_stalled(now)

    def tried(self, now: float, *, succeeded: bool) -> None:
        part_s = self._lease_s / (RENEW_PART if succeeded else REPEAT_PART)
        rest_s = part_s if succeeded else min(part_s, REPEAT_S_MAX)
        self._next_at = now + rest_s * self._rng.uniform(JITTER, 1.0)

    def rest_s(self, now: float) -> float:
        if self.is_stalled(now):
            return LOOK_S
        return min(max(0.0, self._next_at - now), LOOK_S)


Said = Literal["nothing", "beat", "bye", "end"]


class Inbox:
    """The node's lines, from a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN | select.POLLHUP)
        self._rest = b""

    def first(self) -> bytes | None:
        """The first line; None when the node died before it had said all of it."""
        while b"\n" not in self._rest:
            if not (read := os.read(self._descriptor, LINE_BYTES_MAX)):
                return None
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def heard(self, within_s: float) -> Said:
        """What was said in the meantime; waits for it a while."""
        if not self._rest:
            if not self._poll.poll(within_s * 1000):
                return "nothing"
            self._rest = os.read(self._descriptor, LINE_BYTES_MAX)
            if not self._rest:
                return "end"
        said, self._rest = self._rest, b""
        return "bye" if BYE in said else "beat"


class Renewing:
    """Serves one node until it leaves or dies."""

    def __init__(
        self,
        order: Order,
        lease: OwnLease,
        *,
        inbox: Inbox,
        tell: Callable[[Report], None],
        clock: Clock,
        rng: Random,
    ) -> None:
        self._order = order
        self._lease = lease
        self._inbox = inbox
        self._tell = tell
        self._clock = clock
        self._schedule = Schedule(
            lease_s=order.lease_s, stall_s=order.stall_s, now=clock.seconds(), rng=rng
        )

    def serve(self) -> None:
        schedule = self._schedule
        while True:
            said = self._inbox.heard(schedule.rest_s(self._clock.seconds()))
            if said == "bye":
                return
            # The pipe may be held open by a process that the node forked, and that outlives it.
            if said == "end" or os.getppid() != self._order.parent:
                self._end()
                return
            now = self._clock.seconds()
            if said == "beat":
                schedule.beaten(now)
            if schedule.is_due(now):
                self._renew()

    def _renew(self) -> None:
        asked_at = self._clock.seconds()
        try:
            report = Report("renewed" if self._lease.prolong() else "gone", asked_at)
        except Exception as error:
            report = Report("failed", asked_at, _text(error))
        self._schedule.tried(self._clock.seconds(), succeeded=report.what != "failed")
        self._tell(report)

    def _end(self) -> None:
        """Nobody has to wait for the lease; when the store stays away, it ends by itself."""
        give_up_at = self._clock.seconds() + self._order.lease_s
        while True:
            try:
                self._lease.end()
                return
            except Exception:
                if self._clock.seconds() >= give_up_at:
                    return
                select.select([], [], [], LOOK_S)


def own_lease(order: Order, *, clock: Clock) -> OwnLease:
    """The lease in the store at the order's address; nothing is opened yet."""
    if order.url.startswith("sqlite:"):
        from holdfast.stores.sqlite.own_lease import SQLiteOwnLease

        path = order.url.removeprefix("sqlite:///")
        return SQLiteOwnLease(path, order.node, lease_s=order.lease_s, clock=clock)
    from holdfast.stores.postgres.own_lease import PostgresOwnLease

    return PostgresOwnLease(order.url, order.node, schema=order.schema, lease_s=order.lease_s)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    inbox = Inbox(sys.stdin.fileno())
    line = inbox.first()
    if line is None:
        return
    order, clock = Order.of_line(line), SystemClock()
    os.environ.update(order.environment)
    lease = own_lease(order, clock=clock)
    try:
        Renewing(order, lease, inbox=inbox, tell=_teller(), clock=clock, rng=Random()).serve()
    finally:
        lease.close()


def _teller() -> Callable[[Report], None]:
    descriptor = sys.stdout.fileno()
    os.set_blocking(descriptor, False)

    def tell(report: Report) -> None:
        try:
            os.write(descriptor, report.line)
        except OSError:
            return  # the node reads nothing at the moment, or never will: the inbox knows

    return tell


def _text(error: Exception) -> str:
    """Ours say what to do and repeat no password; of others, only the type is safe to tell."""
    return str(error) if isinstance(error, HoldfastError) else type(error).__name__
