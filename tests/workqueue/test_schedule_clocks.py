"""Schedules where clocks change: each next time against an oracle that walks through the minutes of UTC."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest

from bridges.workqueue import InvalidRequest, NoFurtherTime
from bridges.workqueue.schedule_core import next_after
from tests.support.effort import rounds

FIRST: Final = int(datetime(2018, 1, 1, tzinfo=UTC).timestamp())
END: Final = int(datetime(2028, 1, 1, tzinfo=UTC).timestamp())
WEEK: Final = 7 * 86400
EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - what a clock on the wall shows
MINUTE: Final = timedelta(minutes=1)
AROUND: Final = 4 * 3600
"""More than any clock was put forward or back in these years."""

Fits = Callable[[datetime], bool]

WALL_CLOCK_JOBS: Final[dict[str, Fits]] = {
    "0 0 * * *": lambda t: (t.hour, t.minute) == (0, 0),
    "30 2 * * *": lambda t: (t.hour, t.minute) == (2, 30),
    "30 1,2 * * *": lambda t: t.hour in (1, 2) and t.minute == 30,
    "0,15,59 0-3 * * *": lambda t: t.hour <= 3 and t.minute in (0, 15, 59),
    "0 */2 * * *": lambda t: t.hour % 2 == 0 and t.minute == 0,
    "45 1-23/6 * * mon,sun": lambda t: t.hour % 6 == 1 and t.minute == 45 and t.weekday() in (0, 6),
    "5 22,23,0 * * *": lambda t: t.hour in (22, 23, 0) and t.minute == 5,
}
INTERVAL_JOBS: Final[dict[str, Fits]] = {
    "* * * * *": lambda _: True,
    "*/7 * * * *": lambda t: t.minute % 7 == 0,
    "30 * * * *": lambda t: t.minute == 30,
    "0,40 0-23 * * *": lambda t: t.minute in (0, 40),
    "*/20 2 * * *": lambda t: t.hour == 2 and t.minute % 20 == 0,
    "10-59/15 */3 * * *": lambda t: t.hour % 3 == 0 and t.minute in (10, 25, 40, 55),
    "*/30 0,23 * * sun": lambda t: t.hour in (0, 23) and t.minute % 30 == 0 and t.weekday() == 6,
}
JOBS: Final = WALL_CLOCK_JOBS | INTERVAL_JOBS


class Change(NamedTuple):
    """A zone's clocks are put forward or back at an instant by `after - before`."""

    zone: str
    instant: int
    before: int
    after: int


def offset(zone: ZoneInfo, instant: int) -> int:
    return int((datetime.fromtimestamp(instant, zone).utcoffset() or timedelta()).total_seconds())


@cache
def changes() -> list[Change]:
    """All changes of all zones in ten years; no two are in one week. Zones whose clocks go together are one."""
    found: dict[tuple[tuple[int, int, int], ...], list[Change]] = {}
    for name in sorted(available_timezones()):
        zone, own = ZoneInfo(name), []
        before = offset(zone, FIRST)
        for start in range(FIRST, END, WEEK):
            after = offset(zone, start + WEEK)
            if before == after:
                continue
            week = range(start, start + WEEK)
            instant = start + bisect_left(week, True, key=lambda at: offset(zone, at) != before)
            own.append(Change(name, instant, before, after))
            before = after
        found.setdefault(tuple(change[1:] for change in own), own)
    return [change for own in found.values() for change in own]


def due_instants(change: Change, fits: Fits, *, is_interval: bool) -> list[int]:
    """Walk through the minutes around a change, and note when a job is due."""
    instants = []
    highest = EPOCH
    for instant in range(change.instant - AROUND - AROUND, change.instant + AROUND, 60):
        offset_now = change.before if instant < change.instant else change.after
        shown = EPOCH + timedelta(seconds=instant + offset_now)
        if is_interval:
            is_due = fits(shown)
        else:  # all that the clock shows or passes for the first time
            passed = [shown] if highest == EPOCH else _minutes(highest, shown)
            is_due = any(fits(time) for time in passed)
        highest = max(highest, shown)
        if is_due:
            instants.append(instant)
    return instants


def _minutes(after: datetime, last: datetime) -> Iterator[datetime]:
    while after < last:
        after += MINUTE
        yield after


def check(change: Change, jobs: Sequence[str]) -> None:
    """Ask for the next time from instants before, at and after the change, as a process does that starts there."""
    begin, end = change.instant - AROUND, change.instant + AROUND
    for cron in jobs:
        expected = due_instants(change, JOBS[cron], is_interval=cron in INTERVAL_JOBS)
        some = [due for due in expected if due < end][:: len(expected) // 10 + 1]
        starts = {*range(begin, end, 3700), *some, *(change.instant + step for step in (-1, 0, 1))}
        for start in starts:
            found = next_after(cron, change.zone, start + 0.25)
            following = expected[bisect_right(expected, start) :]
            assert found == following[0] if following else found >= end, f"{cron} in {change} after {start}"


def test_at_each_kind_of_change_a_schedule_is_due_as_the_clock_says_wherever_one_begins() -> None:
    """A kind is by how much, and at which time of the day. `make test` takes two schedules at each, by turns."""
    kinds = {(each.after - each.before, (each.instant + each.before) % 86400): each for each in changes()}
    step = -(-len(JOBS) // rounds(len(JOBS)))
    for number, change in enumerate(kinds.values()):
        check(change, tuple(JOBS)[number % step :: step])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_at_each_change_of_each_zone_a_schedule_is_due_as_the_clock_says_wherever_one_begins() -> None:
    """Two schedules at each change, by turns; a zone with seven changes has seen them all."""
    for number, change in enumerate(changes()):
        check(change, tuple(JOBS)[number % 7 :: 7])


def wall(zone: str, *when: int, fold: int = 0) -> float:
    return datetime(*when, tzinfo=ZoneInfo(zone), fold=fold).timestamp()  # type: ignore[arg-type, misc]


def fired(cron: str, zone: str, since: float, until: float) -> list[float]:
    found = [next_after(cron, zone, since)]
    while found[-1] < until:
        found.append(next_after(cron, zone, found[-1]))
    return found[:-1]


def test_a_daily_job_in_the_repeated_hour_is_due_at_its_first_occurrence_alone() -> None:
    first = wall("Europe/Berlin", 2026, 10, 25, 2, 30)
    assert fired("30 2 * * *", "Europe/Berlin", first - 7200, first + 86400) == [first]


def test_a_daily_job_in_the_missing_hour_is_due_right_after_it() -> None:
    after = wall("Europe/Berlin", 2026, 3, 29, 3, 0)
    assert fired("30 2 * * *", "Europe/Berlin", after - 7200, after + 3600) == [after]


def test_a_job_of_a_day_that_a_zone_leaves_out_is_due_when_the_next_day_begins() -> None:
    after = wall("Pacific/Apia", 2011, 12, 31, 0, 0)
    assert fired("30 12 30 12 *", "Pacific/Apia", after - WEEK, after + WEEK) == [after]


def test_seconds_follow_the_rule_of_minutes() -> None:
    after = wall("Europe/Berlin", 2026, 3, 29, 3, 0)
    assert fired("30 2 * * * 15", "Europe/Berlin", after - 7200, after + 3600) == [after]
    assert fired("30 2 * * * */15", "Europe/Berlin", after - 7200, after + 3600) == []
    first, again = (wall("Europe/Berlin", 2026, 10, 25, 2, 30, fold=fold) for fold in (0, 1))
    assert fired("30 2 * * * */30", "Europe/Berlin", first - 60, again + 60) == [first, first + 30, again, again + 30]


def test_an_interval_job_of_one_night_has_its_second_pass_as_its_last_time() -> None:
    last = wall("Europe/Berlin", 2026, 10, 25, 2, 55, fold=1)
    assert next_after("*/5 2 25 10 * 0 2026", "Europe/Berlin", last - 300) == last
    with pytest.raises(NoFurtherTime):
        next_after("*/5 2 25 10 * 0 2026", "Europe/Berlin", last)


@pytest.mark.parametrize("cron", ["*/5 2 * 3 sun#2", "* 2 * 3 sun#2 *"])
def test_an_interval_job_of_nothing_but_missing_hours_has_no_time(cron: str) -> None:
    with pytest.raises(NoFurtherTime):
        next_after(cron, "America/New_York", float(FIRST))


@pytest.mark.parametrize("cron", ["R 3 * * *", "r(0-10) 3 * * *", "0 3 */r * *"])
def test_a_schedule_with_a_drawn_time_is_refused_since_each_asking_would_draw_another(cron: str) -> None:
    with pytest.raises(InvalidRequest, match="another time"):
        next_after(cron, "UTC", 0.0)


def test_names_and_aliases_are_no_drawn_times() -> None:
    assert next_after("0 3 * MAR FRI", "UTC", float(FIRST)) == wall("UTC", 2018, 3, 2, 3)
    assert next_after("@daily", "Europe/Berlin", float(FIRST)) == wall("Europe/Berlin", 2018, 1, 2)
