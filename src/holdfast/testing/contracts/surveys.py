"""What every store promises of its overview."""

from __future__ import annotations

from holdfast.store import Store
from holdfast.telemetry.events import QueueSurvey
from holdfast.testing.contracts.builders import (
    NODE,
    QUEUE,
    a_task,
    claimed,
    enqueued,
    eventually,
    grab,
    look,
    trigger_of,
)


class SurveyContract:
    async def test_a_store_without_tasks_has_nothing_to_tell(self, store: Store) -> None:
        assert await store.survey() == []

    async def test_each_queue_is_counted_by_state(self, store: Store) -> None:
        ids = await enqueued(
            store,
            *(a_task(partition=n % 3) for n in range(4)),
            *(a_task(delay_s=600) for _ in range(2)),
            a_task(queue="later", delay_s=600),
            a_task(queue="broken"),
            a_task(queue="brisk"),
        )
        await grab(store, [await trigger_of(store, ids[0])])
        await store.park({ids[1]: 1, ids[7]: 1}, "broken")

        found = {one.queue: one for one in await store.survey()}

        assert list(found) == sorted({QUEUE, "later", "broken", "brisk"})
        assert _counts(found[QUEUE]) == (2, 2, 1, 1, 0)
        assert _counts(found["later"]) == (1, 0, 0, 0, 0)
        assert _counts(found["broken"]) == (0, 0, 0, 1, 0)
        assert _counts(found["brisk"]) == (0, 1, 0, 0, 0)

    async def test_a_served_queue_without_tasks_is_listed_with_zeros(self, store: Store) -> None:
        await claimed(store, NODE, "idle")

        assert await store.survey() == [QueueSurvey("idle", 0, 0, 0, 0, 0.0, 0)]

    async def test_counts_stop_at_the_maximum(self, store: Store) -> None:
        ids = await enqueued(store, *(a_task(partition=n % 2) for n in range(12)))
        await enqueued(store, *(a_task(delay_s=600) for _ in range(4)))
        await grab(store, [await trigger_of(store, id) for id in ids[:4]])
        await store.park(dict.fromkeys(ids[4:8], 1), "broken")

        (found,) = await store.survey(count_max=3)

        assert _counts(found) == (3, 3, 3, 3, 0)

    async def test_the_age_is_that_of_the_task_that_came_first(self, store: Store) -> None:
        (first,) = await enqueued(store, a_task(partition=1))
        before = await eventually(lambda: _older_than(store, 0.05))
        (second,) = await enqueued(store, a_task(partition=0))
        (both,) = await store.survey()
        await grab(store, [await trigger_of(store, first)])
        (left,) = await store.survey()
        (third,) = await enqueued(store, a_task(queue="clock"))  # it tells the store's time

        at = [(await look(store, id)).enqueued_at for id in (first, second, third)]
        assert both.oldest_age_s >= before
        assert both.oldest_age_s >= (at[1] - at[0]).total_seconds() > 0
        assert left.oldest_age_s <= (at[2] - at[1]).total_seconds()

    async def test_a_task_past_its_deadline_is_counted_as_stuck(self, store: Store) -> None:
        ids = await enqueued(store, a_task(), a_task(kind="patient"))
        triggers = [await trigger_of(store, id) for id in ids]
        await grab(store, triggers, deadlines_s={"email": 0.01, "patient": 600.0})

        async def is_seen() -> bool:
            (found,) = await store.survey()
            assert found.processing == 2
            return found.stuck == 1

        assert await eventually(is_seen)


async def _older_than(store: Store, seconds: float) -> float:
    (found,) = await store.survey()
    return found.oldest_age_s if found.oldest_age_s > seconds else 0.0


def _counts(found: QueueSurvey) -> tuple[int, int, int, int, int]:
    return found.waiting, found.submitted, found.processing, found.error, found.stuck
