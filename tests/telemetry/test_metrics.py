"""Metrics: what the events add up to, as Prometheus reads it."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from prometheus_client import CollectorRegistry, Counter

from conditions import until
from holdfast import Retry, current_task
from holdfast.address import sqlite_path
from holdfast.errors import ConfigurationError
from holdfast.telemetry.events import (
    DutyLost,
    Events,
    IncidentRaised,
    LagMeasured,
    LeaseEnded,
    LeaseRenewed,
    NodeStopped,
    QueueSurvey,
    SettleRefused,
    SlotsCounted,
    Surveyed,
    TaskEnqueued,
    TaskGrabbed,
    TaskSettled,
)
from holdfast.telemetry.metrics import METRICS, Metrics
from telemetry.scrape import Scrape

SURVEY = Surveyed(
    "n1",
    (QueueSurvey("mail", 3, 40, 5, 6, 12.5, 2), QueueSurvey("bills", 0, 1, 0, 0, 0.5, 0)),
    (("task", 1_000), ("archive", 7)),
    61.5,
    4711,
)


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def metrics(events: Events) -> Metrics:
    return Metrics(events)


def scraped(metrics: Metrics) -> Scrape:
    return Scrape(metrics.text())


def grabbed(kind: str = "send", waited_s: float | None = 0.02) -> TaskGrabbed:
    return TaskGrabbed(1, 2, kind, "n1", "mail", waited_s)


def settled(kind: str = "send", event: str = "SUCCEEDED", ran_s: float = 0.3) -> TaskSettled:
    return TaskSettled(1, 2, kind, event, ran_s, "mail")


# ── what is counted ───────────────────────────────────────────────────────────────────────


def test_attempts_are_counted_by_queue_kind_and_outcome(events, metrics):
    for event in ("SUCCEEDED", "SUCCEEDED", "RETRIED", "PARKED"):
        events.emit(settled(event=event))

    found = scraped(metrics)
    name = "holdfast_attempts_total"
    assert found.value(name, queue="mail", kind="send", outcome="succeeded") == 2
    assert found.value(name, queue="mail", kind="send", outcome="retried") == 1
    assert found.value(name, queue="mail", kind="send", outcome="parked") == 1


def test_times_fall_into_cumulative_buckets_in_seconds(events, metrics):
    for ran_s in (0.001, 0.3, 0.3, 7200.0):
        events.emit(settled(ran_s=ran_s))

    found = scraped(metrics)
    name, at = "holdfast_attempt_seconds", {"queue": "mail", "kind": "send"}
    assert found.value(f"{name}_bucket", **at, le="0.001") == 1  # a bound belongs to its bucket
    assert found.value(f"{name}_bucket", **at, le="0.25") == 1
    assert found.value(f"{name}_bucket", **at, le="0.5") == 3
    assert found.value(f"{name}_bucket", **at, le="3600.0") == 3
    assert found.value(f"{name}_bucket", **at, le="+Inf") == 4
    assert found.value(f"{name}_count", **at) == 4
    assert found.value(f"{name}_sum", **at) == pytest.approx(7200.601)


def test_a_wait_that_nobody_knows_is_not_in_the_histogram(events, metrics):
    events.emit(grabbed(waited_s=0.02))
    events.emit(grabbed(waited_s=None))

    at = {"queue": "mail", "kind": "send"}
    assert scraped(metrics).value("holdfast_queue_wait_seconds_count", **at) == 1


def test_what_is_rare_is_counted_too(events, metrics):
    before = scraped(metrics)
    assert before.value("holdfast_leases_expired_total") == 0
    assert before.value("holdfast_stale_writes_refused_total") == 0
    assert before.value("holdfast_lease_margin_seconds") is None

    events.emit(LeaseEnded("n2"))
    events.emit(SettleRefused(1, 2, "mail"))
    events.emit(LagMeasured(0.2))
    events.emit(LeaseRenewed(8.0))
    events.emit(LeaseRenewed(7.5))
    events.emit(IncidentRaised("stuck", "3 tasks", 3))

    found = scraped(metrics)
    assert found.value("holdfast_leases_expired_total") == 1
    assert found.value("holdfast_stale_writes_refused_total") == 1
    assert found.value("holdfast_event_loop_lag_seconds_sum") == pytest.approx(0.2)
    assert found.value("holdfast_lease_margin_seconds") == 7.5
    assert found.value("holdfast_incidents_total", kind="stuck") == 1


def test_the_slots_of_all_nodes_of_the_process_are_added_up_until_they_stop(events, metrics):
    events.emit(SlotsCounted("n1", (("async", 2, 198), ("thread", 0, 16))))
    events.emit(SlotsCounted("n1", (("async", 3, 197), ("thread", 0, 16))))
    events.emit(SlotsCounted("n2", (("async", 1, 9), ("thread", 0, 4))))

    found = scraped(metrics)
    assert found.value("holdfast_slots", mode="async", state="booked") == 4
    assert found.value("holdfast_slots", mode="async", state="free") == 206
    assert found.value("holdfast_slots", mode="thread", state="free") == 20

    events.emit(NodeStopped("n1"))
    assert scraped(metrics).value("holdfast_slots", mode="async", state="booked") == 1
    events.emit(NodeStopped("n2"))
    assert "holdfast_slots" not in scraped(metrics).names


def test_events_of_several_threads_are_all_counted_while_somebody_reads(events, metrics):
    def work() -> None:
        for number in range(2_000):
            queue, kind = f"queue {number % 20}", f"kind {number // 20}"
            events.emit(TaskSettled(1, 2, kind, "SUCCEEDED", 0.3, queue))
            events.emit(TaskEnqueued(1, "mail", "send"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            list(metrics.collect())
    finally:
        sys.setswitchinterval(before_s)
        for thread in threads:
            thread.join()

    found = scraped(metrics)
    assert found.value("holdfast_tasks_enqueued_total", queue="mail") == 8_000
    for name in ("holdfast_attempts_total", "holdfast_attempt_seconds_count"):
        counts = [count for (one, _), count in found.series.items() if one == name]
        assert counts == [4] * 2_000


# ── the watcher's gauges ──────────────────────────────────────────────────────────────────

WATCHED = {
    "holdfast_queue_waiting",
    "holdfast_queue_submitted",
    "holdfast_queue_processing",
    "holdfast_queue_stuck",
    "holdfast_queue_oldest_age_seconds",
    "holdfast_tasks_error",
    "holdfast_pg_oldest_xmin_age_seconds",
    "holdfast_pg_dead_tuples",
}


def test_the_watcher_shows_its_last_survey(events, metrics):
    assert not WATCHED & scraped(metrics).names

    events.emit(SURVEY)

    found = scraped(metrics)
    assert found.names >= WATCHED
    assert found.value("holdfast_queue_waiting", queue="mail") == 3
    assert found.value("holdfast_queue_submitted", queue="mail") == 40
    assert found.value("holdfast_queue_submitted", queue="bills") == 1
    assert found.value("holdfast_queue_processing", queue="mail") == 5
    assert found.value("holdfast_tasks_error", queue="mail") == 6
    assert found.value("holdfast_queue_stuck", queue="mail") == 2
    assert found.value("holdfast_queue_oldest_age_seconds", queue="mail") == 12.5
    assert found.value("holdfast_pg_oldest_xmin_age_seconds", pid="4711") == 61.5
    assert found.value("holdfast_pg_dead_tuples", table="task") == 1_000


@pytest.mark.parametrize("end", [DutyLost("n1", "watcher"), NodeStopped("n1")])
def test_the_watchers_gauges_vanish_from_a_node_that_is_not_the_watcher_any_more(
    events, metrics, end
):
    events.emit(SURVEY)
    events.emit(settled())
    events.emit(end)

    text = metrics.text().decode()
    assert not [name for name in WATCHED if name in text]
    assert "holdfast_attempts_total{" in text  # what it counted itself stays


@pytest.mark.parametrize("end", [DutyLost("n1", "cleaner"), DutyLost("n2", "watcher")])
def test_the_gauges_stay_when_another_duty_or_another_node_is_meant(events, metrics, end):
    events.emit(SURVEY)
    events.emit(end)

    assert scraped(metrics).names >= WATCHED


def test_of_two_watchers_in_one_process_only_the_latest_is_shown(events, metrics):
    later = Surveyed("n2", (QueueSurvey("mail", 0, 39, 0, 0, 1.0, 0),), (), None, None)
    events.emit(SURVEY)
    events.emit(later)

    lines = metrics.text().decode().splitlines()
    assert [line for line in lines if line.startswith("holdfast_queue_submitted{")] == [
        'holdfast_queue_submitted{queue="mail"} 39.0'
    ]

    events.emit(DutyLost("n2", "watcher"))
    assert scraped(metrics).value("holdfast_queue_submitted", queue="mail") == 40


# ── labels ────────────────────────────────────────────────────────────────────────────────


def test_kinds_beyond_the_bound_share_one_label(events, metrics):
    for number in range(1_000):
        events.emit(settled(kind=f"kind_{number}"))

    kinds = scraped(metrics).labels("holdfast_attempts_total", "kind")
    assert len(kinds) == 201
    assert "other" in kinds
    other = {"queue": "mail", "kind": "other", "outcome": "succeeded"}
    assert scraped(metrics).value("holdfast_attempts_total", **other) == 800


def test_queues_beyond_the_bound_share_one_label_and_their_counts_are_added(events, metrics):
    queues = tuple(QueueSurvey(f"q{n}", 1, 1, 1, 1, float(n), 1) for n in range(300))
    events.emit(Surveyed("n1", queues, (), None, None))

    found = scraped(metrics)
    assert len(found.labels("holdfast_queue_waiting", "queue")) == 201
    assert found.value("holdfast_queue_waiting", queue="other") == 100
    assert found.value("holdfast_queue_oldest_age_seconds", queue="other") == 299


def test_no_label_holds_an_id(events, metrics):
    events.emit(TaskEnqueued(987654321, "mail", "send"))
    events.emit(TaskGrabbed(987654321, 2, "send", "n1", "mail", 0.1))
    events.emit(TaskSettled(987654321, 2, "send", "SUCCEEDED", 0.1, "mail"))

    assert "987654321" not in metrics.text().decode()
    assert {label for one in METRICS for label in one.labels} <= {
        "queue", "kind", "outcome", "mode", "state", "table", "pid"
    }  # fmt: skip


def test_a_name_with_quotes_and_line_ends_is_escaped(events, metrics):
    events.emit(settled(kind='a"b\nc\\'))

    assert scraped(metrics).labels("holdfast_attempts_total", "kind") == {'a"b\nc\\'}


# ── life ──────────────────────────────────────────────────────────────────────────────────


def test_the_events_of_every_task_are_wanted_only_while_somebody_counts(events):
    assert not events.wanted
    with Metrics(events) as metrics:
        assert events.wanted
    assert not events.wanted
    metrics.close()  # once more does no harm


def test_metrics_live_in_the_programs_own_registry_beside_its_own(events):
    registry = CollectorRegistry()
    Counter("shop_orders", "Orders of the shop.", registry=registry).inc()

    with Metrics(events, registry) as metrics:
        events.emit(settled())
        names = scraped(metrics).names
        assert {"shop_orders_total", "holdfast_attempts_total"} <= names
        with pytest.raises(ConfigurationError, match="another app"):
            Metrics(events, registry)
        assert events.wanted

    left = {family.name for family in registry.collect()}
    assert left == {"shop_orders"}


def test_every_metric_has_a_name_in_base_units_a_type_and_a_text(events, metrics):
    events.emit(SURVEY)
    for event in (grabbed(), settled(), TaskEnqueued(1, "mail", "send"), LeaseRenewed(1.0)):
        events.emit(event)
    events.emit(SlotsCounted("n1", (("async", 0, 1),)))
    events.emit(IncidentRaised("stuck", "one", 1))

    text = metrics.text().decode()
    for one in METRICS:
        assert f"# TYPE {one.name} {one.type}\n" in text, one.name
        assert f"# HELP {one.name} {one.text}\n" in text, one.name
        assert one.name.endswith("_total") == (one.type == "counter"), one.name
        assert one.type != "histogram" or one.name.endswith("_seconds"), one.name
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert families == {one.name for one in METRICS}


def test_a_missing_library_says_how_to_install_it():
    program = """
import sys
sys.modules["prometheus_client"] = None
from holdfast import Holdfast
from holdfast.errors import MissingExtra
try:
    Holdfast("sqlite:///unused.db").metrics()
except MissingExtra as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert "pip install 'holdfast[prometheus]'" in done.stdout, done.stderr


def test_the_app_alone_imports_neither_library():
    program = """
import sys
import holdfast.app, holdfast.cli.root
print([name for name in sys.modules if name.startswith(("prometheus", "opentelemetry"))])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stdout.strip() == "[]", done.stderr


# ── on a real node ────────────────────────────────────────────────────────────────────────


async def test_a_node_is_counted_from_enqueue_to_outcome(app):
    @app.task(queue="mail", retry=Retry(attempts=2, delay=0.01))
    async def send() -> None:
        if current_task().attempt == 1:
            raise ConnectionError

    @app.task(queue="mail")
    def archive() -> None: ...

    with app.metrics() as metrics:
        async with app.node(tick_s=0.05) as node:
            assert scraped(metrics).value("holdfast_slots", mode="async", state="free") == 200
            await send.enqueue()
            await archive.enqueue_many([()] * 3)
            await archive.options(delay=0.01).enqueue()
            await node.drained(20)
            renewed = "holdfast_lease_margin_seconds"
            await until(lambda: scraped(metrics).value(renewed) is not None)
            free = {"mode": "thread", "state": "free"}
            await until(lambda: scraped(metrics).value("holdfast_slots", **free) == 16)
            found = scraped(metrics)

    assert found.value("holdfast_tasks_enqueued_total", queue="mail") == 5
    name = "holdfast_attempts_total"
    assert found.value(name, queue="mail", kind="send", outcome="retried") == 1
    assert found.value(name, queue="mail", kind="send", outcome="succeeded") == 1
    assert found.value(name, queue="mail", kind="archive", outcome="succeeded") == 4
    at = {"queue": "mail", "kind": "archive"}
    assert found.value("holdfast_attempt_seconds_count", **at) == 4
    # Neither a retry nor a delay is a wait in the queue.
    assert found.value("holdfast_queue_wait_seconds_count", **at) == 3
    at = {"queue": "mail", "kind": "send"}
    assert found.value("holdfast_queue_wait_seconds_count", **at) == 1
    assert 0 < found.value(renewed) <= 10
    assert found.value("holdfast_event_loop_lag_seconds_count") >= 1


async def test_the_wait_counts_from_the_enqueue(app):
    @app.task
    async def work() -> None: ...

    handle = await work.enqueue()
    born_at = (await handle.task()).enqueued_at
    await until(lambda: datetime.now(UTC) > born_at + timedelta(seconds=0.3))
    with app.metrics() as metrics:
        async with app.node() as node:
            await node.drained(10)
        found = scraped(metrics)

    at = {"queue": "default", "kind": "work"}
    assert 0.3 <= found.value("holdfast_queue_wait_seconds_sum", **at) < 10


async def test_booked_slots_are_shown_while_handlers_run(app):
    door = asyncio.Event()

    @app.task
    async def hold() -> None:
        await door.wait()

    with app.metrics() as metrics:
        async with app.node(tick_s=0.05, slots_async=3):
            await hold.enqueue_many([()] * 5)
            booked = {"mode": "async", "state": "booked"}
            await until(lambda: scraped(metrics).value("holdfast_slots", **booked) == 3)
            assert scraped(metrics).value("holdfast_slots", mode="async", state="free") == 0
            door.set()
        assert "holdfast_slots" not in scraped(metrics).names


async def test_a_task_of_the_callers_transaction_is_counted_when_it_has_committed(app, store_url):
    @app.task(queue="mail")
    async def send() -> None: ...

    def count() -> float | None:
        return scraped(metrics).value("holdfast_tasks_enqueued_total", queue="mail")

    with app.metrics() as metrics:
        if store_url.startswith("sqlite"):
            db = sqlite3.connect(sqlite_path(store_url), isolation_level=None)
            for end in ("ROLLBACK", "COMMIT"):
                db.execute("BEGIN")
                send.options(within=db).enqueue_sync()
                assert count() is None
                db.execute(end)
            db.close()
        else:
            db = await asyncpg.connect(store_url)
            for end in ("rollback", "commit"):
                transaction = db.transaction()
                await transaction.start()
                await send.options(within=db).enqueue()
                assert count() is None
                await getattr(transaction, end)()
            await db.close()
        await until(lambda: count() is not None)
        assert count() == 1


async def test_the_lease_that_ends_is_counted(make_app):
    app = await make_app()

    @app.task
    async def work() -> None: ...

    with app.metrics() as metrics:
        async with app.node(tick_s=0.05):
            store = await app.store()
            await store.renew("dead", lease_s=0.01, queues=["default"], kinds=["work"])
            ended = "holdfast_leases_expired_total"
            await until(lambda: scraped(metrics).value(ended) == 1)
