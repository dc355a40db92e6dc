"""Strategies for every AMQP value: of each type, as element of each compound, and as key of a map."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from hypothesis import strategies as st

from oncewire.wire.codec import encode
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


def integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low = -(1 << (bits - 1)) if signed else 0
    return st.integers(low, low + (1 << bits) - 1)


TEXT = st.text(st.characters(codec="utf-8"), max_size=300)
SYMBOLS = st.text(st.characters(codec="ascii"), max_size=300).map(Symbol)
ELEMENTS: dict[type[object], st.SearchStrategy[object]] = {
    type(None): st.none(),
    bool: st.booleans(),
    UByte: integers(8, False).map(UByte),
    UShort: integers(16, False).map(UShort),
    UInt: integers(32, False).map(UInt),
    ULong: integers(64, False).map(ULong),
    Byte: integers(8, True).map(Byte),
    Short: integers(16, True).map(Short),
    Int: integers(32, True).map(Int),
    int: integers(64, True),
    Timestamp: integers(64, True).map(Timestamp),
    Float: st.floats(width=32, allow_nan=False).map(Float),
    float: st.floats(allow_nan=False),
    Char: st.characters(codec="utf-8").map(Char),
    Decimal32: st.binary(min_size=4, max_size=4).map(Decimal32),
    Decimal64: st.binary(min_size=8, max_size=8).map(Decimal64),
    Decimal128: st.binary(min_size=16, max_size=16).map(Decimal128),
    UUID: st.uuids(),
    bytes: st.binary(max_size=300),
    str: TEXT,
    Symbol: SYMBOLS,
}
PRIMITIVES = st.one_of(*ELEMENTS.values())
DESCRIPTORS = st.one_of(ELEMENTS[ULong], SYMBOLS)


def _arrays(children: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    def of(kind: type[object], items: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        return st.builds(
            AmqpArray,
            st.just(kind),
            st.lists(items, max_size=5).map(tuple),
            st.lists(DESCRIPTORS, max_size=2).map(tuple),
        )

    simple = st.sampled_from(sorted(ELEMENTS, key=str)).flatmap(lambda kind: of(kind, ELEMENTS[kind]))
    lists, maps = st.lists(children, max_size=3), _maps(PRIMITIVES, children)
    return st.one_of(simple, of(list, lists), of(dict, maps), of(AmqpArray, simple))


def map_of(pairs: Sequence[tuple[object, object]]) -> object:
    """The map as decoding gives it: a dict where that keeps every entry."""
    try:
        found = dict(pairs)
    except TypeError:
        return AmqpMap(tuple(pairs))
    return found if len(found) == len(pairs) else AmqpMap(tuple(pairs))


def _maps(keys: st.SearchStrategy[object], children: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    def of(pairs: list[tuple[object, object]]) -> object:
        return map_of(list({encode(key): (key, item) for key, item in pairs}.values()))

    return st.lists(st.tuples(keys, children), max_size=5).map(of)


# Keys that Python takes for one.
_ALIKE = st.sampled_from((1, 1.0, True, UInt(1), Float(1), 0, 0.0, -0.0, False, "1", Symbol("1"), Char("1")))


def _compounds(children: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(
        st.lists(children, max_size=5),
        _maps(st.one_of(_ALIKE, children), children),
        st.builds(Described, DESCRIPTORS, children),
        _arrays(children),
    )


VALUES = st.recursive(PRIMITIVES, _compounds, max_leaves=20)
