"""When a schedule fires: cron lines against a count of every minute, and both clock changes."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.errors import ConfigurationError
from holdfast.timing import (
    At,
    Cron,
    Every,
    Timing,
    latest_slots,
    slots_between,
    text_of,
    timing_of,
)

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
# Two days around each change of the clocks, in UTC: forward and back in each place.
CHANGES = {
    (BERLIN, "forward"): datetime(2026, 3, 28, 1, tzinfo=UTC),
    (BERLIN, "back"): datetime(2026, 10, 24, 1, tzinfo=UTC),
    (NEW_YORK, "forward"): datetime(2026, 3, 7, 7, tzinfo=UTC),
    (NEW_YORK, "back"): datetime(2026, 10, 31, 6, tzinfo=UTC),
    (LORD_HOWE, "forward"): datetime(2026, 10, 2, 15, 30, tzinfo=UTC),
    (LORD_HOWE, "back"): datetime(2026, 4, 3, 15, tzinfo=UTC),
}
PASSING = [
    "* * * * *",
    "*/15 * * * *",
    "0 * * * *",
    "*/10 1,2 * * *",
    "*/15 2 * * *",
    "7 */2 * * *",
]
NAMED = ["30 2 * * *", "0 3 * * *", "15 2 * * *", "45 1 * * *", "0,20,40 1-3 * * *", "0 0 * * SUN"]


def fired(timing: Timing, start: datetime, end: datetime) -> list[datetime]:
    """Every slot above start and up to end, each found from the one before."""
    return slots_between(timing, start, end, limit=100_000)


def shown(zone: str, slots: list[datetime]) -> list[str]:
    return [slot.astimezone(ZoneInfo(zone)).strftime("%d %H:%M %Z") for slot in slots]


def minutes(start: datetime, end: datetime) -> list[datetime]:
    return [start + n * MINUTE for n in range(1, int((end - start) / MINUTE) + 1)]


def named(line: str, around: datetime) -> set[datetime]:
    """The times of day of four days that the line names: asked of cronsim without any zone."""
    first = around.replace(tzinfo=None) - 2 * DAY
    matches = takewhile(lambda local: local < first + 6 * DAY, CronSim(line, first))
    return set(matches)


@pytest.mark.parametrize("place", CHANGES, ids=" ".join)
@pytest.mark.parametrize("line", PASSING)
def test_a_line_with_stars_fires_at_every_minute_at_which_the_clocks_show_a_time_that_fits(
    place, line
):
    zone = ZoneInfo(place[0])
    start = CHANGES[place]
    end = start + 2 * DAY

    times = named(line, start)
    counted = [m for m in minutes(start, end) if m.astimezone(zone).replace(tzinfo=None) in times]

    assert fired(Cron(line, place[0]), start, end) == counted
    assert counted


@pytest.mark.parametrize("place", CHANGES, ids=" ".join)
@pytest.mark.parametrize("line", NAMED)
def test_a_line_that_names_its_times_fires_once_for_each_time_of_the_calendar(place, line):
    zone = ZoneInfo(place[0])
    start = CHANGES[place]
    end = start + 2 * DAY
    first_shown: dict[datetime, datetime] = {}
    for moment in minutes(start - DAY, end + DAY):
        first_shown.setdefault(moment.astimezone(zone).replace(tzinfo=None), moment)

    def moment_of(local: datetime) -> datetime:
        while local not in first_shown:  # skipped: right after the gap
            local += MINUTE
        return first_shown[local]

    first = start.astimezone(zone).replace(tzinfo=None) - timedelta(hours=3)
    times = [local for local in named(line, start) if first < local < first + timedelta(hours=54)]
    expected = {moment_of(local) for local in times}

    assert fired(Cron(line, place[0]), start, end) == sorted(
        slot for slot in expected if start < slot <= end
    )


@pytest.mark.parametrize(
    ("zone", "line", "start", "expected"),
    [
        (BERLIN, "30 2 * * *", (2026, 3, 28), ["28 02:30 CET", "29 03:00 CEST", "30 02:30 CEST"]),
        (BERLIN, "30 2 * * *", (2026, 10, 24), ["24 02:30 CEST", "25 02:30 CEST", "26 02:30 CET"]),
        (NEW_YORK, "30 2 * * *", (2026, 3, 7), ["07 02:30 EST", "08 03:00 EDT", "09 02:30 EDT"]),
        (NEW_YORK, "30 1 * * *", (2026, 10, 31), ["31 01:30 EDT", "01 01:30 EDT", "02 01:30 EST"]),
        # Half an hour: from 02:00 to 02:30, and from 02:00 back to 01:30.
        (
            LORD_HOWE,
            "15 2 * * *",
            (2026, 10, 3),
            ["03 02:15 +1030", "04 02:30 +11", "05 02:15 +11"],
        ),
        (
            LORD_HOWE,
            "45 1 * * *",
            (2026, 4, 4),
            ["04 01:45 +11", "05 01:45 +11", "06 01:45 +1030"],
        ),
    ],
)
def test_both_clock_changes_leave_one_fire_a_day(zone, line, start, expected):
    midnight = datetime(*start, tzinfo=ZoneInfo(zone))

    slots = slots_between(Cron(line, zone), midnight, midnight + 5 * DAY, limit=3)

    assert shown(zone, slots) == expected


def test_six_fields_have_seconds_and_follow_the_same_rule():
    saturday = datetime(2026, 3, 28, 12, tzinfo=UTC)
    line = Cron("30 30 2 * * *", BERLIN)

    slots = slots_between(line, saturday, saturday + 2 * DAY, limit=9)

    assert [s.astimezone(ZoneInfo(BERLIN)).isoformat() for s in slots] == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:30+02:00",
    ]
    assert len(fired(Cron("*/20 * * * * *"), saturday, saturday + MINUTE)) == 3


ZONES = [BERLIN, NEW_YORK, LORD_HOWE, "UTC", "Asia/Kathmandu", "Africa/Casablanca", "Asia/Beirut"]


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(PASSING + NAMED + ["0 0 29 2 *", "*/7 3-9/2 1-7 * MON", "* * L * *"]),
    st.sampled_from(ZONES),
    st.datetimes(datetime(2024, 1, 1), datetime(2033, 1, 1), timezones=st.just(UTC)),
)
def test_the_next_slot_is_later_fits_and_none_lies_between(line, zone, moment):
    timing = Cron(line, zone)

    slot = timing.next_after(moment)

    assert slot is not None and slot > moment and slot.tzinfo is UTC
    assert timing.next_after(slot - timedelta(microseconds=1)) == slot
    halfway = moment + (slot - moment) / 2
    assert timing.next_after(halfway) == slot


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("0 0 30 2 *", "'0 0 30 2 \\*' never fires: there is no such day"),
        ("0 0 31 4,6,9,11 *", "never fires: there is no such day"),
        ("0 0 32 2 *", "bad day-of-month"),
        ("0 0 30 13 *", "bad month"),
        ("0 0 * 2 MON#6", "bad day-of-week"),
        ("* * 1 2 */8#5", "cannot be read"),
        ("* * */29 2 MON#5", "never fires"),
        ("61 * * * *", "bad minute"),
        ("* * * *", "wrong number of fields"),
        ("", "wrong number of fields"),
        ("* * * * * * *", "wrong number of fields"),
        ("*/0 * * * *", "bad minute"),
        ("* * * * " + "9" * 5_000, "at most 200 characters"),
        (None, "at most 200 characters"),
    ],
)
def test_a_line_that_cannot_be_read_or_never_fires_is_refused_with_its_reason(line, says):
    with pytest.raises(ConfigurationError, match=says):
        Cron(line)


@pytest.mark.parametrize("zone", ["Europe/Berlinn", "Europe", "", "../etc/passwd", "/etc", None, 5])
def test_an_unknown_time_zone_is_refused_by_name(zone):
    with pytest.raises(ConfigurationError, match="unknown time zone"):
        Cron("* * * * *", zone)


def test_a_near_time_zone_is_suggested():
    with pytest.raises(ConfigurationError, match="did you mean 'Europe/Berlin'"):
        Cron("* * * * *", "Europe/Berlinn")


HOSTILE = st.text("0123456789*/,-#LW MONFEB?²é\x00", max_size=60)


@settings(max_examples=500, deadline=None)
@given(HOSTILE, st.sampled_from(["UTC", BERLIN]))
@example("* * 29 2 MON#5", BERLIN)
@example("0 0 29 2 5L", LORD_HOWE)
@example("59 59 23 31 12 7", BERLIN)
@example("* * * 2 MON#5", BERLIN)
@example(",".join(["*"] * 90) + " * * * *", BERLIN)
@example("0 0 L/2 * 5L/2", BERLIN)
def test_whatever_somebody_writes_is_answered_or_refused_in_bounded_time(line, zone):
    began = time.process_time()
    try:
        timing = Cron(line, zone)
    except ConfigurationError:
        pass
    else:
        slots_between(
            timing, datetime(2026, 3, 28, tzinfo=UTC), datetime.max.replace(tzinfo=UTC), limit=5
        )
    assert time.process_time() - began < 2.0


@given(
    st.integers(100_000, 10**12),
    st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    st.none() | st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
)
def test_an_interval_counts_from_its_start_whoever_asks_when(micros, moment, start):
    every = timedelta(microseconds=micros)
    timing = Every(every, start)
    origin = start or datetime(1970, 1, 1, tzinfo=UTC)

    slot = timing.next_after(moment)

    assert slot is not None and slot > moment and slot >= origin
    assert (slot - origin) % every == timedelta()
    assert slot == origin or slot - moment <= every


@pytest.mark.parametrize("every", [0, -1, 0.05, float("nan"), float("inf"), 1e12, "5m", None])
def test_an_interval_that_is_too_short_too_long_or_none_is_refused(every):
    with pytest.raises(ConfigurationError, match="Every takes"):
        Every(every)


def test_a_one_off_time_has_one_slot():
    at = datetime(2030, 1, 1, 12, tzinfo=ZoneInfo(BERLIN))
    timing = At(at)

    assert timing.next_after(at - DAY) == at
    assert timing.next_after(at) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: At(datetime(2030, 1, 1)),
        lambda: Every(60, datetime(2030, 1, 1)),
        lambda: At("tomorrow"),
    ],
)
def test_a_time_without_a_time_zone_is_refused(make):
    with pytest.raises(ConfigurationError, match="a time with a time zone"):
        make()


def test_an_unknown_catch_up_policy_is_refused():
    with pytest.raises(ConfigurationError, match="catch_up is one of one, all, none"):
        Every(60, catch_up="some")


@pytest.mark.parametrize(
    ("timing", "words"),
    [
        (Cron("0 3 * * mon-fri", BERLIN, catch_up="all"), "At 03:00 on Monday through Friday"),
        (Every(900, catch_up="none"), "every 15 minutes"),
        (Every(3600, datetime(2030, 1, 1, tzinfo=UTC)), "every hour from 2030-01-01"),
        (Every(0.25), "every 0.25 s"),
        (At(datetime(2030, 1, 1, tzinfo=UTC)), "once, at 2030-01-01"),
    ],
)
def test_a_timing_is_kept_as_text_and_told_in_words(timing, words):
    assert timing_of(text_of(timing)) == timing
    assert timing.words().startswith(words)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"cron": 5}', '{"at": "x", "catch_up": "one"}', '{"moon": "full"}']
)
def test_a_text_that_is_no_timing_is_refused(text):
    with pytest.raises(ConfigurationError):
        timing_of(text)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([Cron("*/5 8-18 * * MON-FRI", BERLIN), Cron("30 2 * * *", BERLIN), Every(7.5)]),
    st.integers(0, 400_000),
    st.integers(1, 20),
)
def test_the_latest_slots_are_the_last_of_all_of_them(timing, span_s, limit):
    until = datetime(2026, 3, 30, 3, tzinfo=UTC)
    after = until - timedelta(seconds=span_s)

    assert latest_slots(timing, after, until, limit=limit) == fired(timing, after, until)[-limit:]
