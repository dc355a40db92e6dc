"""The group of an AMQP message, as shared subscriptions that keep groups in order want it (SH-6)."""

from __future__ import annotations

from typing import Final

from oncewire.filters.limits import MAX_READ_BYTES, MAX_READ_VALUES
from oncewire.filters.sections import PROPERTY_FIELDS, MessageSections, Unreadable
from oncewire.wire import vocabulary
from oncewire.wire.annotations import MESSAGE_ANNOTATIONS_CODE, read_section_code
from oncewire.wire.decoding import DecodeBudget, read_value, skip
from oncewire.wire.errors import DecodeError

_GROUP_ID: Final = PROPERTY_FIELDS.index("group-id")


def read_group(message: bytes, message_format: int) -> bytes | None:
    """The annotation `x-opt-group-id`, else the group-id of the properties (3.2.4); None: no group, or not readable.

    No more of a message is read than filters read (`oncewire.filters.limits`).
    """
    if message_format:
        return None
    try:
        found = _annotation(message)
        if found is None:
            found = MessageSections(message, message_format).property(_GROUP_ID)
    except (DecodeError, Unreadable):
        return None
    return found.encode() if isinstance(found, str) and found else None


def _annotation(message: bytes) -> object:
    pos = 0
    while pos < len(message):
        code, value = read_section_code(message, pos)
        if code > MESSAGE_ANNOTATIONS_CODE:
            break
        pos = skip(message, value, len(message))
        if code == MESSAGE_ANNOTATIONS_CODE:
            if pos - value > MAX_READ_BYTES:
                raise Unreadable
            found, _ = read_value(message, value, len(message), DecodeBudget(MAX_READ_VALUES))
            return found.get(vocabulary.GROUP_ID) if isinstance(found, dict) else None
    return None
