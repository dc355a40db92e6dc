"""What a client may make a router hold beside bodies, which the budget counts (C-6): a pure core."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

SHARE = 4
"""What all clients do not read, and frames that have come in part, may take one part in so many of `router_bytes`."""
SMALL_BYTES = 64 * 1024
"""A connection that holds less is nobody's trouble: it is never closed for what others hold."""
SESSIONS = 256
"""Sessions of a connection that serves no addresses; programs have one or a few."""
LINKS = 2
"""Links that are attached or wait for the client's detach, as a multiple of `limits.max_links`."""
PART_TIME_S = 60.0
"""In this time a frame or delivery that has come in part grows by `PART_GROWTH`, or is completed."""
PART_GROWTH = 64 * 1024
"""A kilobyte a second: slower than any network that carries messages so large that they come in parts."""

Key = TypeVar("Key")


def too_much(held: Mapping[Key, int], limit: int) -> list[Key]:
    """Whose connections to close: those that hold most, until all others hold no more than the limit.

    Args:
        held: bytes by connection.
        limit: bytes of all.
    """
    left = sum(held.values())
    found: list[Key] = []
    for key, size in sorted(held.items(), key=lambda each: each[1], reverse=True):
        if left <= limit or size < SMALL_BYTES:
            break
        found.append(key)
        left -= size
    return found


@dataclass(slots=True)
class _Part:
    size: int
    since: float


class Parts:
    """What has come in part on one connection: frames and deliveries, by keys that no other one has."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        """Nothing."""
        self._parts: dict[Hashable, _Part] = {}

    def is_stuck(self, sizes: Mapping[Hashable, int], may_send: bool, now: float) -> bool:
        """Whether one of them is stalled, and not because of us.

        Args:
            sizes: bytes that have come of each that is not complete now.
            may_send: whether the client may send more.
            now: seconds, monotonic.
        """
        parts: dict[Hashable, _Part] = {}
        for key, size in sizes.items():
            part = self._parts.get(key)
            goes_on = part is not None and may_send and size < part.size + PART_GROWTH
            parts[key] = part if part is not None and goes_on else _Part(size, now)
        self._parts = parts
        return any(now - part.since >= PART_TIME_S for part in parts.values())
