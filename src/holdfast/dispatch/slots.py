"""Booking policies that count slots on this node, and compose.

    AllOf(FixedSlots(30), PerKind({"payout": AllOf(FixedSlots(15), PerKey(3))}))

reads: thirty at once, of which fifteen payouts, of which three for one partner.  Every policy
says with `taken` how many bookings it holds; nothing running means zero everywhere.  Counts live
in memory only: when the process dies, its slots are gone with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from holdfast.booking import Booking, Explains, Full
from holdfast.task import Trigger

FULL = Full()
KEY_FULL = Full(key_only=True)

KeyOf = Callable[[Trigger], str | None]


def fairness_key(trigger: Trigger) -> str | None:
    return trigger.fairness_key


class FixedSlots:
    """At most `slots_max` at once, whatever their kind or key.

    The limit may be changed while running; what is above a lower limit runs to its end.
    """

    def __init__(self, slots_max: int) -> None:
        assert slots_max >= 0, "a number of slots is not negative"
        self.slots_max = slots_max
        self.taken = 0

    def book(self, trigger: Trigger, *, now: datetime) -> Full | None:
        if self.taken >= self.slots_max:
            return FULL
        self.taken += 1
        return None

    def free(self, trigger: Trigger) -> None:
        assert self.taken > 0, f"freed a slot that was not booked: {trigger}"
        self.taken -= 1


class PerKey:
    """At most `slots_max` at once for each key.  A trigger without a key is not limited.

    A refusal names the key only: other keys of the kind go on.
    """

    def __init__(self, slots_max: int, key: KeyOf = fairness_key) -> None:
        assert slots_max >= 0, "a number of slots is not negative"
        self.slots_max = slots_max
        self._key = key
        self._taken: dict[str | None, int] = {}  # only keys that hold a slot

    @property
    def taken(self) -> int:
        return sum(self._taken.values())

    def taken_by(self, key: str | None) -> int:
        return self._taken.get(key, 0)

    def book(self, trigger: Trigger, *, now: datetime) -> Full | None:
        key = self._key(trigger)
        taken = self._taken.get(key, 0)
        if key is not None and taken >= self.slots_max:
            return KEY_FULL
        self._taken[key] = taken + 1
        return None

    def free(self, trigger: Trigger) -> None:
        key = self._key(trigger)
        taken = self._taken.get(key, 0)
        assert taken > 0, f"freed a slot of key {key!r} that was not booked: {trigger}"
        if taken == 1:
            del self._taken[key]
        else:
            self._taken[key] = taken - 1


class PerKind:
    """A policy for each kind.  Other kinds share `default`; without one they are not limited."""

    def __init__(self, policies: Mapping[str, Booking], default: Booking | None = None) -> None:
        self._policies = dict(policies)
        self._default = default
        self._taken: dict[str, int] = {}  # only kinds that hold a slot

    @property
    def taken(self) -> int:
        return sum(self._taken.values())

    def taken_by(self, kind: str) -> int:
        return self._taken.get(kind, 0)

    def book(self, trigger: Trigger, *, now: datetime) -> Full | None:
        policy = self._policies.get(trigger.kind, self._default)
        if policy is not None and (full := policy.book(trigger, now=now)) is not None:
            return full
        self._taken[trigger.kind] = self._taken.get(trigger.kind, 0) + 1
        return None

    def free(self, trigger: Trigger) -> None:
        taken = self._taken.get(trigger.kind, 0)
        assert taken > 0, f"freed a slot of kind {trigger.kind!r} that was not booked: {trigger}"
        if taken == 1:
            del self._taken[trigger.kind]
        else:
            self._taken[trigger.kind] = taken - 1
        policy = self._policies.get(trigger.kind, self._default)
        if policy is not None:
            policy.free(trigger)

    def explain(self, trigger: Trigger) -> str:
        """What the kind's policy says of itself; "" when it cannot."""
        policy = self._policies.get(trigger.kind, self._default)
        return _explained([policy] if policy else [], trigger)


class AllOf:
    """A slot of every policy, or of none; name the widest first.

    The answer is that of the first policy that refuses, so a refusal of one key stays one.
    """

    def __init__(self, *policies: Booking) -> None:
        assert len({id(policy) for policy in policies}) == len(policies), (
            "a policy named twice would count every trigger twice"
        )
        self._policies = policies
        self.taken = 0

    def book(self, trigger: Trigger, *, now: datetime) -> Full | None:
        booked: list[Booking] = []
        full: Full | None = None
        try:
            for policy in self._policies:
                full = policy.book(trigger, now=now)
                if full is not None:
                    break
                booked.append(policy)
        except BaseException:
            _free_all(booked, trigger)
            raise
        if full is not None:
            _free_all(booked, trigger)
            return full
        self.taken += 1
        return None

    def free(self, trigger: Trigger) -> None:
        assert self.taken > 0, f"freed a slot that was not booked: {trigger}"
        self.taken -= 1
        _free_all(self._policies, trigger)

    def explain(self, trigger: Trigger) -> str:
        """What those of the policies say of themselves that can."""
        return _explained(self._policies, trigger)


def _free_all(policies: Sequence[Booking], trigger: Trigger) -> None:
    for policy in reversed(policies):
        policy.free(trigger)


def _explained(policies: Sequence[Booking], trigger: Trigger) -> str:
    said = [policy.explain(trigger) for policy in policies if isinstance(policy, Explains)]
    return "; ".join(filter(None, said))
