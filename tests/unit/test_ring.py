"""The ring, as stories that can be read and as an exhaustive check of small histories."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations
from textwrap import dedent

import pytest

from holdfast.ids import NodeId
from holdfast.ring import KEPT, NOTHING, RingLog, RingRecord, Turn, distance, in_order

NODES = in_order([NodeId(f"node-{number}") for number in range(5)])
A, B, C = NODES[:3]


# ── stories ───────────────────────────────────────────────────────────────────────────────────


class Story:
    """Nodes named by letters, in the order of the circle; at each tick there is news to write.

    Each line of a story is a tick, with what happens just before it after the bar:

        t3   B writes 3, C tries 2     | C hears nothing
    """

    def __init__(self, circle: str, *, spacing: int = 1) -> None:
        self.log = RingLog()
        self.turns = {
            letter: Turn(node, spacing=spacing) for letter, node in zip(circle, NODES, strict=False)
        }
        self.nodes = [turn.node for turn in self.turns.values()]
        self.deaf: set[str] = set()
        self.dead: set[str] = set()
        for turn in self.turns.values():
            turn.read(NOTHING, 0)

    def told(self, story: str) -> str:
        """The story as it goes by the rules; a true one is answered as it was told."""
        return "\n".join(self._line(line) for line in dedent(story).strip().splitlines())

    def _line(self, line: str) -> str:
        tick, _, rest = line.partition(" ")
        _, bar, event = rest.partition(" | ")
        self._happens(event)
        done = ", ".join(self._tick(int(tick[1:]))) or "nobody writes"
        return f"{tick}   {done}".ljust(31) + bar + event if bar else f"{tick}   {done}"

    def _happens(self, event: str) -> None:
        match event.split():
            case [letter, "hears", "nothing"]:
                self.deaf.add(letter)
            case [letter, "hears", "again"]:
                self.deaf.discard(letter)
            case [letter, "dies"]:
                self.dead.add(letter)
            case []:
                pass
            case _:
                raise AssertionError(f"nobody knows what this means: {event}")

    def _tick(self, now: int) -> Iterator[str]:
        alive = {letter: turn for letter, turn in self.turns.items() if letter not in self.dead}
        for turn in alive.values():
            turn.wanted(now)
        trying = [
            (letter, turn)
            for letter, turn in alive.items()
            if (due := turn.due(self.nodes)) is not None and due <= now
        ]
        for letter, turn in trying:
            record = turn.following()
            if self.log.append(record):
                turn.written(record, now)
                for other, its in alive.items():
                    if other not in self.deaf:
                        its.heard(record, now)
                yield f"{letter} writes {record.number}"
            else:
                turn.refused(now)
                turn.read(self.log.latest, now)
                yield f"{letter} tries {record.number}"


def is_true(story: str, circle: str = "BCADE", *, spacing: int = 1) -> None:
    assert Story(circle, spacing=spacing).told(story) == dedent(story).strip()


@pytest.mark.req("RING-2", "RING-44")
def test_only_the_first_writes_while_it_is_healthy():
    is_true("""
        t1   B writes 1
        t2   B writes 2
        t3   B writes 3
        t4   B writes 4
    """)


@pytest.mark.req("RING-5")
def test_a_node_that_hears_nothing_takes_the_first_for_dead_and_tries_in_vain():
    is_true("""
        t1   B writes 1
        t2   B writes 2                 | C hears nothing
        t3   B writes 3, C tries 2
        t4   B writes 4
        t5   B writes 5, C tries 4
    """)


@pytest.mark.req("RING-4", "RING-6")
def test_when_the_first_dies_the_next_writes_after_its_delay_and_is_first():
    is_true("""
        t1   B writes 1
        t2   B writes 2
        t3   B writes 3
        t4   nobody writes              | B dies
        t5   C writes 4
        t6   C writes 5
    """)


@pytest.mark.req("RING-7", "RING-8")
def test_whoever_missed_the_change_tries_once_and_then_follows():
    is_true("""
        t1   B writes 1
        t2   B writes 2
        t3   B writes 3
        t4   nobody writes              | B dies
        t5   C writes 4                 | A hears nothing
        t6   C writes 5, A tries 4
        t7   C writes 6                 | A hears again
        t8   C writes 7
    """)


@pytest.mark.req("RING-3", "RING-22")
def test_if_the_next_fails_too_the_one_after_it_writes():
    is_true(
        """
        t1   B writes 1
        t2   nobody writes              | B dies
        t3   nobody writes              | C dies
        t4   nobody writes
        t5   nobody writes
        t6   nobody writes
        t7   nobody writes
        t8   A writes 2
        t9   A writes 3
        """,
        spacing=3,
    )


# ── the circle ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("RING-17")
def test_the_order_depends_on_the_keys_alone():
    assert all(in_order(seen) == NODES for seen in permutations(NODES))


@pytest.mark.req("RING-18", "RING-44")
def test_the_last_writer_is_at_the_start_wherever_it_stands():
    for place, first in enumerate(NODES):
        after = NODES[place:] + NODES[:place]
        assert [distance(node, NODES, first) for node in after] == [0, 1, 2, 3, 4]


@pytest.mark.req("RING-19")
def test_without_a_record_the_ring_starts_at_the_smallest_key():
    k1, k2, k3 = NODES[:3]
    turns = {"A": Turn(k3), "B": Turn(k1), "C": Turn(k2)}
    for turn in turns.values():
        turn.read(NOTHING, 0)
        turn.wanted(1)

    due = {name: turn.due([k1, k2, k3]) for name, turn in turns.items()}

    assert due == {"B": 1 + 0, "C": 1 + 3, "A": 1 + 6}


def test_whoever_came_after_a_writer_that_has_left_is_first():
    for gone in range(5):
        left = [node for node in NODES if node != NODES[gone]]
        assert distance(NODES[(gone + 1) % 5], left, NODES[gone]) == 0


@pytest.mark.req("RING-41")
def test_an_empty_tick_counts_for_nobody():
    turns = [Turn(node) for node in (A, B)]
    for turn in turns:
        turn.read(RingRecord(7, A), 0)

    assert [turn.due([A, B]) for turn in turns] == [None, None]
    for turn in turns:
        turn.wanted(100)
    assert [turn.due([A, B]) for turn in turns] == [100, 103]


def test_a_node_that_starts_anew_reads_the_latest_before_it_is_due():
    turn = Turn(A)
    turn.heard(RingRecord(7, A), 0)
    turn.wanted(0)
    assert turn.due([A, B]) is None

    turn.read(RingRecord(7, A), 5)

    assert turn.due([A, B]) == 1


def test_a_record_of_another_node_answers_the_wish_to_write():
    turn = Turn(B)
    turn.read(RingRecord(7, A), 0)
    turn.wanted(1)

    turn.heard(RingRecord(8, A), 2)

    assert turn.due([A, B]) is None
    turn.wanted(9)
    assert turn.due([A, B]) == 9 + 3


def test_whoever_was_refused_waits_a_tick_from_then_on():
    turn = Turn(A)
    turn.read(RingRecord(7, A), 0)
    turn.wanted(1)

    turn.refused(5)
    turn.read(RingRecord(7, A), 5)

    assert turn.due([A]) == 6


# ── what rests on the compare-and-set alone ───────────────────────────────────────────────────


@pytest.mark.req("RING-27")
def test_a_stale_proposal_is_refused_though_its_time_is_right():
    log, first, second = RingLog(), Turn(A), Turn(B)
    for turn in (first, second):
        turn.read(log.latest, 0)
    assert log.append(first.following())

    assert not log.append(second.following())
    assert log.latest == RingRecord(1, A)


def test_an_attempt_of_unknown_outcome_is_followed_by_a_read():
    turn, log = Turn(A), RingLog()
    turn.read(log.latest, 0)
    turn.wanted(0)
    log.append(turn.following())

    turn.lost_reply(1)

    assert turn.due([A]) is None
    with pytest.raises(AssertionError):
        turn.following()
    turn.read(log.latest, 2)
    turn.wanted(2)
    assert turn.following() == RingRecord(2, A)


def test_rotation_never_brings_a_number_back():
    log = RingLog()
    for number in range(1, 11):
        assert log.append(RingRecord(number, A))
    log.rotate(kept=3)

    assert [record.number for record in log.records(after=0)] == [8, 9, 10]
    assert not any(log.append(RingRecord(number, B)) for number in range(11))
    assert log.append(RingRecord(11, B))


def test_of_the_log_the_last_thousand_are_kept_and_read_above_a_number():
    log = RingLog()
    for number in range(1, KEPT + 6):
        log.append(RingRecord(number, A))

    log.rotate()

    assert [record.number for record in log.records(after=0)] == list(range(6, 1_006))
    assert [record.number for record in log.records(after=1_003)] == [1_004, 1_005]


# ── all small histories ───────────────────────────────────────────────────────────────────────


class Careless(RingLog):
    """Without the comparison."""

    def append(self, record: RingRecord) -> bool:
        self.latest = self._records[record.number] = record
        return True


@dataclass
class World:
    """Three nodes and a log; each step is something that may happen next."""

    log: RingLog
    turns: dict[NodeId, Turn]
    written: list[int] = field(default_factory=list)

    def steps(self) -> Iterator[tuple[str, NodeId | None]]:
        for node, turn in self.turns.items():
            yield "read", node
            yield "crash", node
            if turn._is_sure:
                yield from (("write", node), ("reply lost", node), ("request lost", node))
            if self.log.latest.number > turn.latest.number:
                yield from (("hear", node), ("hear late", node))
        if len(self.log.records(after=0)) > 1:
            yield "rotate", None

    def after(self, step: str, node: NodeId | None) -> World:
        turns = {name: copy.copy(turn) for name, turn in self.turns.items()}
        world = World(copy.deepcopy(self.log), turns, [*self.written])
        if node is None:
            world.log.rotate(kept=1)
        else:
            world.happens(step, node)
        return world

    def happens(self, step: str, node: NodeId) -> None:
        turn = self.turns[node]
        match step:
            case "read":
                turn.read(self.log.latest, 0)
            case "crash":
                self.turns[node] = Turn(node)
            case "hear":
                turn.heard(self.log.latest, 0)
            case "hear late":
                if kept := self.log.records(after=turn.latest.number):
                    turn.heard(kept[0], 0)
            case "request lost":
                turn.lost_reply(0)
            case _:
                record = turn.following()
                if is_written := self.log.append(record):
                    self.written.append(record.number)
                if step == "reply lost":
                    turn.lost_reply(0)
                elif is_written:
                    turn.written(record, 0)
                else:
                    turn.refused(0)

    @property
    def state(self) -> tuple[object, ...]:
        """All that decides what may happen next."""
        turns = tuple((turn.latest, turn._is_sure) for turn in self.turns.values())
        return (self.log.latest, tuple(self.log.records(after=0)), turns)

    @property
    def is_sound(self) -> bool:
        """No number twice, none skipped, and the latest is the last one."""
        in_order = self.written == list(range(1, len(self.written) + 1))
        return in_order and self.log.latest.number == len(self.written)


def all_histories(log: RingLog, steps: int) -> tuple[int, int]:
    """How many histories of so many steps there are, and in how many a number is wrong.

    Histories that lead to the same state go on as one, and are counted.
    """
    start = World(log, {node: Turn(node) for node in (A, B, C)})
    for turn in start.turns.values():
        turn.read(NOTHING, 0)
    worlds, wrong = {start.state: (start, 1)}, 0
    for _ in range(steps):
        before, worlds = worlds, {}
        for world, count in before.values():
            for step in world.steps():
                after = world.after(*step)
                if not after.is_sound:
                    wrong += count
                    continue
                _, known = worlds.get(after.state, (after, 0))
                worlds[after.state] = (after, known + count)
    return sum(count for _, count in worlds.values()), wrong


def test_in_all_small_histories_no_number_is_written_twice_and_none_is_skipped(record_property):
    found, wrong = all_histories(RingLog(), steps=6)

    record_property("histories", found)
    print(f"{found:,} histories, {wrong} with a wrong number")
    assert found >= 100_000 and wrong == 0


def test_without_the_comparison_a_number_is_written_twice():
    _, wrong = all_histories(Careless(), steps=2)

    assert wrong > 0
