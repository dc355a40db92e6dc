"""What is encoded is decoded again, whatever it is; and no bytes make the decoder do anything but answer or refuse."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from oncewire.wire.codec import decode, encode, skip
from oncewire.wire.errors import DecodeError
from oncewire.wire.types import AmqpArray, AmqpMap, Char, Described, Long, Symbol, Timestamp, UInt, ULong
from tests.support.amqp_values import VALUES, integers
from tests.support.effort import rounds


def _same(left: object, right: object) -> bool:
    """Equal in value and in AMQP type, at every depth."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right) and all(map(_same, _flat(left), _flat(right)))
    if isinstance(left, AmqpMap) and isinstance(right, AmqpMap):
        return _same(left.pairs, right.pairs)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, Described) and isinstance(right, Described):
        return _same(left.descriptor, right.descriptor) and _same(left.value, right.value)
    if isinstance(left, AmqpArray) and isinstance(right, AmqpArray):
        return left.element_type is right.element_type and _same(
            (left.items, left.descriptors), (right.items, right.descriptors)
        )
    return left == right


def _flat(entries: dict[object, object]) -> list[object]:
    return [part for pair in entries.items() for part in pair]


@settings(deadline=None, max_examples=rounds(300))
@given(VALUES)
def test_every_value_survives_encoding_and_decoding(value: object) -> None:
    data = encode(value)
    decoded, end = decode(b"\x40" + data + b"\x40", 1)
    assert _same(decoded, value)
    assert end == 1 + len(data)
    assert skip(data, 0, len(data)) == len(data)
    assert encode(decoded) == data


@given(st.one_of(integers(64, True).map(Long)))
def test_a_long_comes_back_as_a_plain_int(value: int) -> None:
    assert type(decode(encode(value))[0]) is int


@settings(deadline=None, max_examples=rounds(300))
@given(VALUES, st.data())
def test_no_prefix_of_an_encoding_is_accepted(value: object, data: st.DataObject) -> None:
    octets = encode(value)
    cut = data.draw(st.integers(0, len(octets) - 1))
    for read in (lambda: decode(octets[:cut]), lambda: decode(octets, 0, cut), lambda: skip(octets, 0, cut)):
        try:
            read()
        except DecodeError:
            continue
        raise AssertionError(f"{octets[:cut].hex()} was accepted")


@settings(deadline=None, max_examples=rounds(500))
@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        value, end = decode(data)
    except DecodeError:
        return
    assert 0 < end <= len(data)
    assert skip(data, 0, len(data)) == end
    # a received value can be sent on
    assert _same(decode(encode(value))[0], value) or value != value  # noqa: PLR0124  # not a number


def _sample_encodings() -> list[bytes]:
    """Encodings of all kinds, built from a fixed list: the seeded fuzz below starts from them."""
    inner: list[object] = [None, True, UInt(7), ULong(300), "text", Symbol("sym"), b"bin", 1.5, Timestamp(9), Char("x")]
    return [
        encode(inner),
        encode({Symbol("k"): inner, "n": {1: [[], [[]]]}}),
        encode(Described(ULong(0x10), [*inner, Described(Symbol("a:b"), {b"tag": None})])),
        encode(AmqpArray(str, ("a", "bb", "ccc"), (ULong(1),))),
        encode(AmqpArray(list, (inner, inner))),
        encode(AmqpArray(AmqpArray, (AmqpArray(UInt, (UInt(1), UInt(2))),) * 3)),
        encode([b"x" * 300, "y" * 300, inner * 30]),
    ]


def test_mutated_encodings_are_decoded_or_refused() -> None:
    rng = random.Random(20240607)
    samples = _sample_encodings()
    refused = 0
    for _ in range(20_000):
        data = bytearray(rng.choice(samples))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            match rng.randrange(5):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    data[at] ^= 1 << rng.randrange(8)
                case 2:
                    del data[at : at + rng.randint(1, 8)]
                case 3:
                    data[at:at] = rng.randbytes(rng.randint(1, 8))
                case _:
                    data[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00"))
            if not data:
                break
        try:
            _, end = decode(bytes(data))
            assert 0 < end <= len(data)
        except DecodeError:
            refused += 1
    assert refused > 5_000  # the mutations do hit structure
