"""`holdfast why` as a person calls it: its lines, its JSON, and what a policy in code says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.place import Place
from holdfast.ids import NodeId
from holdfast.store import Store
from holdfast.task import NewTask, TaskId
from holdfast.testing.contracts.builders import claimed

PROGRAM = """
from holdfast import AllOf, FixedSlots, Full, Holdfast, PerKind

class OfficeHours:
    def book(self, trigger, *, now):
        return Full()

    def free(self, trigger): ...

    def explain(self, trigger):
        return f"{trigger.kind} runs on weekdays from 9 to 17"

app = Holdfast()

@app.task(queue="pay", booking=AllOf(FixedSlots(3), PerKind({"payout": OfficeHours()})))
async def payout() -> None: ...
"""
NODE = NodeId("node-a")


@pytest.fixture
def place(tmp_path: Path, store_url: str) -> Iterator[Place]:
    folder = tmp_path / "program"
    folder.mkdir()
    place = Place(folder, store_url, PROGRAM)
    yield place
    place.close()


async def enqueued(store: Store) -> TaskId:
    """A task in a queue that a node serves, which starts nothing."""
    await store.renew(NODE, lease_s=60, queues=["pay"], kinds=["payout"])
    await claimed(store, NODE, "pay")
    new = NewTask(queue="pay", partition=0, kind="payout", payload=b"{}", fairness_key="acme")
    return (await store.enqueue([new]))[0].id


def test_the_command_prints_a_head_and_aligned_rules_and_json(place: Place):
    id = place.on_store(enqueued)
    place.run("queue", "pause", "pay")

    done = place.command("why", str(id))
    shown = json.loads(place.run("why", str(id), "--json"))
    explained = place.run("why", str(id), "--app", "orders")
    unknown = place.command("why", "987654")

    head, *rules = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert head.startswith(f"task {id} · kind payout · queue pay · SUBMITTED since ")
    assert head.endswith(" · priority 5")
    assert rules[:2] == [
        "  queue pay    1 node serves it",
        "  kind payout  all of them can run it",
    ]
    (marked,) = [rule for rule in rules if rule.endswith("  <- waits here")]
    assert marked.startswith("  queue pay    paused; `holdfast queue resume pay`")
    assert shown["schema"] == "holdfast.why.v1"
    assert (shown["id"], shown["state"]) == (str(id), "SUBMITTED")
    assert [item["waits_here"] for item in shown["items"]].count(True) == 1
    assert "policy AllOf  payout runs on weekdays from 9 to 17" in explained
    assert (unknown.returncode, unknown.stdout) == (3, "")
    assert unknown.stderr.startswith("error HF1105: no task has the id 987654")
