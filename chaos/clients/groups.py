"""Groups of the messages that clients of an experiment send (SH-6)."""

from __future__ import annotations


def group_of(seq: int, groups: int) -> int | None:
    """The group of a publisher's message `seq`, where it has one: every second does, in turn."""
    return seq // 2 % groups if groups and seq % 2 else None
