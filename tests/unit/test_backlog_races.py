"""The window of one column: the pin of the ack level, and what may happen at the same time."""

import pytest

from holdfast.dispatch.backlog import DROPPED_ACKS_MAX
from holdfast.store import Level
from unit.backlog_steps import (
    a_backlog,
    ack,
    choose,
    entries,
    levels,
    new_backlog,
    passes,
    read,
    write,
)

# ── G. pinning the ack level ──────────────────────────────────────────────────────────────────


@pytest.mark.req("FAIR-38")
def test_the_ack_level_stands_still_between_choosing_levels_and_merging():
    backlog = a_backlog(ack=10)
    read(backlog, 11, 21, 31)
    choose(backlog, 13, 15, 25)

    ack(backlog, 11, 21)

    assert backlog.ack_level.pass_ == 10
    backlog.appended()
    assert backlog.ack_level.pass_ == 11


@pytest.mark.req("FAIR-39")
def test_a_delete_during_a_write_does_not_reach_the_new_triggers():
    backlog = a_backlog(ack=10)
    read(backlog, 11, 21, 31)
    chosen = choose(backlog, 13, 15, 25)

    ack(backlog, 11, 21, 31)
    _, to = backlog.trim()

    assert to == Level(10, 10) and all(entry.level > to for entry in chosen)


@pytest.mark.req("FAIR-40")
def test_after_the_merge_the_ack_level_advances_as_far_as_it_may():
    backlog = a_backlog(ack=10)
    read(backlog, 11, 21, 31)
    choose(backlog, 13, 15, 25)
    ack(backlog, 11, 21)
    backlog.appended()

    ack(backlog, 13, 15)

    assert levels(backlog) == (21, 31), "11, 13, 15 and 21 are done, 25 is not"


@pytest.mark.req("FAIR-41")
def test_a_failed_write_unpins_forgets_the_end_and_wants_a_read():
    backlog = a_backlog()
    read(backlog, 11, 12)
    choose(backlog, 20)
    ack(backlog, 11, 12)
    assert backlog.at_end and backlog.ack_level.pass_ == 10

    backlog.append_failed()

    assert backlog.ack_level.pass_ == 12 and not backlog.at_end
    assert backlog.loaded == 0 and backlog.wants_read, "an empty memory does not stall"
    assert passes(read(backlog, 20).offered) == [20], "the write may have happened"


@pytest.mark.req("FAIR-41")
def test_a_failed_write_below_the_read_level_is_looked_for_where_it_would_stand():
    backlog = a_backlog()
    read(backlog, 11, 31)
    choose(backlog, 15)
    ack(backlog, 11, 31)

    backlog.append_failed()

    assert levels(backlog) == (11, 31), "unpinned, but not past a trigger that may be stored"
    assert backlog.start_read()[0] < Level(15, 15)
    assert passes(backlog.read(entries(15, 31)).offered) == [15], "31 was acked before"
    ack(backlog, 15)
    assert levels(backlog) == (31, 31) and backlog.is_empty


def test_the_gap_of_a_failed_write_is_read_to_its_end_in_full_batches():
    backlog = a_backlog(batch_max=3, reload_at=2)
    read(backlog, 21, 31)
    choose(backlog, 15, 16, 25)
    backlog.append_failed()

    level, limit = backlog.start_read()
    assert (level < Level(15, 15), limit) == (True, 1)
    assert passes(backlog.read(entries(15)).offered) == [15]
    assert levels(backlog) == (10, 31) and not backlog.at_end
    ack(backlog, 15, 21)

    level, limit = backlog.start_read()
    assert (level, limit) == (Level(15, 15), 2)
    assert passes(backlog.read(entries(16, 21)).offered) == [16]


def test_a_write_that_fails_during_a_read_is_looked_for_again():
    backlog = a_backlog()
    backlog.start_read()
    choose(backlog, 15)
    backlog.append_failed()

    backlog.read(entries(11, 20))

    assert not backlog.at_end, "the read may have come before the write"
    ack(backlog, 11, 20)
    assert backlog.ack_level.pass_ == 11 and backlog.start_read()[0] < Level(15, 15)
    assert passes(backlog.read(entries(15, 20)).offered) == [15] and backlog.at_end


@pytest.mark.req("FAIR-42")
def test_the_pin_holds_while_written_triggers_wait_for_a_read():
    backlog = a_backlog(batch_max=3, reload_at=2)
    read(backlog, 11, 21, 31)
    ack(backlog, 11)
    backlog.start_read()
    choose(backlog, 25)

    assert backlog.appended() == ([], [])
    ack(backlog, 21, 31)

    assert backlog.ack_level.pass_ == 11
    assert passes(backlog.read([]).offered) == [25]
    assert levels(backlog) == (21, 31)


def test_triggers_written_during_a_read_that_fails_come_with_the_next_one():
    backlog = a_backlog(batch_max=3, reload_at=2)
    read(backlog, 11, 21, 31)
    ack(backlog, 11)
    backlog.start_read()
    write(backlog, 25)
    backlog.read_failed()
    ack(backlog, 21, 31)
    assert backlog.ack_level.pass_ == 11, "still pinned"

    assert passes(read(backlog, 41).offered) == [25, 41]
    assert levels(backlog) == (21, 41)


def test_a_later_write_that_fails_does_not_unpin_for_one_that_waits_for_a_read():
    backlog = a_backlog(batch_max=3, reload_at=2)
    read(backlog, 11, 21, 31)
    ack(backlog, 11)
    backlog.start_read()
    write(backlog, 25)
    choose(backlog, 40)
    ack(backlog, 21, 31)

    backlog.append_failed()

    assert backlog.ack_level.pass_ == 11
    assert passes(backlog.read([]).offered) == [25] and levels(backlog) == (21, 31)


def test_triggers_written_during_a_read_that_fails_come_with_the_next_write():
    backlog = a_backlog(batch_max=4, reload_at=3)
    read(backlog, 11, 21, 31, 41)
    ack(backlog, 11, 41)
    backlog.start_read()
    write(backlog, 25)
    backlog.read_failed()

    merge = write(backlog, 23)

    assert passes(merge.offered) == [23, 25] and backlog.loaded == 4
    ack(backlog, 21, 23, 25)
    assert levels(backlog) == (25, 41)


@pytest.mark.req("FAIR-80")
def test_a_second_append_of_the_column_is_refused_while_one_is_in_flight():
    backlog = new_backlog()
    choose(backlog, 1)

    with pytest.raises(AssertionError, match="FAIR-80"):
        choose(backlog, 2)
    backlog.appended()
    choose(backlog, 2)


@pytest.mark.req("FAIR-80")
def test_writers_that_overlap_reads_do_not_pin_the_ack_level_for_ever():
    backlog = a_backlog(batch_max=2, reload_at=1)
    read(backlog, 11, 12)
    ack(backlog, 11)
    pinned_at = []
    for pass_ in range(13, 40, 2):
        backlog.start_read()
        write(backlog, pass_)  # ends during the read
        choose(backlog, pass_ + 1)  # and the next one has begun when the read ends
        backlog.read(entries(pass_))
        ack(backlog, pass_ - 1, pass_)
        pinned_at.append(backlog.ack_level.pass_)
        backlog.append_failed()

    assert pinned_at == sorted(set(pinned_at)), "it moved in every round"


@pytest.mark.req("FAIR-80")
def test_writers_of_whom_one_is_always_under_way_do_not_pin_it_either():
    backlog, stored = a_backlog(batch_max=4, reload_at=2), range(11, 90)
    choose(backlog, 1_000)
    reached = []
    for number in range(1_001, 1_011):
        above, limit = backlog.start_read()
        backlog.appended()  # ends during the read
        choose(backlog, number)  # and the next one has begun before that ends
        backlog.read(entries(*[pass_ for pass_ in stored if pass_ > above.pass_][:limit]))
        loaded = sorted(e.level.pass_ for e in backlog.here if e.level.pass_ < 1_000)
        ack(backlog, *loaded[:2])
        reached.append(backlog.ack_level.pass_)

    assert reached == [10, 12, 14, 16, 18, 20, 22, 24, 26, 28]


# ── H. races ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("FAIR-43")
def test_what_a_read_returns_at_or_below_the_ack_level_is_ignored():
    backlog = a_backlog(ack=10)

    merge = read(backlog, 9, 10, 11)

    assert passes(merge.offered) == [11] and levels(backlog) == (10, 11)


@pytest.mark.req("FAIR-44")
def test_an_acked_trigger_that_is_read_again_is_not_offered_again():
    backlog = a_backlog()
    read(backlog, 11, 12, 13)
    ack(backlog, 12)
    choose(backlog, 12)  # fails: the store is asked again from here
    backlog.append_failed()

    merge = read(backlog, 12, 13)

    assert merge == ([], []) and backlog.loaded == 2


@pytest.mark.req("FAIR-45")
def test_dropping_triggers_drops_the_acks_above_the_new_end():
    backlog = a_backlog(batch_max=3, reload_at=0)
    read(backlog, 11, 21, 31)
    ack(backlog, 31)

    write(backlog, 12, 13)  # 21 leaves memory, and the ack of 31 with it
    ack(backlog, 11, 12, 13)

    assert levels(backlog) == (13, 13), "the ack level does not jump over 21"
    assert backlog.wants_read


@pytest.mark.req("FAIR-46")
def test_a_dropped_ack_counts_again_when_its_trigger_is_read_again():
    backlog = a_backlog(batch_max=3, reload_at=0)
    read(backlog, 11, 21, 31)
    ack(backlog, 31)
    write(backlog, 12, 13)
    ack(backlog, 11, 12, 13)

    merge = read(backlog, 21, 31)
    assert passes(merge.offered) == [21] and backlog.loaded == 1
    ack(backlog, 21)

    assert levels(backlog) == (31, 31) and backlog.is_empty


def test_beyond_their_bound_dropped_acks_are_forgotten_and_their_triggers_offered_again():
    above = range(1000, 1000 + DROPPED_ACKS_MAX + 1)
    backlog = a_backlog(batch_max=len(above) + 1, reload_at=0)
    read(backlog, 20, *above)
    ack(backlog, *above)
    fill = range(30, 30 + len(above) + 1)
    write(backlog, *fill)
    ack(backlog, 20, *fill)

    merge = read(backlog, *above)

    assert len(merge.offered) == 1, "one more than is remembered: its grab recognises the duplicate"


@pytest.mark.req("FAIR-47")
def test_a_trigger_that_does_not_fit_is_not_offered_before_it_is_read_again():
    backlog = a_backlog(batch_max=2, reload_at=0)
    read(backlog, 11)

    merge = write(backlog, 12, 13, 14)

    assert passes(merge.offered) == [12] and merge.dropped == [], "13 never reached the table"
    ack(backlog, 11, 12)
    assert passes(read(backlog, 13, 14).offered) == [13, 14]


@pytest.mark.req("FAIR-48")
def test_completing_a_trigger_that_has_left_memory_does_nothing():
    backlog = a_backlog(batch_max=2, reload_at=0)
    read(backlog, 21, 31)
    assert passes(write(backlog, 11).dropped) == [31]  # while its grab is on its way

    ack(backlog, 31)
    assert levels(backlog) == (10, 21) and backlog.loaded == 2
    ack(backlog, 11, 21)

    assert passes(read(backlog, 31).offered) == [31], "its grab will recognise the duplicate"


@pytest.mark.req("FAIR-49")
@pytest.mark.parametrize("expired", [(11, 12, 13), (12, 13)], ids=["all", "the last ones"])
def test_a_batch_of_expired_triggers_advances_both_levels(expired):
    backlog = a_backlog(batch_max=3, reload_at=1)
    read(backlog, 11, 12, 13)

    ack(backlog, *expired)
    assert backlog.read_level.pass_ == 13
    if 11 not in expired:
        ack(backlog, 11)

    assert levels(backlog) == (13, 13)
    assert backlog.start_read() == (Level(13, 13), 3), "the next read goes on behind them"


@pytest.mark.req("FAIR-50")
def test_a_write_that_returns_after_a_read_has_loaded_and_acked_its_trigger():
    backlog = a_backlog(batch_max=3, reload_at=2)
    choose(backlog, 15)
    assert passes(read(backlog, 15, 20).offered) == [15, 20]  # the write has committed already
    backlog.dispatched(Level(15, 15))
    ack(backlog, 15)

    assert backlog.appended() == ([], []), "no second delivery"

    assert levels(backlog) == (15, 20), "R stays"
    ack(backlog, 20)
    assert backlog.is_empty, "and nothing stands still"


@pytest.mark.req("FAIR-51")
def test_before_the_end_with_nothing_loaded_a_read_is_wanted_or_running():
    backlog = a_backlog(batch_max=2, reload_at=0)
    assert backlog.wants_read
    backlog.start_read()
    backlog.read_failed()
    assert backlog.wants_read
    read(backlog, 11, 12)
    ack(backlog, 11, 12)
    assert backlog.wants_read
    read(backlog)
    choose(backlog, 13)
    backlog.append_failed()

    assert backlog.wants_read
