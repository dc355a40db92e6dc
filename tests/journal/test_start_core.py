"""Where a reader starts, from filters of stream clients and from people (J-19)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bridges.journal.model import AtTime, Place
from bridges.journal.start_core import OFFSET_SPEC, parse_text, start_of
from oncewire.store.errors import InvalidRequest
from oncewire.wire import Described, Source, Symbol, Timestamp, UByte, ULong


def source_with(**filters: object) -> Source:
    return Source(address="journal://orders", filter={Symbol(name): value for name, value in filters.items()})


@pytest.mark.parametrize(
    ("value", "start"),
    [
        ("first", Place.FIRST),
        ("last", Place.LAST),
        ("next", Place.NEXT),
        (ULong(17), 17),
        (Timestamp(1_790_000_000_123), AtTime(1_790_000_000_123_000)),
    ],
)
def test_a_filter_of_streams_says_where_to_start_whatever_its_name(value: object, start: object) -> None:
    assert start_of(source_with(**{OFFSET_SPEC: Described(OFFSET_SPEC, value)})) == start
    assert start_of(source_with(**{OFFSET_SPEC: value})) == start
    assert start_of(source_with(offset=Described(OFFSET_SPEC, value))) == start


def test_a_source_without_a_filter_asks_for_no_start() -> None:
    assert start_of(Source(address="journal://orders")) is None


@pytest.mark.parametrize("value", ["yesterday", "5", 0, -1, True, 2.5, None, UByte(0), b"first"])
def test_a_start_that_cannot_be_is_refused_with_what_can_be(value: object) -> None:
    with pytest.raises(InvalidRequest, match='give "first", "last", "next", a position'):
        start_of(source_with(**{OFFSET_SPEC: Described(OFFSET_SPEC, value)}))


def test_another_filter_is_refused_and_named() -> None:
    with pytest.raises(InvalidRequest, match="the filter selector"):
        start_of(source_with(selector=Described(Symbol("apache.org:selector-filter:string"), "a = 1")))
    with pytest.raises(InvalidRequest, match="the filter other"):
        start_of(source_with(other=1, **{OFFSET_SPEC: "first"}))


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("first", Place.FIRST),
        ("12", 12),
        ("2026-11-29T12:00:00+01:00", AtTime(round(datetime(2026, 11, 29, 11, tzinfo=UTC).timestamp()) * 1_000_000)),
        ("2026-11-29T11:00", AtTime(round(datetime(2026, 11, 29, 11, tzinfo=UTC).timestamp()) * 1_000_000)),
    ],
)
def test_people_write_places_positions_and_times(text: str, start: object) -> None:
    assert parse_text(text) == start


@pytest.mark.parametrize("text", ["", "0", "-3", "soon", "٣"])
def test_a_text_that_is_none_of_these_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="2026-01-31T12:00"):
        parse_text(text)
