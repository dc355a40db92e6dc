"""Malformed encodings are refused with ``amqp:decode-error``, at once and without using memory."""

from __future__ import annotations

import tracemalloc

import pytest

from oncewire.wire.codec import MAX_DEPTH, MAX_VALUES, decode, encode, skip
from oncewire.wire.errors import DECODE_ERROR, DecodeError

MALFORMED = {
    "nothing at all": "",
    "unknown format code": "57",
    "unknown format code in a list": "c0 02 01 ff",
    "unknown element code of an array": "e0 03 01 57 00",
    "boolean of 2": "56 02",
    "half a uint": "70 00 00",
    "half a uuid": "98 00 01",
    "binary longer than the rest": "a0 05 61 62",
    "binary32 longer than the rest": "b0 ff ff ff ff 61 62",
    "string without its size": "a1",
    "string32 with half a size": "b1 00 00",
    "string that is not UTF-8": "a1 02 c3 28",
    "string with an encoded surrogate": "a1 03 ed a0 80",
    "symbol that is not ASCII": "a3 02 c3 bc",
    "char that is a surrogate": "73 00 00 d8 00",
    "char beyond Unicode": "73 00 11 00 00",
    "list8 of size 0": "c0 00 00",
    "list32 of size below its count": "d0 00 00 00 03 00 00 00",
    "list longer than the rest": "c0 09 01 41",
    "list with bytes behind its elements": "c0 03 01 41 41",
    "list whose elements pass its end": "c0 02 01 a0 03 61 62 63",
    "list that claims more elements than bytes": "c0 02 02 41",
    "list8 that claims 255 elements": "c0 01 ff",
    "list32 that claims 2**32 - 1 elements": "d0 00 00 00 04 ff ff ff ff",
    "list32 of size 2**32 - 1": "d0 ff ff ff ff ff ff ff ff 41",
    "map with a key and no value": "c1 02 01 41",
    "map with the same key twice": "c1 05 04 41 40 41 40",
    "map with the same list as key twice": "c1 05 04 45 40 45 40",
    "map with the same number in two encodings as key": "c1 0e 04 53 01 40 80 00 00 00 00 00 00 00 01 40",
    "map32 that claims 2**32 - 2 elements": "d1 00 00 00 04 ff ff ff fe",
    "array without an element constructor": "e0 01 00",
    "array of size 0": "e0 00 00",
    "array32 that claims 2**32 - 1 bytes": "f0 00 00 00 05 ff ff ff ff 50",
    "array32 that claims 2**32 - 1 nulls": "f0 00 00 00 05 ff ff ff ff 40",
    "array of empty lists beyond the limit": "f0 00 00 00 05 00 10 00 00 45",
    "array with bytes behind its elements": "e0 04 01 50 01 01",
    "array described by null": "e0 05 01 00 40 50 01",
    "array that ends in its descriptor": "e0 03 01 00 53",
    "array of described values by element": "e0 06 01 00 53 01 00 53",
    "described by null": "00 40 40",
    "descriptor alone": "00 53 10",
    "descriptors of descriptors": "00" * 10_000,
}


@pytest.mark.parametrize("octets", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_bytes_are_refused(octets: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(bytes.fromhex(octets))
    assert caught.value.condition == DECODE_ERROR


@pytest.mark.parametrize(
    "octets",
    ["", "57", "70 00", "a0 05 61", "b0 ff ff ff ff", "c0 ff 00", "c0 00", "d1 00 00 00 03 00 00 00", "f0", "00 53 10"],
)
def test_skip_refuses_what_is_not_complete(octets: str) -> None:
    data = bytes.fromhex(octets)
    with pytest.raises(DecodeError):
        skip(data, 0, len(data))


@pytest.mark.parametrize("pos", [-1, 3, 4])
def test_a_position_outside_the_buffer_is_refused(pos: int) -> None:
    with pytest.raises(DecodeError):
        decode(b"\x40\x40\x40", pos)
    with pytest.raises(DecodeError):
        skip(b"\x40\x40\x40", pos, 3)


def test_a_value_may_not_pass_the_end_that_is_given() -> None:
    data = encode("four")
    assert decode(data + b"rest", 0, len(data)) == ("four", len(data))
    with pytest.raises(DecodeError):
        decode(data + b"rest", 0, len(data) - 1)


def _nested(levels: int) -> bytes:
    data = b"\x45"
    for _ in range(levels - 1):
        size = len(data) + 4
        data = b"\xd0" + size.to_bytes(4, "big") + b"\x00\x00\x00\x01" + data
    return data


def test_nesting_is_bounded() -> None:
    decode(_nested(MAX_DEPTH + 1))  # the innermost list is list0, which costs no level
    with pytest.raises(DecodeError, match="nested deeper"):
        decode(_nested(MAX_DEPTH + 2))
    with pytest.raises(DecodeError, match="nested deeper"):
        decode(_nested(5_000))


def test_the_number_of_values_is_bounded_over_all_levels() -> None:
    # 40 arrays of 10,000 nulls each: 14 bytes apiece, and together more values than one decode may build
    array = b"\xf0\x00\x00\x00\x05\x00\x00\x27\x10\x40"
    content = array * 40
    data = b"\xd0" + (len(content) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x28" + content
    with pytest.raises(DecodeError, match="more elements"):
        decode(data)
    assert decode(data, max_values=2 * MAX_VALUES)[1] == len(data)


@pytest.mark.parametrize(
    "octets",
    [
        "d0 00 00 00 04 ff ff ff ff",
        "d1 00 00 00 04 ff ff ff fe",
        "f0 00 00 00 05 ff ff ff ff 40",
        "f0 00 00 00 05 ff ff ff ff 70",
        "b0 ff ff ff ff 00",
    ],
)
def test_a_huge_claim_costs_no_memory(octets: str) -> None:
    data = bytes.fromhex(octets)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
