"""Traces by OpenTelemetry's API: `send {queue}` around an enqueue, `process {kind}` around an
attempt, which is linked to the send.

    send mail ─── its trace context is stored with the task
        ◀─ link ─ process send_email, attempt 1
        ◀─ link ─ process send_email, attempt 2

An attempt begins a trace of its own: it may run hours later, on another machine, more than once.
Whatever goes wrong with a trace is logged, and the work goes on without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from holdfast.errors import MissingExtra
from holdfast.telemetry.carrier import trace_of

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise MissingExtra("otel", "Tracing") from error

__all__ = ["Send", "TracerProvider", "Tracing"]

T = TypeVar("T")

SYSTEM = "holdfast"
LINKS_MAX = 128  # what an SDK keeps of one span

_log = logging.getLogger("holdfast")
_w3c = TraceContextTextMapPropagator()
_attempt: ContextVar[tuple[Span | None, BaseException | None]] = ContextVar(
    "holdfast_attempt_span", default=(None, None)
)


class Attempted(Protocol):
    """What a span says of a task that was grabbed."""

    @property
    def id(self) -> int: ...
    @property
    def queue(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def metadata(self) -> bytes | None: ...


class Send:
    """An enqueue that is under way."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.trace: dict[str, str] = {}  # to be stored with the tasks
        _quietly(lambda: _w3c.inject(self.trace, trace.set_span_in_context(span)))

    def sent(self, ids: Sequence[int]) -> None:
        if len(ids) == 1:
            _quietly(lambda: self._span.set_attribute("messaging.message.id", str(ids[0])))


class Tracing:
    """Makes the spans of one app.  Without a provider, the program's own global one is used."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(SYSTEM, tracer_provider=provider)

    @contextmanager
    def send(
        self, queue: str, kind: str, *, count: int, given: Mapping[str, str]
    ) -> Iterator[Send | None]:
        """Around an enqueue: a child of the trace context `given`, else of the current span."""
        attributes = _attributes("send", queue, kind)
        if count != 1:
            attributes["messaging.batch.message_count"] = count

        current = contexts.get_current()

        def start() -> Span:
            return self._tracer.start_span(
                f"send {queue}",
                context=_w3c.extract(given, current) if given else current,
                kind=SpanKind.PRODUCER,
                attributes=attributes,
            )

        with _within(current, _quietly(start)) as span:
            try:
                yield None if span is None else Send(span)
            except BaseException as error:
                _fail(span, error)
                raise

    @contextmanager
    def process(self, kind: str, tasks: Sequence[Attempted]) -> Iterator[None]:
        """Around an attempt, of one task or of a batch."""
        first = tasks[0]
        attributes = _attributes("process", first.queue, kind)
        if len(tasks) == 1:
            attributes["messaging.message.id"] = str(first.id)
            attributes["holdfast.attempt"] = first.attempt
        else:
            attributes["messaging.batch.message_count"] = len(tasks)

        alone = contexts.Context()  # whatever the node was started in is not ours

        def start() -> Span:
            return self._tracer.start_span(
                f"process {kind}",
                context=alone,
                kind=SpanKind.CONSUMER,
                attributes=attributes,
                links=_links(tasks),
            )

        with _within(alone, _quietly(start)) as span:
            _attempt.set((span, None))
            yield

    def failed(self, error: BaseException) -> None:
        """The attempt that this code runs in ended with this error."""
        span, known = _attempt.get()
        if error is not known:  # of a batch, every task fails by the same error
            _attempt.set((span, error))
            _fail(span, error)


@contextmanager
def _within(context: contexts.Context, span: Span | None) -> Iterator[Span | None]:
    """The span as the current one of this context, ended at the end."""
    if span is None:
        yield None
        return
    token = contexts.attach(trace.set_span_in_context(span, context))
    try:
        yield span
    finally:
        contexts.detach(token)
        _quietly(span.end)


def _fail(span: Span | None, error: BaseException) -> None:
    def record(span: Span) -> None:
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))

    if span is not None:
        _quietly(lambda: record(span))


def _links(tasks: Sequence[Attempted]) -> list[Link]:
    """One for each enqueue; tasks that were enqueued together share theirs."""
    found = {}
    for task in tasks:
        sent = _w3c.extract(trace_of(task.metadata), contexts.Context())
        context = trace.get_current_span(sent).get_span_context()
        if context.is_valid:
            found[context.trace_id, context.span_id] = Link(context)
    return list(found.values())[:LINKS_MAX]


def _attributes(operation: str, queue: str, kind: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "holdfast.kind": kind,
    }


def _quietly(work: Callable[[], T]) -> T | None:
    """Whoever watches must never stop the work that is watched."""
    try:
        return work()
    except Exception:
        _log.exception("a trace failed")
        return None
