"""Delivery-tags of what a journal sends: which journal, and the position in it (J-22)."""

from __future__ import annotations

VERSION = b"J"
"""No network tag begins with it."""
JOURNAL_BYTES = 10
"""As many as a network tag has for cluster and session: what comes from one journal is one session of a map (S-a)."""
POSITION_BYTES = 8


def journal_tag(journal: bytes, position: int) -> bytes:
    """The tag of a message: 19 bytes, the same whenever it is sent. `journal`: bytes that no other journal has."""
    return VERSION + journal[:JOURNAL_BYTES].ljust(JOURNAL_BYTES, b"\0") + position.to_bytes(POSITION_BYTES, "big")


def journal_position(tag: bytes) -> int | None:
    """The position that a tag names; None = it is of no journal."""
    if len(tag) != len(VERSION) + JOURNAL_BYTES + POSITION_BYTES or not tag.startswith(VERSION):
        return None
    return int.from_bytes(tag[-POSITION_BYTES:], "big")
