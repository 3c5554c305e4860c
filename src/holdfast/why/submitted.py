"""Why a SUBMITTED task is not started: who serves it, what limits it, who stands before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.insight import COUNTED_MAX
from holdfast.store import Member
from holdfast.task import State, TaskId
from holdfast.why.known import Known
from holdfast.why.limited import limited
from holdfast.why.reason import Reason
from holdfast.words import counted, listed, span

ASYNC = "async"  # how a kind runs that its node does not name


def submitted(known: Known) -> Iterator[Reason]:
    """Every rule between the task and its start, in the order in which they are asked."""
    is_held = False
    for reason in _rules(known):
        is_held |= reason.waits_here
        yield reason
    if not is_held:
        yield Reason(
            "start",
            "nothing that the store knows of holds it back: it starts at once, or waits for a slot "
            f"or a booking policy, which only the memory of node {known.standing.owner} knows",
        )


def _rules(known: Known) -> Iterator[Reason]:
    yield _served(known)
    if not known.serving:
        return
    yield _handled(known)
    yield _owned(known)
    yield from limited(known)
    yield from _ordered(known)
    yield from _in_line(known)
    yield from _slots(known)
    yield from _arrived(known)
    for name, text in known.policies.items():
        yield Reason(f"policy {name}", text)


def _served(known: Known) -> Reason:
    queue = known.standing.task.queue
    rule = f"queue {queue}"
    if known.serving:
        return Reason(rule, f"{_nodes(known.serving)} it")
    if not known.standing.is_known:
        text = "no node has ever served it: is its name right, and does a node run?"
    else:
        others = sorted({name for m in known.members if m.is_alive for name in m.queues})
        text = f"no live node serves it; live ones serve {listed(others)}"
        text = text if others else "no live node serves it, nor any other queue"
    return Reason(rule, text, True)


def _nodes(members: Sequence[Member]) -> str:
    return "1 node serves" if len(members) == 1 else f"{len(members)} nodes serve"


def _able(known: Known) -> str:
    able = len(known.able)
    return "all of them can run it" if able == len(known.serving) else f"{able} of them can run it"


def _handled(known: Known) -> Reason:
    kind = known.standing.task.kind
    if known.able:
        return Reason(f"kind {kind}", _able(known))
    kinds = sorted({kind for member in known.serving for kind in member.kinds})
    return Reason(
        f"kind {kind}",
        f"no live node has a handler for it; they have {listed(kinds) or 'none'}: "
        "start the version that has it, or it is parked in ERROR after a while",
        True,
    )


def _owned(known: Known) -> Reason:
    standing = known.standing
    rule, owner = f"partition {standing.task.partition}", standing.owner
    if owner is None:
        return Reason(rule, "has no owner: a live node takes it within a few seconds", True)
    if known.is_alive(owner):
        return Reason(rule, f"node {owner} dispatches it")
    member = known.member(owner)
    ended = "has no lease any more" if member is None else f"lease ended {span(member.left_s)} ago"
    return Reason(rule, f"owner {owner}: {ended}; another node takes it within seconds", True)


def _ordered(known: Known) -> Iterator[Reason]:
    task, elder = known.standing.task, known.standing.elder
    if task.ordering_key is None:
        return
    rule = f"ordering key {task.ordering_key}"
    if elder is None:
        yield Reason(rule, "no elder is before it")
        return
    match elder.state:
        case State.PROCESSING:
            text = f"busy: task {elder.id} runs"
        case State.ERROR:
            text = (
                f"task {elder.id} before it is in ERROR, and with on_error='block' (the default) "
                f"the key waits for it: `holdfast error resume {elder.id}`"
            )
        case State.WAITING:
            text = f"task {elder.id} before it waits for a retry"
        case _:
            text = f"task {elder.id} before it is {elder.state.name}"
    yield Reason(rule, f"{text}; see `holdfast why {elder.id}`", True)


def _arrived(known: Known) -> Iterator[Reason]:
    standing = known.standing
    if standing.is_read or standing.line.lane is not None:
        return
    age_s = max(0.0, (standing.now - standing.task.enqueued_at).total_seconds())
    for found in standing.held_up_by[:1]:
        yield Reason(
            "arrival",
            f"enqueued {span(age_s)} ago; an older transaction is still open, so it is not final: "
            f"{found.name}, user {found.user}, for {span(found.since_s)}",
            True,
        )
        return
    # Whatever is retried or resumed arrives anew, and the time of that is not kept.
    since = f"enqueued {span(age_s)} ago, " if standing.task.version == 1 else ""
    yield Reason("arrival", f"{since}its owner has not written it to the backlog yet", True)


def _in_line(known: Known) -> Iterator[Reason]:
    standing = known.standing
    task, line = standing.task, standing.line
    if line.sooner:
        text = f"{_some(line.sooner)} of higher priority before it"
        yield Reason(f"priority {task.priority}", text, True)
    if line.lane is None:
        return
    is_aside = bool(line.lane)
    if task.fairness_key is not None:
        text = f"{_some(line.before_of_key)} of this key before it"
        text += ", in a lane of its own" if is_aside else ""
        yield Reason(f"key {task.fairness_key}", text, line.before_of_key > 0)
    if not is_aside:
        text = f"{_some(line.before)} of its kind and priority before it, of all keys"
        yield Reason("line", text, line.before > 0)


def _some(number: int) -> str:
    return counted(number, "task", most=COUNTED_MAX)


def _slots(known: Known) -> Iterator[Reason]:
    """By what runs now, and by what nodes told with their last renewal; older ones tell less."""
    told = [_slots_of(member, known) for member in known.able]
    full = [one for one in told if one is not None and one.taken >= one.size]
    if not full or len(full) < len(told):
        return
    modes = {one.mode for one in full}
    what = f"{modes.pop()} slots".lstrip() if len(modes) == 1 else "slots"
    size = sum(one.size for one in full)
    text = f"all {size} {what} of the {counted(len(full), 'node')} serving it are taken"
    if holders := [id for one in full for id in one.holders]:
        text += f", by {listed(holders)}"
    yield Reason("slots", text, True)


class _Slots(NamedTuple):
    """The slots of one node for attempts of the task's mode."""

    mode: str
    size: int
    taken: int
    holders: Sequence[TaskId]


def _slots_of(member: Member, known: Known) -> _Slots | None:
    facts = member.facts
    sizes, taken, modes = (_numbers(facts, "slots"), _numbers(facts, "taken"), facts.get("modes"))
    if not sizes or not isinstance(modes, Mapping):
        running = facts.get("running")
        return _Slots("", sum(sizes.values()), running, ()) if sizes and running else None
    mode = modes.get(known.standing.task.kind, ASYNC)
    holders = [
        busy.id
        for busy in known.standing.running
        if busy.node == member.node and modes.get(busy.kind, ASYNC) == mode
    ]
    # Its other queues share the slots, and of those only the node tells.
    return _Slots(mode, sizes.get(mode, 0), max(len(holders), taken.get(mode, 0)), holders)


def _numbers(facts: Mapping[str, Any], name: str) -> dict[str, int]:
    told = facts.get(name)
    found = told.items() if isinstance(told, Mapping) else ()
    return {str(mode): number for mode, number in found if isinstance(number, int)}
