"""The rest of an unsettled map in flows: every state, in frames of any size (rule C-4)."""

from __future__ import annotations

import pytest

from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    Attach,
    DeliveryState,
    Fields,
    Flow,
    Modified,
    Received,
    Rejected,
    UInt,
    decode_performative,
    encode_performative,
    unsettled_map_bound,
    vocabulary,
)
from oncewire.wire.decoding import MAX_FRAME_VALUES
from oncewire.wire.map_parts import PART_ENTRIES, entries_stated, parts_of, read_part, stated_entries

STATES: list[DeliveryState | None] = [
    None,
    ACCEPTED,
    RELEASED,
    Rejected(),
    Modified(),
    Modified(delivery_failed=True),
    Modified(undeliverable_here=True),
    Received(1, 2),
]
HEADER = 8


def _tag(number: int) -> bytes:
    return b"%032d" % number


@pytest.mark.parametrize("frame_size", [512, 600, 4096, 1 << 20])
def test_all_entries_arrive_with_their_states_in_frames_that_the_peer_takes(frame_size: int) -> None:
    unsettled = {_tag(number): STATES[number % len(STATES)] for number in range(2500)}
    arrived: dict[bytes, DeliveryState | None] = {}
    for properties in parts_of(unsettled, unsettled_map_bound(frame_size)):
        frame = encode_performative(Flow(2**31, 2**31, 2**31, 2**31, 2**31, 2**31, 2**31, properties=properties))
        assert len(frame) + HEADER <= frame_size
        flow, _ = decode_performative(frame, max_values=MAX_FRAME_VALUES)
        assert isinstance(flow, Flow)
        assert flow.properties is not None
        part = read_part(flow.properties[vocabulary.MAP_PART])
        assert part is not None
        assert arrived.keys().isdisjoint(part)
        arrived |= part
    assert arrived == unsettled


def test_a_flow_carries_so_many_entries_and_no_more() -> None:
    unsettled = {_tag(number): Modified(delivery_failed=True) for number in range(PART_ENTRIES + 1)}
    sizes = [len(read_part(part[vocabulary.MAP_PART]) or ()) for part in parts_of(unsettled, 1 << 20)]
    assert sizes == [PART_ENTRIES, 1]


@pytest.mark.parametrize("value", [None, 7, [b"1"], {"1": None}, {b"1": 7}], ids=repr)
def test_what_is_no_unsettled_map_is_none(value: object) -> None:
    assert read_part(value) is None


@pytest.mark.parametrize(
    ("stated", "incomplete", "entries"), [(3, True, 3), (2, True, 0), (1, True, 0), (3, False, 0), (None, True, 0)]
)
def test_an_attach_has_more_behind_it_only_where_it_is_incomplete(
    stated: int | None, incomplete: bool, entries: int
) -> None:
    properties: Fields | None = None if stated is None else {vocabulary.MAP_ENTRIES: UInt(stated)}
    attach = Attach("s", 0, True, unsettled={b"1": None, b"2": None}, properties=properties)
    attach.incomplete_unsettled = incomplete
    assert stated_entries(attach) == entries
    assert stated is None or entries_stated(stated) == properties
