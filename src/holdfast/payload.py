"""Payloads: typed arguments as JSON in an envelope with a checksum.

    envelope = codec (1 byte) · CRC-32 of the body (4 bytes) · body

The codec is J (JSON) or Z (JSON, deflated).  Bodies of 128 bytes and more are compressed, and
kept so only when that makes them smaller.  Arguments travel by name, so a handler may gain a
parameter with a default while tasks wait.  No code is ever built from stored data.

What JSON would change in silence is refused instead: NaN and infinities (they would become
null), and two keys that look the same as text (one would vanish).  Stored bytes are not trusted:
they are measured before they are read, and never inflated beyond the limit.
"""

from __future__ import annotations

import inspect
import json
import math
import types
import typing
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec

from holdfast.errors import ConfigurationError, PayloadRefused, WrongArguments
from holdfast.outcomes import Again, EndSchedule, Gone, Later

PAYLOAD_BYTES_MAX = 16 * 1024 * 1024
COMPRESSED_FROM_BYTES = 128
_HEAD_BYTES = 5
_SIZED = frozenset({str, bytes, bytearray, list, tuple, set, dict})


class PayloadUnreadable(Exception):
    """The stored bytes are damaged, too large, or do not fit the handler any more."""


def sealed(body: bytes) -> bytes:
    """The envelope around a body."""
    codec = b"J"
    if len(body) >= COMPRESSED_FROM_BYTES:
        smaller = zlib.compress(body, 1)
        if len(smaller) < len(body):
            codec, body = b"Z", smaller
    return codec + zlib.crc32(body).to_bytes(4, "big") + body


def opened(envelope: bytes, *, bytes_max: int = PAYLOAD_BYTES_MAX) -> bytes:
    """The body inside, or PayloadUnreadable.  Never holds more than `bytes_max` of it."""
    if len(envelope) - _HEAD_BYTES > bytes_max:
        raise PayloadUnreadable(f"the payload takes more than {bytes_max:,} bytes")
    codec, body = envelope[:1], envelope[_HEAD_BYTES:]
    if len(envelope) < _HEAD_BYTES or zlib.crc32(body) != int.from_bytes(
        envelope[1:_HEAD_BYTES], "big"
    ):
        raise PayloadUnreadable("the payload is damaged: its checksum does not match")
    if codec == b"J":
        return body
    if codec != b"Z":
        raise PayloadUnreadable(f"the payload has an unknown codec {codec!r}")
    inflater = zlib.decompressobj()
    try:
        whole = inflater.decompress(body, bytes_max + 1)
    except zlib.error as error:
        raise PayloadUnreadable(f"the payload cannot be inflated: {error}") from None
    if len(whole) > bytes_max:
        raise PayloadUnreadable(f"the payload inflates to more than {bytes_max:,} bytes")
    if not inflater.eof:
        raise PayloadUnreadable("the payload cannot be inflated: its end is missing")
    return whole


class Codec:
    """Encodes and decodes values of one type, with its validation."""

    def __init__(self, type_: Any) -> None:
        type_ = _without_outcomes(type_)
        self._encoder = msgspec.json.Encoder(enc_hook=_plain)
        try:
            self._decoder = msgspec.json.Decoder(type_, dec_hook=_built)
        except TypeError as error:
            raise ConfigurationError(f"an annotation cannot be used: {error}") from None
        self._is_loose = _is_loose(msgspec.inspect.type_info(type_))

    def encode(self, value: Any, *, bytes_max: int = PAYLOAD_BYTES_MAX) -> bytes:
        """The value as JSON of at most `bytes_max`, or PayloadRefused."""
        try:
            body = self._encoder.encode(value)
            # Only null can be a NaN in disguise, and only loose types hold strange keys.
            if self._is_loose or b"null" in body:
                _refuse_strange(msgspec.to_builtins(value, enc_hook=_plain))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise PayloadRefused(f"cannot be written as JSON: {error}") from None
        if len(body) > bytes_max:
            raise _too_large(len(body), bytes_max)
        return body

    def decode(self, body: bytes) -> Any:
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise PayloadUnreadable(str(error)) from None


class Arguments:
    """How the arguments of one handler travel: bound by name, validated, sealed."""

    def __init__(
        self, kind: str, function: Callable[..., Any], *, skip: int = 0, bytes_max: int
    ) -> None:
        parameters = list(inspect.signature(function).parameters.values())[skip:]
        hints = _hints(function)
        fields = [_field(kind, parameter, hints) for parameter in parameters]
        self._kind = kind
        self._bytes_max = bytes_max
        self._names = tuple(parameter.name for parameter in parameters)
        self._positional = tuple(
            p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY
        )
        try:
            self._codec = Codec(
                msgspec.defstruct(
                    "Arguments", fields, forbid_unknown_fields=True, gc=False, kw_only=True
                )
            )
        except (TypeError, ConfigurationError) as error:
            raise ConfigurationError(f"task {kind!r}: {error}") from None

    def seal(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The envelope of these arguments, or WrongArguments or PayloadRefused."""
        values = self._bound(args, kwargs)
        try:
            _refuse_large(values, self._bytes_max)
            body = self._codec.encode(values, bytes_max=self._bytes_max)
        except PayloadRefused as error:
            raise PayloadRefused(f"the arguments of {self._kind!r} {error}") from None
        return self._checked(body)

    def seal_json(self, body: bytes) -> bytes:
        """The envelope of arguments that somebody outside wrote as one JSON object.

        Nothing is read before its size is known; doubled keys and numbers that are none are
        refused, because readers do not agree on what they mean.
        """
        try:
            if len(body) > self._bytes_max:
                raise _too_large(len(body), self._bytes_max)
            json.loads(body.decode(), object_pairs_hook=_once_each, parse_constant=_no_number)
        except PayloadRefused as error:
            raise PayloadRefused(f"the arguments of {self._kind!r} {error}") from None
        except (ValueError, RecursionError) as error:
            text = f"the arguments of {self._kind!r} cannot be read as JSON: {error}"
            raise PayloadRefused(text) from None
        return self._checked(body)

    def _checked(self, body: bytes) -> bytes:
        try:
            self._codec.decode(body)
        except PayloadUnreadable as error:
            raise WrongArguments(f"wrong arguments for task {self._kind!r}: {error}") from None
        return sealed(body)

    def unseal(self, envelope: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments for the call, or PayloadUnreadable naming the field that does not fit."""
        values = self._codec.decode(opened(envelope, bytes_max=self._bytes_max))
        if len(self._positional) == len(self._names):
            return msgspec.structs.astuple(values), {}
        named = msgspec.structs.asdict(values)
        return tuple(named.pop(name) for name in self._positional), named

    def named(self, envelope: bytes) -> dict[str, Any]:
        """The arguments by name, defaults filled in, or PayloadUnreadable."""
        values = self._codec.decode(opened(envelope, bytes_max=self._bytes_max))
        return msgspec.structs.asdict(values)

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self._positional):
            raise WrongArguments(
                f"task {self._kind!r} takes {len(self._positional)} positional arguments, "
                f"{len(args)} were given"
            )
        values = dict(zip(self._positional, args, strict=False))
        for name, value in kwargs.items():
            if name in values:
                raise WrongArguments(f"task {self._kind!r} got two values for {name!r}")
            if name not in self._names:
                raise WrongArguments(
                    f"task {self._kind!r} has no parameter {name!r}; "
                    f"it takes {', '.join(self._names) or 'none'}"
                )
            values[name] = value
        return values


def body_text(envelope: bytes) -> str:
    """A payload as text, for people; PayloadUnreadable when it is none."""
    try:
        return opened(envelope).decode()
    except UnicodeDecodeError as error:
        raise PayloadUnreadable(str(error)) from None


def _field(
    kind: str, parameter: inspect.Parameter, hints: dict[str, Any]
) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        raise ConfigurationError(
            f"task {kind!r}: name every parameter; *{parameter.name} cannot be validated"
        )
    hint = hints.get(parameter.name, Any)
    if parameter.default is inspect.Parameter.empty:
        return (parameter.name, hint)
    default = parameter.default
    return (parameter.name, hint, msgspec.field(default_factory=lambda: default))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError as error:
        raise ConfigurationError(
            f"the annotations of {function.__qualname__} cannot be resolved: {error}"
        ) from None


def _plain(value: Any) -> Any:
    """Pydantic models travel as their own plain form."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"objects of type {type(value).__name__} are not supported")


def _built(type_: type, value: Any) -> Any:
    if hasattr(type_, "model_validate"):
        return type_.model_validate(value)
    raise NotImplementedError


def _too_large(size: int, bytes_max: int) -> PayloadRefused:
    return PayloadRefused(
        f"take {size:,} bytes, more than payload_bytes_max = {bytes_max:,}: "
        "store them elsewhere and pass a key"
    )


def _refuse_large(values: Mapping[str, Any], bytes_max: int) -> None:
    """Refuse what cannot fit before a copy of it is made."""
    for value in values.values():
        # A character or an element takes at least one byte.
        if type(value) in _SIZED and len(value) > bytes_max:
            raise _too_large(len(value), bytes_max)


def _refuse_strange(value: Any) -> None:
    """Refuse what JSON would change in silence.  `value` consists of plain types only."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no number that JSON can hold")
    elif isinstance(value, dict):
        if len({str(key) for key in value}) < len(value):
            raise ValueError("two keys of a dict are the same as text")
        for one in value.values():
            _refuse_strange(one)
    elif isinstance(value, list | tuple):
        for one in value:
            _refuse_strange(one)


def _once_each(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise PayloadRefused(f"name {name[:40]!r} twice in one object")
        seen.add(name)


def _no_number(text: str) -> NoReturn:
    raise PayloadRefused(f"hold {text}, which is no number")


def _is_loose(type_: Any) -> bool:
    """Whether values of the type may hold keys or numbers that only a look at them can judge."""
    if isinstance(type_, msgspec.inspect.AnyType | msgspec.inspect.CustomType):
        return True
    if isinstance(type_, msgspec.inspect.DictType):
        if not isinstance(type_.key_type, msgspec.inspect.StrType | msgspec.inspect.IntType):
            return True
        return _is_loose(type_.value_type)
    inner = [getattr(type_, "item_type", None), *getattr(type_, "item_types", ())]
    inner += getattr(type_, "types", ())
    # A class of the user's may hold itself; looking at its values is cheaper than being clever.
    inner += [field.type for field in getattr(type_, "fields", ())]
    return any(one is not None and _is_nested_loose(one) for one in inner)


def _is_nested_loose(type_: Any) -> bool:
    return hasattr(type_, "fields") or _is_loose(type_)


def _without_outcomes(type_: Any) -> Any:
    """What a result may be, apart from what a handler may say about its task."""
    origin = typing.get_origin(type_)
    if type_ is Later or origin is Later:
        inner = typing.get_args(type_)
        return _without_outcomes(inner[0]) if inner else Any
    if type_ in (Again, Gone, EndSchedule):
        return None
    if origin is typing.Union or origin is types.UnionType:
        kept = [one for one in map(_without_outcomes, typing.get_args(type_)) if one is not Any]
        return typing.Union[tuple(kept)] if kept else Any  # noqa: UP007
    return type_
