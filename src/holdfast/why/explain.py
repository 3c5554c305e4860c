"""From what is known to sentences.  Pure.

Every rule that a task has to pass is one line with its present value; the one that it waits for now
is marked.  The rules stand in the order in which the engine asks them, so the first that refuses
is the one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from holdfast.task import FINAL, State
from holdfast.why.known import Known
from holdfast.why.reason import Reason
from holdfast.why.submitted import submitted
from holdfast.words import last_line, span


def head_of(known: Known) -> str:
    """One line about the task itself."""
    task = known.standing.task
    parts = [f"task {task.id}", f"kind {task.kind}", f"queue {task.queue}", _state(known)]
    return " · ".join([*parts, f"priority {task.priority}"])


def reasons_of(known: Known) -> list[Reason]:
    """One line a rule; at most one of them is marked as what the task waits for."""
    match known.standing.task.state:
        case State.SUBMITTED:
            found = submitted(known)
        case State.WAITING:
            found = _waiting(known)
        case State.PROCESSING:
            found = _processing(known)
        case State.ERROR:
            found = _error(known)
        case _:
            found = _finished(known)
    return _marked_once(found)


def _marked_once(found: Iterator[Reason]) -> list[Reason]:
    reasons: list[Reason] = []
    for reason in found:
        is_first = not any(other.waits_here for other in reasons)
        reasons.append(reason._replace(waits_here=reason.waits_here and is_first))
    return reasons


def _state(known: Known) -> str:
    task, now = known.standing.task, known.standing.now
    if task.state in FINAL and task.finished_at:
        return f"{task.state.name} since {_ago(task.finished_at, now)}"
    if task.state is State.SUBMITTED and not task.deliveries and task.version == 1:
        return f"SUBMITTED since {_ago(task.enqueued_at, now)}"
    return f"{task.state.name}, enqueued {_ago(task.enqueued_at, now)} ago"


def _finished(known: Known) -> Iterator[Reason]:
    task = known.standing.task
    when = "" if task.finished_at is None else f" at {_at(task.finished_at)}"
    whom = f" on node {task.node}" if task.node else ", by a person or before it ever ran"
    yield Reason(task.state.name, f"finished{when}{whom}, deliveries {task.deliveries}")
    if task.error:
        yield Reason("error", last_line(task.error))
    if task.state is not State.DONE:
        yield Reason(
            "do", f"a finished task does not run again; see `holdfast task show {task.id}`"
        )


def _error(known: Known) -> Iterator[Reason]:
    task = known.standing.task
    text = last_line(task.error) or "no reason was kept"
    yield Reason("ERROR", f"parked after {task.deliveries} deliveries: {text}", True)
    yield Reason(
        "do",
        f"`holdfast error resume {task.id}` submits it again, "
        f"`holdfast error give-up {task.id}` ends it as FAILED",
    )


def _waiting(known: Known) -> Iterator[Reason]:
    standing = known.standing
    task = standing.task
    if task.deliveries:
        error = last_line(task.error) or "no error was kept"
        why = f"retry after attempt {max(task.attempts, 1)} failed with {error}"
    else:
        why = "delayed by its caller"
    left_s = (task.due_at - standing.now).total_seconds() if task.due_at else 0.0
    if task.due_at and left_s > 0:
        yield Reason("due", f"in {span(left_s)}, at {_at(task.due_at)}: {why}", True)
    waker = known.waker
    if waker is None:
        yield Reason("waker", "no live node keeps the waker: nobody submits it", left_s <= 0)
    else:
        yield Reason("waker", f"node {waker} submits it when it is due")
    if left_s <= 0:
        text = f"since {span(left_s)}: the waker submits it with its next look; {why}"
        yield Reason("due", text, waker is not None)


def _processing(known: Known) -> Iterator[Reason]:
    standing = known.standing
    task = standing.task
    yield _runner(known)
    if task.deadline_at is None:
        return
    left_s = (task.deadline_at - standing.now).total_seconds()
    if left_s >= 0:
        yield Reason("deadline", f"in {span(left_s)}, at {_at(task.deadline_at)}")
    else:
        yield Reason(
            "deadline",
            f"passed {span(left_s)} ago: it is stuck; "
            f"`holdfast task resume {task.id} --force` takes it from the attempt that hangs",
            True,
        )


def _runner(known: Known) -> Reason:
    task = known.standing.task
    rule, member = f"node {task.node}", known.member(task.node)
    if member is not None and member.is_alive:
        value = f"runs it, delivery {task.deliveries}; its lease has {span(member.left_s)} left"
        return Reason(rule, value)
    ended = "left no lease" if member is None else f"its lease ended {span(member.left_s)} ago"
    if not known.serving:
        return Reason(rule, f"{ended}, and no live node serves the queue to resume its tasks", True)
    if member is None:
        return Reason(rule, f"{ended}: the owner of the partition resumes it within 10 min", True)
    return Reason(rule, f"{ended}: the other nodes resume its tasks within a few seconds", True)


def _ago(then: datetime, now: datetime) -> str:
    return span(max(0.0, (now - then).total_seconds()))


def _at(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="seconds")
