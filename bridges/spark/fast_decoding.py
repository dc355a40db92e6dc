"""The usual message, taken apart without building it: routers' annotations, then one section of data and nothing else.

A source turns a million of these into rows each minute. Whatever looks different is left to `decode_message`.
"""

from __future__ import annotations

from oncewire.wire.vocabulary import DELIVERY_HASH, PARTITION_KEY, PRODUCER, PUBLISHER, SEQUENCE

_DATA = b"\x00\x53\x75"
_ANNOTATIONS = b"\x00\x53\x72"
_HEADER = b"\x00\x53\x70"
_PRODUCER = PRODUCER.encode()
_SEQUENCE = SEQUENCE.encode()
_PUBLISHER = PUBLISHER.encode()
_PARTITION_KEY = PARTITION_KEY.encode()
_FIXED_WIDTH = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
"""Octets of a value by the first half of its constructor (1.2)."""
_STRING_CODES = frozenset({0xA1, 0xB1})
_USUAL_CODES = {
    _PRODUCER: _STRING_CODES,
    _PUBLISHER: _STRING_CODES,
    _SEQUENCE: frozenset({0x44, 0x53, 0x80}),
    DELIVERY_HASH.encode(): frozenset[int](),
    _PARTITION_KEY: frozenset[int](),
}
"""What a value of these keys looks like; nothing = the long way knows what to do with it."""
_ANY_CODE = frozenset(code for code in range(0x40, 0xC0) if code >> 4 in {*_FIXED_WIDTH, 0xA, 0xB})

FastRow = tuple[bytes, str | None, int | None]
"""Value, producer and its number."""


def fast_row(payload: bytes, wants_producer: bool) -> FastRow | None:
    """Value, producer and number of a message that has no properties; None = decode it the long way.

    Args:
        payload: an encoded message.
        wants_producer: False = the other two are not needed.
    """
    pos = 0
    try:
        if payload.startswith(_HEADER):
            form = payload[3]
            if form == 0x45:
                pos = 4
            elif form == 0xC0:
                pos = 5 + payload[4]
            else:
                return None
        start = end = pos
        if payload.startswith(_ANNOTATIONS, pos):
            form = payload[pos + 3]
            if form == 0xC1:
                start, end = pos + 6, pos + 5 + payload[pos + 4]
            elif form == 0xD1:
                start, end = pos + 12, pos + 8 + int.from_bytes(payload[pos + 4 : pos + 8], "big")
            else:
                return None
            pos = end
        if not payload.startswith(_DATA, pos):
            return None
        form = payload[pos + 3]
        if form == 0xA0:
            pos, size = pos + 5, payload[pos + 4]
        elif form == 0xB0:
            pos, size = pos + 8, int.from_bytes(payload[pos + 4 : pos + 8], "big")
        else:
            return None
        if pos + size != len(payload):
            return None
        if not wants_producer:
            return None if payload.find(_PARTITION_KEY, start, end) >= 0 else (payload[pos:], None, None)
        found = _producer(payload, start, end)
        return None if found is None else (payload[pos:], *found)
    except (IndexError, UnicodeDecodeError):
        return None


def _producer(payload: bytes, pos: int, end: int) -> tuple[str | None, int | None] | None:
    """Producer and number from a map's entries, else its publisher; None = something is not as usual.

    Entries are walked through one by one: a value may hold bytes that look like a key.
    """
    producer: bytes | None = None
    publisher: bytes | None = None
    number = -1
    while pos < end:
        if payload[pos] != 0xA3:
            return None
        start = pos + 2
        pos = start + payload[pos + 1]
        key = payload[start:pos]
        code = payload[pos]
        if code not in _USUAL_CODES.get(key, _ANY_CODE):
            return None
        half = code >> 4
        if half == 0xA:
            start, stop = pos + 2, pos + 2 + payload[pos + 1]
        elif half == 0xB:
            start, stop = pos + 5, pos + 5 + int.from_bytes(payload[pos + 1 : pos + 5], "big")
        else:
            start, stop = pos + 1, pos + 1 + _FIXED_WIDTH[half]
        if key == _PRODUCER:
            producer = payload[start:stop]
        elif key == _PUBLISHER:
            publisher = payload[start:stop]
        elif key == _SEQUENCE:
            number = int.from_bytes(payload[start:stop], "big")
        pos = stop
    if pos != end or number >= 1 << 63:
        return None
    if producer is not None and number >= 0:
        return producer.decode(), number
    return (None if publisher is None else publisher.decode()), None
