"""Without faults, every task starts once."""

from __future__ import annotations

from holdfast.bench.ground import Place
from holdfast.chaos.calm import calm

TASKS = 3_000


async def test_three_nodes_start_every_task_once(postgres_url):
    starts = await calm(Place(postgres_url), TASKS)

    assert len(starts) == TASKS and set(starts.values()) == {1}
