"""Metrics for Prometheus: the totals of the event stream, rendered when somebody scrapes.

    metrics = app.metrics(registry=prometheus_client.REGISTRY)

Names are in base units.  A label is a queue, a kind or one of a few fixed words, never an id of a
task, so the number of series stays bounded.  What the watcher read from the store is shown by the
node that holds this duty, and by no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from types import TracebackType
from typing import Any, NamedTuple, Self

from holdfast.errors import ConfigurationError, MissingExtra
from holdfast.telemetry.events import Events, QueueSurvey, Surveyed
from holdfast.telemetry.tallies import BOUNDS_S, Histogram, Tallies, Totals

try:
    from prometheus_client import CollectorRegistry, generate_latest, start_http_server
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
    from prometheus_client.utils import floatToGoString
except ImportError as error:
    raise MissingExtra("prometheus", "Metrics") from error

__all__ = ["METRICS", "CollectorRegistry", "Metrics", "Served"]

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Described(NamedTuple):
    """What a reader must know of one metric."""

    name: str
    type: str
    labels: tuple[str, ...]
    text: str


METRICS = (
    Described("holdfast_tasks_enqueued_total", COUNTER, ("queue",),
        "Tasks that this process added, counted when they are committed."),
    Described("holdfast_attempts_total", COUNTER, ("queue", "kind", "outcome"),
        "Attempts whose outcome this node recorded."),
    Described("holdfast_queue_wait_seconds", HISTOGRAM, ("queue", "kind"),
        "From the enqueue to the grab, of tasks that were neither delayed nor grabbed before."),
    Described("holdfast_attempt_seconds", HISTOGRAM, ("queue", "kind"),
        "From the start of an attempt to its outcome."),
    Described("holdfast_slots", GAUGE, ("mode", "state"),
        "Slots of this node, booked and free, for async, thread and process handlers."),
    Described("holdfast_event_loop_lag_seconds", HISTOGRAM, (),
        "How late the event loop of the node was, measured at each beat."),
    Described("holdfast_lease_margin_seconds", GAUGE, (),
        "How much of the node's lease was left when it was last renewed."),
    Described("holdfast_leases_expired_total", COUNTER, (),
        "Leases of other nodes that this node saw end, and whose tasks it resumed."),
    Described("holdfast_stale_writes_refused_total", COUNTER, (),
        "Late outcomes that the store refused, because the task had moved on."),
    Described("holdfast_incidents_total", COUNTER, ("kind",),
        "Incidents that this node raised for the cluster."),
    Described("holdfast_queue_waiting", GAUGE, ("queue",),
        "Tasks in WAITING. From the watcher; counts stop at a maximum."),
    Described("holdfast_queue_submitted", GAUGE, ("queue",),
        "Tasks in SUBMITTED. From the watcher; counts stop at a maximum."),
    Described("holdfast_queue_processing", GAUGE, ("queue",),
        "Tasks in PROCESSING. From the watcher; counts stop at a maximum."),
    Described("holdfast_tasks_error", GAUGE, ("queue",),
        "Tasks in ERROR, where a person looks. From the watcher; counts stop at a maximum."),
    Described("holdfast_queue_stuck", GAUGE, ("queue",),
        "Tasks past their deadline. From the watcher; counts stop at a maximum."),
    Described("holdfast_queue_oldest_age_seconds", GAUGE, ("queue",),
        "Age of the oldest task in SUBMITTED. From the watcher."),
    Described("holdfast_pg_oldest_xmin_age_seconds", GAUGE, ("pid",),
        "Age of the oldest snapshot that keeps PostgreSQL from cleaning, and its process. "
        "From the watcher."),
    Described("holdfast_pg_dead_tuples", GAUGE, ("table",),
        "Dead rows of our tables in PostgreSQL. From the watcher."),
)  # fmt: skip

_BY_NAME = {one.name: one for one in METRICS}
_FAMILIES: dict[str, Callable[..., Metric]] = {
    COUNTER: CounterMetricFamily,
    GAUGE: GaugeMetricFamily,
    HISTOGRAM: HistogramMetricFamily,
}
_OF_QUEUES: dict[str, Callable[[QueueSurvey], float]] = {
    "holdfast_queue_waiting": lambda one: one.waiting,
    "holdfast_queue_submitted": lambda one: one.submitted,
    "holdfast_queue_processing": lambda one: one.processing,
    "holdfast_tasks_error": lambda one: one.error,
    "holdfast_queue_stuck": lambda one: one.stuck,
    "holdfast_queue_oldest_age_seconds": lambda one: one.oldest_age_s,
}


class Metrics(Collector):
    """The metrics of one stream of events, in `registry` from its making to its `close`.

    Without a registry it has one of its own.  While it listens, the events of every task are made.
    """

    def __init__(self, events: Events, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        try:
            self.registry.register(self)
        except ValueError as error:
            raise ConfigurationError(
                "this registry has the metrics of another app already; give each a registry"
            ) from error
        self._tallies = Tallies(events)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def text(self) -> bytes:
        """What Prometheus reads, of the whole registry; send it as CONTENT_TYPE_LATEST."""
        return generate_latest(self.registry)

    def close(self) -> None:
        """Listen no more, and leave the registry.  Safe to repeat."""
        self._tallies.close()
        with suppress(KeyError):
            self.registry.unregister(self)

    def describe(self) -> Iterator[Metric]:
        for one in METRICS:
            yield _family(one.name)

    def collect(self) -> Iterator[Metric]:
        totals = self._tallies.read()
        yield from _of_tasks(totals)
        yield from _of_nodes(totals)
        if totals.surveys:
            # Of two watchers in one process, for the moment that there are two, the latest.
            yield from self._of_survey(list(totals.surveys.values())[-1])

    def _of_survey(self, survey: Surveyed) -> Iterator[Metric]:
        labels = self._tallies.queues([one.queue for one in survey.queues])
        for name, value_of in _OF_QUEUES.items():
            is_age = name.endswith("_seconds")
            found: dict[str, float] = {}
            for label, one in zip(labels, survey.queues, strict=True):
                value = value_of(one)
                before = found.get(label, 0)  # several queues may share one label
                found[label] = max(before, value) if is_age else before + value
            yield _values(name, {(label,): value for label, value in found.items()})
        if survey.oldest_snapshot_s is not None:
            pid = survey.oldest_snapshot_pid
            key = ("" if pid is None else str(pid),)
            yield _values("holdfast_pg_oldest_xmin_age_seconds", {key: survey.oldest_snapshot_s})
        if survey.dead_rows:
            dead = {(table,): rows for table, rows in survey.dead_rows}
            yield _values("holdfast_pg_dead_tuples", dead)


class Served:
    """Answers to scrapes over HTTP, until `close`."""

    def __init__(self, metrics: Metrics, *, host: str, port: int) -> None:
        try:
            self._server, self._thread = start_http_server(port, host, metrics.registry)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigurationError(
                f"metrics cannot be served at {host} port {port}: {reason}"
            ) from None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _of_tasks(totals: Totals) -> Iterator[Metric]:
    enqueued = {(queue,): count for queue, count in totals.enqueued.items()}
    yield _values("holdfast_tasks_enqueued_total", enqueued)
    attempts = {(q, k, event.lower()): count for (q, k, event), count in totals.attempts.items()}
    yield _values("holdfast_attempts_total", attempts)
    yield _times("holdfast_queue_wait_seconds", totals.waited)
    yield _times("holdfast_attempt_seconds", totals.ran)


def _of_nodes(totals: Totals) -> Iterator[Metric]:
    slots: dict[tuple[str, ...], float] = {}
    for node in totals.slots.values():
        for mode, booked, free in node.slots:
            for state, count in (("booked", booked), ("free", free)):
                slots[mode, state] = slots.get((mode, state), 0) + count
    yield _values("holdfast_slots", slots)
    yield _times("holdfast_event_loop_lag_seconds", {(): totals.lag})
    if totals.margin_s is not None:
        yield _values("holdfast_lease_margin_seconds", {(): totals.margin_s})
    yield _values("holdfast_leases_expired_total", {(): totals.leases_ended})
    yield _values("holdfast_stale_writes_refused_total", {(): totals.settles_refused})
    incidents = {(kind,): count for kind, count in totals.incidents.items()}
    yield _values("holdfast_incidents_total", incidents)


def _family(name: str) -> Any:
    described = _BY_NAME[name]
    return _FAMILIES[described.type](name, described.text, labels=described.labels)


def _values(name: str, values: Mapping[Any, float]) -> Metric:  # by their labels
    family = _family(name)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family  # type: ignore[no-any-return]


def _times(name: str, times: Mapping[Any, Histogram]) -> Metric:
    family = _family(name)
    for labels, histogram in times.items():
        family.add_metric(labels, _buckets(histogram.counts), histogram.sum_s)
    return family  # type: ignore[no-any-return]


def _buckets(counts: Sequence[int]) -> Iterable[tuple[str, int]]:
    bounds = [*map(floatToGoString, BOUNDS_S), "+Inf"]
    return list(zip(bounds, accumulate(counts), strict=True))
