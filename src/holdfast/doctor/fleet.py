"""Nodes, queues and duties: whether somebody does the work, and what waits for a person."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.doctor.finding import Finding, Thresholds, ok, warn
from holdfast.insight import COUNTED_MAX
from holdfast.store import Member, Store
from holdfast.words import counted, listed, span


async def check_fleet(store: Store, thresholds: Thresholds) -> list[Finding]:
    members = await store.members()
    alive = [member for member in members if member.is_alive]
    return [
        check_nodes(alive),
        check_leases(members, thresholds),
        check_partitions(alive, store.partitions),
        *await check_queues(store, alive),
        await check_duties(store, alive, thresholds),
        *await check_troubles(store),
    ]


def check_nodes(alive: Sequence[Member]) -> Finding:
    if not alive:
        return warn(
            "nodes", "no node is alive: tasks are kept, and wait", "start one: holdfast worker APP"
        )
    queues = sorted({queue for member in alive for queue in member.queues})
    return ok("nodes", f"{counted(len(alive), 'node')} alive, serving {listed(queues)}")


def check_leases(members: Sequence[Member], thresholds: Thresholds) -> Finding:
    """Whoever beats removes the ended ones, once their tasks were resumed."""
    ended = [m for m in members if not m.is_alive and -m.left_s >= thresholds.lease_ended_s]
    if not ended:
        return ok("leases", f"{counted(len(members), 'lease')}, none ended long ago")
    oldest_s = max(-member.left_s for member in ended)
    names = listed([member.node for member in ended])
    return warn(
        "leases",
        f"{counted(len(ended), 'node')} ended without a good-bye, up to {span(oldest_s)} ago, "
        f"and nobody has resumed their tasks: {names}",
        "start a node of their queues: it resumes the tasks and removes the leases",
    )


def check_partitions(alive: Sequence[Member], partitions: int) -> Finding:
    """A node without a partition has nothing to dispatch."""
    serving: dict[str, int] = {}
    for member in alive:
        for queue in member.queues:
            serving[queue] = serving.get(queue, 0) + 1
    crowded = [f"{queue} ({nodes})" for queue, nodes in serving.items() if nodes * 2 > partitions]
    if crowded:
        return warn(
            "partitions",
            f"more nodes than half of the {partitions} partitions serve {listed(sorted(crowded))}",
            "run fewer nodes with more slots each, or spread the tasks over more queues",
        )
    return ok("partitions", f"{partitions} a queue")


async def check_queues(store: Store, alive: Sequence[Member]) -> list[Finding]:
    waiting = await store.waiting_kinds()
    kinds: dict[str, set[str]] = {}
    for member in alive:
        for queue in member.queues:
            kinds.setdefault(queue, set()).update(member.kinds)
    unserved = sorted({queue for queue, _ in waiting if queue not in kinds})
    unhandled = [
        f"{kind} in {queue}"
        for queue, kind in waiting
        if queue in kinds and kind not in kinds[queue]
    ]
    findings = [
        warn(
            "queues",
            f"tasks wait in {listed(unserved)}, and no live node serves it",
            "start a node of it: holdfast worker APP --queue NAME; or correct the name",
        )
        if unserved
        else ok("queues", "every queue with tasks that may run is served")
    ]
    findings.append(
        warn(
            "kinds",
            f"no live node has a handler for {listed(unhandled)}",
            "start the version of the app that has it: else the tasks are parked in ERROR",
        )
        if unhandled
        else ok("kinds", "every kind that waits has a handler")
    )
    return findings


async def check_duties(store: Store, alive: Sequence[Member], thresholds: Thresholds) -> Finding:
    duties = await store.duties()
    nodes = {member.node for member in alive}
    left = [
        duty.name
        for duty in duties
        if duty.holder not in nodes or -duty.due_in_s >= thresholds.duty_overdue_s
    ]
    if left and nodes:
        return warn(
            "duties",
            f"no live node keeps {listed(left)}",
            "a live node takes a duty by itself; if this stays, look at the nodes' logs",
        )
    return ok("duties", f"{len(duties)} on record")


async def check_troubles(store: Store) -> list[Finding]:
    errors, stuck = await store.troubles()
    return [
        warn(
            "errors",
            f"{counted(errors, 'task', most=COUNTED_MAX)} in ERROR",
            "holdfast error list, then resume or give up",
        )
        if errors
        else ok("errors", "no task is in ERROR"),
        warn(
            "stuck",
            f"{counted(stuck, 'task', most=COUNTED_MAX)} PROCESSING past the deadline",
            "holdfast task list --stuck; `task resume --force` takes one from its attempt",
        )
        if stuck
        else ok("stuck", "no task is past its deadline"),
    ]
