"""When a schedule's next instance is due. Pure; needs croniter: ``oncewire[queue]``."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bridges.workqueue.errors import InvalidRequest, PartMissing


def next_after(cron: str, timezone: str, now: float) -> float:
    """Return the first time after `now` that the fields describe (W-12).

    Raises:
        InvalidRequest: the fields or the time zone mean nothing, or no time ever.
        PartMissing: croniter is not installed.
    """
    try:
        from croniter import CroniterError, croniter
    except ImportError as error:
        raise PartMissing(
            "schedules cannot be used",
            f"croniter cannot be loaded ({error})",
            'run pip install "oncewire[queue]"',
        ) from error
    try:
        start = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(timezone))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidRequest(
            f"the time zone {timezone!r} cannot be used",
            "it is not in the IANA database",
            "use one like Europe/Berlin",
        ) from error
    try:
        return float(croniter(cron, start).get_next(datetime).timestamp())
    except (CroniterError, KeyError, AttributeError, TypeError) as error:
        raise InvalidRequest(
            f"the schedule {cron!r} cannot be used",
            str(error) or "its fields mean nothing",
            "give minute, hour, day of month, month and day of week, such as '*/5 * * * *'",
        ) from error
