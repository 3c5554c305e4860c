"""What a node may believe of its lease, and when its renewer renews it: on a made-up clock."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.node.renewal import Order, Report
from holdfast.node.renewing import Schedule
from holdfast.node.trust import Trust, margin_s

TIMES = st.floats(0, 1e6, allow_nan=False)


def test_the_margin_is_a_tenth_of_the_lease_and_half_a_second_at_least():
    assert [margin_s(lease_s) for lease_s in (60.0, 10.0, 5.0, 2.0)] == [6.0, 1.0, 0.5, 0.5]
    assert margin_s(1.0) == 0.25, "a lease so short would be all margin"


def test_a_lease_is_trusted_from_before_the_request_until_a_margin_before_its_end():
    trust = Trust(10.0)

    assert not trust.holds(100.0)
    trust.renewed(100.0)  # whenever the answer came

    assert trust.holds(108.9)
    assert not trust.holds(109.0)
    assert trust.until == 109.0


def test_late_news_of_an_earlier_renewal_change_nothing():
    trust = Trust(10.0)
    trust.renewed(100.0)

    trust.renewed(97.0)

    assert trust.until == 109.0


def test_a_renewal_tells_how_much_of_the_lease_was_left():
    trust = Trust(10.0)

    assert [trust.renewed(at) for at in (100.0, 103.0, 101.0, 120.0)] == [None, 7.0, 10.0, 0.0]


def test_a_lease_that_the_store_has_forgotten_is_lost_until_it_is_renewed():
    trust = Trust(10.0)
    trust.renewed(100.0)

    assert trust.lost(103.0)
    assert not trust.holds(103.0)
    trust.renewed(104.0)
    assert trust.holds(104.0)
    assert not trust.lost(103.5), "it was asked for before the lease was made anew"
    assert trust.holds(104.0)


def test_a_refusal_of_the_renewal_that_made_the_lease_ends_it():
    trust = Trust(10.0)
    trust.renewed(100.0)

    assert trust.lost(100.0)
    assert not trust.holds(100.0)


def test_a_node_without_a_lease_is_always_trusted():
    assert Trust(None).holds(1e9)


@given(st.floats(0.1, 3600), st.lists(TIMES, min_size=1), TIMES)
def test_a_node_never_trusts_beyond_what_the_store_granted(lease_s, asked, now):
    trust = Trust(lease_s)
    for at in asked:
        trust.renewed(at)

    assert not trust.holds(max(asked) + lease_s)
    assert trust.holds(now) == (now < max(asked) + lease_s - margin_s(lease_s))


def schedule(**settings: float) -> Schedule:
    return Schedule(**{"lease_s": 9.0, "stall_s": 60.0, "now": 0.0} | settings, rng=Random(1))


def test_a_lease_is_renewed_at_once_and_then_every_third_with_jitter():
    plan = schedule()
    assert plan.is_due(0.0)

    rests = set()
    for now in range(0, 300, 10):
        plan.beaten(float(now))
        plan.tried(float(now), succeeded=True)
        rests.add(next(s / 10 for s in range(100) if plan.is_due(now + s / 10)))

    assert min(rests) >= 0.8 * 3
    assert max(rests) <= 3.1
    assert len(rests) > 3


def test_after_a_failure_it_is_tried_again_sooner():
    plan = schedule()

    plan.tried(0.0, succeeded=False)

    assert plan.is_due(0.9)


def test_a_node_that_hangs_is_not_renewed_and_goes_on_when_it_beats_again():
    plan = schedule(stall_s=6.0)
    plan.tried(0.0, succeeded=True)

    assert plan.is_due(5.9)
    assert not plan.is_due(6.0)
    assert plan.is_stalled(100.0)
    plan.beaten(100.0)
    assert plan.is_due(100.0)


def test_it_never_rests_so_long_that_it_would_miss_a_change_of_parents():
    plan = schedule(lease_s=3600.0)
    plan.tried(0.0, succeeded=True)

    assert plan.rest_s(0.0) == 0.5
    assert plan.rest_s(1e9) == 0.5


def test_what_node_and_renewer_say_survives_the_pipe():
    order = Order("n1", 10.0, 60.0, 7, "postgresql://u:secret@h/d", "holdfast", {"PGUSER": "u"})
    reports = [Report("renewed", 12.5), Report("failed", 13.0, "the store is away\nfor now")]

    assert Order.of_line(order.line) == order
    assert [Report.of_line(one.line) for one in reports] == reports
    assert all(one.line.count(b"\n") == 1 for one in (order, *reports))
    assert "secret" not in repr(order)


@pytest.mark.parametrize("lease_s", [2.0, 10.0, 600.0])
def test_two_renewals_may_fail_before_a_node_has_to_doubt(lease_s):
    plan, trust = schedule(lease_s=lease_s), Trust(lease_s)
    trust.renewed(0.0)

    plan.tried(0.0, succeeded=True)
    plan.beaten(0.0)
    failed_at = lease_s / 3
    plan.tried(failed_at, succeeded=False)
    again_at = failed_at + lease_s / 10
    plan.tried(again_at, succeeded=False)

    assert again_at + lease_s / 10 < trust.until
