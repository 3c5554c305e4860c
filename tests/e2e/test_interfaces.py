"""Whichever way a task comes in, the same promises hold."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys

import pytest

from holdfast.testing.apps import migrate

APP = """
from holdfast import Holdfast

app = Holdfast()


@app.task(queue="mail")
async def send(name: str) -> None: ...
"""


@pytest.mark.req("ALL-1")
async def test_tasks_of_the_library_and_of_the_command_line_take_turns_and_are_counted(
    store_url, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOLDFAST_URL", store_url)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "letters.py").write_text(APP)
    await migrate(store_url)
    monkeypatch.delitem(sys.modules, "letters", raising=False)
    import letters

    app, order = letters.app, []
    app.events.listen(lambda event: order.append(event), every_task=True)
    async with app:
        await letters.send.options(fairness_key="heavy").enqueue_many([("heavy",)] * 9)
        if store_url.startswith("sqlite"):
            db = sqlite3.connect(store_url.removeprefix("sqlite:///"), isolation_level=None)
            db.execute("BEGIN IMMEDIATE")
            letters.send.options(within=db).enqueue_sync("never")
            db.execute("ROLLBACK")
            db.close()
        done = subprocess.run(  # noqa: ASYNC221
            [sys.executable, "-m", "holdfast.cli", "task", "enqueue", "letters", "send",
             '["light"]', "--fairness-key", "light"],
            cwd=tmp_path, env=os.environ | {"HOLDFAST_URL": store_url}, capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        with app.metrics() as metrics:
            async with app.node(slots_async=1) as node:
                await node.drained(20)
            counted = {
                sample.labels["outcome"]: sample.value
                for family in metrics.collect()
                for sample in family.samples
                if sample.name == "holdfast_attempts_total"
            }
        store = await app.store()
        tasks = await store.get([event.task for event in order if hasattr(event, "waited_s")])
    app.close_sync()

    started = [tasks[e.task].fairness_key for e in order if type(e).__name__ == "TaskGrabbed"]
    assert sorted(started) == ["heavy"] * 9 + ["light"]
    assert "light" in started[:3], "its turn, though nine came before"
    assert sum(counted.values()) == 10
