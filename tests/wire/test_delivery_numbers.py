"""What is reported to peers where deliveries were never sent, against a list of all ids that were given out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncewire.wire.delivery_numbers import DeliveryNumbers
from oncewire.wire.unsettled import SERIAL_MASK


@given(st.integers(0, SERIAL_MASK), st.lists(st.sets(st.integers(0, 40), min_size=1), min_size=1), st.integers(0, 40))
def test_numbers_that_are_reported_count_up_without_a_gap_and_lead_back(
    first: int, drops: list[set[int]], settled: int
) -> None:
    ids = [(first + number) & SERIAL_MASK for number in range(41)]
    numbers = DeliveryNumbers()
    dropped: set[int] = set()
    oldest = 0
    for drop in drops:
        fresh = sorted(number for number in drop - dropped if number >= oldest)
        numbers.drop([ids[number] for number in fresh], ids[oldest])
        dropped |= set(fresh)
        sent = [number for number in range(41) if number not in dropped]
        reported = {number: (first + place) & SERIAL_MASK for place, number in enumerate(sent)}
        for number in sent:
            if number >= oldest:
                assert numbers.reported(ids[number]) == reported[number]
                assert numbers.own(reported[number]) == ids[number]
        oldest = max(oldest, min(settled, 40))
