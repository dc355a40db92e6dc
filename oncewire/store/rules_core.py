"""Decisions of the store that need no database: times, and what is allowed. Pure."""

from __future__ import annotations

import math

from oncewire.store.errors import InvalidRequest, PayloadTooLarge

MAX_MESSAGE_BYTES = 64 << 20
"""The routers' limit of a message."""
MAX_SHOWN = 128
"""Characters of a refused name that its error shows."""
MAX_TOPIC_BYTES = 255
"""As the routers have it: a topic is the name of a link."""
MAX_COUNT = 1000
"""Items of one call: its transaction stays short and its payloads fit in memory."""
MAX_NAME = 128
"""Characters of a name: it fits a notification and an index."""
MAX_DELAY_S = 100 * 366 * 86400.0
"""A hundred years: more is a mistake in the unit."""
US = 1_000_000
"""Stores keep times as whole microseconds, so that order and equality are exact."""


def to_us(seconds: float) -> int:
    """Return a time as stores keep it."""
    return round(seconds * US)


def to_s(us: int) -> float:
    """Return a stored time in seconds."""
    return us / US


def check_topic(topic: str) -> None:
    """Check the name of a topic (W-14).

    Raises:
        InvalidRequest: no link can have it.
    """
    if not topic or len(topic.encode()) > MAX_TOPIC_BYTES or not topic.isprintable() or "|" in topic:
        raise InvalidRequest(
            f"nothing can be published to {topic[:MAX_SHOWN]!r}",
            f"a topic has 1 to {MAX_TOPIC_BYTES} bytes, printable and without '|'",
            "choose another topic",
        )


def check_message(payload: bytes) -> None:
    """Check the size of an encoded message (W-14).

    Raises:
        PayloadTooLarge: no router takes it.
    """
    if len(payload) > MAX_MESSAGE_BYTES:
        raise PayloadTooLarge(
            "the message was not stored",
            f"it has {len(payload)} bytes and routers take {MAX_MESSAGE_BYTES} at most",
            "store its content elsewhere and publish its address",
        )


def check_count(count: int) -> None:
    """Check how many items one call is about (W-14).

    Raises:
        InvalidRequest: too few or too many.
    """
    if not 1 <= count <= MAX_COUNT:
        raise InvalidRequest(
            f"{count} items cannot be handled at once", f"it is not 1 to {MAX_COUNT}", "split the call"
        )


def check_name(kind: str, name: str) -> None:
    """Check the name of a queue, key or schedule (W-14).

    Raises:
        InvalidRequest: it is empty, too long or has control characters or white space at its ends.
    """
    if not name or len(name) > MAX_NAME or not name.isprintable() or name != name.strip():
        raise InvalidRequest(
            f"{name[:MAX_NAME]!r} cannot be the name of a {kind}",
            f"a name has 1 to {MAX_NAME} printable characters without white space at its ends",
            "choose another name",
        )


def check_seconds(what: str, seconds: float, *, zero: bool = True) -> None:
    """Check a duration (W-14).

    Raises:
        InvalidRequest: it is no number, negative or absurdly long.
    """
    if not math.isfinite(seconds) or seconds < 0 or seconds > MAX_DELAY_S or (not zero and seconds == 0):
        raise InvalidRequest(
            f"{what} of {seconds} s cannot be used",
            f"it is not {'0' if zero else 'more than 0'} to {MAX_DELAY_S:g}",
            "give seconds in that range",
        )
