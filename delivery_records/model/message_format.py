"""What the core asks of messages, whose format it does not know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from delivery_records.model.expiry_times import ReadTtl, no_ttl
from delivery_records.model.groups import ReadGroup, no_group
from delivery_records.model.letter import MakeLetter, plain_letter

Annotate: TypeAlias = Callable[[bytes, str, bytes, int, str], bytes]
"""(message, publisher, tag, session, user) -> the message with our annotations (I-1b); ValueError if malformed."""


def keep_message(message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
    """An `Annotate` that adds nothing, for runs without a wire format."""
    return message


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """Functions of their arguments alone. The defaults are for runs without a wire format: nothing is in a message."""

    annotate: Annotate = keep_message
    """Splices the annotations of a delivery in (I-1b)."""
    make_letter: MakeLetter = plain_letter
    """Splices those of a dead letter in (I-3e)."""
    read_group: ReadGroup = no_group
    """The group, for shared subscriptions that keep groups in order (SH-6)."""
    read_ttl: ReadTtl = no_ttl
    """The ttl, for topics whose messages expire (E-10)."""


NO_FORMAT = MessageFormat()
