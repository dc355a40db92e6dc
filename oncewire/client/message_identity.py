"""Whose message it is and which: what makes a delivery a copy of an earlier one (D-3)."""

from __future__ import annotations

import hashlib
from typing import cast
from uuid import UUID

from oncewire.client.journal_records import MessageIdentity
from oncewire.wire import DecodeError, ULong, vocabulary
from oncewire.wire.annotations import HEADER_CODE, MESSAGE_ANNOTATIONS_CODE, PROPERTIES_CODE, read_section_code
from oncewire.wire.decoding import DecodeBudget, read_value, skip

DIGEST_BYTES = 16
"""An id is kept as a digest of this size, whatever its length. The chance that two ids of one user have the same digest
is 2^-128, and ids of different users are not compared."""
MAX_VALUES = 4096
"""Values that are read of annotations or properties, as for filters."""


def identity_of(payload: bytes, message_format: int) -> MessageIdentity | None:
    """The user and the message-id of an encoded message; None where it has no id, or cannot be read.

    Reads the annotations and the properties, never the body.
    """
    if message_format:
        return None  # I-1b: nothing in it is a router's word
    try:
        annotations, properties = _sections(payload)
    except DecodeError:
        return None  # the application rejects it
    if not isinstance(properties, list) or not properties:
        return None
    encoded = _encoded(cast("list[object]", properties)[0])
    if encoded is None:
        return None
    user = cast("dict[object, object]", annotations).get(vocabulary.USER) if isinstance(annotations, dict) else None
    digest = hashlib.sha256(encoded).digest()[:DIGEST_BYTES]
    return MessageIdentity(str(user or ""), digest)


def _sections(payload: bytes) -> tuple[object, object]:
    annotations: object = None
    pos = 0
    last = HEADER_CODE - 1
    while True:
        code, value = read_section_code(payload, pos)
        if code <= last:
            raise DecodeError("the sections of the message are out of order")
        if code > PROPERTIES_CODE:
            return annotations, None
        if code in {MESSAGE_ANNOTATIONS_CODE, PROPERTIES_CODE}:
            found, pos = read_value(payload, value, len(payload), DecodeBudget(MAX_VALUES))
            if code == PROPERTIES_CODE:
                return annotations, found
            annotations = found
        else:
            pos = skip(payload, value, len(payload))
        last = code


def _encoded(message_id: object) -> bytes | None:
    """A message-id with its type, so that 7, "7" and b"7" differ (AMQP 3.2.11 to 3.2.14); None: there is none."""
    if isinstance(message_id, ULong):
        return b"n" + message_id.to_bytes(8, "big")
    if isinstance(message_id, UUID):
        return b"u" + message_id.bytes
    if isinstance(message_id, bytes):
        return b"b" + message_id
    return b"s" + message_id.encode() if type(message_id) is str else None
