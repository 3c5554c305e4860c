"""Limits: how much may run at once or start in a second, and how nodes share that.  Pure.

A limit is kept in the store, so that it holds for all nodes and can be changed while they run.
Each node asks for shares of it.  Shares never add up to more than the limit; a node's share is
given back when it leaves, or once the tasks of a dead node are no longer PROCESSING.  "At once"
therefore means: by the store's own record, at every instant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, get_args

from holdfast.errors import ConfigurationError
from holdfast.ids import NodeId

Mode = Literal["count", "cost", "off"]
"""How fairness keys are charged: one a task, by the run time of handlers, or not at all."""
FAIRNESS: tuple[Mode, ...] = get_args(Mode)
BURST_S = 1.0
WEIGHTS_MAX = 1_000  # overrides of a queue
KEY_BYTES_MAX = 64
ALL_KEYS = "*"
PAUSED_PARTITION = "pause partition "  # the name of such a pause, before the number
TURN_S = 1.0  # how long a node may use what does not divide by the number of nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """At most `concurrency` at once, or `rate` starts a second, over all nodes.

    It counts the tasks of its queue; with `kind` only those of this kind; with `key` only those of
    this fairness key, or with "*" each fairness key by itself.  A rate of each key is multiplied
    by the key's weight; `burst` is how many seconds' worth may start at once after a rest.  Zero
    pauses.  With `local`, each node counts by itself.
    """

    name: str
    queue: str
    concurrency: int | None = None
    rate: float | None = None
    kind: str | None = None
    key: str | None = None
    burst: float = BURST_S
    local: bool = False

    def __post_init__(self) -> None:
        if not self.name or not self.queue:
            raise ConfigurationError("a limit needs a name and a queue")
        if (self.concurrency is None) == (self.rate is None):
            raise ConfigurationError(f"limit {self.name!r} needs either a concurrency or a rate")
        if self.concurrency is not None and (
            type(self.concurrency) is not int or self.concurrency < 0
        ):
            raise ConfigurationError(
                f"limit {self.name!r}: a concurrency is a whole number from 0, "
                f"not {self.concurrency!r}"
            )
        if self.rate is not None and not 0 <= self.rate < 1e9:
            raise ConfigurationError(f"limit {self.name!r}: a rate is from 0 up to 10⁹ a second")
        if not 0 < self.burst <= 3_600:
            raise ConfigurationError(f"limit {self.name!r}: a burst is up to 3600 seconds' worth")
        if "" in (self.kind, self.key):
            raise ConfigurationError(f"limit {self.name!r}: a kind or a key is not empty")
        if self.key is not None and len(self.key.encode()) > KEY_BYTES_MAX:
            raise ConfigurationError(f"a fairness key has at most {KEY_BYTES_MAX} bytes")

    @property
    def is_per_key(self) -> bool:
        return self.key == ALL_KEYS

    @property
    def pauses(self) -> bool:
        return self.concurrency == 0 or self.rate == 0

    @property
    def paused_partition(self) -> int | None:
        """The partition that this limit pauses as a whole; it then counts no task of others."""
        number = self.name.removeprefix(PAUSED_PARTITION)
        is_one = self.pauses and number != self.name and number.isdecimal()
        return int(number) if is_one else None

    def counts(self, kind: str, key: str | None) -> bool:
        """Whether a task of this kind and fairness key is limited."""
        if self.kind is not None and kind != self.kind:
            return False
        return self.key is None or key == self.key or (self.is_per_key and key is not None)


def limit_of(row: Sequence[Any]) -> Limit:
    """A limit from its fields as they were stored, in their order.

    It was checked when it was set.  It is not checked again: what a later version finds wrong must
    not keep nodes from reading the rules.
    """
    limit = object.__new__(Limit)
    for name, value in zip(_FIELDS, row, strict=True):
        object.__setattr__(limit, name, bool(value) if name == "local" else value)
    return limit


_FIELDS = tuple(each.name for each in fields(Limit))


@dataclass(frozen=True, slots=True)
class Rules:
    """What was set for a queue while it runs."""

    version: int = 0  # grows with each change of any queue
    limits: Sequence[Limit] = ()
    weights: Mapping[str, float] = field(default_factory=dict)  # by fairness key
    fairness: Mode = "count"


class Want(NamedTuple):
    """What a node asks of one limit, for one key ("" unless the limit counts keys apart).

    Of a concurrency: `used` slots are booked now, `wanted` are needed.  Of a rate: `wanted` tokens
    are needed, `used` were left over from the last time and go back.
    """

    limit: str
    key: str
    used: int
    wanted: int
    weight: float = 1.0


class Share(NamedTuple):
    """What a node may use: `held` at most, and no more than `target` of it for new tasks.

    `number` names the share in grabs: a share that was taken away stops them.  For a rate `held`
    are tokens, and `wait_s` says when there will be more.
    """

    number: int
    held: int
    target: int
    wait_s: float = 0.0


class Holder(NamedTuple):
    """One node's row of a limit and key."""

    node: NodeId
    held: int
    wanted: int
    has_ended: bool = False  # its tasks are being resumed; it must not start any more


def shared(size: int, others: Sequence[Holder], me: NodeId, want: Want, now_s: float) -> Share:
    """What a node gets of a limit of `size` slots, beside what the others hold.

    While there is enough for all, everybody gets what they want.  Else the nodes share evenly, and
    what does not divide goes round, a second each: a limit of 1 starves nobody.  Who runs more than
    there is, as when the limit is new, starts nothing in its place.
    """
    free = max(0, size - sum(other.held for other in others))
    wanting = sorted({o.node for o in others if o.wanted and not o.has_ended} | {me})
    target = min(want.wanted, size)
    if len(wanting) > 1 and want.wanted:
        left = size - sum(o.wanted for o in others if not o.has_ended)
        place = (wanting.index(me) + int(now_s / TURN_S)) % len(wanting)
        even = size // len(wanting) + (place < size % len(wanting))
        target = min(want.wanted, max(left, even))
    got = min(target, free)
    return Share(0, max(want.used, got), got)


def counted_key(limit: Limit, key: str) -> str | None:
    """The fairness key whose tasks a share of this limit counts; None: those of all keys."""
    return key if limit.is_per_key else limit.key


def tokens_of(limit: Limit, weight: float) -> tuple[float, float]:
    """The rate and the most tokens of a bucket."""
    rate = (limit.rate or 0.0) * (weight if limit.is_per_key else 1.0)
    return rate, max(1.0, rate * limit.burst)


def refilled(limit: Limit, want: Want, tokens: float | None, since_s: float) -> tuple[float, Share]:
    """The tokens left in a bucket after a node took what it wants, and what it got.

    A bucket that nobody has used yet (None) is full.
    """
    rate, most = tokens_of(limit, want.weight)
    have = most if tokens is None else tokens + want.used + rate * max(0.0, since_s)
    tokens = min(most, have) if rate else 0.0
    got = min(want.wanted, int(tokens))
    wait_s = (1.0 - (tokens - got)) / rate if rate else 0.0
    return tokens - got, Share(0, got, got, max(0.0, wait_s))


def checked_weights(
    queue: str, known: Mapping[str, float], changes: Mapping[str, float | None]
) -> dict[str, float]:
    """The weights to write; raises when they are wrong or too many."""
    for key, weight in changes.items():
        if weight is not None and not 0.001 <= weight <= 1_000:
            raise ConfigurationError(f"the weight of {key!r} is from 0.001 to 1000, not {weight}")
        if len(key.encode()) > KEY_BYTES_MAX:
            raise ConfigurationError(f"a fairness key has at most {KEY_BYTES_MAX} bytes")
    after = {**known, **changes}
    if sum(weight is not None for weight in after.values()) > WEIGHTS_MAX:
        raise ConfigurationError(f"queue {queue!r} has at most {WEIGHTS_MAX} weights of its own")
    return {key: weight for key, weight in changes.items() if weight is not None}
