"""The window of one column, line by line of the requirements.

Levels are written here by their pass, as the requirements write them: 11 means level (11, seq).
"""

from itertools import count

import pytest

from holdfast.dispatch.backlog import DROPPED_ACKS_MAX, Backlog
from holdfast.store import ZERO, Level, Mark
from holdfast.testing.build import a_trigger, an_entry

FAR = Level(10**6, 0)


def a_backlog(ack=10, batch_max=100, reload_at=None, highest=FAR):
    mark = Mark(Level(ack, ack))
    reload_at = min(10, batch_max - 1) if reload_at is None else reload_at
    return Backlog(mark, highest=highest, batch_max=batch_max, reload_at=reload_at)


def entries(*passes):
    return [an_entry(pass_, pass_) for pass_ in passes]


def read(backlog, *passes):
    """Answer a read with these levels; fewer than it asks for is the end."""
    backlog.start_read()
    return backlog.read(entries(*passes))


def choose(backlog, *passes):
    """Choose a level for one trigger a pass; the seq equals the pass where order allows it."""
    seqs = iter(passes)
    triggers = [a_trigger(id=pass_) for pass_ in passes]
    return backlog.choose(triggers, lambda: next(seqs), pass_for=lambda trigger: trigger.id)


def write(backlog, *passes):
    choose(backlog, *passes)
    return backlog.appended()


def ack(backlog, *passes):
    for pass_ in passes:
        backlog.ack(Level(pass_, pass_))


def passes(found):
    return [entry.level.pass_ for entry in found]


def levels(backlog):
    return backlog.ack_level.pass_, backlog.read_level.pass_


# ── A. levels and persistence ─────────────────────────────────────────────────────────────────


def test_levels_are_compared_by_pass_first_and_by_seq_second():
    assert sorted([Level(2, 1), Level(1, 9), Level(1, 10)]) == [(1, 9), (1, 10), (2, 1)]


@pytest.mark.req("FAIR-4")
def test_the_mark_to_persist_names_the_last_level_below_which_all_is_decided():
    backlog = a_backlog()
    read(backlog, 11, 12, 13, 14)

    ack(backlog, 13, 11)
    assert backlog.mark == Mark(Level(11, 11), 11)

    ack(backlog, 12)
    assert backlog.mark.ack_level == Level(13, 13), "13 itself is decided: the level is inclusive"


@pytest.mark.req("FAIR-6")
def test_the_ack_level_never_moves_backwards():
    backlog = a_backlog()
    read(backlog, 11, 12)
    ack(backlog, 11, 12)

    ack(backlog, 11)
    ack(backlog, 5)
    write(backlog, 13)
    ack(backlog, 12)

    assert backlog.ack_level == Level(12, 12)


@pytest.mark.req("FAIR-8")
def test_a_highest_level_that_lags_only_says_that_there_is_something_to_read():
    backlog = a_backlog(ack=10, highest=Level(11, 11))

    assert passes(read(backlog, 11, 12, 13).offered) == [11, 12, 13]
    assert backlog.at_end and levels(backlog) == (10, 13)


@pytest.mark.req("FAIR-9")
def test_memory_holds_the_undone_triggers_between_ack_level_and_read_level():
    backlog = a_backlog()
    read(backlog, 11, 12, 13, 14)

    ack(backlog, 11, 13)

    assert levels(backlog) == (11, 14)
    assert backlog.loaded == 2  # 12 and 14


def test_a_new_column_is_empty_and_at_its_end():
    backlog = Backlog()

    assert backlog.is_empty and backlog.at_end and not backlog.wants_read and not backlog.is_busy
    assert backlog.mark == Mark(ZERO, 0) and backlog.trim() is None


def test_a_column_is_not_empty_while_something_is_stored_loaded_or_under_way():
    stored, loaded, written = a_backlog(), a_backlog(), Backlog()
    assert not stored.is_empty
    loaded.start_read()
    assert loaded.is_busy and not loaded.is_empty
    loaded.read(entries(11))
    assert not loaded.is_busy and not loaded.is_empty
    choose(written, 1)
    assert written.is_busy and not written.is_empty

    ack(loaded, 11)

    assert loaded.is_empty


# ── B. reading ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("FAIR-10")
def test_after_a_takeover_the_read_level_starts_at_the_ack_level():
    backlog = Backlog(Mark(Level(3, 7), 5), highest=Level(3, 9))

    assert backlog.read_level == backlog.ack_level == Level(3, 7)
    assert backlog.top_pass == 5
    assert not backlog.at_end
    assert Backlog(Mark(Level(3, 7)), highest=Level(3, 7)).at_end


@pytest.mark.req("FAIR-11")
def test_a_read_asks_above_the_read_level_for_at_most_the_batch_size():
    backlog = a_backlog(batch_max=3, reload_at=1)
    assert backlog.start_read() == (Level(10, 10), 3)

    merge = backlog.read(entries(11, 12, 13))
    ack(backlog, 11, 12)

    assert passes(merge.offered) == [11, 12, 13] and backlog.read_level.pass_ == 13
    assert backlog.start_read() == (Level(13, 13), 2), "what is loaded counts for the batch"


@pytest.mark.req("FAIR-12")
def test_an_empty_read_leaves_the_read_level_where_it_was():
    backlog = a_backlog()

    read(backlog)

    assert levels(backlog) == (10, 10) and backlog.at_end


@pytest.mark.req("FAIR-13")
def test_a_read_starts_only_at_the_reload_threshold_and_before_the_end():
    backlog = a_backlog(batch_max=4, reload_at=2)
    read(backlog, 11, 12, 13, 14)
    assert not backlog.at_end and not backlog.wants_read  # 4 loaded

    ack(backlog, 11)
    assert not backlog.wants_read  # 3 loaded
    ack(backlog, 12)
    assert backlog.wants_read  # 2 loaded
    read(backlog)
    assert backlog.at_end and not backlog.wants_read


@pytest.mark.req("FAIR-13")
def test_at_most_one_read_runs_at_a_time():
    backlog = a_backlog()
    backlog.start_read()

    assert not backlog.wants_read
    with pytest.raises(AssertionError, match="FAIR-13"):
        backlog.start_read()
    backlog.read_failed()
    assert backlog.wants_read


@pytest.mark.req("FAIR-14")
def test_a_short_batch_is_the_end_and_a_full_one_is_not():
    short, full = a_backlog(batch_max=3, reload_at=0), a_backlog(batch_max=3, reload_at=0)

    read(short, 11, 12)
    read(full, 11, 12, 13)

    assert short.at_end and not full.at_end


# ── C. writing ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("FAIR-15")
def test_every_new_level_has_at_least_the_ack_pass_and_a_larger_seq():
    backlog = Backlog(Mark(Level(7, 40), 7))

    chosen = backlog.choose([a_trigger(1), a_trigger(2)], count(41).__next__, lambda trigger: 3)

    assert [entry.level for entry in chosen] == [Level(7, 41), Level(7, 42)]


@pytest.mark.req("FAIR-15")
def test_a_level_at_or_below_the_ack_level_is_our_own_mistake():
    backlog = Backlog(Mark(Level(7, 40), 7))

    with pytest.raises(AssertionError, match="FAIR-15"):
        backlog.choose([a_trigger()], lambda: 40, lambda trigger: 7)


def test_without_fairness_all_triggers_get_one_pass_and_stand_in_order_of_arrival():
    backlog = Backlog(Mark(Level(7, 40), 9))

    chosen = backlog.choose([a_trigger(1), a_trigger(2)], count(41).__next__)

    assert [entry.level for entry in chosen] == [Level(9, 41), Level(9, 42)]
    assert Backlog().choose([a_trigger()], lambda: 1)[0].level == Level(1, 1), "passes start at 1"


@pytest.mark.req("FAIR-16")
def test_a_write_above_the_read_level_before_the_end_is_left_to_later_reads():
    backlog = a_backlog(batch_max=2, reload_at=1)
    read(backlog, 11, 12)

    merge = write(backlog, 20, 21)

    assert merge == ([], []) and levels(backlog) == (10, 12)
    ack(backlog, 11, 12)
    assert passes(read(backlog, 20, 21).offered) == [20, 21]


@pytest.mark.req("FAIR-17")
def test_a_write_below_the_read_level_is_not_missed():
    backlog = a_backlog(batch_max=3, reload_at=1)
    read(backlog, 11, 21, 31)
    ack(backlog, 11)

    merge = write(backlog, 15)

    assert passes(merge.offered) == [15] and merge.dropped == []
    assert backlog.loaded == 3 and backlog.read_level.pass_ == 31


@pytest.mark.req("FAIR-18")
def test_a_write_below_the_read_level_comes_before_older_triggers_of_a_higher_level():
    backlog = a_backlog(batch_max=3, reload_at=0)
    read(backlog, 11, 21, 31)

    merge = write(backlog, 15)

    assert passes(merge.offered) == [15] and passes(merge.dropped) == [31]
    ack(backlog, 11, 15, 21)
    assert backlog.start_read()[0].pass_ == 21, "the older one of level 31 is read after it"


@pytest.mark.req("FAIR-19")
def test_a_read_starts_at_once_when_such_a_write_leaves_room():
    backlog = a_backlog(batch_max=3, reload_at=2)
    read(backlog, 11, 21, 31)
    ack(backlog, 11, 21)

    write(backlog, 25)

    assert backlog.loaded == 2 and backlog.wants_read


# ── D. merging ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("FAIR-20")
def test_of_memory_and_written_triggers_the_first_batch_is_kept():
    backlog = a_backlog(batch_max=4)
    read(backlog, 11, 21, 31)

    merge = write(backlog, 13, 15, 41)

    assert passes(merge.offered) == [13, 15] and passes(merge.dropped) == [31]
    assert backlog.loaded == 4 and levels(backlog) == (10, 21)
    assert not backlog.at_end, "31 and 41 left memory, not the store"


@pytest.mark.req("FAIR-20")
def test_the_read_level_counts_acked_triggers_and_stays_when_none_is_loaded():
    backlog = a_backlog()
    read(backlog, 11, 40)
    ack(backlog, 40)

    write(backlog, 13)
    assert levels(backlog) == (10, 40)
    ack(backlog, 11, 13)

    assert backlog.loaded == 0 and levels(backlog) == (40, 40), "R did not collapse"


@pytest.mark.req("FAIR-21")
def test_before_the_end_only_new_triggers_up_to_the_read_level_are_merged():
    backlog = a_backlog(batch_max=4, reload_at=1)
    read(backlog, 11, 21, 31, 35)
    ack(backlog, 11)

    merge = write(backlog, 25, 36)

    assert passes(merge.offered) == [25] and backlog.read_level.pass_ == 35
    assert not backlog.at_end


@pytest.mark.req("FAIR-22")
def test_at_the_end_and_with_room_written_triggers_are_offered_without_a_read():
    backlog = Backlog()

    merge = write(backlog, 1, 2, 3)

    assert passes(merge.offered) == [1, 2, 3] and merge.dropped == []
    assert backlog.at_end and not backlog.wants_read and levels(backlog) == (0, 3)


@pytest.mark.req("FAIR-24")
def test_triggers_dropped_from_memory_are_read_again_and_offered_once_each():
    backlog = a_backlog(batch_max=2, reload_at=0)
    read(backlog, 21, 31)
    offered = passes(write(backlog, 15, 16).offered)
    assert offered == [15, 16]
    ack(backlog, 15, 16)

    level, limit = backlog.start_read()
    offered += passes(backlog.read(entries(21, 31)).offered)

    assert level.pass_ == 16 and limit == 2
    assert offered == [15, 16, 21, 31]


@pytest.mark.req("FAIR-25")
def test_fewer_than_the_batch_size_in_total_are_all_kept():
    backlog = a_backlog(batch_max=7)
    read(backlog, 11, 21, 31)

    merge = write(backlog, 13, 15, 25)

    assert passes(merge.offered) == [13, 15, 25] and merge.dropped == []
    assert backlog.loaded == 6 and backlog.at_end


def test_a_large_write_out_of_order_is_merged_like_a_small_one():
    backlog = a_backlog(batch_max=20)
    read(backlog, *range(11, 31, 2))

    merge = write(backlog, *range(12, 34, 2))

    assert passes(merge.offered) == [*range(12, 32, 2)] and merge.dropped == []
    assert backlog.loaded == 20 and not backlog.at_end and levels(backlog) == (10, 30)


# ── E. deleting ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.req("FAIR-26")
def test_deleting_ends_at_the_ack_level_whatever_is_acked_above_it():
    backlog = a_backlog(ack=10)
    read(backlog, 11, 12, 13)
    assert backlog.trim() == (ZERO, Level(10, 10)), "what the last owner left goes with the first"
    backlog.trimmed(Level(10, 10))

    ack(backlog, 11, 13)

    assert backlog.trim() == (Level(10, 10), Level(11, 11))
    backlog.trimmed(Level(11, 11))
    assert backlog.trim() is None


def test_acks_are_counted_until_their_delete_has_happened():
    backlog = a_backlog()
    read(backlog, 11, 12, 13)
    ack(backlog, 11, 12)
    assert backlog.acked_since_trim == 2

    _, to = backlog.trim()
    ack(backlog, 13)
    backlog.trimmed(to)

    assert backlog.acked_since_trim == 1 and backlog.trim() == (Level(12, 12), Level(13, 13))


@pytest.mark.req("FAIR-28")
def test_a_read_starts_at_or_above_the_last_deleted_level():
    backlog = a_backlog(batch_max=3, reload_at=2)
    read(backlog, 11, 12, 13)
    ack(backlog, 11, 12, 13)
    _, deleted = backlog.trim()
    backlog.trimmed(deleted)

    assert backlog.start_read()[0] >= deleted == Level(13, 13)


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
    backlog = Backlog()
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


# ── V, the highest pass dispatched ────────────────────────────────────────────────────────────


def test_the_top_pass_is_the_highest_dispatched_and_at_least_that_of_the_ack_level():
    backlog = a_backlog(ack=10)
    assert backlog.top_pass == 10
    read(backlog, 11, 12, 13)

    backlog.dispatched(Level(12, 12))
    backlog.dispatched(Level(11, 11))
    assert backlog.top_pass == 12 and backlog.mark.top_pass == 12
    ack(backlog, 11, 12, 13)

    assert backlog.top_pass == 13
