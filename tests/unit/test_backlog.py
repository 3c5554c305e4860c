"""The window of one column: levels, reading, writing, merging, deleting."""

from itertools import count
from random import Random

import pytest

from holdfast.dispatch.backlog import Backlog
from holdfast.dispatch.passes import Passes
from holdfast.store import ZERO, Level, Mark
from holdfast.testing.build import a_trigger
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
    backlog = new_backlog()

    assert backlog.is_empty and backlog.at_end and not backlog.wants_read and not backlog.is_busy
    assert backlog.mark == Mark(ZERO, 1) and backlog.trim() is None


def test_a_column_is_not_empty_while_something_is_stored_loaded_or_under_way():
    stored, loaded, written = a_backlog(), a_backlog(), new_backlog()
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
    backlog = new_backlog(Mark(Level(3, 7), 5), highest=Level(3, 9))

    assert backlog.read_level == backlog.ack_level == Level(3, 7)
    assert backlog.top_pass == 5
    assert not backlog.at_end
    assert new_backlog(Mark(Level(3, 7)), highest=Level(3, 7)).at_end


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
    backlog = new_backlog(Mark(Level(7, 40), 7))

    chosen = backlog.choose([a_trigger(1), a_trigger(2)], count(41).__next__, lambda trigger: 3)

    assert [entry.level for entry in chosen] == [Level(7, 41), Level(7, 42)]


@pytest.mark.req("FAIR-15")
def test_a_level_at_or_below_the_ack_level_is_our_own_mistake():
    backlog = new_backlog(Mark(Level(7, 40), 7))

    with pytest.raises(AssertionError, match="FAIR-15"):
        backlog.choose([a_trigger()], lambda: 40, lambda trigger: 7)


def test_triggers_of_one_key_stand_in_order_of_arrival_from_the_top_pass_on():
    backlog = new_backlog(Mark(Level(7, 40), 9))

    chosen = backlog.choose([a_trigger(1), a_trigger(2)], count(41).__next__)

    assert [entry.level for entry in chosen] == [Level(9, 41), Level(1009, 42)]
    assert new_backlog().choose([a_trigger()], lambda: 1)[0].level == Level(1, 1), (
        "passes start at 1"
    )


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
    backlog = new_backlog()

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


# ── two clocks ────────────────────────────────────────────────────────────────────────────────


def test_a_partition_that_joins_late_is_shown_by_the_clock_of_the_node_and_stored_by_its_own():
    passes_of_node = Passes(rng=Random(0))
    passes_of_node.dispatched(5_000)
    backlog = Backlog(Mark(Level(200, 3), 200), passes=passes_of_node, base=1_000)
    assert backlog.shift == 4_800 and backlog.top_pass == 200

    (entry,) = backlog.choose([a_trigger(1)], lambda: 1_007)

    assert entry.level == Level(200, 1_007)
    assert backlog.shown([entry]) == [(Level(5_000, 7), entry, backlog)]
    assert backlog.as_stored({"a": 6_000}) == {"a": 1_200}
    backlog.restore({"a": 1_200})
    assert passes_of_node.next("a", 1.0) == 7_000


def test_a_window_holds_a_thousand_and_is_read_again_at_a_hundred():
    backlog = new_backlog(highest=Level(10**6, 0))
    assert backlog.start_read() == (ZERO, 1_000) and backlog.batch_max == 1_000
    backlog.read(entries(*range(1, 1_001)))
    ack(backlog, *range(1, 900))
    assert (backlog.loaded, backlog.wants_read, backlog.is_stuck) == (101, False, True)

    ack(backlog, 900)

    assert (backlog.loaded, backlog.wants_read, backlog.is_stuck) == (100, True, False)
