"""Windows, cursors and runs against plain sets (rules I-1 to I-6)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery_records.model.runs import add_run, frozen_runs
from delivery_records.publisher.window import AWAITED, RECEIVED, REPORTED, Cursor, Window

SMALL = st.integers(0, 30)


@given(start=SMALL, steps=st.lists(st.tuples(SMALL, st.integers(0, 10), SMALL), max_size=40))
def test_a_cursor_counts_each_number_once_and_owes_the_rest(start: int, steps: list[tuple[int, int, int]]) -> None:
    cursor = Cursor(start)
    owed = set(range(start, 60))
    base = 0
    for first, count, settled_below in steps:
        base = max(base, settled_below)
        fresh = list(cursor.acknowledge(first, first + count, base))
        expected = [number for number in range(first, first + count) if number in owed and number >= base]
        assert fresh == expected
        owed -= set(expected)
        assert [number for number in range(base, 60) if cursor.owes(number)] == sorted(
            number for number in owed if number >= base
        )


@given(st.lists(st.tuples(SMALL, st.integers(1, 8)), max_size=30))
def test_a_cursor_keeps_no_number_below_what_it_has_passed(runs: list[tuple[int, int]]) -> None:
    cursor = Cursor(0)
    done: set[int] = set()
    for first, count in runs:
        cursor.acknowledge(first, first + count, 0)
        done.update(range(first, first + count))
        assert all(number > cursor.through for number in cursor.beyond)
        assert set(range(cursor.through)) | cursor.beyond == done


def test_an_empty_or_reversed_range_is_nothing() -> None:
    cursor = Cursor(5)
    assert list(cursor.acknowledge(7, 7, 0)) == []
    assert list(cursor.acknowledge(9, 3, 0)) == []
    assert list(cursor.acknowledge(0, 5, 0)) == []
    assert cursor.owes(5)


@given(
    st.lists(st.sampled_from(["append", "fill", "accept", "remove"]), max_size=80), st.randoms(use_true_random=False)
)
def test_a_window_counts_what_is_in_it(operations: list[str], rng: object) -> None:
    assert hasattr(rng, "choice")
    window = Window([b"m0", b"m1"])
    model: dict[bytes, dict[str, int]] = {b"m0": {}, b"m1": {}}
    made = 0
    for operation in operations:
        tag = rng.choice(sorted(model)) if model else b""
        slot = window.find(tag)
        if operation == "append":
            made += 1
            name = b"n%03d" % made
            window.fill(window.append(name), bytes(made), made)
            model[name] = {"bytes": made}
        elif slot is not None and operation == "fill" and slot.state is AWAITED:
            window.fill(slot, b"12345", 1)
            model[tag]["bytes"] = 5
        elif slot is not None and operation == "accept" and slot.state is RECEIVED:
            slot.state = REPORTED
            window.reported += 1
            model[tag]["reported"] = 1
        elif slot is not None and operation == "remove":
            window.remove(slot)
            del model[tag]
        assert len(window) == len(model)
        assert {slot.tag for slot in window.slots()} == set(model)
        assert window.body_bytes == sum(entry.get("bytes", 0) for entry in model.values())
        assert window.unreceived == sum(1 for entry in model.values() if "bytes" not in entry)
        assert window.reported == sum(entry.get("reported", 0) for entry in model.values())
        numbers = [slot.number for slot in window.slots()]
        assert numbers == sorted(numbers)
        assert all(window.base <= number < window.end for number in numbers)
        assert window.next_accept >= window.base


def test_one_tag_names_one_delivery() -> None:
    window = Window([b"1"])
    with pytest.raises(AssertionError):
        window.append(b"1")


def test_what_stood_in_the_presented_map_is_repeated_when_it_comes() -> None:
    window = Window([b"1"])
    assert [slot.repeated for slot in window.slots()] == [True]
    assert not window.append(b"2").repeated


@given(st.lists(st.integers(0, 12), max_size=40))
def test_runs_name_every_number_in_order(numbers: list[int]) -> None:
    runs: list[list[int]] = []
    for number in numbers:
        add_run(runs, number)
    named = [number for first, count in frozen_runs(runs) for number in range(first, first + count)]
    assert named == numbers
    assert all(one[0] + one[1] != other[0] for one, other in pairwise(runs))
