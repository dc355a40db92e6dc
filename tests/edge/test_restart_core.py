"""When a part that has failed is started again, and how fast a part works."""

from __future__ import annotations

from bridges.edge.restart_core import AWAITED_S, FIRST_S, LONGEST_S, WELL_S, Failures, Rate


def test_a_part_that_fails_again_and_again_is_tried_less_and_less_often_and_never_given_up() -> None:
    failures = Failures()
    delays = [failures.next_delay(0.0, 1.0) for _ in range(40)]
    assert delays[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert delays[-1] == LONGEST_S
    assert failures.count == 40
    assert failures.next_delay(WELL_S, 1.0) == FIRST_S, "it was well in between"


def test_edges_that_failed_together_come_back_one_after_the_other() -> None:
    assert [Failures().next_delay(0.0, chance) for chance in (0.0, 0.5, 1.0)] == [
        FIRST_S * part for part in (0.5, 0.75, 1.0)
    ]


def test_the_rate_is_that_of_the_last_minute() -> None:
    rate = Rate()
    assert rate.per_second() == 0
    for second in range(200):
        rate.note(float(second), 10 * second if second < 100 else 1000)
    assert rate.per_second() == 0
    rate.note(200.0, 1600)
    assert 9 < rate.per_second() <= 10.1


def test_what_waits_for_its_store_is_started_again_soon_however_long_that_takes() -> None:
    failures = Failures()
    assert max(failures.next_delay(1.0, 1.0, AWAITED_S) for _ in range(20)) == AWAITED_S
