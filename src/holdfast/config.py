"""Configuration: one frozen tree.  Argument > environment > file > default; unset is no value.

    url = "postgresql://app@db/app"        the only line that is needed

    [node]
    queues = ["mail", "billing"]
    lease = "30s"

    [node.slots]
    async = 200

Each setting has one name, such as `node.slots.async`: in holdfast.toml (or in pyproject.toml
under [tool.holdfast]) it is a key of a table, in the environment HOLDFAST_NODE__SLOTS__ASYNC.  An
empty variable is unset.  A name that nobody knows is an error, with the nearest known one.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.address import Address, redacted_url
from holdfast.errors import ConfigurationError
from holdfast.loops import LOOPS
from holdfast.node.settings import NodeSettings
from holdfast.payload import PAYLOAD_BYTES_MAX
from holdfast.policy import Retention

PREFIX = "HOLDFAST_"
FILE, PROJECT_FILE = "holdfast.toml", "pyproject.toml"
NEAR = 0.6  # how alike two names must be before one counts as a typo of the other
NO_URL = (
    "no address of a store is given: pass it as Holdfast('sqlite:///app.db'), set HOLDFAST_URL, "
    'name a file with it in HOLDFAST_URL_FILE, or write url = "…" in holdfast.toml'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a program was told, with the defaults filled in.  Its repr shows no password."""

    url: str
    schema: str = "holdfast"
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    connections_max: int = 8
    durability: str = "full"
    pooled: bool | None = None  # behind PgBouncer in transaction mode; None: find out
    listen_url: str | None = None  # a direct address for LISTEN, when `url` is a pooler
    queues: tuple[str, ...] = ()  # what `holdfast worker` serves; none named: all of the app
    loop: str = "auto"  # on which `holdfast worker` runs: uvloop where it is installed
    node: NodeSettings = field(default_factory=NodeSettings)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def address(self) -> Address:
        return Address(
            url=self.url,
            schema=self.schema,
            connections_max=self.connections_max,
            durability=self.durability,
            pooled=self.pooled,
            listen_url=self.listen_url,
        )

    def __repr__(self) -> str:
        shown = (
            f"{one.name}={_redacted(getattr(self, one.name))!r}"
            for one in fields(self)
            if one.name != "sources"
        )
        return f"Config({', '.join(shown)})"

    def describe(self) -> list[Described]:
        """Every setting as it is now, without passwords, and where it came from."""
        return [
            Described(setting.name, setting.shown(self), self.sources.get(setting.name, "default"))
            for setting in SETTINGS
        ]


class Described(NamedTuple):
    """One row of `holdfast config show --resolved`."""

    name: str
    value: str
    source: str


def load_config(
    given: Mapping[str, Any],
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Config:
    """The configuration of this process; `given` are arguments by setting name, None is unset.

    Reads the environment and the working directory, and nothing else.  ConfigurationError names
    the file or variable and the key at fault; no message repeats the value of an address.
    """
    found: dict[str, tuple[object, str]] = {}
    layers = (
        _from_file(folder or Path.cwd()),
        _from_environment(os.environ if environ is None else environ),
        ((name, value, "argument") for name, value in given.items() if value is not None),
    )
    for layer in layers:
        found.update((name, (value, source)) for name, value, source in layer)
    return _built(found)


# ── settings ──────────────────────────────────────────────────────────────────────────────────


class Setting(NamedTuple):
    """One thing that can be set: its name, how a value is read, and which field it becomes."""

    name: str
    read: Callable[[object], Any]
    path: tuple[str, ...]  # the field of Config, or of Config.node
    meaning: str
    is_secret: bool = False  # may also come from a file named in HOLDFAST_…_FILE

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper().replace(".", "__")

    def shown(self, config: Config) -> str:
        value: Any = config
        for step in self.path:
            value = getattr(value, step)
        if isinstance(value, tuple):
            return ", ".join(value) or "all"
        if isinstance(value, Retention):
            return f"{value.finished.total_seconds():.0f}s"
        if self.read is duration:
            return f"{value:g}s"
        return "unset" if value is None else str(_redacted(value))


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_DURATION_CHARS_MAX = 100  # the search takes the square of its length
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def duration(value: object) -> float:
    """Seconds, from "30s", "5m", "1h30m", "250ms", "2d" or a number of seconds."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = _finite(value)
    else:
        text = str(value).strip()
        parts = _DURATION.findall(text) if len(text) <= _DURATION_CHARS_MAX else []
        if parts and "".join(number + unit for number, unit in parts) == text.replace(" ", ""):
            seconds = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
        elif re.fullmatch(r"\d+(\.\d+)?", text):
            seconds = float(text)
        else:
            raise ValueError('a duration such as "30s", "5m", "1h" or a number of seconds')
    if not 0 <= seconds < float("inf"):
        raise ValueError("a duration that is not negative")
    return seconds


def _finite(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return float("inf")


def _retention(value: object) -> Retention:
    try:
        return Retention(finished=timedelta(seconds=duration(value)))
    except OverflowError:
        raise ValueError("a duration of at most 999999999 days") from None


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text")
    return value.strip()


def _schema(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,47}", value):
        raise ValueError("up to 48 letters, digits and underscores, not beginning with a digit")
    return value


def _count(value: object) -> int:
    text = str(value).replace("_", "")
    if isinstance(value, bool) or not re.fullmatch(r"\d+", text) or int(text) < 1:
        raise ValueError("a whole number of at least 1")
    return int(text)


def _whole(value: object) -> int:
    text = str(value).replace("_", "")
    if isinstance(value, bool) or not re.fullmatch(r"\d+", text):
        raise ValueError("a whole number")
    return int(text)


def _truth(value: object) -> bool:
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    try:
        return known[str(value).lower()]
    except KeyError:
        raise ValueError("true or false") from None


def _names(value: object) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError('a list of names, such as ["mail", "billing"]')
    return tuple(name.strip() for name in names if name.strip())


def _one_of(*choices: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return str(value)

    return read


SETTINGS = (
    Setting("url", _text, ("url",), "the store's address", is_secret=True),
    Setting("listen_url", _text, ("listen_url",), "a direct address for LISTEN", is_secret=True),
    Setting("schema", _schema, ("schema",), "the PostgreSQL schema of the tables"),
    Setting("pooled", _truth, ("pooled",), "whether a transaction pooler stands in between"),
    Setting("durability", _one_of("full", "fast"), ("durability",), "how safe a commit is"),
    Setting("payload_bytes_max", _count, ("payload_bytes_max",), "the largest payload"),
    Setting("connections_max", _count, ("connections_max",), "connections of one pool"),
    Setting("node.queues", _names, ("queues",), "what `holdfast worker` serves"),
    Setting("node.loop", _one_of(*LOOPS), ("loop",), "the event loop of `holdfast worker`"),
    Setting("node.lease", duration, ("node", "lease_s"), "a node without renewal is dead after"),
    Setting(
        "node.renewer", _one_of("process", "loop"), ("node", "renewer"), "who renews the lease"
    ),
    Setting(
        "node.stall_limit",
        duration,
        ("node", "stall_limit_s"),
        "a node whose loop stands still for so long is given up",
    ),
    Setting("node.drain", duration, ("node", "drain_s"), "how long a stopping node waits"),
    Setting(
        "node.unknown_kind_wait",
        duration,
        ("node", "unknown_kind_wait_s"),
        "how long a task without a handler waits before ERROR",
    ),
    Setting("node.order", _one_of("fair", "arrival"), ("node", "order"), "kinds of one priority"),
    Setting("node.deliveries_max", _count, ("node", "deliveries_max"), "grabs without an outcome"),
    Setting("node.retention", _retention, ("node", "retention"), "how long finished tasks stay"),
    Setting("node.slots.async", _count, ("node", "slots_async"), "async handlers at once"),
    Setting("node.slots.threads", _count, ("node", "slots_threads"), "sync handlers at once"),
    Setting("node.slots.processes", _count, ("node", "slots_processes"), "handlers in processes"),
    Setting("node.slots.suspects", _whole, ("node", "slots_suspects"), "suspects at once, alone"),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}


# ── where values come from ────────────────────────────────────────────────────────────────────

Layer = Iterator[tuple[str, object, str]]


def _from_environment(environ: Mapping[str, str]) -> Layer:
    variables = {setting.variable: setting for setting in SETTINGS}
    files = {f"{name}_FILE": one for name, one in variables.items() if one.is_secret}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or not environ[name]:
            continue
        if name in variables:
            yield variables[name].name, environ[name], name
        elif name in files:
            direct = files[name].variable
            if environ.get(direct):
                raise ConfigurationError(f"{direct} and {name} are both set: unset one of them")
            yield files[name].name, _secret_in(name, environ[name]), name
        else:
            _refuse_typo(name, [*variables, *files])


def _refuse_typo(name: str, known: list[str]) -> None:
    """Other programs make HOLDFAST_… variables too, orchestrators do: only a near miss is ours."""
    near = get_close_matches(name, known, n=1, cutoff=0.85)
    if near or "__" in name:
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        raise ConfigurationError(f"environment: unknown variable {name}; {hint}")


def _secret_in(variable: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigurationError(f"{variable}: cannot read {path}: {reason}") from None


def _from_file(folder: Path) -> Layer:
    """holdfast.toml alone when it exists, else the table of ours in pyproject.toml."""
    own, project = folder / FILE, folder / PROJECT_FILE
    if own.is_file():
        yield from _flat(_parsed(own), "", FILE)
    elif project.is_file() and b"tool.holdfast" in project.read_bytes():
        source = f"{PROJECT_FILE} [tool.holdfast]"
        table: Any = _parsed(project)
        for step in ("tool", "holdfast"):
            if not isinstance(table := table.get(step, {}), dict):
                raise ConfigurationError(f"{source} is no table")
        yield from _flat(table, "", source)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except (OSError, ValueError, RecursionError) as error:  # also a number that is too long
        raise ConfigurationError(f"{path.name}: cannot be read: {error}") from None


def _flat(table: Mapping[str, Any], above: str, source: str) -> Layer:
    for key, value in table.items():
        name = f"{above}{key}"
        if name in BY_NAME:
            yield name, value, source
        elif isinstance(value, dict) and any(one.startswith(f"{name}.") for one in BY_NAME):
            yield from _flat(value, f"{name}.", source)
        else:
            raise _unknown(name, source)


def _unknown(name: str, source: str) -> ConfigurationError:
    near = get_close_matches(name, BY_NAME, n=1, cutoff=NEAR) or [
        one for one in BY_NAME if one.rpartition(".")[2] == name.rpartition(".")[2]
    ]
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(BY_NAME)}"
    return ConfigurationError(f"{source}: unknown key {name!r}; {hint}")


def _built(found: Mapping[str, tuple[object, str]]) -> Config:
    top: dict[str, Any] = {}
    node: dict[str, Any] = {}
    for name, (value, source) in found.items():
        if name not in BY_NAME:
            raise _unknown(name, source)
        setting = BY_NAME[name]
        try:
            read = setting.read(value)
        except ValueError as error:
            # The value of an address may hold a password, so it is never repeated.
            shown = "" if setting.is_secret else f", not {value!r}"
            raise ConfigurationError(f"{source}: {name} must be {error}{shown}") from None
        (node if setting.path[0] == "node" else top)[setting.path[-1]] = read
    if "url" not in top:
        raise ConfigurationError(NO_URL)
    sources = {name: source for name, (_, source) in found.items()}
    return Config(**top, node=NodeSettings(**node), sources=sources)


def _redacted(value: object) -> object:
    return redacted_url(value) if isinstance(value, str) and "://" in value else value
