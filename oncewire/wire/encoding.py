"""Encoding of the AMQP 1.0 primitive types in their shortest form (AMQP 1.0 part 1, sections 1.2 to 1.6)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias
from uuid import UUID

from oncewire.wire.decoding import MAX_DEPTH
from oncewire.wire.errors import LocalProtocolError
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
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

_NONE_TYPE: type[object] = type(None)


def encode(value: object) -> bytes:
    """Encode one value in its shortest form.

    Tuples are written as lists, bytearray and memoryview as binary, other subclasses as their base class.

    Raises:
        LocalProtocolError: the value has no AMQP type, is out of its type's range, or is nested too deeply.
    """
    return _encode(value, 0)


# Returns the encoded value, or only its content.
Writer: TypeAlias = Callable[[object], bytes]
# The same for values that hold values; the number says how many compounds enclose it.
NestedWriter: TypeAlias = Callable[[object, int], bytes]


def _encode(value: object, depth: int) -> bytes:
    for kind in type(value).__mro__:  # its own type first: this ends at once for all but foreign subclasses
        writer = _WRITERS.get(kind)
        if writer is not None:
            return writer(value)
        nested = _NESTED_WRITERS.get(kind)
        if nested is not None:
            return nested(value, depth)
    raise LocalProtocolError(f"a {type(value).__name__} has no AMQP type")


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise LocalProtocolError(f"values are nested deeper than {MAX_DEPTH} levels")
    return depth + 1


def fixed_integer(value: int, width: int, signed: bool, name: str) -> bytes:
    """Return ``value`` as ``width`` bytes; LocalProtocolError names the AMQP type ``name`` if it does not fit."""
    try:
        return value.to_bytes(width, "big", signed=signed)
    except OverflowError:
        raise LocalProtocolError(f"{value} is out of range for the AMQP type {name}") from None


def _write_null(_value: object) -> bytes:
    return b"\x40"


def _write_bool(value: object) -> bytes:
    return b"\x41" if value else b"\x42"


def _fixed_int(code: bytes, width: int, signed: bool, name: str) -> Writer:
    def write(value: object) -> bytes:
        assert isinstance(value, int)
        return code + fixed_integer(value, width, signed, name)

    return write


_pack_uint = struct.Struct(">BI").pack
_SMALL_UINTS = (b"\x43", *(bytes((0x52, number)) for number in range(1, 256)))


def encode_uint(value: int) -> bytes:
    """Encode an AMQP uint.

    Raises:
        LocalProtocolError: negative, or over 2**32 - 1.
    """
    if 255 < value <= 0xFFFFFFFF:
        return _pack_uint(0x70, value)
    if 0 <= value < 256:
        return _SMALL_UINTS[value]
    raise LocalProtocolError(f"{value} is out of range for the AMQP type uint")


def _write_uint(value: object) -> bytes:
    assert isinstance(value, int)
    return encode_uint(value)


def _write_ulong(value: object) -> bytes:
    assert isinstance(value, int)
    if 0 < value < 256:
        return b"\x53" + value.to_bytes(1, "big")
    return b"\x44" if value == 0 else b"\x80" + fixed_integer(value, 8, False, "ulong")


def _write_int(value: object) -> bytes:
    assert isinstance(value, int)
    if -128 <= value < 128:
        return b"\x54" + value.to_bytes(1, "big", signed=True)
    return b"\x71" + fixed_integer(value, 4, True, "int")


def _write_long(value: object) -> bytes:
    assert isinstance(value, int)
    if -128 <= value < 128:
        return b"\x55" + value.to_bytes(1, "big", signed=True)
    return b"\x81" + fixed_integer(value, 8, True, "long")


def _float_octets(value: object) -> bytes:
    assert isinstance(value, float)
    try:
        return struct.pack(">f", value)
    except OverflowError:
        raise LocalProtocolError(f"{value} is out of range for the AMQP type float") from None


def _write_float(value: object) -> bytes:
    return b"\x72" + _float_octets(value)


def _double_octets(value: object) -> bytes:
    return struct.pack(">d", value)


def _write_double(value: object) -> bytes:
    return b"\x82" + _double_octets(value)


def _char_octets(value: object) -> bytes:
    assert isinstance(value, str)
    if len(value) != 1:
        raise LocalProtocolError(f"an AMQP char is one character, not {len(value)}")
    try:
        return value.encode("utf-32-be")
    except UnicodeEncodeError:
        raise LocalProtocolError("a char is not a Unicode character") from None


def _write_char(value: object) -> bytes:
    return b"\x73" + _char_octets(value)


def _decimal_octets(width: int) -> Writer:
    def octets(value: object) -> bytes:
        assert isinstance(value, bytes)
        if len(value) != width:
            raise LocalProtocolError(f"an AMQP decimal{width * 8} is {width} bytes, not {len(value)}")
        return bytes(value)

    return octets


def _decimal(code: bytes, width: int) -> Writer:
    octets = _decimal_octets(width)

    def write(value: object) -> bytes:
        return code + octets(value)

    return write


def _uuid_octets(value: object) -> bytes:
    assert isinstance(value, UUID)
    return value.bytes


def _write_uuid(value: object) -> bytes:
    return b"\x98" + _uuid_octets(value)


def sized(code8: int, code32: int, octets: bytes) -> bytes:
    """Return ``octets`` behind the constructor and size that fit: the form with one size byte, or with four."""
    size = len(octets)
    if size < 256:
        return bytes((code8, size)) + octets
    return bytes((code32,)) + fixed_integer(size, 4, False, "size") + octets


_SMALL_BINARY_HEADS = tuple(bytes((0xA0, size)) for size in range(256))


def binary_head(size: int) -> bytes:
    """Constructor and size of AMQP binary of so many bytes.

    Raises:
        LocalProtocolError: AMQP has no binary of that size.
    """
    if size < 256:
        return _SMALL_BINARY_HEADS[size]
    return b"\xb0" + fixed_integer(size, 4, False, "size")


def encode_binary(value: bytes | bytearray | memoryview) -> bytes:
    """Encode AMQP binary."""
    if isinstance(value, bytes) and len(value) < 256:
        return _SMALL_BINARY_HEADS[len(value)] + value
    return sized(0xA0, 0xB0, bytes(value))


def _binary_octets(value: object) -> bytes:
    assert isinstance(value, (bytes, bytearray, memoryview))
    return bytes(value)


def _write_binary(value: object) -> bytes:
    return sized(0xA0, 0xB0, _binary_octets(value))


def _string_octets(value: object) -> bytes:
    assert isinstance(value, str)
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise LocalProtocolError("a string cannot be written as UTF-8") from None


def encode_string(value: str) -> bytes:
    """Encode an AMQP string."""
    return sized(0xA1, 0xB1, _string_octets(value))


def _write_string(value: object) -> bytes:
    return sized(0xA1, 0xB1, _string_octets(value))


def _symbol_octets(value: object) -> bytes:
    assert isinstance(value, str)
    try:
        return value.encode("ascii")
    except UnicodeEncodeError:
        raise LocalProtocolError(f"the symbol {value!r} is not ASCII") from None


def encode_symbol(value: str) -> bytes:
    """Encode an AMQP symbol."""
    return sized(0xA3, 0xB3, _symbol_octets(value))


def _write_symbol(value: object) -> bytes:
    return sized(0xA3, 0xB3, _symbol_octets(value))


def compound(code8: int, code32: int, count: int, octets: bytes) -> bytes:
    """Return the elements' ``octets`` behind constructor, size and count of a list, map or array."""
    if count < 256 and len(octets) < 255:
        return bytes((code8, len(octets) + 1, count)) + octets
    return bytes((code32,)) + _compound32(count, octets)


def _compound32(count: int, octets: bytes) -> bytes:
    head = fixed_integer(len(octets) + 4, 4, False, "size") + fixed_integer(count, 4, False, "count")
    return head + octets


def _list_octets(value: object, depth: int) -> tuple[int, bytes]:
    assert isinstance(value, (list, tuple))
    inner = _deeper(depth)
    return len(value), b"".join([_encode(item, inner) for item in value])


def _write_list(value: object, depth: int) -> bytes:
    count, octets = _list_octets(value, depth)
    return compound(0xC0, 0xD0, count, octets) if count else b"\x45"


def _map_octets(value: object, depth: int) -> tuple[int, bytes]:
    assert isinstance(value, (dict, AmqpMap))
    inner = _deeper(depth)
    parts: list[bytes] = []
    for key, item in value.pairs if isinstance(value, AmqpMap) else value.items():
        parts.append(_encode(key, inner))
        parts.append(_encode(item, inner))
    return len(parts), b"".join(parts)


def _write_map(value: object, depth: int) -> bytes:
    count, octets = _map_octets(value, depth)
    return compound(0xC1, 0xD1, count, octets)


def _write_described(value: object, depth: int) -> bytes:
    assert isinstance(value, Described)
    if value.descriptor is None:
        raise LocalProtocolError("a described value needs a descriptor")
    inner = _deeper(depth)
    return b"\x00" + _encode(value.descriptor, inner) + _encode(value.value, inner)


def _array_octets(value: object, depth: int) -> tuple[int, bytes]:
    assert isinstance(value, AmqpArray)
    inner = _deeper(depth)
    head = b""
    for descriptor in value.descriptors:
        if descriptor is None:
            raise LocalProtocolError("a described array needs a descriptor")
        inner = _deeper(inner)
        head += b"\x00" + _encode(descriptor, inner)
    for item in value.items:
        fits = isinstance(item, value.element_type) or (value.element_type is dict and isinstance(item, AmqpMap))
        if not fits or (value.element_type is int and isinstance(item, bool)):
            raise LocalProtocolError(f"{item!r} is no {value.element_type.__name__}, as all of its array must be")
    return len(value.items), head + _elements(value.element_type, value.items, inner)


def _elements(kind: type[object], items: tuple[object, ...], depth: int) -> bytes:
    """Return the constructor that the elements of an array share, and the elements."""
    fixed = _FIXED_ELEMENTS.get(kind)
    if fixed is not None:
        return fixed[0] + b"".join([fixed[1](item) for item in items])
    variable = _VARIABLE_ELEMENTS.get(kind)
    if variable is not None:
        octets = [variable[2](item) for item in items]
        if all(len(element) < 256 for element in octets):
            return variable[0] + b"".join([bytes((len(element),)) + element for element in octets])
        return variable[1] + b"".join([fixed_integer(len(e), 4, False, "size") + e for e in octets])
    counted = _COMPOUND_ELEMENTS.get(kind)
    if counted is None:
        raise LocalProtocolError(f"{kind.__name__} is no element type of an AMQP array")
    compounds = [counted[1](item, depth) for item in items]
    return counted[0] + b"".join([_compound32(count, octets) for count, octets in compounds])


def _write_array(value: object, depth: int) -> bytes:
    count, octets = _array_octets(value, depth)
    return compound(0xE0, 0xF0, count, octets)


def _int_octets(width: int, signed: bool, name: str) -> Writer:
    def octets(value: object) -> bytes:
        assert isinstance(value, int)
        return fixed_integer(value, width, signed, name)

    return octets


def _no_octets(_value: object) -> bytes:
    return b""


def _bool_octets(value: object) -> bytes:
    return b"\x01" if value else b"\x00"


_FIXED_ELEMENTS: dict[type[object], tuple[bytes, Writer]] = {
    _NONE_TYPE: (b"\x40", _no_octets),
    bool: (b"\x56", _bool_octets),
    UByte: (b"\x50", _int_octets(1, False, "ubyte")),
    Byte: (b"\x51", _int_octets(1, True, "byte")),
    UShort: (b"\x60", _int_octets(2, False, "ushort")),
    Short: (b"\x61", _int_octets(2, True, "short")),
    UInt: (b"\x70", _int_octets(4, False, "uint")),
    Int: (b"\x71", _int_octets(4, True, "int")),
    ULong: (b"\x80", _int_octets(8, False, "ulong")),
    Long: (b"\x81", _int_octets(8, True, "long")),
    int: (b"\x81", _int_octets(8, True, "long")),
    Timestamp: (b"\x83", _int_octets(8, True, "timestamp")),
    Float: (b"\x72", _float_octets),
    float: (b"\x82", _double_octets),
    Char: (b"\x73", _char_octets),
    Decimal32: (b"\x74", _decimal_octets(4)),
    Decimal64: (b"\x84", _decimal_octets(8)),
    Decimal128: (b"\x94", _decimal_octets(16)),
    UUID: (b"\x98", _uuid_octets),
}
_VARIABLE_ELEMENTS: dict[type[object], tuple[bytes, bytes, Writer]] = {
    bytes: (b"\xa0", b"\xb0", _binary_octets),
    str: (b"\xa1", b"\xb1", _string_octets),
    Symbol: (b"\xa3", b"\xb3", _symbol_octets),
}
_COMPOUND_ELEMENTS: dict[type[object], tuple[bytes, Callable[[object, int], tuple[int, bytes]]]] = {
    list: (b"\xd0", _list_octets),
    dict: (b"\xd1", _map_octets),
    AmqpArray: (b"\xf0", _array_octets),
}
_WRITERS: dict[type[object], Writer] = {
    _NONE_TYPE: _write_null,
    bool: _write_bool,
    UByte: _fixed_int(b"\x50", 1, False, "ubyte"),
    Byte: _fixed_int(b"\x51", 1, True, "byte"),
    UShort: _fixed_int(b"\x60", 2, False, "ushort"),
    Short: _fixed_int(b"\x61", 2, True, "short"),
    UInt: _write_uint,
    Int: _write_int,
    ULong: _write_ulong,
    Long: _write_long,
    int: _write_long,
    Timestamp: _fixed_int(b"\x83", 8, True, "timestamp"),
    Float: _write_float,
    float: _write_double,
    Char: _write_char,
    Decimal32: _decimal(b"\x74", 4),
    Decimal64: _decimal(b"\x84", 8),
    Decimal128: _decimal(b"\x94", 16),
    UUID: _write_uuid,
    bytes: _write_binary,
    bytearray: _write_binary,
    memoryview: _write_binary,
    str: _write_string,
    Symbol: _write_symbol,
}
_NESTED_WRITERS: dict[type[object], NestedWriter] = {
    list: _write_list,
    tuple: _write_list,
    dict: _write_map,
    AmqpMap: _write_map,
    AmqpArray: _write_array,
    Described: _write_described,
}
