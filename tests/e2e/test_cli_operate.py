"""The commands of the person on call: queues, errors, nodes, the live view."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.place import PATIENCE_S, Place
from holdfast.cli.overview import COLUMNS
from holdfast.limit import Limit
from holdfast.payload import sealed
from holdfast.store import Filter, Store
from holdfast.task import NewTask, State, Task, TaskId
from holdfast.testing.processes import until

PROGRAM = """
import asyncio
from pathlib import Path
from holdfast import Holdfast

app = Holdfast()

@app.task(queue="mail")
async def send_email(to: str) -> None:
    Path(to).touch()

@app.task(queue="mail")
async def hold(name: str) -> None:
    Path(name).touch()
    while not Path(name + ".go").exists():
        await asyncio.sleep(0.01)
"""

TRACE = "Traceback (most recent call last):\n  File …\nValueError: account {} is closed"


@pytest.fixture
def place(tmp_path: Path, store_url: str) -> Iterator[Place]:
    folder = tmp_path / "program"
    folder.mkdir()
    place = Place(folder, store_url, PROGRAM)
    yield place
    place.close()


def a_task(kind: str = "send_email", queue: str = "mail", **changes: Any) -> NewTask:
    fields = {"partition": 0, "payload": sealed(b'{"to":"x"}')} | changes
    return NewTask(kind=kind, queue=queue, **fields)


async def parked(store: Store, *tasks: NewTask) -> list[TaskId]:
    """Tasks in ERROR, each with an account of its own in the message."""
    ids = [one.id for one in await store.enqueue(tasks)]
    for number, id in enumerate(ids):
        await store.park({id: 1}, TRACE.format(number))
    return ids


def tasks_of(place: Place, **wanted: Any) -> list[Task]:
    return place.on_store(lambda store: store.find(Filter(limit=10_000, **wanted)))


def said(done: Any, exit_code: int, *texts: str) -> None:
    assert done.returncode == exit_code, done.stderr
    for text in texts:
        assert text in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


# ── queues ────────────────────────────────────────────────────────────────────────────────────


def test_queues_are_listed_with_what_waits_and_with_a_warning_where_nobody_serves(place: Place):
    async def fill(store: Store) -> None:
        await store.enqueue([a_task(), a_task(), a_task(delay_s=600)])
        await parked(store, a_task(queue="quiet"))
        total = Limit(name="total", queue="mail", concurrency=3)
        pause = Limit(name="pause key acme", queue="mail", concurrency=0, key="acme")
        await store.change_rules("mail", limits=[total, pause])

    place.on_store(fill)

    as_json = place.command("queue", "list", "--json")
    table = place.command("queue", "list")
    rows = list(csv.DictReader(io.StringIO(place.run("queue", "list", "--output", "csv"))))

    found = json.loads(as_json.stdout)
    assert (found["schema"], found["count_max"]) == ("holdfast.queue.v1", 10_000)
    mail, quiet = found["items"]
    age_s = mail.pop("oldest_age_s")
    assert 0 < age_s < 60
    assert mail == {
        "queue": "mail",
        "waiting": 1,
        "submitted": 2,
        "processing": 0,
        "error": 0,
        "stuck": 0,
        "nodes": 0,
        "notes": ["paused: key acme", "1 limit"],
    }
    assert (quiet["queue"], quiet["error"], quiet["oldest_age_s"]) == ("quiet", 1, 0.0)
    assert table.stderr == as_json.stderr == "no node serves queue mail\n"
    head, first, _ = table.stdout.splitlines()
    assert tuple(head.split()) == COLUMNS
    assert head.index("submitted") + len("submitted") == first.index(" 2 ") + 2, "right-aligned"
    assert first.endswith("paused: key acme; 1 limit")
    assert [row["submitted"] for row in rows] == ["2", "0"]


def test_a_queue_drains_or_the_time_is_over_with_exit_7(place: Place):
    place.on_store(lambda store: store.enqueue([a_task(), a_task(delay_s=600)]))

    late = place.command("queue", "drain", "mail", "--timeout", "600ms")
    unknown = place.command("queue", "drain", "mial")
    place.start("--quiet")
    done = place.command("queue", "drain", "mail", "--timeout", "30s")

    said(
        late, 7, "no node serves queue mail", "error HF2203: queue mail still has 1 task", "  do: "
    )
    said(unknown, 3, "no node served it; did you mean 'mail'?")
    said(done, 0, "queue mail is drained")
    assert [task.state for task in tasks_of(place)] == [State.DONE, State.WAITING]


def test_a_purge_is_counted_first_and_cancels_only_the_states_named(place: Place):
    async def fill(store: Store) -> None:
        await store.enqueue([a_task(), a_task(delay_s=600), a_task("hold", delay_s=600)])
        await store.enqueue([a_task(queue="other", delay_s=600)])

    place.on_store(fill)
    words = ("queue", "purge", "mail", "--state", "waiting")

    counted = place.command(*words)
    states_before = [task.state for task in tasks_of(place)]
    one_kind = json.loads(place.run(*words, "--kind", "hold", "--yes", "--json"))
    done = place.command(*words, "--yes", "--reason", "sent twice")
    wrong = place.command("queue", "purge", "mail", "--state", "processing", "--yes")

    said(counted, 0, "would cancel 2 tasks (WAITING 2; ", "run again with --yes")
    assert counted.stdout == ""
    assert states_before == [State.SUBMITTED, *[State.WAITING] * 3]
    assert one_kind == {"schema": "holdfast.bulk.v1", "would": 0, "cancelled": 1, "left": 0}
    said(done, 0, "cancelled 1 task\n")
    said(wrong, 2, "--state is waiting, submitted or error, not processing")
    cancelled = State.CANCELLED
    assert [task.state for task in tasks_of(place)] == [
        State.SUBMITTED,
        cancelled,
        cancelled,
        State.WAITING,
    ]
    assert tasks_of(place)[1].error == "cancelled: sent twice"


def test_many_tasks_are_cancelled_by_kind_and_queue_after_a_count(place: Place):
    async def fill(store: Store) -> None:
        await store.enqueue([a_task(), a_task(delay_s=600), a_task("hold"), a_task(queue="other")])
        await parked(store, a_task())

    place.on_store(fill)
    words = ("task", "cancel", "--kind", "send_email", "--queue", "mail")

    counted = place.command(*words)
    dry = json.loads(place.run(*words, "--yes", "--dry-run", "--json"))
    done = place.command(*words, "--yes", "--reason", "a wrong deploy")
    nothing = place.command("task", "cancel")
    both = place.command(*words, "1")

    said(counted, 0, "would cancel 2 tasks (WAITING 1, SUBMITTED 1; send_email 2)")
    said(counted, 0, "run again with --yes")
    assert dry == {"schema": "holdfast.bulk.v1", "would": 2, "cancelled": 0, "left": 0}
    said(done, 0, "cancelled 2 tasks\n")
    left = [State.SUBMITTED, State.SUBMITTED, State.ERROR]
    assert [task.state for task in tasks_of(place)] == [State.CANCELLED, State.CANCELLED, *left]
    assert tasks_of(place)[0].error == "cancelled: a wrong deploy"
    said(nothing, 2, "name tasks by their ids, or many with --kind or --queue")
    said(both, 2, "name tasks by their ids, or many with --kind or --queue")


def test_a_partition_is_paused_listed_and_resumed_by_its_number(place: Place):
    paused = place.command("queue", "pause", "mail", "--partition", "3")
    (rule,) = place.rows("queue", "rules", "mail")
    wrong = place.command("queue", "pause", "mail", "--partition", "99")
    both = place.command("queue", "pause", "mail", "--partition", "3", "--kind", "hold")
    resumed = place.command("queue", "resume", "mail", "--partition", "3")

    said(paused, 0, "queue mail, partition 3 is paused")
    assert (rule["rule"], rule["name"], rule["value"]) == (
        "pause",
        "pause partition 3",
        "nothing starts",
    )
    said(wrong, 2, "queue 'mail' has the partitions 0 to")
    said(both, 2, "a partition is paused as a whole")
    said(resumed, 0, "queue mail, partition 3 goes on")
    assert place.rows("queue", "rules", "mail") == []


# ── errors ────────────────────────────────────────────────────────────────────────────────────


def test_errors_are_listed_alone_and_in_groups(place: Place):
    async def fill(store: Store) -> list[TaskId]:
        await store.enqueue([a_task()])
        ids = await parked(store, *(a_task() for _ in range(3)), a_task("hold", queue="slow"))
        await store.change_rules("mail", limits=[])
        return ids

    ids = place.on_store(fill)

    listed = place.rows("error", "list")
    of_a_kind = place.run("error", "list", "--kind", "hold")
    of_a_queue = place.rows("error", "list", "--queue", "mail", "--limit", "2")
    first, second = place.rows("error", "list", "--group")

    assert [row["id"] for row in listed] == [str(id) for id in ids]
    assert {row["state"] for row in listed} == {"ERROR"}
    assert of_a_kind.splitlines()[1].endswith("ValueError: account 3 is closed")
    assert [row["id"] for row in of_a_queue] == [str(id) for id in ids[:2]]
    assert (first["count"], first["kind"], first["error"], first["sample"]) == (
        3,
        "send_email",
        "ValueError: account … is closed",
        str(ids[2]),
    )
    assert first["first_at"] <= first["last_at"]
    assert (second["count"], second["kind"]) == (1, "hold")


def test_errors_are_resumed_by_id_or_by_filter_after_a_count(place: Place):
    ids = place.on_store(
        lambda store: parked(store, *(a_task() for _ in range(3)), a_task("hold", queue="slow"))
    )
    (free,) = place.on_store(lambda store: store.enqueue([a_task(delay_s=600)]))

    counted = place.command("error", "resume", "--kind", "send_email")
    dry = json.loads(place.run("error", "resume", "--all", "--dry-run", "--yes", "--json"))
    by_id = place.command("error", "resume", str(ids[0]), str(free.id), "999", "--json")
    states = [task.state for task in tasks_of(place)]
    done = place.command("error", "resume", "--queue", "mail", "--yes", "--reason", "key rotated")

    said(
        counted, 0, "would resume 3 tasks (ERROR 3; send_email 3)", "run again with --yes to do it"
    )
    assert dry == {"schema": "holdfast.bulk.v1", "would": 4, "resumed": 0, "left": 0}
    said(by_id, 4, "error HF2103: task", "its state does not permit this")
    answers = {row["id"]: row["answer"] for row in json.loads(by_id.stdout)["items"]}
    assert answers == {str(ids[0]): "OK", str(free.id): "NOT_ALLOWED", "999": "NOT_FOUND"}
    assert states == [State.SUBMITTED, *[State.ERROR] * 3, State.WAITING]
    said(done, 0, "resumed 2 tasks\n")
    assert done.stdout == ""
    found = {task.id: task for task in tasks_of(place)}
    assert [found[id].state for id in ids] == [*[State.SUBMITTED] * 3, State.ERROR]
    assert found[ids[1]].error == TRACE.format(1) + "\nresumed: key rotated"


def test_errors_are_given_up_with_a_reason_that_stays_with_them(place: Place):
    ids = place.on_store(lambda store: parked(store, a_task(), a_task(), a_task("hold")))

    nothing = place.command("error", "give-up")
    both = place.command("error", "give-up", str(ids[0]), "--all")
    one = place.command("error", "give-up", str(ids[0]), "--reason", "closed")
    rest = place.command("error", "give-up", "--all", "--yes", "--output", "jsonl")

    said(nothing, 2, "error HF1001: ", "name tasks by their ids, or with --kind, --queue or --all")
    said(both, 2, "name tasks by their ids, or with --kind, --queue or --all")
    said(one, 0)
    assert json.loads(rest.stdout)["given_up"] == 2
    found = tasks_of(place)
    assert {task.state for task in found} == {State.FAILED}
    assert found[0].error == TRACE.format(0) + "\ngiven up: closed"
    assert found[1].error == TRACE.format(1)


@pytest.mark.store("sqlite")
def test_many_tasks_are_changed_in_batches(tmp_path: Path):
    place = Place(tmp_path, f"sqlite:///{tmp_path / 'app.db'}", PROGRAM)

    async def fill(store: Store) -> None:
        ids = [one.id for one in await store.enqueue([a_task() for _ in range(2_300)])]
        await store.park(dict.fromkeys(ids, 1), "broken")

    place.on_store(fill)
    counted = place.command("error", "resume", "--all")
    done = place.command("error", "resume", "--all", "--yes")

    said(counted, 0, "would resume 2,300 tasks (ERROR 2,300; send_email 2,300)")
    said(done, 0, "resumed 2,300 tasks\n")
    assert {task.state for task in tasks_of(place)} == {State.SUBMITTED}


def test_a_rerun_is_a_new_task_with_the_same_work_and_a_link(place: Place):
    (old,) = place.on_store(
        lambda store: parked(
            store, a_task(priority=2, fairness_key="acme", metadata=b'{"by":"me"}', partition=1)
        )
    )

    row = json.loads(place.run("task", "rerun", str(old), "--json"))
    missing = place.command("task", "rerun", "999")

    before, after = tasks_of(place)
    assert row == {
        "schema": "holdfast.rerun.v1",
        "id": str(after.id),
        "kind": "send_email",
        "queue": "mail",
        "rerun_of": str(old),
    }
    assert (before.state, after.state) == (State.ERROR, State.SUBMITTED)
    same = ("payload", "queue", "partition", "kind", "priority", "fairness_key")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert json.loads(after.metadata or b"") == {"by": "me", "rerun_of": str(old)}
    said(missing, 3, "error HF1105: no task has the id 999")


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_is_asked_to_drain_finishes_what_runs_and_ends_with_0(place: Place):
    worker = place.start()
    running = place.enqueue("hold", "held")
    place.has("held")
    (row,) = place.rows("node", "list")
    unknown = place.command("node", "drain", "zzzz")

    asked = place.command("node", "drain", row["node"][:6])
    worker.has_said("asked to drain: running attempts may finish")
    (later,) = place.on_store(lambda store: store.enqueue([a_task()]))
    table = place.run("node", "list").splitlines()
    assert place.state(running) == "PROCESSING"
    (place.folder / "held.go").touch()

    assert worker.process.wait(PATIENCE_S) == 0
    assert (place.state(running), place.state(str(later.id))) == ("DONE", "SUBMITTED")
    assert (row["is_alive"], row["queues"], row["kinds"]) == (
        True,
        ["mail"],
        ["hold", "send_email"],
    )
    said(unknown, 3, "error HF2201: there is no node 'zzzz'", "  do:  look at `holdfast node list`")
    said(asked, 0, f"node {row['node'][:8]} is asked to drain")
    assert table[0].split()[:5] == ["node", "number", "host", "pid", "version"]
    assert table[1].split()[0] == row["node"][:8] and table[1].endswith("drain")
    empty = place.command("node", "list")
    said(empty, 0, "no node is alive: start one with `holdfast worker APP`")


def test_a_dead_node_is_shown_as_ended_and_cannot_be_asked(place: Place):
    worker = place.start(HOLDFAST_NODE__LEASE="1s")
    worker.has_said("serves mail")
    (row,) = place.rows("node", "list")
    worker.process.kill()
    worker.process.wait(PATIENCE_S)

    until(lambda: not place.rows("node", "list")[0]["is_alive"], PATIENCE_S)
    done = place.command("node", "drain", row["node"])

    assert " ended " in place.run("node", "list")
    said(done, 4, "error HF2202: node ", "has ended already")


@pytest.mark.store("postgres")
def test_a_drained_node_of_several_is_not_started_again(tmp_path: Path, postgres_url: str):
    place = Place(tmp_path, postgres_url, PROGRAM)
    try:
        fleet = place.start("--processes", "2")
        fleet.has_said("serves mail", times=2)
        first, second = place.rows("node", "list")
        both = place.command("node", "drain", "")
        place.run("node", "drain", first["node"])
        fleet.has_said("has ended as it was asked to")
        left = place.rows("node", "list")
        place.run("node", "drain", second["node"])

        assert fleet.process.wait(PATIENCE_S) == 0
        assert [row["node"] for row in left] == [second["node"]]
        assert fleet.said.count("serves mail") == 2
        said(both, 2, "fits several nodes: ")
    finally:
        place.close()


# ── the view ──────────────────────────────────────────────────────────────────────────────────


def test_top_shows_queues_nodes_what_runs_and_what_to_look_at(place: Place):
    place.start("--quiet")
    running = place.enqueue("hold", "held")
    place.has("held")

    async def fill(store: Store) -> None:
        await parked(store, a_task())
        await store.enqueue([a_task(queue="lonely")])

    place.on_store(fill)

    page = place.command("top", COLUMNS="80")
    once = place.command("top", "--once", COLUMNS="80")
    frame = json.loads(place.run("top", "--json"))
    wrong = place.command("top", "--every", "soon")

    assert (page.returncode, once.returncode) == (0, 0)
    lines = page.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b[" not in page.stdout
    (node,) = frame["nodes"]
    assert any(line.split()[:2] == ["hold", "1"] for line in lines)
    assert f"task {running} on {node['node'][:8]}" in page.stdout
    assert [one["queue"] for one in frame["queues"]] == ["lonely", "mail"]
    assert [(one["kind"], one["oldest"]) for one in frame["running"]] == [("hold", running)]
    assert frame["to_do"] == [
        "no node serves queue lonely: holdfast worker APP --queue lonely",
        "1 in ERROR: holdfast error list --group",
    ]
    for line in frame["to_do"]:
        assert f"  {line}" in lines
    said(wrong, 2, "--every is")
    (place.folder / "held.go").touch()
