"""When deliveries arrived is known by turns, in bounded memory, and never made younger than it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from delivery_records.publisher.arrivals import MAX_MARKS, Arrivals
from delivery_records.publisher.window import Window

Turns = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(0.001, 10)), max_size=60)


@given(Turns)
def test_every_unsettled_delivery_has_the_time_of_the_turn_it_came_in(turns: list[tuple[int, int, float]]) -> None:
    window, now, times = Window(), 100.0, {}
    arrivals = Arrivals(window.end, now)
    for coming, settled, pause in turns:
        now += pause
        for _ in range(coming):
            times[window.end] = now
            window.append(b"%d" % window.end)
        for slot in list(window.slots())[:settled]:
            window.remove(slot)
        if window.end != arrivals.end:
            arrivals.mark(window, now)
        for slot in window.slots():
            assert arrivals.at(slot.number) == times[slot.number]


def test_what_the_map_presented_counts_as_arrived_when_it_was_presented() -> None:
    window = Window([b"a", b"b"])
    arrivals = Arrivals(window.end, 5.0)
    window.append(b"c")
    arrivals.mark(window, 9.0)
    assert [arrivals.at(number) for number in range(3)] == [5.0, 5.0, 9.0]


def test_memory_is_bounded_while_the_first_delivery_stays_and_ages_only_grow() -> None:
    window = Window()
    arrivals = Arrivals(window.end, 0.0)
    for turn in range(10 * MAX_MARKS):
        window.append(b"%d" % turn)
        arrivals.mark(window, float(turn))
    reported = [arrivals.at(number) for number in range(10 * MAX_MARKS)]
    assert len(set(reported)) <= MAX_MARKS + 1
    assert all(time <= number for number, time in enumerate(reported))
    assert reported == sorted(reported)
    assert reported[0] == 0.0
