"""Every encoding form of every primitive type, written by hand from AMQP 1.0 part 1, section 1.6."""

from __future__ import annotations

import math
from uuid import UUID

import pytest

from oncewire.wire.codec import decode, encode, skip
from oncewire.wire.errors import LocalProtocolError
from oncewire.wire.types import (
    AmqpArray,
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

UUID_TEXT = "12345678-1234-5678-1234-567812345678"

# value, its shortest encoding
SHORTEST: list[tuple[object, str]] = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (UByte(0), "50 00"),
    (UByte(255), "50 ff"),
    (UShort(0x1234), "60 12 34"),
    (UInt(0), "43"),
    (UInt(1), "52 01"),
    (UInt(255), "52 ff"),
    (UInt(256), "70 00 00 01 00"),
    (UInt(0xFFFFFFFF), "70 ff ff ff ff"),
    (ULong(0), "44"),
    (ULong(255), "53 ff"),
    (ULong(256), "80 00 00 00 00 00 00 01 00"),
    (ULong(2**64 - 1), "80 ff ff ff ff ff ff ff ff"),
    (Byte(-1), "51 ff"),
    (Byte(127), "51 7f"),
    (Short(-2), "61 ff fe"),
    (Int(-128), "54 80"),
    (Int(127), "54 7f"),
    (Int(128), "71 00 00 00 80"),
    (Int(-(2**31)), "71 80 00 00 00"),
    (-1, "55 ff"),
    (0, "55 00"),
    (128, "81 00 00 00 00 00 00 00 80"),
    (-(2**63), "81 80 00 00 00 00 00 00 00"),
    (Float(1.0), "72 3f 80 00 00"),
    (-2.5, "82 c0 04 00 00 00 00 00 00"),
    (Decimal32(b"\x22\x50\x00\x01"), "74 22 50 00 01"),
    (Decimal64(b"\x22\x38\x00\x00\x00\x00\x00\x01"), "84 22 38 00 00 00 00 00 01"),
    (Decimal128(bytes(range(16))), "94 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f"),
    (Char("A"), "73 00 00 00 41"),
    (Char("\U0001f600"), "73 00 01 f6 00"),
    (Timestamp(1311704463521), "83 00 00 01 31 67 ad b8 a1"),
    (Timestamp(-1), "83 ff ff ff ff ff ff ff ff"),
    (UUID(UUID_TEXT), "98 12 34 56 78 12 34 56 78 12 34 56 78 12 34 56 78"),
    (b"", "a0 00"),
    (b"\x00\xff", "a0 02 00 ff"),
    ("", "a1 00"),
    ("Gl\u00fcck", "a1 06 47 6c c3 bc 63 6b"),
    (Symbol("amqp"), "a3 04 61 6d 71 70"),
    ([], "45"),
    ([UInt(1), "a"], "c0 06 02 52 01 a1 01 61"),
    ({}, "c1 01 00"),
    ({Symbol("k"): True}, "c1 05 02 a3 01 6b 41"),
    (Described(ULong(0x24), []), "00 53 24 45"),
    (Described(Symbol("x:y"), None), "00 a3 03 78 3a 79 40"),
    # the example of section 1.2.1: a described string
    (Described(Symbol("URL"), "http://example.org/"), "00 a3 03 55 52 4c a1 13" + b"http://example.org/".hex()),
    (AmqpArray(Symbol, (Symbol("a"), Symbol("bc"))), "e0 07 02 a3 01 61 02 62 63"),
    (AmqpArray(Symbol, ()), "e0 02 00 a3"),
    (AmqpArray(bool, (True, False)), "e0 04 02 56 01 00"),
    (AmqpArray(type(None), (None, None)), "e0 02 02 40"),
    (AmqpArray(int, (1,)), "e0 0a 01 81 00 00 00 00 00 00 00 01"),
    (AmqpArray(UByte, (UByte(7), UByte(8)), (ULong(3),)), "e0 07 02 00 53 03 50 07 08"),
    (AmqpArray(list, ([], [True])), "e0 13 02 d0 00 00 00 04 00 00 00 00 00 00 00 05 00 00 00 01 41"),
    (AmqpArray(dict, ({},)), "e0 0a 01 d1 00 00 00 04 00 00 00 00"),
    (AmqpArray(AmqpArray, (AmqpArray(UByte, (UByte(1),)),)), "e0 0c 01 f0 00 00 00 06 00 00 00 01 50 01"),
]

# value, an encoding that is legal but not the shortest
LONGER: list[tuple[object, str]] = [
    (True, "56 01"),
    (False, "56 00"),
    (UInt(0), "52 00"),
    (UInt(1), "70 00 00 00 01"),
    (ULong(0), "53 00"),
    (ULong(1), "80 00 00 00 00 00 00 00 01"),
    (Int(-1), "71 ff ff ff ff"),
    (-1, "81 ff ff ff ff ff ff ff ff"),
    (b"ab", "b0 00 00 00 02 61 62"),
    ("ab", "b1 00 00 00 02 61 62"),
    (Symbol("ab"), "b3 00 00 00 02 61 62"),
    ([], "c0 01 00"),
    ([], "d0 00 00 00 04 00 00 00 00"),
    ([True], "d0 00 00 00 05 00 00 00 01 41"),
    ({}, "d1 00 00 00 04 00 00 00 00"),
    ({True: None}, "d1 00 00 00 06 00 00 00 02 41 40"),
    (Described(ULong(0x24), []), "00 80 00 00 00 00 00 00 00 24 c0 01 00"),
    (AmqpArray(UByte, (UByte(9),)), "f0 00 00 00 06 00 00 00 01 50 09"),
    (AmqpArray(str, ("a",)), "e0 07 01 b1 00 00 00 01 61"),
    (AmqpArray(bool, (True, True)), "e0 02 02 41"),
    (AmqpArray(UInt, (UInt(0),) * 3), "e0 02 03 43"),
    (AmqpArray(list, ([], [])), "e0 02 02 45"),
    (AmqpArray(list, ([True],)), "e0 05 01 c0 02 01 41"),
    (AmqpArray(int, (-1,)), "e0 03 01 55 ff"),
    (AmqpArray(UByte, (UByte(7),), (ULong(1), Symbol("b"))), "e0 0a 01 00 53 01 00 a3 01 62 50 07"),
]


@pytest.mark.parametrize(("value", "octets"), SHORTEST)
def test_a_value_is_written_in_its_shortest_form(value: object, octets: str) -> None:
    assert encode(value).hex(" ") == bytes.fromhex(octets).hex(" ")


@pytest.mark.parametrize(("value", "octets"), SHORTEST + LONGER)
def test_every_encoding_form_is_read(value: object, octets: str) -> None:
    data = bytes.fromhex(octets)
    decoded, end = decode(data)
    assert decoded == value
    assert type(decoded) is type(value)
    assert end == len(data)


@pytest.mark.parametrize(("value", "octets"), SHORTEST + LONGER)
def test_skip_finds_the_same_end_as_decode(value: object, octets: str) -> None:
    data = b"\xff" + bytes.fromhex(octets) + b"\xff\xff"
    assert skip(data, 1, len(data)) == len(data) - 2


@pytest.mark.parametrize(
    ("code8", "code32", "value"), [(0xA0, 0xB0, b"x"), (0xA1, 0xB1, "x"), (0xA3, 0xB3, Symbol("x"))]
)
def test_variable_width_values_use_one_size_byte_up_to_255_bytes(code8: int, code32: int, value: object) -> None:
    short = encode(type(value)(value * 255))  # type: ignore[call-arg, operator]
    long = encode(type(value)(value * 256))  # type: ignore[call-arg, operator]
    assert short[:2] == bytes((code8, 255))
    assert long[:5] == bytes((code32, 0, 0, 1, 0))


def test_compounds_change_to_four_byte_sizes_when_one_byte_is_too_small() -> None:
    assert encode([None] * 254)[:3] == b"\xc0\xff\xfe"
    assert encode([None] * 255)[:9] == b"\xd0\x00\x00\x01\x03\x00\x00\x00\xff"
    assert encode([b"x" * 251])[:3] == b"\xc0\xfe\x01"
    assert encode([b"x" * 253])[:9] == b"\xd0\x00\x00\x01\x03\x00\x00\x00\x01"


def test_not_a_number_survives() -> None:
    assert math.isnan(decode(encode(math.nan))[0])  # type: ignore[arg-type]


def test_other_buffers_and_sequences_are_written_like_binary_and_list() -> None:
    assert encode(bytearray(b"ab")) == encode(memoryview(b"ab")) == encode(b"ab")
    assert encode((1, 2)) == encode([1, 2])
    assert encode(Long(5)) == encode(5)


def test_decode_reads_a_value_in_the_middle_of_any_buffer() -> None:
    data = b"\x00" + encode("mitte") + b"\x00"
    for buffer in (data, bytearray(data), memoryview(data)):
        assert decode(buffer, 1) == ("mitte", len(data) - 1)


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        UByte(256),
        UByte(-1),
        UShort(65536),
        UInt(2**32),
        UInt(-1),
        ULong(2**64),
        ULong(-1),
        Byte(128),
        Short(-32769),
        Int(2**31),
        Timestamp(2**63),
        Float(1e300),
        Char("ab"),
        Char("\ud800"),
        Symbol("\u00fc"),
        "\ud800",
        Decimal32(b"\x00"),
        Decimal64(b""),
        Decimal128(b"1"),
        object(),
        {"key": object()},
        Described(None, 1),
        AmqpArray(bytes, (b"", "")),
        AmqpArray(int, (True,)),
        AmqpArray(object, (1,)),
        AmqpArray(int, (1,), (None,)),
    ],
)
def test_what_has_no_encoding_is_a_local_error(value: object) -> None:
    with pytest.raises(LocalProtocolError):
        encode(value)


def test_a_value_that_contains_itself_is_a_local_error() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(LocalProtocolError, match="nested deeper than 32"):
        encode(value)
