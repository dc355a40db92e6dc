"""Every AMQP value has a form in JSON, as a value and as a key, and no door has another."""

from __future__ import annotations

import json
import math
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncewire.wire import AmqpArray, AmqpMap, Described, Float, Symbol, Timestamp, UInt, ULong, decode, encode
from oncewire.wire.json_values import as_text, body_octets, encode_json, to_json
from oncewire.wire.types import Char, Decimal32, Decimal64, Decimal128
from tests.support.amqp_values import ELEMENTS, PRIMITIVES, VALUES, map_of
from tests.support.effort import rounds

ALL_FLOATS = st.one_of(st.floats(), st.floats(width=32).map(Float))


def read(octets: bytes) -> object:
    """JSON as a strict reader takes it: names are unique, and NaN is no number."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        assert len(found) == len(pairs), f"a name is there twice: {pairs}"
        return found

    def refuse(name: str) -> object:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(octets.decode(), object_pairs_hook=unique, parse_constant=refuse)


@settings(deadline=None, max_examples=rounds(300))
@given(st.one_of(VALUES, ALL_FLOATS))
def test_every_value_is_json_as_itself_as_an_entry_and_as_a_key(value: object) -> None:
    for each in (value, [value], {"a": value}, map_of([(value, 1)]), map_of([(value, value), ("1", 2), (1, 3)])):
        received, _ = decode(encode(each))
        assert read(encode_json(received)) == to_json(received)
        body_octets(received)
        as_text(received).encode()


@pytest.mark.parametrize("kind", ELEMENTS, ids=lambda kind: kind.__name__)
def test_a_value_of_each_type_can_be_a_key_beside_the_text_that_it_becomes(kind: type[object]) -> None:
    @settings(deadline=None, max_examples=rounds(20))
    @given(ELEMENTS[kind])
    def check(key: object) -> None:
        received, _ = decode(encode(map_of([(key, "k")])))
        assert read(encode_json(received)) == {as_text(key): "k"}
        if type(key) is not str:
            both, _ = decode(encode(map_of([(key, "k"), (as_text(key), "t")])))
            assert read(encode_json(both)) == [[to_json(key), "k"], [as_text(key), "t"]]

    check()


@settings(deadline=None, max_examples=rounds(100))
@given(st.dictionaries(PRIMITIVES, PRIMITIVES, max_size=4))
def test_no_entry_of_a_map_is_left_out(entries: dict[object, object]) -> None:
    found = to_json(entries)
    assert isinstance(found, dict | list)
    assert len(found) == len(entries)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (UInt(5), "5"),
        (-(2**63), "-9223372036854775808"),
        (Timestamp(1), "1"),
        (1.5, "1.5"),
        (decode(b"\x72\x3d\xcc\xcc\xcd")[0], "0.10000000149011612"),
        (math.nan, '"NaN"'),
        (-math.inf, '"-Infinity"'),
        (Char("ä"), '"ä"'),
        (Symbol("s"), '"s"'),
        (b"\xffa", '"\\\\xffa"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (AmqpArray(UInt, (UInt(1), UInt(2))), "[1,2]"),
        (AmqpArray(UInt, (UInt(1),), (Symbol("d"),)), '{"descriptor":"d","value":[1]}'),
        (Described(ULong(7), [b"x"]), '{"descriptor":7,"value":["x"]}'),
        (
            {UUID(int=1): 1, b"b": 2, None: 3, Described(ULong(7), 1): 4},
            '{"00000000-0000-0000-0000-000000000001":1,"b":2,"null":3,"{\\"descriptor\\":7,\\"value\\":1}":4}',
        ),
        ({1: "a", "1": "b"}, '[[1,"a"],["1","b"]]'),
        (AmqpMap((([1], "a"), ({}, "b"))), '{"[1]":"a","{}":"b"}'),
    ],
)
def test_each_type_has_one_form(value: object, text: str) -> None:
    assert encode_json(value).decode() == text


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        ("32800001", "1"),
        ("b2000019", "-2.5"),
        ("32800000", "0"),
        ("78000000", "Infinity"),
        ("f8000000", "-Infinity"),
        ("7c000000", "NaN"),
        ("6cb8967f", "9999999"),
        ("6cb89680", "0"),
        ("31c0000000000001", "1"),
        ("6c7386f26fc0ffff", "9999999999999999"),
        ("30400000000000000000000000000001", "1"),
        ("303c00000000000000000000000004d2", "12.34"),
    ],
)
def test_a_decimal_is_the_text_of_its_number(octets: str, text: str) -> None:
    kind = {8: Decimal32, 16: Decimal64, 32: Decimal128}[len(octets)]
    assert to_json(kind(bytes.fromhex(octets))) == text


def test_a_body_leaves_as_bytes_as_text_or_as_json() -> None:
    assert body_octets(b"\xff") == b"\xff"
    assert body_octets("ä") == "ä".encode()
    assert body_octets(Decimal32(bytes.fromhex("32800001"))) == b'"1"'
    assert body_octets({"a": math.nan}) == b'{"a":"NaN"}'
