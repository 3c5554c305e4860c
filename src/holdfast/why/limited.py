"""The limits and pauses of a queue, as they stand in the way of one task.

Holders of a concurrency are counted by the store's own record, as the limit itself is.  What is
left of a rate is computed from its bucket; of a rate that each node counts by itself, only that
node knows.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.limit import Limit, counted_key, tokens_of
from holdfast.queues import is_pause
from holdfast.why.known import Known
from holdfast.why.reason import Reason
from holdfast.words import listed, span


def limited(known: Known) -> Iterator[Reason]:
    """One line for each limit that counts the task; the pauses first."""
    task = known.standing.task
    limits = [one for one in known.rules.limits if one.counts(task.kind, task.fairness_key)]
    for limit in sorted(limits, key=lambda one: not one.pauses):
        if limit.pauses:
            yield Reason(_scope(limit, known), _paused(limit), True)
        elif limit.rate is not None:
            yield _rate(limit, known)
        else:
            yield _concurrency(limit, known)


def _scope(limit: Limit, known: Known) -> str:
    task = known.standing.task
    if limit.key is not None:
        return f"key {task.fairness_key}"
    return f"queue {limit.queue}" if limit.kind is None else f"kind {limit.kind}"


def _paused(limit: Limit) -> str:
    words = f" --kind {limit.kind}" if limit.kind else ""
    words += f" --key {limit.key}" if limit.key else ""
    if is_pause(limit):
        return f"paused; `holdfast queue resume {limit.queue}{words}` lets it go on"
    return f"limit {limit.name} is 0: nothing starts"


def _concurrency(limit: Limit, known: Known) -> Reason:
    standing = known.standing
    size = limit.concurrency or 0
    key = counted_key(limit, standing.task.fairness_key or "")
    holders = [
        busy.id
        for busy in standing.running
        if limit.kind in (None, busy.kind)
        and key in (None, busy.fairness_key)
        and (not limit.local or busy.node == standing.owner)
    ]
    where = f" on node {standing.owner}" if limit.local else ""
    text = f"{len(holders)} of {size}{where} (limit {limit.name})"
    if holders:
        text += f", held by {listed(holders)}"
    return Reason(_scope(limit, known), text, len(holders) >= size)


def _rate(limit: Limit, known: Known) -> Reason:
    standing = known.standing
    rule, key = _scope(limit, known), (standing.task.fairness_key or "") * limit.is_per_key
    weight = known.rules.weights.get(standing.task.fairness_key or "", standing.weight)
    rate, most = tokens_of(limit, weight)
    words = f"rate {rate:g}/s (limit {limit.name})"
    if limit.local:
        return Reason(rule, f"{words}: each node counts by itself, only it knows what is left")
    found = standing.tokens.get((limit.name, key))
    left = most if found is None else min(most, found.tokens + rate * max(0.0, found.since_s))
    if left >= 1.0:
        return Reason(rule, f"{words}: {int(left)} may start now")
    wait_s = (1.0 - left) / rate
    return Reason(rule, f"{words} is used up; refills in {span(wait_s)}", True)
