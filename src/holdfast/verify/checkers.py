"""Checkers: each reads a history and answers what must not have happened.

They know nothing of the engine, only what the lines of `holdfast.verify.history` mean.  All of them
are linear in the number of lines, but for sorting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.verify.history import Line

FINAL = frozenset({"DONE", "FAILED", "CANCELLED"})
AT_REST = FINAL | {"ERROR"}
LIVE = "PROCESSING"
AGAIN = frozenset({"RETRIED", "REPEATED", "LEASE_LOST", "RESUMED", "RESCHEDULED"})


@dataclass(frozen=True, slots=True)
class Violation:
    """What a checker found: which rule, and what happened."""

    checker: str
    what: str

    def __str__(self) -> str:
        return f"{self.checker}: {self.what}"


Checker = Callable[[Sequence[Line]], Iterator[str]]


def verify(lines: Sequence[Line], *, is_over: bool = True) -> list[Violation]:
    """Everything that is wrong with this history.

    With `is_over=False` it is looked at in the middle: what has to happen may still come.
    """
    checkers = [*SAFETY, *LIVENESS] if is_over else SAFETY
    return [Violation(name, what) for name, check in checkers for what in check(lines)]


# ── safety: holds at every moment ─────────────────────────────────────────────────────────────


def no_invention(lines: Sequence[Line]) -> Iterator[str]:
    """C2: every task was asked for, and every attempt is of a task that exists."""
    asked = {line["request"] for line in _of(lines, "enqueue") if line["phase"] == "invoke"}
    known: set[int] = set()
    for line in lines:
        if line["op"] == "created":
            known.add(line["task"])
            if line.get("request") is not None and line["request"] not in asked:
                yield f"task {line['task']} was never asked for"
        elif line["op"] == "start" and line["task"] not in known:
            yield f"task {line['task']} was started and does not exist"


def one_task_a_request(lines: Sequence[Line]) -> Iterator[str]:
    """C11: a request adds one task at most, and the answer names that task."""
    made: dict[object, int] = {}
    for line in lines:
        request = line.get("request")
        if request is None:
            continue
        if line["op"] == "created":
            if request in made:
                yield f"request {request} added tasks {made[request]} and {line['task']}"
            made[request] = line["task"]
        elif line["op"] != "enqueue" or not line.get("created", True):
            continue
        elif line["phase"] == "ok" and made.get(request) != line["task"]:
            yield f"request {request} was answered with task {line['task']}: not its own"
        elif line["phase"] == "fail" and request in made:
            yield f"request {request} was refused, and there is task {made[request]}"


def one_outcome(lines: Sequence[Line]) -> Iterator[str]:
    """C3: a task ends once, and an attempt that ends it is the latest one that was grabbed."""
    ended: set[int] = set()
    grabbed: dict[int, int] = {}
    for line in _of(lines, "moved"):
        task = line["task"]
        if task in ended:
            yield f"task {task} moved to {line['to']} after its end"
        if line["event"] == "GRABBED":
            grabbed[task] = line["version"]
        elif line["from"] == LIVE and line["version"] != grabbed.get(task, 0) + 1:
            yield f"task {task} was settled at version {line['version'] - 1}, not at its grab's"
        if line["to"] in FINAL:
            ended.add(task)


def no_live_node_is_robbed(lines: Sequence[Line]) -> Iterator[str]:
    """C4: a task is taken from its node only after the lease of that node has ended."""
    until: dict[str, float] = {}
    runs_on: dict[int, str] = {}
    for line in lines:
        if line["op"] == "leased":
            until[line["node"]] = line["until"]
        elif line["op"] == "moved":
            if line["event"] == "LEASE_LOST":
                node = runs_on.get(line["task"], "")
                left_s = until.get(node, 0.0) - line["t"]
                if left_s > 1e-6 and not line.get("is_overdue"):
                    yield f"task {line['task']} was taken from {node}, whose lease had {left_s:g} s"
            if line["to"] == LIVE:
                runs_on[line["task"]] = line["node"]


def attempts_are_grabbed(lines: Sequence[Line]) -> Iterator[str]:
    """C7: every attempt has its own grab, and every grab after the first its reason."""
    grabs: dict[tuple[int, int], str] = {}
    reasons: Counter[int] = Counter()
    starts: Counter[tuple[int, int]] = Counter()
    count: Counter[int] = Counter()
    for line in lines:
        if line["op"] == "moved":
            if line["event"] == "GRABBED":
                grabs[line["task"], line["version"]] = line["node"]
                task = line["task"]
                count[task] += 1
                if count[task] > 1 + reasons[task]:
                    yield f"task {task} was grabbed {count[task]} times, for nothing"
            elif line["event"] in AGAIN:
                reasons[line["task"]] += 1
        elif line["op"] == "start":
            attempt = line["task"], line["version"]
            starts[attempt] += 1
            if attempt not in grabs:
                yield f"task {attempt[0]} was started at version {attempt[1]} without a grab"
            elif grabs[attempt] != line["node"]:
                yield f"task {attempt[0]} was grabbed by {grabs[attempt]}, ran on {line['node']}"
            if starts[attempt] > 1:
                yield f"task {attempt[0]} was started twice at version {attempt[1]}"


def serial_per_key(lines: Sequence[Line]) -> Iterator[str]:
    """C6: of one ordering key one task runs at a time, and no elder that holds the key is passed.

    It holds the key while it may run, runs, waits for a retry or is parked in ERROR.  A task with
    `skips_errors` passes elders that are parked.
    """
    skipping: set[int] = set()
    parked: set[int] = set()
    keys: dict[int, str] = {}
    live: dict[str, int] = {}
    holding: dict[str, set[int]] = {}
    begun: set[int] = set()
    for line in lines:
        if line["op"] == "created" and line.get("ordering_key") is not None:
            key = keys[line["task"]] = f"{line['queue']}/{line['ordering_key']}"
            if line.get("skips_errors"):
                skipping.add(line["task"])
            if line["state"] == "SUBMITTED":
                holding.setdefault(key, set()).add(line["task"])
        if line["op"] != "moved" or line["task"] not in keys:
            continue
        task, key = line["task"], keys[line["task"]]
        holders = holding.setdefault(key, set())
        if line["to"] == LIVE:
            if live.get(key, task) != task:
                yield f"tasks {live[key]} and {task} of key {key} ran at the same time"
            passed = parked if task in skipping else ()
            if elders := sorted(one for one in holders if one < task and one not in passed):
                yield f"task {task} of key {key} was grabbed before its elder {elders[0]}"
            live[key] = task
            begun.add(task)
        elif live.get(key) == task:
            del live[key]
        (parked.add if line["to"] == "ERROR" else parked.discard)(task)
        if line["to"] in FINAL or (line["to"] == "WAITING" and task not in begun):
            holders.discard(task)
        else:
            holders.add(task)


def never_early(lines: Sequence[Line]) -> Iterator[str]:
    """C13: nothing starts before it is due.

    An older attempt may begin late, on a node that stood still; it has been superseded, and
    what is due by now is not its own.
    """
    due: dict[int, float] = {}
    since: dict[int, int] = {}  # the version that was given this time
    for line in lines:
        if line["op"] in ("created", "moved") and line.get("due") is not None:
            due[line["task"]], since[line["task"]] = line["due"], line["version"]
        elif line["op"] == "moved" and line["event"] in ("RESUMED", "CANCELLED"):
            due.pop(line["task"], None)
        elif line["op"] == "start" and line["t"] < due.get(line["task"], 0.0) - 1e-3:
            if line["version"] <= since[line["task"]]:
                continue
            early_s = due[line["task"]] - line["t"]
            yield f"task {line['task']} started {early_s:g} s before it was due"


def slots_fire_once(lines: Sequence[Line]) -> Iterator[str]:
    """C13: a slot of a schedule fires once, and not before its time."""
    fired: set[tuple[str, float]] = set()
    for line in _of(lines, "fired"):
        slot = line["schedule"], line["slot"]
        if slot in fired:
            yield f"slot {slot[1]:g} of schedule {slot[0]} fired twice"
        fired.add(slot)
        if line["t"] < line["slot"] - 1e-6:
            yield f"slot {slot[1]:g} of schedule {slot[0]} fired at {line['t']:g}"


def limits_hold(lines: Sequence[Line]) -> Iterator[str]:
    """C14: at no moment more tasks are running than a limit over all nodes allows.

    A limit that was lowered counts only for what is grabbed later.
    """
    limits: dict[str, Line] = {}
    facts: dict[int, Line] = {}
    live: dict[int, Line] = {}
    for line in lines:
        if line["op"] == "limit":
            limits[line["name"]] = line
        elif line["op"] == "created":
            facts[line["task"]] = line
        elif line["op"] == "moved" and line["to"] != LIVE:
            live.pop(line["task"], None)
        elif line["op"] == "moved":
            live[line["task"]] = facts[line["task"]]
            yield from _above(limits.values(), line, facts[line["task"]], live)


def _above(limits: Iterable[Line], grab: Line, task: Line, live: dict[int, Line]) -> Iterator[str]:
    for limit in limits:
        if grab["t"] < limit["from"] or not _counts(limit, task):
            continue
        key = task.get("fairness_key") if limit["key"] == "*" else limit["key"]
        same = [one for one in live.values() if _counts(limit, one)]
        if key is not None:
            same = [one for one in same if one.get("fairness_key") == key]
        size = limit["concurrency"]
        if len(same) > size:
            yield f"{len(same)} ran at {grab['t']:g}, limit {limit['name']} is {size}"


def _counts(limit: Line, task: Line) -> bool:
    if limit["queue"] != task["queue"] or limit["kind"] not in (None, task["kind"]):
        return False
    if limit["key"] is None:
        return True
    if task.get("fairness_key") is None:
        return False
    return limit["key"] in ("*", task["fairness_key"])


def one_record_a_number(lines: Sequence[Line]) -> Iterator[str]:
    """The log of a ring has one record for each number, in order and without a gap."""
    latest: dict[str, int] = {}
    for line in _of(lines, "ring"):
        before = latest.get(line["ring"], 0)
        if line["number"] != before + 1:
            yield f"ring {line['ring']}: record {line['number']} was written after {before}"
        latest[line["ring"]] = line["number"]


def no_bug(lines: Sequence[Line]) -> Iterator[str]:
    """The engine itself has seen nothing that cannot happen."""
    for line in _of(lines, "bug"):
        yield line["what"]


# ── liveness: holds when it is over ───────────────────────────────────────────────────────────


def no_loss(lines: Sequence[Line]) -> Iterator[str]:
    """C1: what was answered is in the store, and comes to rest."""
    state: dict[int, str] = {}
    for line in lines:
        if line["op"] == "created":
            state[line["task"]] = line["state"]
        elif line["op"] == "moved":
            state[line["task"]] = line["to"]
        elif line["op"] == "enqueue" and line["phase"] == "ok" and line["task"] not in state:
            yield f"task {line['task']} was answered and is not there"
    for task, last in state.items():
        if last not in AT_REST:
            yield f"task {task} is still {last}"


def counts_are_zero(lines: Sequence[Line]) -> Iterator[str]:
    """C14: when nothing is left to do, nothing is booked, and limits are there for others.

    Nor is anything remembered: what a node takes for known, and does not run, nobody runs.
    """
    for line in _of(lines, "idle"):
        if line["booked"]:
            yield f"{line['node']} still counts {line['booked']}"
        if line["shares"]:
            yield f"{line['node']} still has {line['shares']} slots of limits"
        if line["remembered"]:
            yield f"{line['node']} still remembers {line['remembered']} tasks"


SAFETY: tuple[tuple[str, Checker], ...] = (
    ("C2 no invention", no_invention),
    ("C3 one outcome", one_outcome),
    ("C4 lease exclusion", no_live_node_is_robbed),
    ("C6 serial per key", serial_per_key),
    ("C7 bounded duplicates", attempts_are_grabbed),
    ("C11 one task a request", one_task_a_request),
    ("C13 never early", never_early),
    ("C13 slots", slots_fire_once),
    ("C14 limits", limits_hold),
    ("ring log", one_record_a_number),
    ("no bug", no_bug),
)
LIVENESS: tuple[tuple[str, Checker], ...] = (
    ("C1 no loss", no_loss),
    ("C14 counts", counts_are_zero),
)


def _of(lines: Iterable[Line], op: str) -> Iterator[Line]:
    return (line for line in lines if line["op"] == op)
