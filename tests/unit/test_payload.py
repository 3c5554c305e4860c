"""Payloads: what goes in comes out, and what could harm is refused early."""

from __future__ import annotations

import math
import os
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.errors import ConfigurationError, PayloadRefused, WrongArguments
from holdfast.outcomes import Again, Gone, Later
from holdfast.payload import (
    COMPRESSED_FROM_BYTES,
    PAYLOAD_BYTES_MAX,
    Arguments,
    Codec,
    PayloadUnreadable,
    body_text,
    opened,
    sealed,
)

MEGABYTE = 1024 * 1024
DEEP = 10_000


def arguments(function: Any, bytes_max: int = PAYLOAD_BYTES_MAX) -> Arguments:
    return Arguments("mail", function, bytes_max=bytes_max)


def anything(value: Any) -> None: ...


@contextmanager
def flat_memory(bytes_max: int) -> Iterator[None]:
    """The block may not hold more than this at any moment."""
    tracemalloc.start()
    try:
        yield
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most <= bytes_max, f"held {most:,} bytes"


# ── the envelope ──────────────────────────────────────────────────────────────────────────


@given(some.binary(max_size=2000))
def test_an_envelope_gives_back_its_body(body):
    assert opened(sealed(body)) == body


@pytest.mark.req("TASK-85")
def test_compression_starts_at_128_bytes_and_is_kept_only_if_smaller():
    assert COMPRESSED_FROM_BYTES == 128
    assert sealed(b"a" * 127)[:1] == b"J" and len(sealed(b"a" * 127)) == 5 + 127
    assert sealed(b"a" * 128)[:1] == b"Z" and len(sealed(b"a" * 128)) < 5 + 128
    noise = os.urandom(5000)
    assert sealed(noise) == b"J" + zlib.crc32(noise).to_bytes(4, "big") + noise


@given(some.binary(min_size=1, max_size=300), some.integers(0, 10**6), some.integers(1, 255))
def test_one_changed_byte_is_noticed(body, where, change):
    envelope = bytearray(sealed(body))
    envelope[where % len(envelope)] ^= change

    with suppress(PayloadUnreadable):
        assert opened(bytes(envelope)) == body  # only the codec's letter may turn out harmless


@pytest.mark.parametrize("envelope", [b"", b"J", b"J123", b"X\0\0\0\0", b"Z\0\0\0\0"])
def test_bytes_that_are_no_envelope_are_unreadable(envelope):
    with pytest.raises(PayloadUnreadable):
        opened(envelope)


def test_a_deflated_body_without_its_end_is_unreadable():
    cut = zlib.compress(os.urandom(300))[:-8]

    with pytest.raises(PayloadUnreadable, match="its end is missing"):
        opened(b"Z" + zlib.crc32(cut).to_bytes(4, "big") + cut)


@pytest.mark.parametrize("size", [999, 1000])
def test_a_body_of_exactly_the_limit_is_read(size):
    assert len(opened(sealed(b"a" * size), bytes_max=1000)) == size


# ── arguments ─────────────────────────────────────────────────────────────────────────────


class Point(msgspec.Struct):
    x: float | None = None


class Address(msgspec.Struct):
    street: str
    number: int | None = None


@dataclass
class Order:
    id: int
    at: datetime


def test_arguments_travel_by_name_with_their_types():
    def work(order: Order, address: Address, *, tags: set[str], note: str = "none") -> None: ...

    codec = arguments(work)
    order, address = Order(1, datetime(2030, 1, 1, tzinfo=UTC)), Address("Main", 5)

    assert codec.unseal(codec.seal((order,), {"address": address, "tags": {"a"}})) == (
        (order, address),
        {"tags": {"a"}, "note": "none"},
    )


@pytest.mark.parametrize(
    ("args", "kwargs", "names"),
    [
        ((), {}, "`to`"),
        ((1,), {}, r"\$.to"),
        (("me", 1, 2), {}, "3 were given"),
        (("me",), {"to": "you"}, "two values for 'to'"),
        (("me",), {"colour": 1}, "no parameter 'colour'"),
        (("me", "often"), {}, r"\$.times"),
    ],
)
def test_wrong_arguments_name_what_is_wrong(args, kwargs, names):
    def work(to: str, times: int = 1) -> None: ...

    with pytest.raises(WrongArguments, match=names):
        arguments(work).seal(args, kwargs)


def test_a_handler_that_gained_a_default_reads_what_was_sealed_before():
    def before(to: str) -> None: ...

    def after(to: str, subject: str = "hello") -> None: ...

    assert arguments(after).unseal(arguments(before).seal(("me",), {})) == (("me", "hello"), {})


def test_a_payload_that_no_longer_fits_names_the_field():
    def before(to: str, subject: str) -> None: ...

    def after(to: str) -> None: ...

    with pytest.raises(PayloadUnreadable, match="subject"):
        arguments(after).unseal(arguments(before).seal(("me", "hi"), {}))


@given(some.integers())
def test_integers_of_any_size_are_exact_or_refused(number):
    codec = arguments(anything)

    assert codec.unseal(codec.seal((number,), {})) == ((number,), {})


@pytest.mark.parametrize("bits", [63, 64, 65, 200])
def test_big_integers_stay_exact(bits):
    codec = arguments(anything)
    for number in (2**bits, -(2**bits) - 1):
        assert codec.unseal(codec.seal((number,), {})) == ((number,), {})


def test_a_type_that_json_cannot_tell_apart_is_a_configuration_error():
    def work(one: Order | Again) -> None: ...

    with pytest.raises(ConfigurationError, match="task 'mail'"):
        arguments(work)


@pytest.mark.parametrize(
    "type_", [Again | Gone | None, str | Again | Gone, Later[str], Later[int] | None, Gone], ids=str
)
def test_a_result_type_may_name_what_a_handler_says(type_):
    assert Codec(type_).decode(b"null" if "str" not in str(type_) else b'"x"') in (None, "x")


# ── what could harm (security, row 10) ────────────────────────────────────────────────────


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("shape", ["itself", "nested", "optional", "struct"])
def test_nan_and_infinities_never_become_null(value, shape):
    def optional(value: float | None) -> None: ...

    def point(value: Point) -> None: ...

    function, given_value = {
        "itself": (anything, value),
        "nested": (anything, {"a": [1, (value,)]}),
        "optional": (optional, value),
        "struct": (point, Point(value)),
    }[shape]

    with pytest.raises(PayloadRefused, match="is no number"):
        arguments(function).seal((given_value,), {})


def test_none_and_the_word_null_are_no_nan():
    codec = arguments(anything)

    assert codec.unseal(codec.seal(([None, "null", 1.5],), {})) == (([None, "null", 1.5],), {})


def test_two_keys_that_are_one_as_text_are_refused():
    with pytest.raises(PayloadRefused, match="the same as text"):
        arguments(anything).seal(({1: "a", "1": "b"},), {})


def test_100_megabytes_are_refused_before_a_copy_is_made():
    text = "x" * (100 * MEGABYTE)

    with flat_memory(MEGABYTE), pytest.raises(PayloadRefused, match="payload_bytes_max"):
        arguments(anything).seal((text,), {})


def test_100_megabytes_from_outside_are_refused_before_they_are_read():
    body = b'{"value":"' + b"x" * (100 * MEGABYTE) + b'"}'
    envelope = b"J" + zlib.crc32(body).to_bytes(4, "big") + body

    with flat_memory(MEGABYTE), pytest.raises(PayloadRefused, match="payload_bytes_max"):
        arguments(anything).seal_json(body)
    with flat_memory(MEGABYTE), pytest.raises(PayloadUnreadable, match="takes more than"):
        arguments(anything).unseal(envelope)


def test_a_deflate_bomb_is_stopped_at_the_limit():
    whole = zlib.compressobj(9)
    bomb = b"".join(whole.compress(bytes(MEGABYTE)) for _ in range(200)) + whole.flush()
    envelope = b"Z" + zlib.crc32(bomb).to_bytes(4, "big") + bomb

    with (
        flat_memory(40 * MEGABYTE),
        pytest.raises(PayloadUnreadable, match="inflates to more than"),
    ):
        arguments(anything).unseal(envelope)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def test_values_nested_10000_deep_are_refused():
    with pytest.raises(PayloadRefused, match="recursion"):
        arguments(anything).seal((nested(DEEP),), {})


BOMBS = {
    "deep lists": b'{"value":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep objects": b'{"value":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "a huge integer": b'{"value":' + b"9" * 100_000 + b"}",
    "a huge exponent": b'{"value":1e999999}',
    "NaN": b'{"value":NaN}',
    "an infinity": b'{"value":-Infinity}',
    "bad UTF-8": b'{"value":"\xff\xfe"}',
    "an overlong NUL": b'{"value":"\xc0\x80"}',
    "half a document": b'{"value":"',
    "no object": b"[1]",
    "nothing": b"",
}
DOUBLED = {
    "a doubled key": b'{"value":1,"value":2}',
    "a doubled key inside": b'{"value":[{"a":1,"a":2}]}',
    "a doubled key in disguise": b'{"value":1,"v\\u0061lue":2}',
}


@pytest.mark.parametrize("name", BOMBS | DOUBLED)
def test_bombs_from_outside_are_refused_early(name):
    body = (BOMBS | DOUBLED)[name]

    with flat_memory(2 * MEGABYTE), pytest.raises((PayloadRefused, WrongArguments)):
        arguments(anything).seal_json(body)


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_that_lie_in_the_store_are_unreadable(name):
    envelope = sealed(BOMBS[name])

    with flat_memory(2 * MEGABYTE), pytest.raises(PayloadUnreadable):
        arguments(anything).unseal(envelope)


@given(some.binary(max_size=200))
def test_whatever_bytes_come_from_outside_they_are_sealed_or_refused(body):
    codec = arguments(anything)
    with suppress(PayloadRefused, WrongArguments):
        codec.unseal(codec.seal_json(body))


@given(some.recursive(some.none() | some.booleans() | some.floats() | some.text(), some.lists))
def test_json_from_outside_means_the_same_as_the_value(value):
    codec = arguments(anything)
    body = b'{"value":' + msgspec.json.encode(value) + b"}"

    (expected,), _ = codec.unseal(codec.seal_json(body))
    assert expected == msgspec.json.decode(msgspec.json.encode(value))


def test_a_payload_is_shown_as_text_or_refused():
    assert body_text(sealed(b'{"a":1}')) == '{"a":1}'
    with pytest.raises(PayloadUnreadable):
        body_text(sealed(b"\xff"))
