"""The checker of the late query of `oncewire demo-spark`: what is closed, and each thing that can be wrong."""

from __future__ import annotations

import json

import pytest

from chaos.experiments.spark_demo.history_core import Kept, closed_groups, judge_history

BEGAN_US = 1_700_000_000_000_000
SECOND = BEGAN_US // 1_000_000


def flight(carrier: str, number: int) -> bytes:
    return f"2013,1,1,517,515,2,830,819,11,{carrier},{number},N1,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z".encode()


ROWS = [flight(carrier, number) for number, carrier in enumerate(["UA", "UA", "DL", "UA", "B6", "B6"])]
"""In the first second: 2 of UA and 1 of DL; in the next: 1 of UA and 1 of B6; the last closes the first alone."""
ARRIVED_S = (0.0, 0.5, 0.999999, 1.0, 1.5, 2.0)
KEPT = [Kept(BEGAN_US + int(at * 1e6), row) for at, row in zip(ARRIVED_S, ROWS, strict=True)]


def count(carrier: str, flights: int, second: int = SECOND) -> bytes:
    return json.dumps({"second": second, "carrier": carrier, "flights": flights}).encode()


EXACT = [count("UA", 2), count("DL", 1)]


def test_a_second_is_closed_when_the_watermark_has_reached_its_end() -> None:
    groups = {(SECOND * 1000, "UA"): 2, (SECOND * 1000, "DL"): 1}
    assert closed_groups(KEPT) == groups
    assert closed_groups(KEPT[:-1]) == {}
    almost = Kept(BEGAN_US + 1_999_999, ROWS[-1])  # Spark's watermark has milliseconds
    assert closed_groups([*KEPT[:-1], almost]) == {}
    assert closed_groups([]) == {}


def test_counts_that_are_right_and_come_once_are_exact() -> None:
    verdict = judge_history(ROWS, KEPT, EXACT)
    assert verdict.is_exact
    assert (verdict.kept, verdict.groups, verdict.findings) == (6, 2, [])


@pytest.mark.parametrize(
    ("counts", "lost", "duplicated", "torn"),
    [
        (EXACT[:1], 1, 0, 0),
        ([*EXACT, EXACT[0]], 0, 1, 0),
        ([count("UA", 3), EXACT[1]], 0, 0, 1),
        ([*EXACT, count("B6", 1, SECOND + 1)], 0, 0, 1),
        ([*EXACT, b"7"], 0, 0, 1),
        ([*EXACT, b"{"], 0, 0, 1),
    ],
    ids=["missing", "again", "wrong", "not-closed", "no-table", "no-json"],
)
def test_each_fault_of_the_counts_is_found(counts: list[bytes], lost: int, duplicated: int, torn: int) -> None:
    verdict = judge_history(ROWS, KEPT, counts)
    assert (verdict.lost, verdict.duplicated, verdict.torn) == (lost, duplicated, torn)
    assert len(verdict.findings) == 1


def test_a_flight_that_is_missing_from_the_journal_and_one_that_is_there_again_are_found() -> None:
    kept = [KEPT[0], KEPT[0], *KEPT[2:]]
    verdict = judge_history(ROWS, kept, EXACT)
    assert (verdict.lost, verdict.duplicated, verdict.torn) == (1, 1, 0)
    assert len(verdict.findings) == 2
