"""A task in a queue that no node has ever served is parked, so that a person looks."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import State
from holdfast.task import NewTask
from holdfast.testing.apps import fresh, opened


@pytest.mark.req("TASK-65")
async def test_a_task_of_an_unknown_queue_ends_in_error_after_the_wait(store_url):
    app = fresh(store_url)

    @app.task
    async def known() -> None: ...

    async with opened(app), app.node(unknown_kind_wait_s=0.4, tick_s=0.1):
        store = await app.store()
        task = NewTask(queue="typo", partition=0, kind="known", payload=b"{}")
        (enqueued,) = await store.enqueue([task])
        async with asyncio.timeout(10):
            while (await app.get(enqueued.id)).state is not State.ERROR:
                await asyncio.sleep(0.02)

        assert "'typo'" in ((await app.get(enqueued.id)).error or "")
