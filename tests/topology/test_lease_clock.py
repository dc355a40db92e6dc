"""K-3, K-3a: until when a router may act, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.members.lease_clock import LeaseClock

TTL_S = 9.0
PERIOD_S = 1.0
FENCE_S = 6.0


def test_a_fresh_lease_is_good_for_two_thirds_of_its_ttl_from_the_sending_of_the_request() -> None:
    clock = LeaseClock(TTL_S, PERIOD_S, granted_at=100.0)
    assert clock.deadline == pytest.approx(106.0)
    assert clock.vet(105.99)
    assert not clock.vet(106.0)


def test_a_keep_alive_counts_from_its_sending_and_only_when_it_was_answered() -> None:
    clock = LeaseClock(TTL_S, PERIOD_S, granted_at=100.0)
    clock.keep_alive_sent(101.0)
    assert clock.deadline == pytest.approx(106.0)
    clock.keep_alive_succeeded(sent_at=101.0)
    assert clock.deadline == pytest.approx(107.0)


def test_keep_alives_are_due_one_period_after_the_last_was_sent() -> None:
    clock = LeaseClock(TTL_S, PERIOD_S, granted_at=100.0)
    assert clock.next_keep_alive == pytest.approx(101.0)
    clock.keep_alive_sent(103.5)
    assert clock.next_keep_alive == pytest.approx(104.5)


def test_answers_out_of_order_never_bring_the_deadline_forward() -> None:
    clock = LeaseClock(TTL_S, PERIOD_S, granted_at=100.0)
    clock.keep_alive_succeeded(sent_at=103.0)
    clock.keep_alive_succeeded(sent_at=101.0)
    assert clock.deadline == pytest.approx(109.0)


def test_a_router_that_found_itself_past_the_deadline_stays_fenced_whatever_answer_comes_later() -> None:
    clock = LeaseClock(TTL_S, PERIOD_S, granted_at=100.0)
    assert not clock.vet(106.5)
    clock.keep_alive_succeeded(sent_at=106.4)
    assert not clock.vet(106.6)


def test_a_stall_that_nobody_looked_into_is_harmless_while_keep_alives_went_on() -> None:
    clock = LeaseClock(TTL_S, PERIOD_S, granted_at=100.0)
    for second in range(101, 121):
        clock.keep_alive_succeeded(sent_at=float(second))
    assert clock.vet(121.0)


def test_a_lease_known_to_be_lost_passes_no_vetting() -> None:
    clock = LeaseClock(TTL_S, PERIOD_S, granted_at=100.0)
    clock.lose()
    assert not clock.vet(100.1)


@given(
    sent=st.lists(st.tuples(st.floats(0, 50), st.booleans()), max_size=30),
    rate=st.floats(0.667, 1.0),
    looks=st.lists(st.floats(0, 80), min_size=1, max_size=20),
)
def test_no_vetting_passes_after_the_end_of_the_lease_even_on_a_clock_one_third_too_slow(
    sent: list[tuple[float, bool]], rate: float, looks: list[float]
) -> None:
    """True time runs in `store`; the router's clock shows `rate` times that (N-3)."""
    lease = LeaseClock(TTL_S, PERIOD_S, granted_at=0.0)
    store_ends_at = TTL_S
    happenings = sorted([(at, "keep", answered) for at, answered in sent] + [(at, "vet", False) for at in looks])
    for at, what, answered in happenings:
        if what == "keep" and at < store_ends_at:
            store_ends_at = max(store_ends_at, at + TTL_S)
            if answered:
                lease.keep_alive_succeeded(sent_at=at * rate)
        elif what == "vet" and lease.vet(at * rate):
            assert at < store_ends_at
