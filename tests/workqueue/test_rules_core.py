"""The pure decisions: back-off, times, schedules, fields of a payload."""

from __future__ import annotations

import sys

import pytest

from bridges.workqueue import InvalidRequest, PartMissing, QueueSettings
from bridges.workqueue.rules_core import backoff, due_at, is_dead, matches
from bridges.workqueue.schedule_core import next_after
from oncewire.store.rules_core import to_s, to_us

SETTINGS = QueueSettings(backoff_s=2, backoff_max_s=100, max_retries=3)


def test_jitter_is_between_half_and_all_of_the_back_off() -> None:
    assert [backoff(1, SETTINGS, chance) for chance in (0.0, 0.5, 1.0)] == [1.0, 1.5, 2.0]


def test_the_back_off_has_a_bound_however_often_an_item_failed() -> None:
    assert backoff(10_000, SETTINGS, 1.0) == 100


def test_an_item_is_dead_after_its_retries() -> None:
    assert [is_dead(failures, SETTINGS) for failures in (3, 4)] == [False, True]


def test_a_time_is_kept_to_the_microsecond() -> None:
    assert to_s(to_us(1_790_000_000.123456)) == 1_790_000_000.123456


@pytest.mark.parametrize("delay", [-1.0, float("inf"), float("nan"), 1e12])
def test_a_delay_that_cannot_be_is_refused(delay: float) -> None:
    with pytest.raises(InvalidRequest):
        due_at(0.0, delay, None)


@pytest.mark.parametrize(
    ("payload", "path", "value", "found"),
    [
        ({"a": {"b": 1}}, "a.b", 1, True),
        ({"a": [{"b": 1}]}, "a.0.b", 1, True),
        ({"a": [1]}, "a.1", 1, False),
        ({"a": 1}, "a", True, False),
        ({"a": True}, "a", True, True),
        ({"a": 1}, "a.b", 1, False),
        ({"a": None}, "a", None, True),
        ({}, "a", None, False),
        ([1], "0", 1, True),
        (7, "a", 7, False),
    ],
)
def test_a_field_is_found_by_its_path(payload: object, path: str, value: object, found: bool) -> None:
    assert matches(payload, {path: value}) is found


def test_a_daily_schedule_keeps_its_local_hour_when_the_clocks_change() -> None:
    before = 1_792_800_000.0  # 2026-10-24 in Berlin, the day before summer time ends
    first = next_after("0 3 * * *", "Europe/Berlin", before)
    second = next_after("0 3 * * *", "Europe/Berlin", first)
    assert second - first == 25 * 3600


def test_without_croniter_a_schedule_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "croniter", None)
    with pytest.raises(PartMissing, match="pip install"):
        next_after("* * * * *", "UTC", 0.0)
