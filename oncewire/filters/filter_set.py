"""The filters of a source (3.5.8): from AMQP's map to the canonical text in a subscription's key, and to a test.

Several filters are one: a message must match them all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias, cast

from oncewire.filters.errors import FilterError
from oncewire.filters.evaluation import compile_selector, takes_steps
from oncewire.filters.limits import COUNTED_WEIGHT, MAX_FILTER_TEXT, MAX_FILTERS, MAX_STEPS
from oncewire.filters.property_filters import (
    APPLICATION_PROPERTIES,
    PROPERTIES,
    Fields,
    compile_application_properties,
    compile_properties,
    decode_value,
    read_fields,
)
from oncewire.filters.sections import MessageSections, Unreadable
from oncewire.filters.selector import check_sum, read_selector
from oncewire.filters.subjects import check_subject_pattern, compile_subject, compile_subject_pattern
from oncewire.filters.syntax import Node, write
from oncewire.wire.types import Described, Symbol, ULong
from oncewire.wire.vocabulary import (
    APPLICATION_PROPERTIES_FILTER,
    FILTER_CODES,
    NO_LOCAL_FILTER,
    PROPERTIES_FILTER,
    SELECTOR_FILTER,
    SUBJECT_FILTER,
    SUBJECT_PATTERN_FILTER,
)

Filters: TypeAlias = tuple[tuple[str, object], ...]
"""(kind, value) of each, in the order of the canonical text."""
SELECTOR, NO_LOCAL, SUBJECT, SUBJECT_PATTERN = "selector", "no-local", "subject", "subject-pattern"
SYMBOLS: Final = {
    SELECTOR: SELECTOR_FILTER,
    NO_LOCAL: NO_LOCAL_FILTER,
    SUBJECT: SUBJECT_FILTER,
    SUBJECT_PATTERN: SUBJECT_PATTERN_FILTER,
    PROPERTIES: PROPERTIES_FILTER,
    APPLICATION_PROPERTIES: APPLICATION_PROPERTIES_FILTER,
}
"""The descriptor of each kind."""
_KINDS: Final = {symbol: kind for kind, symbol in SYMBOLS.items()}
MAX_SHOWN = 100
"""Characters of a filter's name in an error; the text must fit the client's frames."""


@dataclass(frozen=True, slots=True)
class FilterSet:
    """What a canonical text means.

    Attributes:
        no_local: what the subscriber's own container publishes is excluded.
        weight: what it may cost for a message, in plain filters.
        test: True for the sections of a message that matches; None where each message does. It raises `TooCostly`
            and nothing else: for a message that does not match, as finding out takes too much.
    """

    no_local: bool
    weight: int
    test: Callable[[MessageSections], bool] | None


def canonical_text(asked: Mapping[Symbol, object] | None) -> str:
    """The filters that a source asks for, as the subscription's key has them; empty where it asks for none.

    Raises:
        FilterError: one is not offered, or is wrong; it is named.
    """
    if not asked:
        return ""
    if len(asked) > MAX_FILTERS:
        raise FilterError(f"{len(asked)} filters are more than {MAX_FILTERS}; join them in one selector")
    found: list[tuple[str, object]] = []
    wanted = [each for name, each in asked.items() if each is not None and _kind_of(name, each) == SELECTOR]
    check_sum([str(each.value) for each in wanted if isinstance(each, Described)])
    for name, described in asked.items():
        if described is None:
            continue  # 3.5.8: no filter
        kind = _kind_of(name, described)
        assert isinstance(described, Described)
        found.append((kind, _read(kind, described.value)))
    unique = {json.dumps(pair, ensure_ascii=False): pair for pair in found}
    text = json.dumps([unique[key] for key in sorted(unique)], ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise FilterError("a filter has half of a surrogate pair, which UTF-8 cannot write; leave it out") from None
    if len(text) > MAX_FILTER_TEXT:
        raise FilterError(f"the filters have {len(text)} characters, more than {MAX_FILTER_TEXT}; make them shorter")
    return text if unique else ""


def _kind_of(name: str, described: object) -> str:
    descriptor = described.descriptor if isinstance(described, Described) else None
    symbol = FILTER_CODES.get(int(descriptor)) if isinstance(descriptor, int) else descriptor
    kind = _KINDS.get(symbol) if isinstance(symbol, Symbol) else None
    if kind is not None:
        return kind
    shown = str(name)
    if descriptor is not None:
        of = f"0x{int(descriptor):016x}" if isinstance(descriptor, int) else str(descriptor)
        shown = f"{name} ({of})"
    raise FilterError(
        f"filter {shown[:MAX_SHOWN]} is not offered: selectors, no-local, subject and property filters are. Attach"
        " without it, and choose messages by one of these, by topic or in the application",
        "amqp:not-implemented",
    )


def _read(kind: str, value: object) -> object:
    if kind == NO_LOCAL:
        return True  # the value says nothing: an empty list, and a text from Qpid JMS
    if kind in (PROPERTIES, APPLICATION_PROPERTIES):
        return read_fields(kind, value)
    if not isinstance(value, str):
        raise FilterError(f"{kind}: the value is a {type(value).__name__}, not a string")
    if kind == SELECTOR:
        node = read_selector(str(value))
        return write(node)
    if kind == SUBJECT_PATTERN:
        check_subject_pattern(str(value))
    return str(value)


@lru_cache(maxsize=256)
def _selector(text: str) -> Node:
    return read_selector(text)


def read_text(text: str) -> Filters:
    """The filters of a canonical text.

    Raises:
        FilterError: this release cannot read it: a newer one may have written it.
    """
    try:
        pairs = json.loads(text)
        if not isinstance(pairs, list) or not 0 < len(pairs) <= MAX_FILTERS:
            raise ValueError("it is no list of filters")
        filters: list[tuple[str, object]] = []
        for kind, value in pairs:
            if kind not in SYMBOLS:
                raise ValueError(f"{kind!r:.80} is not known")
            filters.append((kind, value))
    except (ValueError, TypeError, RecursionError) as error:
        raise FilterError(
            f"the filter of this subscription cannot be read ({error!s:.200}); attach at a router of the release that"
            " wrote it, or unsubscribe there and subscribe again",
            "amqp:not-implemented",
        ) from None
    return tuple(filters)


def compile_text(text: str) -> FilterSet:
    """What a canonical text means.

    Raises:
        FilterError: as `read_text`, or a value of it is wrong.
    """
    filters = read_text(text)
    try:
        tests = [_compile(kind, value) for kind, value in filters if kind != NO_LOCAL]
    except FilterError:
        raise
    except (ValueError, TypeError, AttributeError) as error:
        raise FilterError(f"the filter of this subscription cannot be read ({error!s:.200})") from None
    selectors = [_selector(str(value)) for kind, value in filters if kind == SELECTOR]
    weight = COUNTED_WEIGHT if any(map(takes_steps, selectors)) else 1
    return FilterSet(any(kind == NO_LOCAL for kind, _ in filters), weight, _safe(tests) if tests else None)


def _compile(kind: str, value: object) -> Callable[[MessageSections], bool]:
    if kind == PROPERTIES:
        return compile_properties(_fields(value))
    if kind == APPLICATION_PROPERTIES:
        return compile_application_properties(_fields(value))
    if not isinstance(value, str):
        raise ValueError(f"{kind} is no text")
    if kind == SELECTOR:
        return compile_selector(_selector(value))
    if kind == SUBJECT:
        return compile_subject(value)
    check_subject_pattern(value)
    return compile_subject_pattern(value)


def _fields(value: object) -> Fields:
    if not isinstance(value, dict):
        raise ValueError("the fields are no map")
    return cast("Fields", value)


def _safe(tests: list[Callable[[MessageSections], bool]]) -> Callable[[MessageSections], bool]:
    def test(sections: MessageSections) -> bool:
        sections.steps_left = MAX_STEPS
        try:
            return all(test(sections) for test in tests)
        except Unreadable:
            return False

    return test


def described(text: str) -> dict[Symbol, object]:
    """A canonical text as AMQP's map, each filter under the name of its descriptor: for a look-up.

    Raises:
        FilterError: as `read_text`.
    """
    found: dict[Symbol, object] = {}
    for number, (kind, value) in enumerate(read_text(text)):
        symbol = SYMBOLS[kind]
        name = symbol if symbol not in found else Symbol(f"{symbol}-{number}")
        found[name] = Described(symbol, _described(kind, value))
    return found


def _described(kind: str, value: object) -> object:
    if kind == NO_LOCAL:
        return []
    if kind in (PROPERTIES, APPLICATION_PROPERTIES):
        fields = _fields(value)
        as_key = Symbol if kind == PROPERTIES else str
        return {as_key(name): _typed(name, kind, each) for name, each in fields.items()}
    return value


def _typed(name: str, kind: str, value: object) -> object:
    decoded = decode_value(value)
    if kind == PROPERTIES and isinstance(decoded, int) and name in ("message-id", "correlation-id"):
        return ULong(decoded)
    return decoded
