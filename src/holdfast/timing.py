"""When a schedule fires: cron lines, intervals, one-off times.  Pure: the moment is a parameter.

    Cron("*/5 8-18 * * MON-FRI", tz="Europe/Berlin")
    Every(timedelta(minutes=15))
    At(datetime(2030, 1, 1, tzinfo=UTC))

A slot is a moment at which a schedule fires, once.  Every answer is in UTC.

When the clocks of a time zone change, lines follow the rule of Debian's cron.  A line that names
its minutes and hours (neither begins with `*`) keeps to the calendar: what falls into the hour
that is skipped fires once, right after the gap; what falls into the doubled hour fires the first
time only.  Every other line keeps to the time that passes: it fires whenever the clock on the
wall fits, so never in a skipped hour and twice in a doubled one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Literal, Protocol
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from cronsim import CronSim, CronSimError

from holdfast.errors import ConfigurationError
from holdfast.policy import Seconds, seconds

CatchUp = Literal["one", "all", "none"]
CATCH_UPS: tuple[CatchUp, ...] = ("one", "all", "none")
LINE_CHARS_MAX = 200
EVERY_S_MIN = 0.1
EVERY_S_MAX = 100 * 365 * 86_400.0

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONG_AGO = datetime(2000, 1, 1)
_SECOND = timedelta(seconds=1)
_LOOK = timedelta(days=2)  # within which the clocks of a place change once at most


class Timing(Protocol):
    """When to fire, and what to do about slots that passed while nobody looked."""

    @property
    def catch_up(self) -> CatchUp:
        """Of the slots that were missed, "one" fires the latest, "all" each, "none" none."""
        ...

    def next_after(self, moment: datetime) -> datetime | None:
        """The first slot after the moment; None when there is none any more."""
        ...

    def words(self) -> str:
        """For people."""
        ...

    def facts(self) -> dict[str, Any]:
        """What has to be kept to build it again."""
        ...


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron line of five fields, or of six with seconds first, by the clocks of a time zone.

    Refused with a ConfigurationError: a line that cannot be read, one that never fires, and an
    unknown time zone.
    """

    line: str
    tz: str = "UTC"
    _: KW_ONLY
    catch_up: CatchUp = "one"

    def __post_init__(self) -> None:
        _check(self.catch_up)
        if not isinstance(self.line, str) or len(self.line) > LINE_CHARS_MAX:
            raise ConfigurationError(
                f"a cron line is a text of at most {LINE_CHARS_MAX} characters"
            )
        object.__setattr__(self, "line", " ".join(self.line.upper().split()))
        _zone(self.tz)
        if (wrong := _wrong(self.line)) is not None:
            raise ConfigurationError(f"the cron line {self.line!r} {wrong}")

    def next_after(self, moment: datetime) -> datetime | None:
        moment = moment.astimezone(UTC)
        try:
            if self.tz == "UTC":
                return _utc(_match(self.line, moment.replace(tzinfo=None)))
            zone = _zone(self.tz)
            return (
                _named(self.line, zone, moment)
                if self._names_times()
                else _passing(self.line, zone, moment)
            )
        except OverflowError:  # beyond the calendar of Python
            return None

    def words(self) -> str:
        zone = "" if self.tz == "UTC" else f", {self.tz}"
        return f"{CronSim(self.line, _LONG_AGO).explain()}{zone}"

    def facts(self) -> dict[str, Any]:
        return {"cron": self.line, "tz": self.tz, "catch_up": self.catch_up}

    def local(self, slot: datetime) -> datetime:
        """The slot as the clocks of its time zone show it."""
        return slot.astimezone(_zone(self.tz))

    def _names_times(self) -> bool:
        minute, hour = self.line.split()[-5:-3]
        return not minute.startswith("*") and not hour.startswith("*")


@dataclass(frozen=True, slots=True)
class Every:
    """Slots at the same distance, counted from `start`; without one, from 1970 on.

    So they do not depend on when a node was started: every hour is every full hour in UTC.
    """

    every: Seconds
    start: datetime | None = None
    _: KW_ONLY
    catch_up: CatchUp = "one"

    def __post_init__(self) -> None:
        _check(self.catch_up)
        try:
            every_s = seconds(self.every)
        except (TypeError, ValueError):
            raise ConfigurationError(
                f"Every takes seconds or a timedelta, not {self.every!r}"
            ) from None
        if not EVERY_S_MIN <= every_s <= EVERY_S_MAX:  # also false for nan
            raise ConfigurationError(
                f"Every takes {EVERY_S_MIN:g} s or more, at most a hundred years; not {every_s:g} s"
            )
        object.__setattr__(self, "every", timedelta(seconds=every_s))
        if self.start is not None:
            object.__setattr__(self, "start", _aware("start", self.start))

    def next_after(self, moment: datetime) -> datetime | None:
        start = self.start or _EPOCH
        if moment < start:
            return start
        assert isinstance(self.every, timedelta), "made one when it was built"
        try:
            return start + self.every * ((moment - start) // self.every + 1)
        except OverflowError:
            return None

    def words(self) -> str:
        since = f" from {self.start.isoformat()} on" if self.start else ""
        return f"every {_duration(seconds(self.every))}{since}"

    def facts(self) -> dict[str, Any]:
        start = self.start.isoformat() if self.start else None
        return {"every_s": seconds(self.every), "start": start, "catch_up": self.catch_up}


@dataclass(frozen=True, slots=True)
class At:
    """One slot."""

    at: datetime
    _: KW_ONLY
    catch_up: CatchUp = "one"

    def __post_init__(self) -> None:
        _check(self.catch_up)
        object.__setattr__(self, "at", _aware("at", self.at))

    def next_after(self, moment: datetime) -> datetime | None:
        return self.at if self.at > moment else None

    def words(self) -> str:
        return f"once, at {self.at.isoformat()}"

    def facts(self) -> dict[str, Any]:
        return {"at": self.at.isoformat(), "catch_up": self.catch_up}


def slots_between(
    timing: Timing, after: datetime, until: datetime, *, limit: int
) -> list[datetime]:
    """The first slots above `after` and up to `until`, at most `limit`."""
    found: list[datetime] = []
    slot = timing.next_after(after)
    while slot is not None and slot <= until and len(found) < limit:
        found.append(slot)
        slot = timing.next_after(slot)
    return found


def latest_slots(timing: Timing, after: datetime, until: datetime, *, limit: int) -> list[datetime]:
    """The last slots above `after` and up to `until`, at most `limit`.

    However many there are before them: their time is found by halving.
    """
    found = slots_between(timing, after, until, limit=limit + 1)
    while len(found) > limit and until - after > _SECOND / 20:
        middle = after + (until - after) / 2
        later = slots_between(timing, middle, until, limit=limit + 1)
        if len(later) > limit:
            after, found = middle, later
        else:
            # Fewer than wanted above the middle: what is missing lies right below it.
            wanted = limit - len(later)
            return latest_slots(timing, after, middle, limit=wanted) + later if wanted else later
    return found[-limit:]


def text_of(timing: Timing) -> str:
    """The timing as a store keeps it."""
    return msgspec.json.encode(timing.facts()).decode()


def timing_of(text: str) -> Timing:
    """The timing that was kept; ConfigurationError when this code cannot read it."""
    try:
        facts = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ConfigurationError(f"a timing cannot be read: {error}") from None
    match facts:
        case {"cron": str(line), "tz": str(tz), "catch_up": catch_up}:
            return Cron(line, tz, catch_up=catch_up)
        case {"every_s": int() | float() as every_s, "start": start, "catch_up": catch_up}:
            return Every(every_s, start and _kept(start), catch_up=catch_up)
        case {"at": str(at), "catch_up": catch_up}:
            return At(_kept(at), catch_up=catch_up)
    raise ConfigurationError(f"a timing cannot be read: {text[:100]!r}")


# ── cron lines and clocks ─────────────────────────────────────────────────────────────────────


def _match(line: str, local: datetime) -> datetime | None:
    """The first time of day after this one that fits the line, whatever the place."""
    try:
        return next(CronSim(line, local), None)
    except (AssertionError, ValueError, TypeError) as error:  # lines that nobody would write
        raise CronSimError(str(error) or "no such field") from None


def _wrong(line: str) -> str | None:
    """Why nobody can follow this line; None: it is sound."""
    try:
        if _match(line, _LONG_AGO) is not None:
            return None
    except CronSimError as error:
        *head, month, weekday = ["", "", *line.split()]
        if not _is_readable(" ".join([*head, "*", weekday])) or not _is_readable(
            f"* * * {month} *"
        ):
            return (
                f"cannot be read: {str(error).lower()}; it has five fields: minute, hour, "
                "day of month, month, day of week; or six, with seconds first"
            )
    return "never fires: there is no such day"


def _is_readable(line: str) -> bool:
    try:
        _match(line, _LONG_AGO)
    except CronSimError:
        return False
    return True


def _named(line: str, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """The next slot of a line that names its times: once for each day and time of the calendar."""
    local: datetime | None = moment.astimezone(zone).replace(tzinfo=None, fold=0)
    while local is not None and (local := _match(line, local)) is not None:
        slot = _first_moment(zone, local)
        if slot > moment:
            return slot
    return None


def _first_moment(zone: ZoneInfo, local: datetime) -> datetime:
    """When the clocks show this time, the first time; for a time that they skip, right after it."""
    moment = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None, fold=0) == local:
        return moment
    before = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return _first_change(zone, before, moment) or moment


def _passing(line: str, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """The next slot of any other line: the next moment at which the clocks show a time that fits.

    Between two changes of the clocks their time grows evenly, so the search goes from change to
    change.  A slot that is far away is approached in one leap: on the way nothing fits.
    """
    start, is_change = moment, False
    while True:
        offset = start.astimezone(zone).utcoffset() or timedelta()
        local = (start + offset).replace(tzinfo=None)
        found = _utc(_match(line, local - _SECOND if is_change else local))
        if found is None:
            return None
        slot, horizon = found - offset, start + _LOOK
        change = _first_change(zone, start, min(slot, horizon))
        if change is None and slot <= horizon:
            return slot
        start, is_change = (change, True) if change else (max(horizon, slot - _LOOK), False)


def _first_change(zone: ZoneInfo, start: datetime, end: datetime) -> datetime | None:
    """The moment above `start` and up to `end` at which the clocks change; they do once at most."""

    def offset(at_s: int) -> timedelta | None:
        return datetime.fromtimestamp(at_s, zone).utcoffset()

    low, high = int(start.timestamp()), int(end.timestamp())
    before = offset(low)
    if offset(high) == before:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if offset(middle) == before else (low, middle)
    return datetime.fromtimestamp(high, UTC)


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError, AttributeError):
        near = get_close_matches(str(name), available_timezones(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "use a name such as 'Europe/Berlin'"
        raise ConfigurationError(f"unknown time zone {name!r}; {hint}") from None


# ── small things ──────────────────────────────────────────────────────────────────────────────


def _check(catch_up: str) -> None:
    if catch_up not in CATCH_UPS:
        raise ConfigurationError(f"catch_up is one of {', '.join(CATCH_UPS)}, not {catch_up!r}")


def _aware(name: str, at: datetime) -> datetime:
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise ConfigurationError(
            f"{name}= is a time with a time zone, such as datetime(…, tzinfo=UTC)"
        )
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ConfigurationError(f"{name}= is beyond the calendar: {at.isoformat()}") from None


def _kept(text: Any) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ConfigurationError(f"a timing has no such time: {text!r}") from None


def _utc(local: datetime | None) -> datetime | None:
    return None if local is None else local.replace(tzinfo=UTC)


_UNITS: Mapping[str, int] = {"day": 86_400, "hour": 3_600, "minute": 60}


def _duration(every_s: float) -> str:
    for unit, size in _UNITS.items():
        if every_s >= size and every_s % size == 0:
            count = int(every_s // size)
            return unit if count == 1 else f"{count} {unit}s"
    return f"{every_s:g} s"
