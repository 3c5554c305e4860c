"""Traces: a span around each enqueue, and one around each attempt that is linked to it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable

import asyncpg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from engine import in_processes
from engine.in_processes import own
from holdfast import Holdfast, Retry, State, current_task
from holdfast.address import sqlite_path
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.telemetry.carrier import trace_of, with_trace, without_trace

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Spans:
    """What was exported, by name."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("the user's")

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.all(name)
        return span

    @property
    def names(self) -> list[str]:
        return sorted(span.name for span in self._exporter.get_finished_spans())


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
async def app(make_app: Callable, spans: Spans) -> Holdfast:
    app = await make_app()
    app.trace(spans.provider)
    return app


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def place(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    return context.trace_id, context.span_id


# ── one task ──────────────────────────────────────────────────────────────────────────────


async def test_an_attempt_is_linked_to_the_span_that_enqueued_its_task(app, spans):
    @app.task(queue="mail")
    async def send_email() -> None: ...

    with spans.tracer.start_as_current_span("request"):
        handle = await send_email.enqueue()
    async with app.node() as node:
        await node.drained(10)

    request, sent = spans.one("request"), spans.one("send mail")
    attempt = spans.one("process send_email")
    assert sent.kind is SpanKind.PRODUCER
    assert (sent.parent.trace_id, sent.parent.span_id) == place(request)
    assert attempt.kind is SpanKind.CONSUMER
    assert attempt.parent is None
    assert place(attempt)[0] != place(sent)[0]
    assert linked(attempt) == [place(sent)]
    common = {
        "messaging.system": "holdfast",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(handle.id),
        "holdfast.kind": "send_email",
    }
    assert sent.attributes == common | {
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    assert attempt.attributes == common | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "holdfast.attempt": 1,
    }
    assert (sent.status.status_code, attempt.status.status_code) == (StatusCode.UNSET,) * 2


async def test_every_retry_is_a_span_with_its_error_linked_to_the_same_enqueue(app, spans):
    @app.task(retry=Retry(attempts=2, delay=0.01))
    async def work() -> None:
        raise ValueError(f"attempt {current_task().attempt}")

    async with app.node() as node:
        handle = await work.enqueue()
        await node.drained(10)

    assert await handle.state() is State.ERROR
    sent = spans.one("send default")
    attempts = spans.all("process work")
    assert [span.attributes["holdfast.attempt"] for span in attempts] == [1, 2]
    assert [linked(span) for span in attempts] == [[place(sent)]] * 2
    for number, span in enumerate(attempts, start=1):
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == f"ValueError: attempt {number}"
        (event,) = span.events
        assert event.name == "exception"
        assert event.attributes["exception.type"] == "ValueError"
        assert event.attributes["exception.message"] == f"attempt {number}"


async def test_the_spans_of_a_handler_are_children_of_its_attempt(app, spans):
    @app.task
    async def second() -> None: ...

    @app.task
    async def first() -> None:
        with spans.tracer.start_as_current_span("own"):
            await second.enqueue()

    with spans.tracer.start_as_current_span("around the node"):
        async with app.node() as node:
            await first.enqueue()
            await node.drained(10)

    attempt = spans.one("process first")
    inner = spans.one("own")
    assert attempt.parent is None
    assert (inner.parent.trace_id, inner.parent.span_id) == place(attempt)
    (sent,) = [one for one in spans.all("send default") if one.parent.span_id == place(inner)[1]]
    assert linked(spans.one("process second")) == [place(sent)]


async def test_a_sync_handler_in_a_thread_has_its_attempt_as_current_span(app, spans):
    @app.task
    def work() -> str:
        with spans.tracer.start_as_current_span("own"):
            return f"{trace.get_current_span().get_span_context().trace_id}"

    @app.task
    def fail() -> None:
        raise KeyError("gone")

    async with app.node() as node:
        handle = await work.enqueue()
        await fail.enqueue()
        await node.drained(10)

    attempt = spans.one("process work")
    assert await handle.result() == f"{place(attempt)[0]}"
    assert spans.one("own").parent.span_id == place(attempt)[1]
    assert spans.one("process fail").status.status_code is StatusCode.ERROR


async def test_an_attempt_in_a_pool_process_is_a_span_of_the_node(app, spans):
    note, die = (own(app, task) for task in (in_processes.attempt_and_note, in_processes.die))

    async with app.node() as node:
        handle = await note.options(metadata={"note": "a"}).enqueue()
        await die.enqueue()
        await node.drained(30)

    assert await handle.result() == (1, "a")
    attempt = spans.one("process attempt_and_note")
    assert linked(attempt) == [place(spans.all("send default")[0])]
    assert attempt.status.status_code is StatusCode.UNSET
    assert spans.one("process die").status.status_code is StatusCode.ERROR


async def test_transactional_attempts_are_spans_with_their_errors(app, spans):
    @app.task(transactional=True)
    async def book(connection, is_good: bool) -> None:
        if not is_good:
            raise ValueError("no")

    async with app.node() as node:
        for is_good in (True, False):
            await book.enqueue(is_good)
        await node.drained(10)

    statuses = {span.status.status_code for span in spans.all("process book")}
    assert statuses == {StatusCode.UNSET, StatusCode.ERROR}


# ── many tasks ────────────────────────────────────────────────────────────────────────────


async def test_many_tasks_share_the_span_of_their_enqueue(app, spans):
    @app.task
    async def work(number: int) -> None: ...

    async with app.node() as node:
        await work.enqueue_many([(1,), (2,), (3,)])
        await node.drained(10)

    sent = spans.one("send default")
    assert sent.attributes["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in sent.attributes
    assert [linked(span) for span in spans.all("process work")] == [[place(sent)]] * 3


async def test_an_enqueue_of_no_tasks_is_no_span(app, spans):
    @app.task
    async def work(number: int) -> None: ...

    assert await work.enqueue_many([]) == []
    assert spans.names == []


async def test_a_batch_is_one_span_linked_to_each_enqueue_and_has_its_error_once(app, spans):
    @app.batch_task(max=10)
    async def work(numbers: list[int]) -> None:
        raise ValueError("all of them")

    await work.enqueue(1)
    await work.enqueue_many([(2,), (3,)])
    async with app.node() as node:
        await node.drained(10)

    attempt = spans.one("process work")
    assert sorted(linked(attempt)) == sorted(map(place, spans.all("send default")))
    assert attempt.attributes["messaging.batch.message_count"] == 3
    assert "holdfast.attempt" not in attempt.attributes
    assert len(attempt.events) == 1
    assert attempt.status.status_code is StatusCode.ERROR


# ── the caller's transaction, and sync programs ───────────────────────────────────────────


async def test_a_task_that_was_rolled_back_has_no_attempt(app, spans, store_url):
    @app.task
    async def work(end: str) -> None: ...

    if store_url.startswith("sqlite"):
        db = sqlite3.connect(sqlite_path(store_url), isolation_level=None)
        for end in ("ROLLBACK", "COMMIT"):
            db.execute("BEGIN")
            work.options(within=db).enqueue_sync(end)
            db.execute(end)
        db.close()
    else:
        db = await asyncpg.connect(store_url)
        for end in ("rollback", "commit"):
            transaction = db.transaction()
            await transaction.start()
            await work.options(within=db).enqueue(end)
            await getattr(transaction, end)()
        await db.close()
    async with app.node() as node:
        await node.drained(10)

    _, committed = spans.all("send default")
    assert linked(spans.one("process work")) == [place(committed)]


async def test_a_sync_program_keeps_its_trace(app, spans):
    @app.task
    async def work() -> None: ...

    def program() -> None:
        with spans.tracer.start_as_current_span("command"):
            work.enqueue_sync()

    await asyncio.to_thread(program)
    async with app.node() as node:
        await node.drained(10)

    sent = spans.one("send default")
    assert sent.parent.span_id == place(spans.one("command"))[1]
    assert linked(spans.one("process work")) == [place(sent)]


# ── metadata ──────────────────────────────────────────────────────────────────────────────


async def test_the_trace_is_invisible_to_whoever_reads_metadata(app, spans):
    seen = []

    @app.task
    async def work() -> None:
        seen.append(current_task().metadata)

    plain = await work.enqueue()
    noted = await work.options(metadata={"note": 1, "big": 2**70}).enqueue()
    async with app.node() as node:
        await node.drained(10)

    assert sorted(seen, key=len) == [{}, {"note": 1, "big": 2**70}]
    assert (await plain.task()).metadata is None
    assert json.loads((await noted.task()).metadata) == {"note": 1, "big": 2**70}
    # It is there nevertheless.
    stored = (await (await app.store()).get([noted.id]))[noted.id]
    assert trace_of(stored.metadata)["traceparent"]


async def test_a_trace_context_that_the_caller_gives_is_the_parent_of_the_enqueue(app, spans):
    seen = []

    @app.task
    async def work() -> None:
        seen.append(current_task().metadata)

    await work.options(traceparent=PARENT).enqueue()
    await work.options(traceparent="nonsense").enqueue()
    async with app.node() as node:
        await node.drained(10)

    given, wrong = spans.all("send default")
    assert f"{given.parent.trace_id:032x}-{given.parent.span_id:016x}" in PARENT
    assert wrong.parent is None
    assert {"traceparent": PARENT} in seen


async def test_a_task_of_a_program_without_tracing_is_linked_to_what_its_caller_gave(
    make_app, spans
):
    app = await make_app()

    @app.task
    async def work() -> None: ...

    await work.options(traceparent=PARENT).enqueue()
    await work.enqueue()
    app.trace(spans.provider)
    async with app.node() as node:
        await node.drained(10)

    assert spans.names == ["process work"] * 2
    links = [linked(span) for span in spans.all("process work")]
    assert sorted(map(len, links)) == [0, 1]


async def test_our_own_field_of_metadata_is_refused(app):
    @app.task
    async def work() -> None: ...

    with pytest.raises(ConfigurationError, match="holdfast:"):
        await work.options(metadata={"holdfast:trace": {}}).enqueue()


@pytest.mark.parametrize(
    "metadata",
    [None, b"{}", b'{"a":1}', b'{"a": [1.0, 12345678901234567890123, "\\u00fc"]}', b'{"":null}'],
)
def test_a_trace_goes_in_and_out_without_touching_a_byte_of_a_value(metadata):
    stored = with_trace(metadata, {"traceparent": PARENT})

    assert trace_of(stored) == {"traceparent": PARENT}
    left = without_trace(stored)
    assert json.loads(left or b"{}") == json.loads(metadata or b"{}")
    if metadata and b"[" in metadata:
        assert b"[1.0, 12345678901234567890123, " in left
    assert without_trace(metadata) is metadata


@pytest.mark.parametrize(
    "metadata", [b"", b"[1]", b"{", b'"holdfast:trace"', b'{"holdfast:trace":3}', b"\xff\xfe"]
)
def test_metadata_of_another_shape_have_no_trace_and_break_nothing(metadata):
    assert trace_of(metadata) == {}
    without_trace(metadata)


# ── what goes wrong ───────────────────────────────────────────────────────────────────────


class Broken(TracerProvider):
    """A provider whose spans cannot be made."""

    def get_tracer(self, *args, **options):
        return self

    def start_span(self, *args, **options):
        raise RuntimeError("no span today")


async def test_a_broken_tracer_stops_no_task(make_app, caplog):
    app = await make_app()
    app.trace(Broken())

    @app.task
    async def work() -> int:
        return 7

    @app.task
    async def fail() -> None:
        raise ValueError

    async with app.node() as node:
        assert await (await work.enqueue()).result(timeout=10) == 7
        handle = await fail.enqueue()
        await node.drained(10)

    assert await handle.state() is State.ERROR
    assert "no span today" in caplog.text


async def test_an_enqueue_that_fails_is_a_span_with_the_error(make_app, spans):
    app = await make_app(wrap_store=Refusing)
    app.trace(spans.provider)

    @app.task
    async def work() -> None: ...

    with pytest.raises(StoreUnavailable):
        await work.enqueue()

    sent = spans.one("send default")
    assert sent.status.status_code is StatusCode.ERROR
    assert sent.events[0].attributes["exception.type"].endswith("StoreUnavailable")


class Refusing:
    """The real store, which adds nothing."""

    def __init__(self, store) -> None:
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def enqueue(self, tasks):
        raise StoreUnavailable("not now")


async def test_without_tracing_no_span_is_made_and_nothing_is_stored(make_app, spans):
    app = await make_app()

    @app.task
    async def work() -> None: ...

    with spans.tracer.start_as_current_span("request"):
        handle = await work.enqueue()
    async with app.node() as node:
        await node.drained(10)

    assert spans.names == ["request"]
    assert (await (await app.store()).get([handle.id]))[handle.id].metadata is None


def test_a_missing_library_says_how_to_install_it():
    program = """
import sys
sys.modules["opentelemetry"] = None
from holdfast import Holdfast
from holdfast.errors import MissingExtra
try:
    Holdfast("sqlite:///unused.db").trace()
except MissingExtra as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert "pip install 'holdfast[otel]'" in done.stdout, done.stderr
