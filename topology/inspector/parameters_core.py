"""Checks requests: query parameters, tags, and the requests of a watch; with clear errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delivery_records.model.tags import MAX_TAG_BYTES
from topology.inspector.rates_core import POINTS
from topology.inspector.rows_core import DEFAULT_ROWS, MAX_ROWS, OF_ATTACHMENTS, WATCHABLE, Filter, InputError
from topology.inspector.topic_names_core import topic_named

MAX_TEXT = 2_048
"""Characters of a filter: two names of 1,024 bytes."""
MAX_ID = 64
MAX_SECONDS = 1e9
PAGE_PARAMETERS = frozenset({"limit", "cursor", "topic", "router", "q", "network", "own"})
WAIT_PARAMETERS = PAGE_PARAMETERS | {"min_s"}
RATE_PARAMETERS = frozenset({"topic", "router", "q", "network", "points"})
DELIVERY_PARAMETERS = frozenset({"publisher", "network"})
OVERVIEW_PARAMETERS = frozenset({"network"})
HOLDER_PARAMETERS = frozenset({"of"})
MAX_PAIRS = 60
"""Pairs of delivery and subscription in one request: they fit in a request line of 8 KiB."""
KEY_DIGITS = 40
"""Of a subscription's key, in hex."""
EVENT_PARAMETERS = frozenset({"after", "limit", "network"})


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One page of a table."""

    limit: int
    cursor: str | None
    wanted: Filter
    min_s: float = 0.0
    is_network: bool = False
    is_own: bool = False
    """Only rows of which this router knows more than others."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """A request of a watcher."""

    id: str
    tables: tuple[str, ...]
    narrow: Filter
    """For subscriptions, publishers and waits."""

    def filter_of(self, table: str) -> Filter:
        """Which rows of a table it requests."""
        return self.narrow if table in OF_ATTACHMENTS else Filter()


def page_request(query: Mapping[str, str], known: frozenset[str] = PAGE_PARAMETERS) -> PageRequest:
    """Read the parameters of a page.

    Raises:
        InputError: one is unknown, or its value makes no sense.
    """
    check_names(query, known)
    wanted = Filter(topic_named(_text(query, "topic")), _text(query, "router"), _text(query, "q"))
    is_network, is_own = flag(query, "network"), flag(query, "own")
    if is_network and is_own:
        raise InputError("own=true is what routers ask each other for network=true", "leave one of them out")
    min_s = _seconds(query.get("min_s", "0"))
    return PageRequest(limit_of(query), query.get("cursor"), wanted, min_s, is_network, is_own)


def check_names(query: Mapping[str, str], known: frozenset[str]) -> None:
    """Refuses unknown parameters: they are typing errors.

    Raises:
        InputError: there is one.
    """
    unknown = sorted(set(query) - known)
    if unknown:
        names = ", ".join(sorted(known)) or "none"
        raise InputError(f"unknown parameter {unknown[0]!r}", f"parameters here: {names}")


def limit_of(query: Mapping[str, str]) -> int:
    """The parameter `limit`.

    Raises:
        InputError: it is no number from 1 to 500.
    """
    return _number(query, "limit", DEFAULT_ROWS, 1, MAX_ROWS)


def points_of(query: Mapping[str, str]) -> int:
    """The parameter `points`.

    Raises:
        InputError: it is no number from 1 to 60.
    """
    return _number(query, "points", POINTS, 1, POINTS)


def after_of(query: Mapping[str, str]) -> int | None:
    """The parameter `after`; None if it is missing.

    Raises:
        InputError: it is no number of an event.
    """
    return _number(query, "after", 0, 0, 1 << 62) if "after" in query else None


def flag(query: Mapping[str, str], name: str) -> bool:
    """A parameter that is true or false.

    Raises:
        InputError: it is neither.
    """
    value = query.get(name, "false")
    if value not in ("true", "false"):
        raise InputError(f"{name}={value!r} is neither true nor false", f"give {name}=true, or leave it out")
    return value == "true"


def tag_of(text: str) -> bytes:
    """A delivery tag in hex.

    Raises:
        InputError: it is none.
    """
    fix = f"give 1 to {MAX_TAG_BYTES} bytes as hex digits, two for each, such as the network tag a log or the API names"
    try:
        tag = bytes.fromhex(text)
    except ValueError:
        raise InputError(f"the tag {text[:80]!r} is not hex", fix) from None
    if not 1 <= len(tag) <= MAX_TAG_BYTES or len(text) != 2 * len(tag):
        raise InputError(f"the tag {text[:80]!r} is not 1 to {MAX_TAG_BYTES} bytes", fix)
    return tag


def pairs_of(query: Mapping[str, str]) -> list[tuple[bytes, str]]:
    """The parameter `of`: network tags with keys of subscriptions, as `TAG.KEY,TAG.KEY`.

    Raises:
        InputError: it is something else.
    """
    pairs: list[tuple[bytes, str]] = []
    for text in query.get("of", "").split(","):
        tag, _, key = text.partition(".")
        if len(key) != KEY_DIGITS or not set(key) <= set("0123456789abcdef"):
            raise InputError(f"{key[:80]!r} is no key of a subscription", "give of=TAG.KEY,...: both are hex")
        pairs.append((tag_of(tag), key))
    if len(pairs) > MAX_PAIRS:
        raise InputError(f"more than {MAX_PAIRS} pairs are asked about", "ask several times")
    return pairs


def watch_request(wish: object) -> WatchRequest:
    """Reads the request of a watcher.

    Raises:
        InputError: it makes no sense.
    """
    fix = 'send {"tables": ["overview", ...], "topic": "orders" or null, "router": "r1" or null}'
    if not isinstance(wish, dict):
        raise InputError("a wish is a JSON object", fix)
    unknown = sorted(str(name) for name in set(wish) - {"id", "tables", "topic", "router"})
    if unknown:
        raise InputError(f"unknown member {unknown[0]!r}", fix)
    tables = wish.get("tables", [])
    if not isinstance(tables, list) or not all(table in WATCHABLE for table in tables):
        raise InputError(f"tables must be a list of {', '.join(WATCHABLE)}", fix)
    narrow = Filter(topic_named(_wish_text(wish, "topic", fix)), _wish_text(wish, "router", fix))
    names = dict.fromkeys([*tables, *(OF_ATTACHMENTS if not narrow.is_empty else ())])
    if not names:
        raise InputError("no table is asked for", fix)
    watch_id = _wish_text(wish, "id", fix)
    if len(watch_id) > MAX_ID:
        raise InputError(f"the id is longer than {MAX_ID} characters", "send a shorter one")
    return WatchRequest(watch_id, _in_order(list(names)), narrow)


def wish_id(wish: object) -> str:
    """The id of a refused request; empty without one."""
    found = wish.get("id") if isinstance(wish, dict) else None
    return found if isinstance(found, str) and len(found) <= MAX_ID else ""


def _in_order(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(table for table in WATCHABLE if table in names)


def _wish_text(wish: Mapping[str, Any], name: str, fix: str) -> str:
    value = wish.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise InputError(f"{name} must be text of at most {MAX_TEXT} characters, or null", fix)
    return value


def _text(query: Mapping[str, str], name: str) -> str:
    value = query.get(name, "")
    if len(value) > MAX_TEXT:
        raise InputError(f"{name} is longer than {MAX_TEXT} characters", "give a shorter text")
    return value


def _number(query: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    value = query.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) <= 20 and low <= int(value) <= high):
        wrong = f"{name}={value[:80]!r} is no whole number from {low} to {high}"
        raise InputError(wrong, f"give {name}={default or low}")
    return int(value)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_SECONDS:
        raise InputError(f"min_s={value[:80]!r} is no number of seconds", "give min_s=1, or leave it out")
    return seconds
