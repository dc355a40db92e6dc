"""Ranges of numbers against Python's own set."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.client.transactions.sequence_set import SequenceSet

numbers = st.integers(1, 25)
spans = st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair)))
changes = st.lists(st.tuples(st.booleans(), spans), max_size=25)


@given(changes, spans)
def test_it_holds_the_same_numbers_as_a_set_in_the_fewest_ranges(
    edits: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int]
) -> None:
    ours = SequenceSet()
    plain: set[int] = set()
    for adds, (first, last) in edits:
        if adds:
            ours.add(first, last)
            plain |= set(range(first, last + 1))
        else:
            ours.remove(first, last)
            plain -= set(range(first, last + 1))
        assert [number for number in range(27) if number in ours] == sorted(plain)
    ranges = ours.ranges()
    assert all(first <= last for first, last in ranges)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))
    within = {number for first, last in ours.within(*asked) for number in range(first, last + 1)}
    assert within == plain & set(range(asked[0], asked[1] + 1))
    assert ours.count(*asked) == len(within)
    assert bool(ours) == bool(plain)
    assert SequenceSet(reversed(ranges)) == ours == ours.copy() == SequenceSet.from_text(ours.to_text())
    assert ours.first_missing(asked[0]) == next(number for number in range(asked[0], 27) if number not in plain)
    ours.remove_below(asked[0])
    assert ours == SequenceSet((number, number) for number in plain if number >= asked[0])


def test_a_copy_does_not_change_with_its_model() -> None:
    model = SequenceSet([(1, 5)])
    copy = model.copy()
    model.add(6, 6)
    assert copy.ranges() == [(1, 5)]
    assert model != copy


@pytest.mark.parametrize("text", ["", "[[1,2]", "[1,2]", "[[2,1]]", "[[1]]", "null"])
def test_a_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        SequenceSet.from_text(text)
