"""AMQP values as JSON and as text, for whatever hands messages to programs that do not speak AMQP.

There is a result for every AMQP value, also as the key of a map: what a publisher got *accepted* for must not stop
a reader. JSON has fewer types, so types are lost; `docs/reference/values.md` lists which.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from decimal import Decimal

from oncewire.wire.types import AmqpArray, AmqpMap, Decimal32, Decimal64, Decimal128, Described

_DECIMALS: dict[type[object], tuple[int, int, int]] = {
    Decimal32: (8, 101, 7),
    Decimal64: (10, 398, 16),
    Decimal128: (14, 6176, 34),
}
"""Bits of the exponent, its bias, and digits of the coefficient (IEEE 754-2008, table 3.6)."""


def to_json(value: object) -> object:
    """What stands for an AMQP value in JSON: texts, numbers, booleans, None, lists and dicts with texts as keys."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _no_number(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (Decimal32, Decimal64, Decimal128)):
        return _decimal_text(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return _map_to_json(value.items())
    if isinstance(value, AmqpMap):
        return _map_to_json(value.pairs)
    if isinstance(value, AmqpArray):
        return _described_to_json([*value.descriptors], [to_json(item) for item in value.items])
    if isinstance(value, Described):
        return _described_to_json([value.descriptor], to_json(value.value))
    return str(value)  # a uuid


def encode_json(value: object) -> bytes:
    """An AMQP value as JSON in UTF-8."""
    text = json.dumps(to_json(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "backslashreplace")  # a lone surrogate is escaped as JSON has it


def as_text(value: object) -> str:
    """An AMQP value for people and as a name: texts as they are, all others as JSON."""
    found = to_json(value)
    return found if isinstance(found, str) else encode_json(found).decode()


def body_octets(body: object) -> bytes:
    """The body of a message as it leaves AMQP: binary as it is, a text as UTF-8, any other value as JSON."""
    if isinstance(body, (bytes, bytearray, memoryview)) and type(body) not in _DECIMALS:
        return bytes(body)
    return body.encode() if isinstance(body, str) else encode_json(body)


def _map_to_json(pairs: Iterable[tuple[object, object]]) -> object:
    """An object; a list of pairs where two keys have the same text, because names of an object are unique."""
    entries = list(pairs)
    found = {as_text(key): to_json(item) for key, item in entries}
    if len(found) == len(entries):
        return found
    return [[to_json(key), to_json(item)] for key, item in entries]


def _described_to_json(descriptors: list[object], found: object) -> object:
    for descriptor in reversed(descriptors):
        found = {"descriptor": to_json(descriptor), "value": found}
    return found


def _no_number(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decimal_text(value: Decimal32 | Decimal64 | Decimal128) -> str:
    """The number that the octets stand for: IEEE 754-2008 in the binary integer encoding (1.6.13 to 1.6.15)."""
    exponent_bits, bias, digits = _DECIMALS[type(value)]
    number, bits = int.from_bytes(value, "big"), 8 * len(value)
    sign = "-" if number >> (bits - 1) else ""
    special = (number >> (bits - 6)) & 0x1F
    if special >= 0x1E:
        return "NaN" if special == 0x1F else f"{sign}Infinity"
    rest, implied = bits - 1 - exponent_bits, 0
    if special >= 0x18:  # two bits say so, and the coefficient begins with 100
        rest -= 2
        implied = 4 << rest
    exponent = (number >> rest) & ((1 << exponent_bits) - 1)
    coefficient = implied | number & ((1 << rest) - 1)
    if coefficient >= 10**digits:  # not canonical: it means zero
        coefficient = 0
    return str(Decimal(f"{sign}{coefficient}E{exponent - bias}"))
