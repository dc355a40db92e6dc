"""Decoding of the AMQP 1.0 primitive types, in every encoding form (AMQP 1.0 part 1, sections 1.2 to 1.6).

Decoding trusts nothing: every size is checked against what encloses it, nesting and the number of values are bounded,
and only ``DecodeError`` comes out of malformed bytes. ``skip`` finds the end of a value without building it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NoReturn, TypeAlias
from uuid import UUID

from oncewire.wire.errors import DecodeError
from oncewire.wire.types import (
    AmqpArray,
    AmqpMap,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

# Deep enough for every real message; shallow enough that recursion stays far from the interpreter's own limit.
MAX_DEPTH = 32
# Values one decode may build. A full unsettled map in a 4 MiB frame (C-4) has 175,000; a value costs about
# 64 bytes of memory and as little as 0 bytes of input (arrays of null), so the input's length is no bound by itself.
MAX_VALUES = 1 << 18
# The same for a frame, but for the unsettled map of an attach, which is decoded in pieces: 3 ms, in one piece.
MAX_FRAME_VALUES = 1 << 13

Decoded: TypeAlias = tuple[object, int]


class DecodeBudget:
    """What one decode may still use: nesting depth and number of values. Make a new one for each decode."""

    __slots__ = ("depth_left", "values_left")

    def __init__(self, values: int = MAX_VALUES) -> None:
        self.depth_left = MAX_DEPTH
        self.values_left = values

    def enter(self, count: int) -> None:
        """Account for a compound of ``count`` values; pair it with ``leave``."""
        self.depth_left -= 1
        self.values_left -= count
        if self.depth_left < 0:
            raise DecodeError(f"values are nested deeper than {MAX_DEPTH} levels")
        if self.values_left < 0:
            raise DecodeError("one value holds more elements than the limit allows")

    def leave(self) -> None:
        """The compound has been read."""
        self.depth_left += 1


# A reader gets the position after the constructor byte and the end of what encloses the value.

Reader: TypeAlias = Callable[[bytes, int, int, DecodeBudget], Decoded]


def truncated() -> NoReturn:
    """Raise the DecodeError for a value that runs past the end of what encloses it."""
    raise DecodeError("a value runs past the end of the bytes that enclose it")


def decode(buf: bytes | bytearray | memoryview, pos: int = 0, end: int = -1, max_values: int = MAX_VALUES) -> Decoded:
    """Decode one value.

    Args:
        buf: the bytes; anything but ``bytes`` is copied first.
        pos: where the value's constructor starts.
        end: where the value must end at the latest; -1 = the end of ``buf``.
        max_values: how many values it may consist of, all levels together.

    Returns:
        The value and the position after it.

    Raises:
        DecodeError: the bytes are no legal encoding, or a limit was passed.
    """
    data = buf if isinstance(buf, bytes) else bytes(buf)
    if end < 0 or end > len(data):
        end = len(data)
    return read_value(data, pos, end, DecodeBudget(max_values))


def read_value(buf: bytes, pos: int, end: int, budget: DecodeBudget) -> Decoded:
    """Decode one value between ``pos`` and ``end`` on a budget that is shared with other values."""
    if not 0 <= pos < end:
        truncated()
    return _READERS[buf[pos]](buf, pos + 1, end, budget)


def _read_invalid(buf: bytes, pos: int, _end: int, _budget: DecodeBudget) -> Decoded:
    raise DecodeError(f"0x{buf[pos - 1]:02x} is not an AMQP 1.0 format code")


def _read_described(buf: bytes, pos: int, end: int, budget: DecodeBudget) -> Decoded:
    budget.enter(2)
    descriptor, pos = read_value(buf, pos, end, budget)
    if descriptor is None:
        raise DecodeError("the descriptor of a described value is null")
    value, pos = read_value(buf, pos, end, budget)
    budget.leave()
    return Described(descriptor, value), pos


def _constant(value: object) -> Reader:
    def read(_buf: bytes, pos: int, _end: int, _budget: DecodeBudget) -> Decoded:
        return value, pos

    return read


def _read_list0(_buf: bytes, pos: int, _end: int, _budget: DecodeBudget) -> Decoded:
    return [], pos


def _read_boolean(buf: bytes, pos: int, end: int, _budget: DecodeBudget) -> Decoded:
    if pos >= end:
        truncated()
    octet = buf[pos]
    if octet > 1:
        raise DecodeError(f"0x{octet:02x} is not a boolean")
    return octet == 1, pos + 1


def _unsigned(width: int, kind: Callable[[int], object]) -> Reader:
    def read(buf: bytes, pos: int, end: int, _budget: DecodeBudget) -> Decoded:
        stop = pos + width
        if stop > end:
            truncated()
        return kind(int.from_bytes(buf[pos:stop], "big")), stop

    return read


def _signed(width: int, kind: Callable[[int], object]) -> Reader:
    def read(buf: bytes, pos: int, end: int, _budget: DecodeBudget) -> Decoded:
        stop = pos + width
        if stop > end:
            truncated()
        return kind(int.from_bytes(buf[pos:stop], "big", signed=True)), stop

    return read


def _opaque(width: int, kind: Callable[[bytes], object]) -> Reader:
    def read(buf: bytes, pos: int, end: int, _budget: DecodeBudget) -> Decoded:
        stop = pos + width
        if stop > end:
            truncated()
        return kind(buf[pos:stop]), stop

    return read


def _to_float(octets: bytes) -> object:
    return Float(struct.unpack(">f", octets)[0])


def _to_double(octets: bytes) -> object:
    return struct.unpack(">d", octets)[0]


def _to_uuid(octets: bytes) -> object:
    return UUID(bytes=octets)


def _to_char(octets: bytes) -> object:
    try:
        return Char(octets.decode("utf-32-be"))
    except UnicodeDecodeError:
        raise DecodeError("a char is not a Unicode character") from None


def _to_string(octets: bytes) -> object:
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError:
        raise DecodeError("a string is not UTF-8") from None


def _to_symbol(octets: bytes) -> object:
    try:
        return Symbol(octets.decode("ascii"))
    except UnicodeDecodeError:
        raise DecodeError("a symbol is not ASCII") from None


def _to_binary(octets: bytes) -> object:
    return octets


def _variable(size_width: int, kind: Callable[[bytes], object]) -> Reader:
    def read(buf: bytes, pos: int, end: int, _budget: DecodeBudget) -> Decoded:
        start = pos + size_width
        if start > end:
            truncated()
        stop = start + int.from_bytes(buf[pos:start], "big")
        if stop > end:
            truncated()
        return kind(buf[start:stop]), stop

    return read


def read_compound_header(buf: bytes, pos: int, end: int, width: int) -> tuple[int, int, int]:
    """Read size and count of a list, map or array whose two numbers are ``width`` bytes each.

    Returns:
        The count, where the content starts, and where it must end.
    """
    start = pos + 2 * width
    if start > end:
        truncated()
    stop = pos + width + int.from_bytes(buf[pos : pos + width], "big")
    if stop > end or stop < start:
        raise DecodeError("the size of a compound value does not fit what encloses it")
    return int.from_bytes(buf[pos + width : start], "big"), start, stop


def check_end(pos: int, stop: int) -> None:
    """Raise DecodeError unless a compound's elements ended exactly where its size says."""
    if pos != stop:
        raise DecodeError("the size of a compound value disagrees with its elements")


def _read_items(buf: bytes, pos: int, stop: int, count: int, budget: DecodeBudget) -> list[object]:
    if count > stop - pos:  # an element takes a byte or more: refuse huge counts before anything is allocated
        raise DecodeError(f"a compound of {stop - pos} bytes claims {count} elements")
    budget.enter(count)
    items: list[object] = []
    for _ in range(count):
        item, pos = read_value(buf, pos, stop, budget)
        items.append(item)
    check_end(pos, stop)
    budget.leave()
    return items


def _list(width: int) -> Reader:
    def read(buf: bytes, pos: int, end: int, budget: DecodeBudget) -> Decoded:
        count, start, stop = read_compound_header(buf, pos, end, width)
        return _read_items(buf, start, stop, count, budget), stop

    return read


def _map(width: int) -> Reader:
    def read(buf: bytes, pos: int, end: int, budget: DecodeBudget) -> Decoded:
        count, start, stop = read_compound_header(buf, pos, end, width)
        if count % 2:
            raise DecodeError("a map has a key without a value")
        items = _read_items(buf, start, stop, count, budget)
        try:
            result = dict(zip(items[::2], items[1::2], strict=True))
        except TypeError:  # a key is itself a list or a map
            return _amqp_map(items), stop
        return (result if len(result) * 2 == count else _amqp_map(items)), stop

    return read


def _amqp_map(items: list[object]) -> AmqpMap:
    """Keys that Python takes for one may be several: those of different types are different (1.6.23)."""
    if len({_identity(key) for key in items[::2]}) * 2 != len(items):  # identical keys make a map invalid
        raise DecodeError("a map has the same key twice")
    return AmqpMap(tuple(zip(items[::2], items[1::2], strict=True)))


def _identity(value: object) -> object:
    """What is equal for values of the same AMQP type that are equal, at every depth; it can be hashed."""
    if isinstance(value, list):
        return list, tuple([_identity(item) for item in value])
    if isinstance(value, dict):
        return dict, frozenset([(_identity(key), _identity(item)) for key, item in value.items()])
    if isinstance(value, AmqpMap):
        return dict, frozenset([(_identity(key), _identity(item)) for key, item in value.pairs])
    if isinstance(value, AmqpArray):
        return value.element_type, _identity([*value.items]), _identity([*value.descriptors])
    if isinstance(value, Described):
        return Described, _identity(value.descriptor), _identity(value.value)
    return type(value), repr(value) if isinstance(value, float) else value  # 0.0 and -0.0 are two values


def _array(width: int) -> Reader:
    def read(buf: bytes, pos: int, end: int, budget: DecodeBudget) -> Decoded:
        count, pos, stop = read_compound_header(buf, pos, end, width)
        budget.enter(count)
        descriptors: list[object] = []
        while pos < stop and buf[pos] == 0:
            budget.enter(1)  # a level of its own for each descriptor: a chain of them is bounded too
            descriptor, pos = read_value(buf, pos + 1, stop, budget)
            if descriptor is None:
                raise DecodeError("the descriptor of an array is null")
            descriptors.append(descriptor)
        if pos >= stop:
            truncated()
        code = buf[pos]
        pos += 1
        element_type = _ELEMENT_TYPES.get(code)
        if element_type is None:
            raise DecodeError(f"0x{code:02x} is not a format code for array elements")
        if count > stop - pos and code not in _ZERO_WIDTH:
            raise DecodeError(f"an array of {stop - pos} bytes claims {count} elements")
        reader = _READERS[code]
        items: list[object] = []
        for _ in range(count):
            item, pos = reader(buf, pos, stop, budget)
            items.append(item)
        check_end(pos, stop)
        for _ in descriptors:
            budget.leave()
        budget.leave()
        return AmqpArray(element_type, tuple(items), tuple(descriptors)), stop

    return read


def _plain(number: int) -> object:
    return number


_NONE_TYPE: type[object] = type(None)

# format code -> reader, Python type of the value (1.6: all encodings of all primitive types)
_FORMATS: dict[int, tuple[Reader, type[object]]] = {
    0x40: (_constant(None), _NONE_TYPE),
    0x41: (_constant(True), bool),
    0x42: (_constant(False), bool),
    0x43: (_constant(UInt(0)), UInt),
    0x44: (_constant(ULong(0)), ULong),
    0x45: (_read_list0, list),
    0x50: (_unsigned(1, UByte), UByte),
    0x51: (_signed(1, Byte), Byte),
    0x52: (_unsigned(1, UInt), UInt),
    0x53: (_unsigned(1, ULong), ULong),
    0x54: (_signed(1, Int), Int),
    0x55: (_signed(1, _plain), int),
    0x56: (_read_boolean, bool),
    0x60: (_unsigned(2, UShort), UShort),
    0x61: (_signed(2, Short), Short),
    0x70: (_unsigned(4, UInt), UInt),
    0x71: (_signed(4, Int), Int),
    0x72: (_opaque(4, _to_float), Float),
    0x73: (_opaque(4, _to_char), Char),
    0x74: (_opaque(4, Decimal32), Decimal32),
    0x80: (_unsigned(8, ULong), ULong),
    0x81: (_signed(8, _plain), int),
    0x82: (_opaque(8, _to_double), float),
    0x83: (_signed(8, Timestamp), Timestamp),
    0x84: (_opaque(8, Decimal64), Decimal64),
    0x94: (_opaque(16, Decimal128), Decimal128),
    0x98: (_opaque(16, _to_uuid), UUID),
    0xA0: (_variable(1, _to_binary), bytes),
    0xA1: (_variable(1, _to_string), str),
    0xA3: (_variable(1, _to_symbol), Symbol),
    0xB0: (_variable(4, _to_binary), bytes),
    0xB1: (_variable(4, _to_string), str),
    0xB3: (_variable(4, _to_symbol), Symbol),
    0xC0: (_list(1), list),
    0xC1: (_map(1), dict),
    0xD0: (_list(4), list),
    0xD1: (_map(4), dict),
    0xE0: (_array(1), AmqpArray),
    0xF0: (_array(4), AmqpArray),
}
_ELEMENT_TYPES: dict[int, type[object]] = {code: entry[1] for code, entry in _FORMATS.items()}
_ZERO_WIDTH = frozenset(code for code in _FORMATS if code < 0x50)
_READERS: list[Reader] = [_read_invalid] * 256
_READERS[0] = _read_described
for _code, _entry in _FORMATS.items():
    _READERS[_code] = _entry[0]

# high nibble of a format code -> width of a fixed value, or of the size that precedes a variable one (1.2.2)
_FIXED_WIDTHS = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
_SIZE_WIDTHS = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}


def skip(buf: bytes, pos: int, end: int) -> int:
    """Return the position after the value at ``pos``, without looking inside it.

    Raises:
        DecodeError: the value is not complete before ``end`` or has an unknown format code.
    """
    missing = 1
    while missing:
        if not 0 <= pos < end:
            truncated()
        code = buf[pos]
        pos += 1
        if code == 0:  # two values follow instead of one: descriptor and value
            missing += 1
            continue
        if code not in _FORMATS:
            raise DecodeError(f"0x{code:02x} is not an AMQP 1.0 format code")
        missing -= 1
        if code < 0xA0:
            pos += _FIXED_WIDTHS[code >> 4]
        else:
            width = _SIZE_WIDTHS[code >> 4]
            size = int.from_bytes(buf[pos : pos + width], "big")
            if code >= 0xC0 and size < width:
                raise DecodeError("the size of a compound value leaves no room for its count")
            pos += width + size
    if pos > end:
        truncated()
    return pos
