"""Limits: what may be set, what a limit counts, and how nodes share it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigurationError
from holdfast.ids import NodeId
from holdfast.limit import (
    KEY_BYTES_MAX,
    WEIGHTS_MAX,
    Holder,
    Limit,
    Rules,
    Share,
    Want,
    checked_weights,
    counted_key,
    limit_of,
    refilled,
    shared,
    tokens_of,
)

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


def a_limit(**fields: Any) -> Limit:
    given = {"name": "few", "queue": "q"}
    return Limit(**(given | (fields or {"concurrency": 1})))


def a_want(wanted: int, used: int = 0, weight: float = 1.0) -> Want:
    return Want("few", "", used, wanted, weight)


# ── what may be set ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "fields",
    [
        {"concurrency": 0},
        {"concurrency": 10**6, "kind": "mail", "key": "k" * KEY_BYTES_MAX},
        {"rate": 0},
        {"rate": 0.1},
        {"rate": 999_999_999.0, "burst": 3_600},
        {"rate": 1.0, "burst": 0.001},
    ],
    ids=str,
)
def test_a_limit_at_the_edge_of_its_range_is_taken(fields):
    limit = a_limit(**fields)

    assert {name: getattr(limit, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"concurrency": 1, "name": ""}, "needs a name and a queue"),
        ({"concurrency": 1, "queue": ""}, "needs a name and a queue"),
        ({"kind": "mail"}, "either a concurrency or a rate"),
        ({"concurrency": 1, "rate": 1.0}, "either a concurrency or a rate"),
        ({"concurrency": -1}, "whole number from 0"),
        ({"concurrency": 1.5}, "whole number from 0"),
        ({"concurrency": True}, "whole number from 0"),
        ({"rate": -0.1}, "from 0 up to"),
        ({"rate": 1e9}, "from 0 up to"),
        ({"rate": float("nan")}, "from 0 up to"),
        ({"rate": 1.0, "burst": 0}, "up to 3600"),
        ({"rate": 1.0, "burst": 3_601}, "up to 3600"),
        ({"concurrency": 1, "kind": ""}, "is not empty"),
        ({"concurrency": 1, "key": ""}, "is not empty"),
        ({"concurrency": 1, "key": "k" * (KEY_BYTES_MAX + 1)}, "at most 64 bytes"),
        ({"concurrency": 1, "key": "ü" * 33}, "at most 64 bytes"),
    ],
    ids=str,
)
def test_a_limit_that_makes_no_sense_is_refused(fields, words):
    with pytest.raises(ConfigurationError, match=words):
        a_limit(**fields)


def test_the_defaults_of_limits_rules_wants_shares_and_holders():
    assert (a_limit().burst, a_limit().local) == (1.0, False)
    assert (Rules().version, Rules().fairness) == (0, "count")
    assert Want("few", "", 0, 1).weight == 1.0
    assert Share(1, 2, 3).wait_s == 0.0
    assert Holder(A, 1, 1).has_ended is False


def test_a_stored_limit_is_read_as_it_was_and_never_refused():
    row = ("few", "q", None, 2.5, "mail", "*", 3.0, 1)
    assert limit_of(row) == a_limit(rate=2.5, kind="mail", key="*", burst=3.0, local=True)
    assert limit_of(row).local is True

    assert limit_of(("few", "q", -7, None, None, None, 1.0, 0)).concurrency == -7


# ── what it counts ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "counted"),
    [
        ({}, {("mail", None), ("mail", "a"), ("mail", "b"), ("print", "a")}),
        ({"kind": "mail"}, {("mail", None), ("mail", "a"), ("mail", "b")}),
        ({"key": "a"}, {("mail", "a"), ("print", "a")}),
        ({"key": "*"}, {("mail", "a"), ("mail", "b"), ("print", "a")}),
        ({"kind": "print", "key": "*"}, {("print", "a")}),
    ],
    ids=["any task", "a kind", "a key", "each key", "each key of a kind"],
)
def test_a_limit_counts_the_tasks_of_its_kind_and_key(fields, counted):
    tasks = [("mail", None), ("mail", "a"), ("mail", "b"), ("print", "a")]
    limit = a_limit(concurrency=1, **fields)

    assert {task for task in tasks if limit.counts(*task)} == counted


def test_a_limit_of_zero_pauses_and_only_its_name_makes_it_that_of_a_partition():
    assert a_limit(concurrency=0).pauses and a_limit(rate=0).pauses
    assert not a_limit(concurrency=1).pauses and not a_limit(rate=0.5).pauses

    assert a_limit(concurrency=0, name="pause partition 12").paused_partition == 12
    for name, concurrency in (("pause partition 12", 1), ("pause partition x", 0), ("12", 0)):
        assert a_limit(concurrency=concurrency, name=name).paused_partition is None


def test_a_share_counts_the_tasks_of_its_own_key_of_the_limits_or_of_all():
    assert counted_key(a_limit(concurrency=1, key="*"), "acme") == "acme"
    assert counted_key(a_limit(concurrency=1, key="acme"), "") == "acme"
    assert counted_key(a_limit(concurrency=1), "") is None


# ── slots ─────────────────────────────────────────────────────────────────────────────────────


def test_alone_a_node_gets_what_it_wants_up_to_the_limit():
    assert shared(5, [], A, a_want(3), 0.0) == Share(0, 3, 3)
    assert shared(5, [], A, a_want(9), 0.0) == Share(0, 5, 5)
    assert shared(5, [], A, a_want(0), 0.0) == Share(0, 0, 0)


def test_while_there_is_enough_for_all_everybody_gets_what_they_want():
    assert shared(10, [Holder(B, 4, 4)], A, a_want(6), 0.0) == Share(0, 6, 6)
    assert shared(10, [Holder(B, 2, 2)], A, a_want(7), 0.0) == Share(0, 7, 7)


def test_what_others_still_hold_is_not_given_out_though_it_is_ours_by_right():
    assert shared(10, [Holder(B, 10, 10)], A, a_want(10), 0.0) == Share(0, 0, 0)
    assert shared(10, [Holder(B, 7, 10)], A, a_want(10), 0.0) == Share(0, 3, 3)
    assert shared(4, [Holder(B, 9, 9)], A, a_want(2, used=1), 0.0) == Share(0, 1, 0)


def test_those_who_run_more_than_a_new_limit_allows_start_nothing_until_there_is_room():
    def asked(me: NodeId, others: list[Holder]) -> list[Share]:
        return [shared(2, others, me, a_want(4, used=1), at) for at in (0.0, 1.0, 2.0)]

    for me, one, two in ((A, B, C), (B, A, C), (C, A, B)):
        three_run = asked(me, [Holder(one, 1, 4), Holder(two, 1, 4)])
        two_run = asked(me, [Holder(one, 1, 4), Holder(two, 0, 4)])

        assert three_run == [Share(0, 1, 0)] * 3, "its own may end, and nothing takes its place"
        assert sorted(share.target for share in two_run) == [0, 1, 1], "two of three seconds"


def test_what_is_booked_stays_held_until_it_is_freed():
    share = shared(4, [Holder(B, 0, 4)], A, a_want(4, used=4), 0.0)

    assert share == Share(0, 4, 2), "no new task above two, but four are running"


def test_a_node_that_wants_nothing_or_has_ended_takes_no_part_in_sharing():
    assert shared(4, [Holder(B, 0, 0)], A, a_want(9), 0.0).target == 4
    assert shared(4, [Holder(B, 1, 9, has_ended=True)], A, a_want(9), 0.0) == Share(0, 3, 3)


def test_what_does_not_divide_goes_round_a_second_each():
    others = {A: [B, C], B: [A, C], C: [A, B]}

    def targets(now_s: float) -> list[int]:
        rest = {me: [Holder(one, 0, 9) for one in found] for me, found in others.items()}
        return [shared(4, rest[me], me, a_want(9), now_s).target for me in (A, B, C)]

    assert [targets(at) for at in (0.0, 0.9, 1.0, 2.5, 3.0)] == [
        [2, 1, 1], [2, 1, 1], [1, 1, 2], [1, 2, 1], [2, 1, 1],
    ]  # fmt: skip


@given(st.integers(0, 20), st.lists(st.integers(0, 30), min_size=1, max_size=6), st.floats(0, 100))
def test_shares_never_add_up_to_more_than_the_limit_and_leave_nothing_unused(size, wants, now_s):
    nodes = [NodeId(f"n{number}") for number in range(len(wants))]
    held = dict.fromkeys(nodes, 0)
    for me, wanted in zip(nodes, wants, strict=True):
        others = [
            Holder(node, held[node], want)
            for node, want in zip(nodes, wants, strict=True)
            if node != me
        ]
        held[me] = shared(size, others, me, a_want(wanted), now_s).held

    assert sum(held.values()) <= size
    if sum(wants) <= size:
        assert list(held.values()) == wants


# ── tokens ────────────────────────────────────────────────────────────────────────────────────


def test_a_bucket_holds_the_burst_and_one_token_at_least():
    assert tokens_of(a_limit(rate=10.0, burst=3.0), 1.0) == (10.0, 30.0)
    assert tokens_of(a_limit(rate=0.1), 1.0) == (0.1, 1.0)
    assert tokens_of(a_limit(concurrency=1), 1.0) == (0.0, 1.0)


def test_only_a_rate_of_each_key_is_multiplied_by_the_weight():
    assert tokens_of(a_limit(rate=10.0, key="*"), 3.0) == (30.0, 30.0)
    assert tokens_of(a_limit(rate=10.0, key="acme"), 3.0) == (10.0, 10.0)


def test_a_bucket_that_nobody_has_used_is_full():
    assert refilled(a_limit(rate=10.0), a_want(4), None, 0.0) == (6.0, Share(0, 4, 4, 0.0))


def test_tokens_come_by_time_and_what_was_left_over_goes_back():
    left, share = refilled(a_limit(rate=10.0), a_want(9, used=2), 1.0, 0.5)

    assert (left, share) == (0.0, Share(0, 8, 8, 0.1))


def test_a_bucket_never_overflows_and_a_clock_that_steps_back_takes_nothing_away():
    assert refilled(a_limit(rate=10.0), a_want(0), 5.0, 60.0)[0] == 10.0
    assert refilled(a_limit(rate=10.0), a_want(0), 5.0, -60.0)[0] == 5.0


def test_an_empty_bucket_says_when_there_will_be_a_token():
    left, share = refilled(a_limit(rate=4.0), a_want(1), 0.5, 0.0)

    assert (left, share) == (0.5, Share(0, 0, 0, 0.125))


def test_a_rate_of_zero_gives_nothing_and_names_no_time():
    assert refilled(a_limit(rate=0), a_want(3), None, 9.0) == (0.0, Share(0, 0, 0, 0.0))


# ── weights ───────────────────────────────────────────────────────────────────────────────────


def test_the_weights_to_write_are_those_that_were_given_without_the_ones_taken_back():
    changes = {"a": 0.001, "b": 1_000, "k" * KEY_BYTES_MAX: 2.0, "c": None}

    written = checked_weights("q", {"c": 3.0}, changes)

    assert written == {"a": 0.001, "b": 1_000, "k" * KEY_BYTES_MAX: 2.0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"a": 0.0009}, "from 0.001 to 1000"),
        ({"a": 1_000.1}, "from 0.001 to 1000"),
        ({"a": float("nan")}, "from 0.001 to 1000"),
        ({"ü" * 33: 1.0}, "at most 64 bytes"),
    ],
)
def test_a_weight_out_of_range_is_refused(changes, words):
    with pytest.raises(ConfigurationError, match=words):
        checked_weights("q", {}, changes)


def test_a_queue_has_a_thousand_weights_at_most_and_one_may_make_room_for_another():
    known = {f"k{number}": 1.0 for number in range(1_000)}
    assert len(known) == WEIGHTS_MAX
    assert checked_weights("q", known, {"k0": 2.0}) == {"k0": 2.0}
    assert checked_weights("q", known, {"new": 2.0, "k1": None}) == {"new": 2.0}

    with pytest.raises(ConfigurationError, match="at most 1000 weights"):
        checked_weights("q", known, {"new": 2.0})
