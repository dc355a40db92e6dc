"""The group of a message, and what is kept of it (rule SH-6)."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final, TypeAlias

ReadGroup: TypeAlias = Callable[[bytes, int], bytes | None]
"""(message, message-format) -> its group; None: it has none, or cannot be read. A function of these alone."""
GROUP_BYTES: Final = 16
"""Of a group's hash: what is kept of a name that a client may make as long as a message."""


def no_group(message: bytes, message_format: int) -> bytes | None:
    """For runs without a wire format: no message has a group."""
    return None


def group_hash(read_group: ReadGroup, message: bytes, message_format: int) -> bytes | None:
    """What is kept of a message's group; None: it has none."""
    name = read_group(message, message_format)
    return None if name is None else blake2b(name, digest_size=GROUP_BYTES).digest()
