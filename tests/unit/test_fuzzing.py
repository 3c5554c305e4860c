"""What reads bytes or text from outside: whatever comes in, it is read or refused as documented.

Nothing else may come out, because somebody waits for exactly the documented error: a node for a
payload that it cannot read, a person for a sentence instead of frames.  And what was written is
read as it was meant.
"""

from __future__ import annotations

import string
import zlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import msgspec
import typer
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.address import redacted_url, secrets_of, sqlite_path
from holdfast.buses.notices import PAYLOAD_BYTES_MAX, payloads_of, triggers_in
from holdfast.cli.task import arguments_of, seconds_of, state_of
from holdfast.config import FILE, PROJECT_FILE, SETTINGS, duration, load_config
from holdfast.errors import ConfigurationError, PayloadRefused, WrongArguments
from holdfast.node import renewal
from holdfast.payload import Arguments, Codec, PayloadUnreadable, body_text, opened, sealed
from holdfast.schedule import Unreadable, schedule_of, slot_of
from holdfast.sql.query import quoted
from holdfast.stores.counters import packed, unpacked
from holdfast.task import Event, Grabbed, Outcome, TaskId, Trigger
from holdfast.telemetry.carrier import KEY, trace_of, with_trace, without_trace
from holdfast.timing import At, Cron, Every, text_of, timing_of
from holdfast.verify.history import read_history
from holdfast.worker import wire

DEEP = 5_000  # deeper than any reader goes
BYTES_MAX = 1_000
PATIENT = settings(deadline=None)  # the machine may be busy

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(width=32) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
HOSTILE_TEXT = st.one_of(
    st.text(max_size=100),
    st.text(st.characters(categories=["Cs", "Cc", "Nd", "Zs", "So"]), max_size=20),
    JSON.map(lambda value: msgspec.json.encode(value).decode()),
    st.sampled_from(["[" * DEEP, '{"a":' * DEEP, "9" * 5_000, "1e999", "\ud800", "\x00", "{}"]),
)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of which a part was cut out or replaced."""
    body = draw(whole)
    start = draw(st.integers(0, len(body)))
    return body[:start] + draw(st.binary(max_size=4)) + body[start + draw(st.integers(0, 4)) :]


ENCODED = JSON.map(msgspec.json.encode)
HOSTILE = st.one_of(
    st.binary(max_size=200),
    damaged(ENCODED),
    HOSTILE_TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")),
)


class Colour(Enum):
    RED = "red"


@dataclass
class Order:
    number: int
    lines: list[Order]
    colour: Colour | None = None


TYPES = [
    Any, int, float, str, bytes, bool, None, list[int], dict[str, Any], dict[int, str], Order,
    tuple[int, str], set[str], datetime, timedelta, Decimal, UUID, Colour, int | str | None,
]  # fmt: skip
CODECS = [Codec(type_) for type_ in TYPES]


# ── payloads ──────────────────────────────────────────────────────────────────────────────────


def resealed(codec: bytes, body: bytes) -> bytes:
    """An envelope whose checksum is right, whatever is in it."""
    return codec + zlib.crc32(body).to_bytes(4, "big") + body


ENVELOPES = st.one_of(
    st.binary(max_size=50),
    st.builds(resealed, st.sampled_from([b"J", b"Z", b"Q", b""]), HOSTILE),
    st.builds(resealed, st.just(b"Z"), damaged(HOSTILE.map(zlib.compress))),
    damaged(HOSTILE.map(sealed)),
)


@PATIENT
@given(ENVELOPES)
def test_any_bytes_are_an_envelope_within_the_limit_or_unreadable(envelope):
    with suppress(PayloadUnreadable):
        assert len(opened(envelope, bytes_max=BYTES_MAX)) <= BYTES_MAX
    with suppress(PayloadUnreadable):
        assert isinstance(body_text(envelope), str)


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(CODECS), HOSTILE)
def test_any_body_is_a_value_of_the_type_or_unreadable(codec, body):
    with suppress(PayloadUnreadable):
        codec.decode(body)


@PATIENT
@given(JSON)
def test_what_a_codec_has_written_it_reads(value):
    codec = Codec(Any)
    with suppress(PayloadRefused):  # NaN and infinities
        assert codec.decode(codec.encode(value)) == value


def send(to: str, count: int = 1, *, extra: Any = None, at: datetime | None = None) -> None: ...


@PATIENT
@given(ENVELOPES)
def test_any_payload_is_arguments_or_unreadable(envelope):
    arguments = Arguments("send", send, bytes_max=BYTES_MAX)
    with suppress(PayloadUnreadable):
        args, kwargs = arguments.unseal(envelope)
        assert len(args) == 2 and kwargs.keys() == {"extra", "at"}


@PATIENT
@given(HOSTILE)
def test_any_arguments_from_outside_are_sealed_or_refused_and_what_was_sealed_is_read(body):
    arguments = Arguments("send", send, bytes_max=BYTES_MAX)
    with suppress(PayloadRefused, WrongArguments):
        arguments.unseal(arguments.seal_json(body))


@PATIENT
@given(st.text(), st.integers(-(2**60), 2**60), JSON, st.datetimes(timezones=st.just(UTC)))
def test_arguments_come_out_as_they_went_in(to, count, extra, at):
    arguments = Arguments("send", send, bytes_max=10**6)
    with suppress(PayloadRefused):
        envelope = arguments.seal((to, count), {"extra": extra, "at": at})
        assert arguments.unseal(envelope) == ((to, count), {"extra": extra, "at": at})


# ── schedules ─────────────────────────────────────────────────────────────────────────────────

TIMES = st.datetimes(timezones=st.just(UTC)) | st.datetimes(
    timezones=st.timezones(), allow_imaginary=False
)
CATCH_UPS = st.sampled_from(["one", "all", "none"])
TIMINGS = st.one_of(
    st.builds(Every, st.floats(0.1, 1e9), st.none() | TIMES, catch_up=CATCH_UPS),
    st.builds(At, TIMES, catch_up=CATCH_UPS),
    st.builds(
        Cron,
        st.sampled_from(["* * * * *", "0 3 * * MON-FRI", "*/5 0 3 L * *"]),
        st.sampled_from(["UTC", "Europe/Berlin"]),
        catch_up=CATCH_UPS,
    ),
)
SOMETHING = st.one_of(JSON, st.sampled_from(["one", "all"]), TIMES.map(datetime.isoformat))
KEPT = st.fixed_dictionaries(
    {"catch_up": st.just("one") | SOMETHING},
    optional={
        "cron": st.just("* * * * *") | SOMETHING,
        "tz": st.just("UTC") | SOMETHING,
        "every_s": st.floats() | SOMETHING,
        "start": SOMETHING,
        "at": SOMETHING,
    },
).map(lambda facts: msgspec.json.encode(facts).decode())


@PATIENT
@given(HOSTILE_TEXT | KEPT)
@example('{"at": "0001-01-01T00:00:00+01:00", "catch_up": "one"}')
@example('{"every_s": 60, "start": "9999-12-31T23:59:59-01:00", "catch_up": "one"}')
def test_any_text_is_a_timing_that_can_be_asked_or_refused(text):
    try:
        timing = timing_of(text)
    except ConfigurationError:
        return
    slot = timing.next_after(datetime(2030, 1, 1, tzinfo=UTC))
    assert slot is None or slot.tzinfo is not None
    assert timing.words()
    assert timing_of(text_of(timing)) == timing


@PATIENT
@given(HOSTILE_TEXT | KEPT)
def test_a_timing_that_cannot_be_read_keeps_no_other_schedule_from_being_listed(text):
    row = [
        "nightly",
        1,
        text,
        "k",
        "q",
        5,
        1.0,
        None,
        None,
        None,
        None,
        b"",
        "code",
        0,
        *[None] * 2,
        0,
    ]

    timing = schedule_of(row).timing

    assert timing.words()
    assert not isinstance(timing, Unreadable) or timing.text == text


@PATIENT
@given(TIMINGS)
def test_a_timing_is_read_as_it_was_written(timing):
    assert timing_of(text_of(timing)) == timing


@PATIENT
@given(
    st.lists(st.text("0123456789*/,-#LW", max_size=6), min_size=5, max_size=6).map(" ".join)
    | HOSTILE_TEXT,
    st.sampled_from(["UTC", "Europe/Berlin"]) | HOSTILE_TEXT,
)
def test_any_line_is_refused_or_can_be_told_in_words(line, zone):
    with suppress(ConfigurationError):
        assert Cron(line, zone).words()


# ── what travels with a task, and between nodes ───────────────────────────────────────────────

METADATA = st.one_of(
    HOSTILE,
    st.builds(lambda name, body: b'{"%s":%s}' % (name, body), st.just(KEY.encode()), HOSTILE),
    st.builds(lambda body: b'{"traceparent":%s}' % body, HOSTILE),
    st.builds(lambda body: b'{"holdfast.schedule":%s}' % body, HOSTILE),
    damaged(st.just(msgspec.json.encode({"holdfast.schedule": {"name": "n", "slot": None}}))),
)


@PATIENT
@given(METADATA)
def test_no_metadata_keep_a_task_from_running(metadata):
    assert all(isinstance(value, str) for value in trace_of(metadata).values())
    assert isinstance(without_trace(metadata), bytes | None)
    found = slot_of(metadata)
    assert found is None or isinstance(found.name, str)


@PATIENT
@given(
    st.dictionaries(st.text().filter(lambda name: name != KEY), JSON),
    st.dictionaries(st.text(), st.text(), min_size=1),
)
def test_a_trace_is_taken_out_of_the_metadata_as_it_was_put_in(said, trace):
    metadata = msgspec.json.encode(said)

    carried = with_trace(metadata, trace)

    assert trace_of(carried) == trace
    assert msgspec.json.decode(without_trace(carried) or b"{}") == msgspec.json.decode(metadata)


NOTICE = st.tuples(
    *[st.integers(0, 9)] * 3, st.text(max_size=3), st.integers(), st.none() | st.text(max_size=3),
    st.floats() | st.integers(), st.none() | st.text(max_size=3),
    st.none() | st.datetimes().map(datetime.isoformat) | TIMES.map(datetime.isoformat),
)  # fmt: skip


@PATIENT
@given(
    HOSTILE_TEXT
    | st.lists(NOTICE | JSON, max_size=3).map(lambda v: msgspec.json.encode(v).decode())
)
@example('[[1,1,0,"k",5,null,1.0,null,"2030-01-01T00:00:00"]]')
def test_any_notice_holds_triggers_or_is_a_value_error(payload):
    with suppress(ValueError):
        for trigger in triggers_in(payload, "q"):
            assert trigger.queue == "q"
            # It is compared with times that have a zone.
            assert trigger.due_at is None or trigger.due_at.tzinfo is not None


TRIGGERS = st.builds(
    Trigger,
    st.integers(1, 2**62),
    st.integers(1, 2**31),
    st.just("q"),
    st.integers(0, 31),
    st.text(),
    st.integers(0, 9),
    st.none() | st.text(),
    st.floats(0.001, 1000),
    st.none() | st.text(),
    st.none() | st.datetimes(timezones=st.just(UTC)),
    st.just(0),
)


@PATIENT
@given(st.lists(TRIGGERS, max_size=100))
def test_notices_are_read_as_they_were_written_and_never_too_long(triggers):
    payloads = payloads_of(triggers)

    assert all(len(payload.encode()) <= PAYLOAD_BYTES_MAX for payload in payloads)
    read = [one for payload in payloads for one in triggers_in(payload, "q")]
    assert read == triggers or payloads == ["[]"]


GRABBED = st.builds(
    Grabbed, st.integers(1, 2**62).map(TaskId), st.integers(1, 99), st.text(), st.binary(),
    st.integers(1, 9), st.integers(1, 9), st.integers(0, 9), st.text(), st.integers(0, 31),
    st.none() | st.text(), st.floats(0.1, 9), st.none() | st.text(), st.none() | st.binary(),
    st.datetimes(timezones=st.just(UTC)), st.integers(0, 3),
)  # fmt: skip
OUTCOMES = st.builds(
    Outcome, st.integers(1, 2**62).map(TaskId), st.integers(1, 99), st.sampled_from(Event),
    st.floats(0, 1e9), st.none() | st.text(), st.none() | st.binary(),
)  # fmt: skip
RAISED = st.builds(wire.Raised, st.lists(st.tuples(st.text(), st.text())), st.text(), st.text())
ANSWERS = st.one_of(
    st.builds(wire.Ended, OUTCOMES),
    st.builds(wire.Settled, OUTCOMES, st.booleans()),
    RAISED,
    st.builds(wire.NotFound, RAISED),
)
ORDERS = st.builds(wire.Order, st.text(), st.text(), GRABBED) | st.builds(
    wire.Prepare, st.lists(st.text())
)
REPLIES = st.one_of(
    st.just(wire.Ready()),
    st.builds(wire.Started, st.integers(0, 2**60)),
    st.builds(wire.Reply, ANSWERS, st.booleans()),
)


@PATIENT
@given(ORDERS | REPLIES)
def test_frames_between_a_node_and_its_processes_are_read_as_they_were_written(content):
    frame = wire.framed(content)
    head, body = frame[: wire.LENGTH_BYTES], frame[wire.LENGTH_BYTES :]

    assert wire.length(head) == len(body)
    read = wire.order if isinstance(content, wire.Order | wire.Prepare) else wire.reply
    assert read(body) == content


@PATIENT
@given(st.binary(max_size=100) | damaged(REPLIES.map(wire.framed)))
@example(b"\x91\xa5\x00\x00\x00\x00\x80")
def test_any_frame_is_a_reply_or_a_decode_error(body):
    for read in (wire.reply, wire.order):
        with suppress(msgspec.DecodeError):
            read(body)


@PATIENT
@given(st.text(), st.floats(0, 1e9), st.text(), st.dictionaries(st.text(), st.text()))
def test_lines_between_a_node_and_its_renewer_are_read_as_they_were_written(text, at, more, env):
    order = renewal.Order(text, at, at, 1, more, text, env)
    report = renewal.Report("failed", at, text)

    for said in (order, report):
        assert said.line.count(b"\n") == 1 and said.line.endswith(b"\n")
        assert type(said).of_line(said.line) == said


@PATIENT
@given(st.dictionaries(st.none() | st.text(), st.integers(0, 2**62)))
def test_counters_are_read_as_they_were_written(counters):
    assert unpacked(packed(counters)) == counters


# ── what people write ─────────────────────────────────────────────────────────────────────────


@PATIENT
@given(HOSTILE_TEXT | st.floats() | st.integers() | st.timedeltas() | st.just(10**400) | JSON)
def test_anything_is_a_duration_of_finite_length_or_a_value_error(value):
    with suppress(ValueError):
        assert 0 <= duration(value) < float("inf")


@PATIENT
@given(st.integers(0, 10**6), st.sampled_from([("ms", 0.001), ("s", 1), ("m", 60), ("h", 3600)]))
def test_a_duration_means_what_it_says(number, unit):
    name, size_s = unit

    assert duration(f"{number}{name}") == duration(f" {number} {name}") == number * size_s


@PATIENT
@given(HOSTILE_TEXT)
def test_any_option_of_the_command_line_is_read_or_refused_in_its_own_words(text):
    text = text if text != "-" else "[]"  # that is the standard input
    with suppress(WrongArguments):
        args, kwargs = arguments_of(text)
        assert not args or not kwargs
    with suppress(typer.BadParameter):
        seconds_of("--delay", text)
    with suppress(typer.BadParameter):
        state_of(text)
    with suppress(ValueError):
        assert quoted(text) == f'"{text}"'


@PATIENT
@given(HOSTILE_TEXT)
def test_any_address_is_shown_and_its_file_is_named_or_refused(text):
    assert isinstance(redacted_url(text), str)
    assert all(secrets_of(text))
    with suppress(ConfigurationError):
        assert sqlite_path(text)


@PATIENT
@given(
    st.text(string.ascii_letters, max_size=5),
    st.text("@:/?#&%=ab", max_size=10),
    st.sampled_from(["", "?password={}", "?a=b&sslpassword={}&c=d"]),
)
def test_no_password_is_shown_whatever_it_is_made_of(user, noise, query):
    secret = f"{noise}SECRET{noise}"
    url = f"postgresql://{user}:{secret}@db/app"

    assert "SECRET" not in redacted_url(url)
    assert "SECRET" not in redacted_url("postgresql://db/app" + query.format("SECRET"))


def configured(name: str, body: bytes) -> None:
    """Load a configuration from a folder with this file in it."""
    with TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(body)
        load_config({"url": "sqlite:///app.db"}, environ={}, folder=Path(folder))


TOML_VALUES = st.one_of(
    st.sampled_from(["1", "-1", "1e400", "nan", "9" * 5_000, "9" * 400, "true", "[]", "[1]", "{}"]),
    st.sampled_from(['"30s"', '"x"', '"fast"', "2030-01-01", '["mail"]', '"\\u0000"', "1e300"]),
    JSON.map(lambda value: msgspec.json.encode(value).decode()),
)
TOML = st.builds(
    lambda name, value: f"{name} = {value}\n",
    st.sampled_from([setting.name for setting in SETTINGS] + ["node", "tool", "x"]),
    TOML_VALUES,
)


@PATIENT
@given(HOSTILE_TEXT | TOML | st.builds(lambda a, b: a + b, TOML, TOML), st.binary(max_size=2))
@example("node.retention = 1e300", b"")
@example("node.lease = " + "9" * 400, b"")
@example("x = " + "[" * DEEP, b"")
@example("x = " + "9" * 5_000, b"")
def test_any_file_is_a_configuration_or_refused(text, more):
    body = text.encode("utf-8", "surrogatepass")
    for name, head in (
        (FILE, b""),
        (PROJECT_FILE, b"# tool.holdfast\n"),
        (PROJECT_FILE, b"[tool.holdfast]\n"),
        (PROJECT_FILE, b"[tool]\nholdfast = 1 # tool.holdfast\n"),
    ):
        with suppress(ConfigurationError):
            configured(name, head + body + more)


@PATIENT
@given(
    st.dictionaries(
        st.sampled_from([one.variable for one in SETTINGS] + ["HOLDFAST_X__Y", "HOLDFAST_SCHEME"]),
        HOSTILE_TEXT,
        max_size=3,
    )
)
def test_any_environment_is_a_configuration_or_refused(environ):
    with TemporaryDirectory() as folder, suppress(ConfigurationError):
        load_config({"url": "sqlite:///app.db"}, environ=environ, folder=Path(folder))


@PATIENT
@given(HOSTILE | st.lists(ENCODED | HOSTILE, max_size=3).map(b"\n".join))
def test_any_file_is_a_history_or_a_value_error_that_names_it(body):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "history.jsonl"
        path.write_bytes(body)
        try:
            assert all("op" in line for line in read_history(path))
        except ValueError as error:
            assert str(path) in str(error)
