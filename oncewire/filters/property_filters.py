"""Filters for properties and application properties (AMQP Filter Expressions 1.0, sections 4.2.4 and 4.2.5).

Each field of the filter must equal that of the message. A string beginning with `&p:` matches by prefix, with `&s:` by
suffix; `&&` stands for one `&` at the beginning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, cast
from uuid import UUID

from oncewire.filters.errors import FilterError
from oncewire.filters.limits import MAX_FIELDS
from oncewire.filters.sections import PROPERTY_FIELDS, MessageSections, is_number
from oncewire.wire.types import Symbol

Fields: TypeAlias = dict[str, object]
"""By field or property; values as JSON has them (`encode_value`)."""
Test: TypeAlias = Callable[[MessageSections], bool]
_PREFIX, _SUFFIX, _ESCAPED = "&p:", "&s:", "&&"
_STRINGS: Final = frozenset({"to", "subject", "reply-to", "group-id", "reply-to-group-id"})
_SYMBOLS: Final = frozenset({"content-type", "content-encoding"})
_NUMBERS: Final = frozenset({"absolute-expiry-time", "creation-time", "group-sequence"})


def read_fields(kind: str, value: object) -> Fields:
    """The fields of a filter as a client sent it.

    Raises:
        FilterError: a field is not known, a value has the wrong type, or there are too many.
    """
    if not isinstance(value, dict) or not 0 < len(value) <= MAX_FIELDS:
        raise FilterError(f"{kind}: the value must be a map of 1 to {MAX_FIELDS} fields")
    fields: Fields = {}
    for key, wanted in cast("Mapping[object, object]", value).items():
        if not isinstance(key, str):
            raise FilterError(f"{kind}: a key is a {type(key).__name__}, not a name")
        if kind == PROPERTIES:
            _check_property(key, wanted)
        if isinstance(wanted, str) and not isinstance(wanted, Symbol):
            _check_modifier(kind, key, wanted)
        fields[str(key)] = encode_value(kind, key, wanted)
    return dict(sorted(fields.items()))


PROPERTIES: Final = "properties"
APPLICATION_PROPERTIES: Final = "application-properties"


def _check_property(name: str, wanted: object) -> None:
    if name not in PROPERTY_FIELDS:
        raise FilterError(f"{PROPERTIES}: {name[:80]} is none of {', '.join(PROPERTY_FIELDS)} (3.2.4)")
    if wanted is None:
        return
    is_text = isinstance(wanted, str) and not isinstance(wanted, Symbol)
    if name in _STRINGS:
        fits, asked = is_text, "string"
    elif name in _SYMBOLS:
        fits, asked = isinstance(wanted, str), "symbol"
    elif name in _NUMBERS:
        fits, asked = isinstance(wanted, int) and not isinstance(wanted, bool), "number"
    elif name == "user-id":
        fits, asked = isinstance(wanted, bytes), "binary"
    else:
        is_whole = isinstance(wanted, int) and not isinstance(wanted, bool)
        fits = is_text or is_whole or isinstance(wanted, (UUID, bytes))
        asked = "string, ulong, uuid or binary"
    if not fits:
        raise FilterError(f"{PROPERTIES}: {name} takes a {asked}, not a {type(wanted).__name__}")


def _check_modifier(kind: str, name: str, wanted: str) -> None:
    if wanted.startswith("&") and not wanted.startswith((_PREFIX, _SUFFIX, _ESCAPED)):
        raise FilterError(f"{kind}: the value of {name[:80]} begins with &; write &&, or &p: or &s: to match a part")


def encode_value(kind: str, name: str, value: object) -> object:
    """A value of a message as JSON has it.

    Raises:
        FilterError: it is none of the simple types, or no number.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, str):
        return {"symbol": str(value)} if isinstance(value, Symbol) else str(value)
    if isinstance(value, UUID):
        return {"uuid": str(value)}
    if type(value) is bytes:
        return {"binary": value.hex()}
    raise FilterError(f"{kind}: the value of {name[:80]} is a {type(value).__name__}, which is not compared")


def decode_value(value: object) -> object:
    """What `encode_value` was given, or as good as that.

    Raises:
        ValueError: it made no such value.
    """
    if isinstance(value, dict) and len(value) == 1:
        ((kind, text),) = value.items()
        if isinstance(text, str):
            if kind == "symbol":
                return Symbol(text)
            if kind == "uuid":
                return UUID(text)
            if kind == "binary":
                return bytes.fromhex(text)
        raise ValueError(f"{kind} is no type of a value")
    if isinstance(value, (dict, list)):
        raise ValueError("a value is a list or a map")
    return value


def compile_properties(fields: Fields) -> Test:
    """A test of the properties."""
    tests = [(PROPERTY_FIELDS.index(name), _matcher(decode_value(wanted))) for name, wanted in fields.items()]
    return lambda sections: all(matches(sections.property(at)) for at, matches in tests)


def compile_application_properties(fields: Fields) -> Test:
    """A test of the application properties; one that is not there matches nothing, not even null."""
    tests = [(name, _matcher(decode_value(wanted))) for name, wanted in fields.items()]

    def test(sections: MessageSections) -> bool:
        found = sections.application()
        return all(name in found and matches(found[name]) for name, matches in tests)

    return test


def _matcher(wanted: object) -> Callable[[object], bool]:
    if wanted is None:
        return lambda _value: True
    if isinstance(wanted, str):
        text = str(wanted)
        if not isinstance(wanted, Symbol):
            if text.startswith((_PREFIX, _SUFFIX)):
                part, is_prefix = text[len(_PREFIX) :], text.startswith(_PREFIX)
                return lambda value: (
                    isinstance(value, str) and (value.startswith(part) if is_prefix else value.endswith(part))
                )
            text = text.removeprefix("&") if text.startswith(_ESCAPED) else text
        return lambda value: isinstance(value, str) and value == text
    if is_number(wanted):
        return lambda value: is_number(value) and value == wanted
    if isinstance(wanted, bool):
        return lambda value: value is wanted
    return lambda value: type(value) is type(wanted) and value == wanted
