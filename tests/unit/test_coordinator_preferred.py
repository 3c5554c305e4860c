"""Rendezvous hashing: everybody computes the same owner, and a change moves few partitions."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.coordinator import preferred
from holdfast.ids import NodeId, new_node_id

PARTITIONS = range(32)

names = st.lists(st.text("0123456789abcdef", min_size=4, max_size=8), min_size=1, unique=True)


def shares(queue: str, nodes: list[NodeId]) -> dict[int, NodeId]:
    return preferred(queue, len(PARTITIONS), nodes)


@given(names, st.randoms(use_true_random=False))
def test_the_order_in_which_nodes_are_seen_does_not_matter(nodes, rng):
    nodes = [NodeId(name) for name in nodes]
    shuffled = rng.sample(nodes, len(nodes))

    assert shares("default", nodes) == shares("default", shuffled)


@given(names, st.integers(1, 40))
def test_every_partition_has_an_owner_and_no_two_nodes_differ_by_more_than_one(nodes, partitions):
    nodes = [NodeId(name) for name in nodes]

    owners = preferred("default", partitions, nodes)

    sizes = [Counter(owners.values())[node] for node in nodes]
    assert sorted(owners) == list(range(partitions))
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_change_of_the_members_moves_few_partitions(count):
    """At least an even part has to move; on the average it is not much more."""
    rng, moved, rounds = Random(4), 0, 200
    for _ in range(rounds):
        nodes = [new_node_id(rng) for _ in range(count + 1)]
        with_all, without_one = shares("default", nodes), shares("default", nodes[:-1])
        moved += sum(with_all[number] != without_one[number] for number in PARTITIONS)

    least = len(PARTITIONS) / (count + 1)
    assert moved / rounds <= 2 * least


def test_queues_are_shared_independently_of_one_another():
    nodes = [new_node_id(Random(number)) for number in range(4)]

    assert shares("default", nodes) != shares("payments", nodes)
