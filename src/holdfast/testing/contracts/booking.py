"""What every booking policy promises.

Inherit, say how to make the policy and which triggers may hold slots at the same time, and every
promise is checked, also under random histories:

    class TestMyPolicy(BookingContract):
        def a_policy(self):
            return MyPolicy(3)

        def allows(self, held):
            return len(held) <= 3
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.booking import Booking, Full
from holdfast.task import Trigger
from holdfast.testing.build import START, a_trigger

KINDS = ("mail", "payout")
KEYS = (None, "a", "b")

# Each step is a trigger to book, or the number of a held one to free.
_TRIGGERS = st.builds(
    lambda id, kind, key: a_trigger(id, kind, fairness_key=key),
    st.integers(1, 10**6),
    st.sampled_from(KINDS),
    st.sampled_from(KEYS),
)
_STEPS = st.lists(st.one_of(_TRIGGERS, _TRIGGERS, st.integers(0, 99)), max_size=120)


class BookingContract:
    """The suite.  The policy has at least one slot for `trigger`, and an end of them."""

    def a_policy(self) -> Booking:
        """A new policy that nobody uses yet."""
        raise NotImplementedError

    def allows(self, held: Sequence[Trigger]) -> bool:
        """Whether these triggers may hold slots at the same time."""
        raise NotImplementedError

    def trigger(self, id: int) -> Trigger:
        """A trigger that the policy limits; the same limit for every id."""
        return a_trigger(id)

    def test_a_policy_books_up_to_its_limit_and_then_says_full(self) -> None:
        policy = self.a_policy()

        held = self._filled(policy)

        assert held and self.allows(held)
        refused = self.trigger(len(held))
        assert not self.allows([*held, refused])
        assert isinstance(policy.book(refused, now=START), Full)

    def test_a_refusal_takes_nothing(self) -> None:
        policy = self.a_policy()
        held = self._filled(policy)
        for _ in range(10):
            assert policy.book(self.trigger(0), now=START) is not None

        for trigger in held:
            policy.free(trigger)

        assert len(self._filled(policy)) == len(held)

    def test_a_freed_slot_can_be_booked_again(self) -> None:
        policy = self.a_policy()
        held = self._filled(policy)

        policy.free(held[0])

        assert policy.book(held[0], now=START) is None
        assert policy.book(self.trigger(0), now=START) is not None

    def test_freeing_what_was_not_booked_raises(self) -> None:
        policy = self.a_policy()
        with pytest.raises(AssertionError):
            policy.free(self.trigger(1))

        policy.book(self.trigger(1), now=START)
        policy.free(self.trigger(1))

        with pytest.raises(AssertionError):
            policy.free(self.trigger(1))

    def test_random_histories_keep_every_limit_and_return_to_zero(self) -> None:
        @given(_STEPS)
        @settings(max_examples=100, deadline=None)
        def play(steps: list[Trigger | int]) -> None:
            self._play(steps)

        play()  # a property of its own for each policy that inherits the suite

    def _play(self, steps: list[Trigger | int]) -> None:
        policy = self.a_policy()
        held: list[Trigger] = []
        for step in steps:
            if isinstance(step, Trigger):
                is_booked = policy.book(step, now=START) is None
                assert is_booked == self.allows([*held, step]), "no more than allowed, and no less"
                held += [step] * is_booked
            elif held:
                policy.free(held.pop(step % len(held)))
            assert getattr(policy, "taken", len(held)) == len(held)

        for trigger in held:
            policy.free(trigger)

        assert getattr(policy, "taken", 0) == 0

    def _filled(self, policy: Booking) -> list[Trigger]:
        """The triggers that hold all the slots there are."""
        held: list[Trigger] = []
        while policy.book(trigger := self.trigger(len(held)), now=START) is None:
            held.append(trigger)
            assert len(held) < 10_000, "the policy has no limit for the suite's trigger"
        return held
