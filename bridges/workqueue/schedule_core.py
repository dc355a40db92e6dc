"""When a schedule's next instance is due (W-25). Pure; needs croniter: ``oncewire[queue]``.

croniter names the wall-clock times that the fields describe. Which instants those are is decided here, because a clock
that is put forward leaves times out, and one that is put back shows them twice:

- A *wall-clock job* is due when the clock first shows one of its times or, where it leaves that time out, passes it.
- An *interval job* is due whenever the clock shows one of its times.

Both are sets of instants that depend on fields and time zone alone. So it does not matter when the next one is asked
for.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from math import floor
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bridges.workqueue.errors import NoFurtherTime
from oncewire.store.errors import InvalidRequest, PartMissing

SECOND: Final = timedelta(seconds=1)
YEARS_AHEAD: Final = 50
"""How far a time is looked for: the 29th of February on a given weekday comes back within 40 years."""
DRAWN: Final = re.compile(r"(?<![a-z])r(?![a-z])", re.IGNORECASE)
"""croniter draws a value for R whenever it reads it, so that each asking would find another time."""

Times: TypeAlias = Callable[[datetime], Iterator[datetime]]
"""The times that a schedule describes on a clock, later than a given one, in their order."""


def next_after(cron: str, timezone: str, now: float) -> float:
    """Return the first time after `now` at which a schedule is due (W-25).

    Raises:
        InvalidRequest: the fields or the time zone mean nothing.
        NoFurtherTime: there is no such time.
        PartMissing: croniter is not installed.
    """
    croniter = _croniter()
    clock = _Clock(_zone(timezone))
    last = floor(now)
    try:
        if DRAWN.search(cron):
            raise ValueError("R means another time whenever it is read")
        start = clock.reading(last)
        fields = croniter(cron, start, ret_type=datetime, max_years_between_matches=YEARS_AHEAD)
        times = partial(_times, fields, start.year + YEARS_AHEAD)
        find = _next_shown if _is_interval(cron, fields.expanded) else _next_passed
        due = find(times, clock, last)
    # A CroniterError is a ValueError; the others come from fields that croniter does not check.
    except (ValueError, KeyError, AttributeError, TypeError, IndexError) as error:
        raise InvalidRequest(
            f"the schedule {cron!r} cannot be used",
            str(error) or "its fields mean nothing",
            "give minute, hour, day of month, month and day of week, such as '*/5 * * * *'",
        ) from error
    if due is None:
        raise NoFurtherTime(
            f"the schedule {cron!r} cannot be used",
            f"it describes no time within {YEARS_AHEAD} years",
            "give days and hours that there are",
        )
    return float(due)


def _croniter() -> Any:
    try:
        from croniter import croniter
    except ImportError as error:
        raise PartMissing(
            "schedules cannot be used", f"croniter cannot be loaded ({error})", 'run pip install "oncewire[queue]"'
        ) from error
    return croniter


def _zone(timezone: str) -> ZoneInfo:
    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidRequest(
            f"the time zone {timezone!r} cannot be used",
            "it is not in this machine's IANA database",
            'use one like Europe/Berlin, or run pip install --upgrade "oncewire[queue]" tzdata',
        ) from error


def _times(fields: Any, last_year: int, after: datetime) -> Iterator[datetime]:
    fields.set_current(after, force=True)
    for time in fields.all_next():
        if time.year > last_year:
            return
        yield time


@dataclass(frozen=True, slots=True)
class _Clock:
    """What a clock on the wall of a time zone shows. Instants are whole Unix seconds."""

    zone: ZoneInfo

    def reading(self, instant: int) -> datetime:
        return datetime.fromtimestamp(instant, UTC).astimezone(self.zone).replace(tzinfo=None)

    def instants(self, time: datetime) -> list[int]:
        """When the clock shows a time: once, twice, or never."""
        found = {_unix(time, self.zone, fold) for fold in (0, 1)}
        return sorted(instant for instant in found if self.reading(instant) == time)

    def passed(self, time: datetime) -> int:
        """When the clock first shows a time or a later one."""
        if shown := self.instants(time):
            return shown[0]
        # It is left out: read with the offset after the gap it is an instant before it, and the other way round.
        around = range(_unix(time, self.zone, 1), _unix(time, self.zone, 0) + 1)
        return around[bisect_left(around, True, key=lambda instant: self.reading(instant) >= time)]

    def put_back(self, instant: int) -> int | None:
        """When the clock is put back to a time before the one that it shows now; None where it shows that one once."""
        now = self.reading(instant)
        until = range(instant, self.instants(now)[-1] + 1)
        if len(until) == 1:
            return None
        return until[bisect_left(until, True, key=lambda then: self.reading(then) != now + (then - instant) * SECOND)]


def _unix(time: datetime, zone: ZoneInfo, fold: int) -> int:
    return int(time.replace(tzinfo=zone, fold=fold).timestamp())


def _is_interval(cron: str, expanded: list[list[int | str]]) -> bool:
    """Distinguish an interval job from a wall-clock job as Vixie cron's manual does.

    An interval job runs in each hour, or has a ``*`` or a step among its minutes or seconds.
    """
    fields = cron.split()
    return expanded[1] == ["*"] or any("*" in field or "/" in field for field in fields[:1] + fields[5:6])


def _next_passed(times: Times, clock: _Clock, last: int) -> int | None:
    for time in times(clock.reading(last)):
        if (due := clock.passed(time)) > last:  # not in the second pass of a repeated hour
            return due
    return None


def _next_shown(times: Times, clock: _Clock, last: int) -> int | None:
    due = _first_shown(times, clock, clock.reading(last), last)
    back = clock.put_back(last)
    if back is None:
        return due
    again = _first_shown(times, clock, clock.reading(back) - SECOND, back - 1)
    return min((each for each in (due, again) if each is not None), default=None)


def _first_shown(times: Times, clock: _Clock, start: datetime, last: int) -> int | None:
    """Return the first instant after `last` that shows the first of the times after `start` that the clock shows."""
    while (time := next(times(start), None)) is not None:
        if shown := [instant for instant in clock.instants(time) if instant > last]:
            return shown[0]
        start = max(time, clock.reading(clock.passed(time)) - SECOND)  # past the gap that it lies in
    return None
