"""How many triggers are undone: exact at the end of the backlog, otherwise an estimate."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from holdfast.store import Level
from unit.backlog_steps import FAR, a_backlog, ack, choose, entries, new_backlog, read, write
from unit.test_backlog_histories import SEEDS, World, a_history

FAULTLESS = {"append_fails": 0, "read_fails": 0}


class Counted(World):
    """Compares the count after every step with what is undone in the store and on its way."""

    exact = estimates = farthest = 0

    def check(self) -> None:
        super().check()
        backlog, truth = self.backlog, self.undone
        assert backlog.count >= 0 and backlog.beyond >= 0
        if backlog.at_end:
            assert backlog.count == truth
            self.exact += 1
        else:
            self.estimates += 1
            self.farthest = max(self.farthest, abs(backlog.count - truth))

    @property
    def undone(self) -> int:
        above = [row for row in self.stored.rows if row.level > self.backlog.ack_level]
        stored = sum(1 for row in above if row.level not in self.acked)
        return stored + (0 if self.has_landed else len(self.appending))


@pytest.mark.req("FAIR-73")
@given(SEEDS)
@settings(max_examples=150, deadline=None)
def test_the_count_is_exact_at_the_end_and_otherwise_an_estimate_that_is_never_negative(seed):
    world = Counted()

    world.play(a_history(seed, 300, crash=1))  # the check after every step holds the line

    world.drain()
    assert world.exact and world.backlog.count == 0


def test_the_histories_have_many_moments_before_the_end_and_at_it():
    worlds = [Counted() for _ in range(10)]

    for seed, world in enumerate(worlds):
        world.play(a_history(seed, 300, crash=1))

    assert sum(world.estimates for world in worlds) > 100
    assert sum(world.exact for world in worlds) > 100


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_without_faults_the_estimate_is_off_by_no_more_than_what_is_being_written(seed):
    world = Counted()

    world.play(a_history(seed, 300, **FAULTLESS))

    assert world.farthest <= 3, "an append of this history has three at most"


def test_what_does_not_fit_into_the_window_still_counts():
    backlog = new_backlog(batch_max=4, reload_at=1)

    write(backlog, *range(1, 11))

    assert (backlog.loaded, backlog.beyond, backlog.count) == (4, 6, 10)
    write(backlog, 20, 21)
    assert (backlog.loaded, backlog.count) == (4, 12), "written beyond the window"
    ack(backlog, 1, 2, 3)
    read(backlog, 5, 6, 7)
    assert (backlog.loaded, backlog.beyond, backlog.count) == (4, 5, 9)


def test_what_is_being_written_counts():
    backlog = new_backlog(batch_max=4, reload_at=1)

    choose(backlog, 1, 2)

    assert backlog.at_end and backlog.count == 2


def test_a_trigger_that_a_read_loaded_before_its_write_returned_counts_once():
    backlog = a_backlog(highest=FAR)
    backlog.start_read()
    choose(backlog, 11)

    backlog.read(entries(11))

    assert backlog.at_end and backlog.count == 1
    ack(backlog, 11)
    assert backlog.count == 0
    backlog.appended()
    assert backlog.at_end and backlog.count == 0


def test_what_a_takeover_found_is_asked_for_once_and_counted_down_by_reads():
    backlog = a_backlog(ack=10, batch_max=4, reload_at=1)
    assert backlog.wants_count

    backlog.counted(Level(10, 10), 9)

    assert not backlog.wants_count and backlog.count == 9
    read(backlog, 11, 12, 13, 14)
    assert (backlog.count, backlog.beyond) == (9, 5)
    ack(backlog, 11, 12, 13, 14)
    read(backlog, 15, 16)
    assert backlog.at_end and backlog.count == 2, "whatever was estimated"


def test_an_answer_that_a_read_has_overtaken_does_not_count():
    backlog = a_backlog(ack=10, batch_max=4, reload_at=1)
    read(backlog, 11, 12, 13, 14)

    backlog.counted(Level(10, 10), 9)

    assert backlog.wants_count and backlog.count == 4


def test_an_estimate_that_is_used_up_before_the_end_is_asked_for_again():
    backlog = a_backlog(ack=10, batch_max=4, reload_at=1)
    backlog.counted(Level(10, 10), 3)  # it was too low

    read(backlog, 11, 12, 13, 14)

    assert (backlog.count, backlog.beyond) == (4, 0)
    assert backlog.wants_count


def test_what_leaves_memory_still_counts():
    backlog = new_backlog(batch_max=4, reload_at=1)
    write(backlog, 1, 2, 3)

    backlog.unload()

    assert (backlog.loaded, backlog.count) == (0, 3)
    assert not backlog.wants_count, "nobody needs to ask: all of it was here"
