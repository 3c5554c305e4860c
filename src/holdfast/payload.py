"""Payloads: typed arguments as JSON in an envelope with a checksum.

    envelope = codec (1 byte) · CRC-32 of the body (4 bytes) · body

The codec is J (JSON) or Z (JSON, deflated).  Bodies of 128 bytes and more are compressed, and
kept so only when that makes them smaller.  Arguments travel by name, so a handler may gain a
parameter with a default while tasks wait.  No code is ever built from stored data.
"""

from __future__ import annotations

import inspect
import typing
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from holdfast.errors import ConfigurationError, PayloadRefused, WrongArguments

PAYLOAD_BYTES_MAX = 16 * 1024 * 1024
COMPRESSED_FROM_BYTES = 128
_HEAD_BYTES = 5


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
    """The body inside, or PayloadUnreadable.  Never inflates beyond `bytes_max`."""
    codec, body = envelope[:1], envelope[_HEAD_BYTES:]
    if zlib.crc32(body) != int.from_bytes(envelope[1:_HEAD_BYTES], "big"):
        raise PayloadUnreadable("the payload is damaged: its checksum does not match")
    if codec == b"J":
        return body
    if codec != b"Z":
        raise PayloadUnreadable(f"the payload has an unknown codec {codec!r}")
    inflater = zlib.decompressobj()
    try:
        whole = inflater.decompress(body, bytes_max)
    except zlib.error as error:
        raise PayloadUnreadable(f"the payload cannot be inflated: {error}") from None
    if inflater.unconsumed_tail:
        raise PayloadUnreadable(f"the payload inflates to more than {bytes_max:,} bytes")
    return whole


class Codec:
    """Encodes and decodes values of one type, with its validation."""

    def __init__(self, type_: Any) -> None:
        self._encoder = msgspec.json.Encoder(enc_hook=_plain)
        self._decoder = msgspec.json.Decoder(type_, dec_hook=_built)

    def encode(self, value: Any) -> bytes:
        try:
            return self._encoder.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise PayloadRefused(f"cannot be written as JSON: {error}") from None

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
        except TypeError as error:
            raise ConfigurationError(
                f"task {kind!r}: an annotation cannot be used for a payload: {error}"
            ) from None

    def seal(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The envelope of these arguments, or WrongArguments or PayloadRefused."""
        values = self._bound(args, kwargs)
        try:
            body = self._codec.encode(values)
        except PayloadRefused as error:
            raise PayloadRefused(f"the arguments of {self._kind!r} {error}") from None
        if len(body) > self._bytes_max:
            raise PayloadRefused(
                f"the arguments of {self._kind!r} take {len(body):,} bytes, more than "
                f"payload_bytes_max = {self._bytes_max:,}: store them elsewhere and pass a key"
            )
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
    """A payload as text, for people."""
    return opened(envelope).decode()


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
