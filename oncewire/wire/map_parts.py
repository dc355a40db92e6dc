"""An unsettled map that does not fit its attach: the rest of it follows in flows (rule C-4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from oncewire.wire.decoding import decode
from oncewire.wire.errors import DecodeError
from oncewire.wire.field_codec import encode_state, to_state
from oncewire.wire.performatives import Attach, DeliveryState, Fields, UnsettledMap
from oncewire.wire.types import UInt
from oncewire.wire.vocabulary import MAP_ENTRIES, MAP_PART, number_in

PART_ENTRIES: Final = 1000
"""Entries of one flow: with their states fewer values than a frame may have, and decoded in about a millisecond."""


def stated_entries(attach: Attach) -> int:
    """Entries of the whole map, where an attach states that it carries a part and more follow; else 0."""
    stated = number_in(attach.properties, MAP_ENTRIES) or 0
    return stated if attach.incomplete_unsettled and stated > len(attach.unsettled or ()) else 0


def entries_stated(count: int) -> Fields:
    """What an attach says of a map of so many entries, not all of which it carries."""
    return {MAP_ENTRIES: UInt(count)}


def parts_of(unsettled: Mapping[bytes, DeliveryState | None], bound: int) -> Iterator[Fields]:
    """Properties of the flows that carry these entries. `bound`: as many fit an attach, which has more beside them."""
    entries = iter(unsettled.items())
    while part := dict(islice(entries, max(1, min(PART_ENTRIES, bound)))):
        yield {MAP_PART: {tag: decode(encode_state(state))[0] for tag, state in part.items()}}


def read_part(value: object) -> UnsettledMap | None:
    """The entries that a flow carries; None: it is no unsettled map."""
    if not isinstance(value, dict):
        return None
    part: UnsettledMap = {}
    for tag, state in value.items():
        if not isinstance(tag, bytes):
            return None
        try:
            part[tag] = None if state is None else to_state(state)
        except DecodeError:
            return None
    return part
