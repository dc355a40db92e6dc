"""Decisions of the work queue that need no store: what is allowed, when an item is due, when it is dead. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields

from bridges.workqueue.items import MAX_PAYLOAD_BYTES, MAX_PRIORITY, Json, QueueSettings
from oncewire.store.errors import InvalidRequest, PayloadTooLarge
from oncewire.store.rules_core import MAX_DELAY_S, check_seconds


def check_payload(payload: bytes | None, limit: int) -> None:
    """Check the size of a payload or result (W-14).

    Raises:
        PayloadTooLarge: it is over the queue's limit.
    """
    if payload is not None and len(payload) > limit:
        raise PayloadTooLarge(
            "the payload was not stored",
            f"it has {len(payload)} bytes and the queue takes {limit}",
            "store it elsewhere and push its address, or raise the queue's max_payload_bytes",
        )


def check_priority(priority: int) -> None:
    """Check a priority (W-14).

    Raises:
        InvalidRequest: it is not 0 to 255.
    """
    if not 0 <= priority <= MAX_PRIORITY:
        raise InvalidRequest(
            f"the priority {priority} cannot be used", f"it is not 0 to {MAX_PRIORITY}", "choose one in that range"
        )


def check_settings(settings: QueueSettings) -> None:
    """Check a queue's settings (W-14).

    Raises:
        InvalidRequest: one of them is out of its range.
    """
    for name in ("backoff_s", "backoff_max_s", "history_s"):
        check_seconds(name, getattr(settings, name))
    if settings.max_retries < 0:
        raise InvalidRequest("max_retries cannot be used", "it is negative", "give 0 or more")
    if not 1 <= settings.max_payload_bytes <= MAX_PAYLOAD_BYTES:
        raise InvalidRequest(
            f"max_payload_bytes of {settings.max_payload_bytes} cannot be used",
            f"it is not 1 to {MAX_PAYLOAD_BYTES}",
            "choose one in that range",
        )


SETTING_NAMES = tuple(field.name for field in fields(QueueSettings))


def due_at(now: float, delay: float, when: float | None) -> float:
    """Return when an item is ready (W-2).

    Raises:
        InvalidRequest: no time can be so.
    """
    if when is None:
        check_seconds("a delay", delay)
        return now + delay
    if delay:
        raise InvalidRequest("the item was not stored", "both a delay and a time are given", "give one of them")
    if not math.isfinite(when) or not 0 <= when <= now + MAX_DELAY_S:
        raise InvalidRequest(f"the time {when} cannot be used", "it is out of range", "give seconds since 1970")
    return when


def backoff(retries: int, settings: QueueSettings, chance: float) -> float:
    """Return the delay before the next try (W-7): it doubles, has a bound, and is jittered to half to all of itself.

    Args:
        retries: failures so far, this one included.
        settings: of the queue.
        chance: random, 0 to 1: items that failed together do not come back together.
    """
    assert retries >= 1
    # 2**62 is beyond any bound; a larger exponent could overflow the float.
    whole = min(settings.backoff_max_s, settings.backoff_s * 2.0 ** min(retries - 1, 62))
    return whole * (0.5 + 0.5 * chance)


def is_dead(retries: int, settings: QueueSettings) -> bool:
    """Whether an item that failed so often is dead (W-8)."""
    return retries > settings.max_retries


def dead_letter_reason(retries: int, reason: str) -> str:
    """Return what a dead letter's entry says."""
    return f"failed {retries} times; the last time: {reason or 'no reason was given'}"


REJECTED = "it was rejected"
"""Reason of a worker that gave none."""
RAN_OUT = "its reservation ran out"
"""Reason of a failure that no worker reported (W-6)."""


def matches(payload: Json, wanted: Mapping[str, Json]) -> bool:
    """Whether a JSON payload has these values at these dotted paths; a number in a path is an index of an array."""
    for path, value in wanted.items():
        found = payload
        for step in path.split("."):
            if isinstance(found, dict) and step in found:
                found = found[step]
            elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
                found = found[int(step)]
            else:
                return False
        # True == 1 in Python, and not in JSON.
        if found != value or isinstance(found, bool) != isinstance(value, bool):
            return False
    return True
