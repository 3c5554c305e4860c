"""Logs: a listener of the event stream that writes to stdlib `logging`, and two small formatters.

The library itself installs no handler but a NullHandler: where lines go is the program's choice.
Fields travel as `extra=`, so any structured handler finds them.  No event carries a payload, so
no log line does.  What a user's handler raises is a WARNING: it is the user's domain.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from holdfast.telemetry.events import (
    AloneRefused,
    AttemptFailed,
    AttemptTakenBack,
    BugFound,
    DutyLost,
    DutyTaken,
    Events,
    GrabLost,
    IncidentRaised,
    LagMeasured,
    LeaseDoubtful,
    LeaseEnded,
    LeaseLost,
    LeaseRegained,
    LeaseRenewed,
    LoopBlocked,
    NodeStarted,
    NodeStopped,
    PartitionLost,
    PartitionTaken,
    RenewerLost,
    ScheduleChanged,
    ScheduleFired,
    SettleRefused,
    SlotsCounted,
    SlotsMissed,
    StoreFailed,
    Surveyed,
    SuspectStarted,
    TaskEnqueued,
    TaskGrabbed,
    TaskResumed,
    TaskSettled,
    TaskStuck,
    TriggerRefused,
    TriggersDropped,
    TriggersTurnedAway,
)

LOGGER = logging.getLogger("holdfast")
LOGGER.addHandler(logging.NullHandler())

FINEST = 5  # dozens at every start, or one a second: only for whoever asks for all of it

LEVELS: dict[type[object], tuple[int, str]] = {
    TaskEnqueued: (logging.DEBUG, "task {task} enqueued: {kind} on {queue}"),
    TaskGrabbed: (logging.DEBUG, "task {task} grabbed: {kind}"),
    GrabLost: (logging.DEBUG, "task {task} went to somebody else"),
    TaskSettled: (logging.DEBUG, "task {task} {event}: {kind} ran {ran_s:.3f} s"),
    SettleRefused: (logging.WARNING, "task {task} ({kind}): superseded, its outcome was refused"),
    AttemptTakenBack: (logging.INFO, "task {task} ({kind}): superseded, its attempt is stopped"),
    AttemptFailed: (logging.WARNING, "task {task} failed: {kind}, attempt {attempt}: {last_line}"),
    TaskStuck: (logging.WARNING, "task {task} ({kind}) is past its deadline: {state}, {done}"),
    DutyTaken: (logging.INFO, "this node is the {duty} now"),
    DutyLost: (logging.INFO, "this node is no longer the {duty}"),
    TaskResumed: (logging.WARNING, "task {task} is submitted again: its node is gone"),
    SuspectStarted: (
        logging.WARNING,
        "task {task} ({kind}) was running when its node died: it runs alone now",
    ),
    AloneRefused: (logging.WARNING, "{kind} cannot run in a process of its own: {reason}"),
    TriggersDropped: (logging.WARNING, "{count} triggers dropped; arrivals will find their tasks"),
    TriggerRefused: (logging.WARNING, "a trigger could not be read and was skipped: {reason}"),
    TriggersTurnedAway: (logging.DEBUG, "{count} triggers of {queue} found no room: {reason}"),
    ScheduleFired: (logging.DEBUG, "schedule {schedule} fired task {task} for {slot}"),
    SlotsMissed: (logging.WARNING, "schedule {schedule} missed {count} slots"),
    ScheduleChanged: (logging.INFO, "schedule {schedule} was changed"),
    PartitionTaken: (FINEST, "partition {partition} of {queue} taken at epoch {epoch}"),
    PartitionLost: (FINEST, "partition {partition} of {queue} given up"),
    SlotsCounted: (FINEST, "slots of node {node}, booked and free: {slots}"),
    LagMeasured: (FINEST, "the loop was {seconds:.3f} s late"),
    LeaseRenewed: (FINEST, "lease renewed with {margin_s:.1f} s left"),
    LeaseEnded: (logging.WARNING, "the lease of node {node} ended; its tasks are resumed"),
    Surveyed: (FINEST, "the watcher on node {node} looked at all queues"),
    IncidentRaised: (logging.WARNING, "a person should look at this ({kind}): {what}"),
    BugFound: (logging.ERROR, "a mistake of Holdfast was repaired, please report it: {what}"),
    StoreFailed: (logging.WARNING, "the store failed at {verb} and will be asked again: {error}"),
    LeaseDoubtful: (logging.WARNING, "node {node} cannot renew its lease and waits until it can"),
    LeaseLost: (logging.WARNING, "node {node} has lost its lease: others run what it was running"),
    LeaseRegained: (logging.WARNING, "node {node} goes on: it has a lease after {after_s:.1f} s"),
    RenewerLost: (logging.WARNING, "the renewer of {node} {reason}; another in {rest_s:g} s"),
    LoopBlocked: (logging.WARNING, "{who} for {seconds:.1f} s, {others} others waited{advice}"),
    NodeStarted: (logging.INFO, "node {node} serves {queues}"),
    NodeStopped: (logging.INFO, "node {node} stopped"),
}  # fmt: skip

_RENAMED = {"event": "outcome"}
_ONLY_TEXT = frozenset({"last_line", "who", "advice"})
_COLOURS = {logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31"}
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def log_events(
    events: Events, logger: logging.Logger = LOGGER, *, every_task: bool = False
) -> Callable[[], None]:
    """Log what happens from now on; call the answer to stop."""

    def hear(event: object) -> None:
        known = LEVELS.get(type(event))
        if known is None or not logger.isEnabledFor(known[0]):
            return
        level, text = known
        values = _values(event)
        logger.log(level, text.format(**values), extra=_fields(event, values))

    return events.listen(hear, every_task=every_task)


class HumanFormatter(logging.Formatter):
    """One line for a person at a terminal: time, level when it matters, text."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        line = f"{at} {level}{record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        code = _COLOURS.get(record.levelno)
        return f"\x1b[{code}m{line}\x1b[0m" if self._colour and code else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line, for machines: at, level, logger, text, and the extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "text": record.getMessage(),
        }
        line.update((name, value) for name, value in vars(record).items() if name not in _PLAIN)
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def _values(event: object) -> dict[str, Any]:
    found: dict[str, Any] = {one.name: getattr(event, one.name) for one in fields(event)}  # type: ignore[arg-type]
    if isinstance(event, AttemptFailed):
        found["last_line"] = (event.error.strip().splitlines() or ["no message"])[-1]
    if isinstance(event, NodeStarted):
        found["queues"] = ", ".join(event.queues)
    if isinstance(event, LoopBlocked):
        found |= _blamed(event)
    return found


def _blamed(event: LoopBlocked) -> dict[str, str]:
    if not event.kinds:
        return {"who": "this process stood still", "advice": ""}
    kinds = ", ".join(event.kinds)
    who = f"a handler of {'kind' if len(event.kinds) == 1 else 'the kinds'} {kinds}"
    return {
        "who": f"{who} held the interpreter",
        "advice": ': work that computes belongs into mode="process", and work that waits without '
        "await into a sync handler",
    }


def _fields(event: object, values: dict[str, Any]) -> dict[str, Any]:
    def named() -> Iterator[tuple[str, Any]]:
        yield "happened", type(event).__name__
        for name, value in values.items():
            if name not in _ONLY_TEXT:
                yield _RENAMED.get(name, name), getattr(event, name, value)

    return dict(named())
