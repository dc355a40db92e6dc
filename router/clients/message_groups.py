"""The group of an AMQP message, as shared subscriptions that keep groups in order want it (SH-6)."""

from __future__ import annotations

from typing import Final

from oncewire.filters.sections import PROPERTY_FIELDS, MessageSections, Unreadable
from oncewire.wire import vocabulary
from oncewire.wire.annotations import read_annotations
from oncewire.wire.errors import DecodeError

_GROUP_ID: Final = PROPERTY_FIELDS.index("group-id")


def read_group(message: bytes, message_format: int) -> bytes | None:
    """The annotation `x-opt-group-id`, else the group-id of the properties (3.2.4); None: no group, or not readable."""
    if message_format:
        return None
    try:
        found = read_annotations(message).get(vocabulary.GROUP_ID)
        if found is None:
            found = MessageSections(message, message_format).property(_GROUP_ID)
    except (DecodeError, Unreadable):
        return None
    return found.encode() if isinstance(found, str) and found else None
