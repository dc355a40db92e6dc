"""An attach with a large unsettled map, decoded in pieces: it may have 100,000 entries, and others wait meanwhile."""

from __future__ import annotations

from oncewire.wire.decoding import (
    MAX_FRAME_VALUES,
    MAX_VALUES,
    DecodeBudget,
    check_end,
    read_compound_header,
    read_value,
    skip,
    truncated,
)
from oncewire.wire.errors import DecodeError
from oncewire.wire.field_codec import descriptor_code, to_state
from oncewire.wire.performative_codec import decode_performative
from oncewire.wire.performatives import ACCEPTED, Attach, UnsettledMap

# A smaller attach is decoded at once, as all other frames are.
LARGE_FRAME = 8192

# Decoding so many entries costs about as much as one transfer, the unit of work.
ENTRIES_PER_UNIT = 32

_ATTACH = 0x12
_ULONG8 = 0x53
_FIELDS_BEFORE_MAP = 7
_LIST32, _MAP32, _BINARY8, _NULL = 0xD0, 0xD1, 0xA0, 0x40
_ACCEPTED = b"\x00\x53\x24\x45"


class LargeAttach:
    """One that is not decoded yet. Ask for it at ``begin``, call ``decode`` until it is done, then ``finish``."""

    __slots__ = ("_buf", "_count", "_found", "_left", "_others", "_pos", "_stop", "_values_left")

    def __init__(self, buf: bytes, pos: int, stop: int, count: int, others: bytes) -> None:
        """Nothing is decoded.

        Args:
            buf, pos, stop: where the entries of the map are.
            count: of the entries.
            others: the same attach without a map.
        """
        self._buf = buf
        self._pos = pos
        self._stop = stop
        self._count = self._left = count
        self._others = others
        self._found: UnsettledMap = {}
        self._values_left = MAX_VALUES - 2 * count

    @property
    def is_done(self) -> bool:
        """Whether all entries are decoded."""
        return not self._left

    def decode(self, units: int) -> int:
        """Decode as many entries as so many units of work are worth, at least one; returns the units that it took.

        Raises:
            DecodeError: the bytes are no unsettled map.
        """
        buf, pos, stop, found = self._buf, self._pos, self._stop, self._found
        left = self._left
        stops_at = max(0, left - max(1, units * ENTRIES_PER_UNIT))
        before = self._values_left
        while left > stops_at:
            left -= 1
            tag: object
            if pos < stop - 1 and buf[pos] == _BINARY8:
                start = pos + 2
                pos = start + buf[pos + 1]
                tag = buf[start:pos]
            else:
                tag, pos = self._other(pos)
                if not isinstance(tag, bytes):
                    raise DecodeError(f"a {type(tag).__name__} stands where AMQP wants a delivery tag")
            if pos >= stop:
                truncated()
            if buf[pos] == _NULL:
                found[tag] = None
                pos += 1
            elif buf.startswith(_ACCEPTED, pos, stop):
                found[tag] = ACCEPTED
                pos += len(_ACCEPTED)
            else:
                state, pos = self._other(pos)
                found[tag] = None if state is None else to_state(state)
                if before - self._values_left > MAX_FRAME_VALUES:
                    break
        done = self._left - left + before - self._values_left
        self._left = left
        self._pos = pos
        return 1 + done // ENTRIES_PER_UNIT

    def _other(self, pos: int) -> tuple[object, int]:
        """A value that is not the usual one."""
        budget = DecodeBudget(min(MAX_FRAME_VALUES, self._values_left))
        before = budget.values_left
        value, pos = read_value(self._buf, pos, self._stop, budget)
        self._values_left -= 1 + before - budget.values_left
        if self._values_left < 0:
            raise DecodeError("one value holds more elements than the limit allows")
        return value, pos

    def finish(self) -> Attach:
        """The attach, when all is decoded.

        Raises:
            DecodeError: it is none, or its map is not one.
        """
        check_end(self._pos, self._stop)
        if len(self._found) != self._count:  # 1.6.23: identical keys make a map invalid
            raise DecodeError("a map has the same key twice")
        attach, _ = decode_performative(self._others, max_values=MAX_FRAME_VALUES)
        assert isinstance(attach, Attach)
        attach.unsettled = self._found
        return attach


def begin(buf: bytes, pos: int, end: int) -> LargeAttach | None:
    """Look at a frame body; None = no attach with a large map, decode it as any other.

    Raises:
        DecodeError: malformed.
    """
    if end - pos < LARGE_FRAME or buf[pos] != 0 or (buf[pos + 1] == _ULONG8 and buf[pos + 2] != _ATTACH):
        return None
    descriptor, after = read_value(buf, pos + 1, end, DecodeBudget(MAX_FRAME_VALUES))
    if descriptor_code(descriptor) != _ATTACH or after >= end or buf[after] != _LIST32:
        return None
    fields, first, stop = read_compound_header(buf, after + 1, end, 4)
    if fields <= _FIELDS_BEFORE_MAP:
        return None
    at = first
    for _ in range(_FIELDS_BEFORE_MAP):
        at = skip(buf, at, stop)
    if at >= stop or buf[at] != _MAP32:
        return None
    values, entry, map_stop = read_compound_header(buf, at + 1, stop, 4)
    if values % 2:
        raise DecodeError("a map has a key without a value")
    if values > map_stop - entry or values > MAX_VALUES:
        raise DecodeError("one value holds more elements than the limit allows")
    content = fields.to_bytes(4, "big") + buf[first:at] + bytes((_NULL,)) + buf[map_stop:stop]
    others = buf[pos : after + 1] + len(content).to_bytes(4, "big") + content
    return LargeAttach(buf, entry, map_stop, values // 2, others)
