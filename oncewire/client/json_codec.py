"""JSON for plain values, dataclasses and pydantic's models; pydantic is never imported here.

A dataclass is an object of its fields, an enum its value. What JSON has no type for is a string: dates and times in ISO
8601, Decimal, UUID. Reading is strict: a missing field or a value of another type is an error. Fields that the class
does not have are passed over, so that publishers may add some.
"""

from __future__ import annotations

import enum
import json
import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Any, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID

JSON = "application/json"
_FROM_TEXT: Mapping[object, Callable[[str], object]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    Decimal: Decimal,
    UUID: UUID,
}
_PLAIN = (str, int, float, bool, type(None), dict, list)


@dataclass(frozen=True, slots=True)
class JsonCodec:
    """Bodies in JSON.

    Attributes:
        of: the class that bodies are read into: a dataclass, a model of pydantic, or a plain type such as `dict`. What
            is encoded may be of any of these.
    """

    of: type[Any] = dict

    @property
    def content_type(self) -> str:
        """See `Codec`."""
        return JSON

    def encode(self, value: object) -> bytes:
        """See `Codec`."""
        dumped = getattr(value, "model_dump_json", None)
        if dumped is not None and not isinstance(value, type):
            return str(dumped()).encode()
        text = json.dumps(value, default=_plain_of, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()

    def decode(self, body: bytes) -> object:
        """See `Codec`."""
        validate = getattr(self.of, "model_validate_json", None)
        if validate is not None:
            return validate(body)
        return _read(self.of, json.loads(body), "the body")


def _plain_of(value: object) -> object:
    """What json does not know, in its terms."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def _read(wanted: Any, found: object, where: str) -> object:
    """A value of JSON as the type that is wanted; `where` names its place for errors."""
    if wanted is Any or wanted is object:
        return found
    origin = get_origin(wanted)
    if origin in (Union, types.UnionType):
        return _read_one_of(get_args(wanted), found, where)
    if origin in (list, tuple, dict):
        return _read_many(origin, get_args(wanted), found, where)
    if is_dataclass(wanted) and isinstance(wanted, type):
        return _read_dataclass(wanted, found, where)
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return wanted(found)
    if wanted in _FROM_TEXT and isinstance(found, str):
        return _from_text(wanted, found, where)
    if hasattr(wanted, "model_validate"):
        return wanted.model_validate(found)
    if wanted is float and type(found) is int:
        return float(found)
    if wanted in _PLAIN and (type(found) is wanted):
        return found
    if wanted is None and found is None:
        return None
    raise _mismatch(wanted, found, where)


def _from_text(wanted: Any, found: str, where: str) -> object:
    try:
        return _FROM_TEXT[wanted](found)
    except (ValueError, ArithmeticError):
        raise _mismatch(wanted, found, where) from None


def _read_one_of(wanted: tuple[Any, ...], found: object, where: str) -> object:
    for each in wanted:
        try:
            return _read(each, found, where)
        except (TypeError, ValueError):
            continue
    raise ValueError(f"{where} is {_shown(found)}, and is to be {' or '.join(map(_name, wanted))}")


def _read_many(origin: Any, inner: tuple[Any, ...], found: object, where: str) -> object:
    if origin is dict:
        if not isinstance(found, dict) or inner[0] is not str:
            raise _mismatch(origin, found, where)
        return {key: _read(inner[1], value, f"{where}[{key!r}]") for key, value in found.items()}
    if not isinstance(found, list):
        raise _mismatch(origin, found, where)
    if origin is list or inner[1:] == (...,):
        return origin(_read(inner[0], value, f"{where}[{index}]") for index, value in enumerate(found))
    if len(found) != len(inner):
        raise ValueError(f"{where} has {len(found)} values, and is to have {len(inner)}")
    return tuple(
        _read(each, value, f"{where}[{index}]") for index, (each, value) in enumerate(zip(inner, found, strict=True))
    )


@cache
def _fields_of(wanted: Hashable) -> list[tuple[Field[Any], Any]]:
    kind: Any = wanted
    hints = get_type_hints(kind)
    return [(each, hints[each.name]) for each in fields(kind) if each.init]


def _read_dataclass(wanted: type[Any], found: object, where: str) -> object:
    if not isinstance(found, dict):
        raise _mismatch(wanted, found, where)
    values = {}
    for field, hint in _fields_of(cast("Hashable", wanted)):
        if field.name in found:
            values[field.name] = _read(hint, found[field.name], f"{wanted.__name__}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{wanted.__name__}.{field.name} is missing")
    return wanted(**values)


def _mismatch(wanted: Any, found: object, where: str) -> ValueError:
    return ValueError(f"{where} is {_shown(found)}, and is to be {_name(wanted)}")


def _name(wanted: Any) -> str:
    return "null" if wanted in (None, type(None)) else getattr(wanted, "__name__", str(wanted))


def _shown(found: object) -> str:
    text = json.dumps(found)
    return text if len(text) <= 40 else f"{text[:40]}..."
