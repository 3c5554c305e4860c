"""Rendezvous hashing: everybody computes the same owner, and a change moves few partitions."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from holdfast.coordinator import preferred
from holdfast.ids import NodeId, new_node_id

PARTITIONS = range(32)

names = st.lists(st.text("0123456789abcdef", min_size=4, max_size=8), min_size=1, unique=True)


def shares(queue: str, nodes: list[NodeId]) -> dict[int, NodeId]:
    return {number: preferred(queue, number, nodes) for number in PARTITIONS}


@given(names, st.randoms(use_true_random=False))
def test_the_order_in_which_nodes_are_seen_does_not_matter(nodes, rng):
    nodes = [NodeId(name) for name in nodes]
    shuffled = rng.sample(nodes, len(nodes))

    assert shares("default", nodes) == shares("default", shuffled)


@given(names)
def test_a_node_that_joins_takes_partitions_and_moves_no_other(nodes):
    nodes, joiner = [NodeId(name) for name in nodes], NodeId("joiner")

    before, after = shares("default", nodes), shares("default", [*nodes, joiner])

    assert all(after[number] in (before[number], joiner) for number in PARTITIONS)


@given(names)
def test_when_a_node_leaves_only_its_own_partitions_move(nodes):
    nodes, leaver = [NodeId(name) for name in nodes], NodeId("leaver")

    before, after = shares("default", [*nodes, leaver]), shares("default", nodes)

    assert all(after[n] == before[n] for n in PARTITIONS if before[n] != leaver)


def test_partitions_are_shared_evenly_on_the_average():
    rng, moved, taken = Random(4), 0, Counter()
    for _ in range(300):
        nodes = [new_node_id(rng) for _ in range(4)]
        taken.update(nodes.index(owner) for owner in shares("default", nodes).values())
        moved += sum(owner == nodes[3] for owner in shares("default", nodes).values())

    assert all(abs(count / (300 * 32) - 0.25) < 0.02 for count in taken.values())
    assert abs(moved / (300 * 32) - 0.25) < 0.02  # a fourth of four gets a fourth


def test_queues_are_shared_independently_of_one_another():
    nodes = [new_node_id(Random(number)) for number in range(4)]

    assert shares("default", nodes) != shares("payments", nodes)
