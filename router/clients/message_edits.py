"""What a router changes in a message on the way: annotations at the ingress, delivery-count and marks at the egress.

The bare message is never touched (I-1b); only deliveries that are repeated pay for the second edit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from delivery_records.model.effects import Deliver, DeliverPart
from delivery_records.model.letter import Letter
from oncewire.wire.annotations import (
    HEADER_CODE,
    MESSAGE_ANNOTATIONS_CODE,
    DeliveryAnnotator,
    annotate_dead_letter,
    mark_redelivered,
    read_annotations,
    read_section_code,
    set_delivery_count,
    without_ours,
)
from oncewire.wire.decoding import decode, skip
from oncewire.wire.encoding import encode
from oncewire.wire.errors import DecodeError, LocalProtocolError
from oncewire.wire.types import Described, ULong
from oncewire.wire.vocabulary import ANONYMOUS, CLIENT_ANNOTATIONS

_CLIENT_KEYS = tuple(key.encode() for key in CLIENT_ANNOTATIONS)


class Logins(Protocol):
    """Whether anybody can log in as a user."""

    has_logins: bool


EMPTY_DATA_SECTION = b"\x00\x53\x75\xa0\x00"
"""For clients that cannot take a transfer without payload (A-7)."""


class Annotator:
    """The annotations that name a delivery, for all publishers of a router (I-1b)."""

    __slots__ = ("_annotator", "_logins")

    def __init__(self, logins: Logins) -> None:
        """Where there are logins a publisher without one is stated as such, so that readers know (SQ-8)."""
        self._logins = logins
        self._annotator = DeliveryAnnotator(_CLIENT_KEYS)

    def annotate(self, message: bytes, publisher: str, tag: bytes, session: int, user: str) -> bytes:
        """The message with the annotations of this delivery.

        Raises:
            ValueError: the sections in front of the bare message are malformed.
        """
        if not user and self._logins.has_logins:
            user = ANONYMOUS
        try:
            return self._annotator.annotate(message, publisher, tag, session, user)
        except DecodeError as error:
            raise ValueError(error.description) from None


def make_letter(message: bytes, letter: Letter) -> bytes:
    """The copy of a failed message for its dead-letter topic (I-3e); where its sections cannot be read, as it is."""
    try:
        return annotate_dead_letter(
            message,
            reason=letter.reason,
            topic=letter.topic,
            subscription=letter.subscription,
            attempts=letter.attempts,
            error=letter.error,
            count=letter.count,
        )
    except DecodeError:
        return message


def edit_for_attempt(effect: Deliver | DeliverPart, message: bytes, *, counts_repeats: bool = False) -> bytes:
    """The message of a repeated delivery: marked, counted, with the annotations of `modified` (E-4a, E-4b).

    Args:
        effect: the delivery.
        message: of it; of a large one the first part, in which the sections before the bare message lie (L-1).
        counts_repeats: a repeat after a failover is an attempt, too: the header's delivery-count is 1 at least (AMQP
            1.0 section 3.2.1; stock clients derive *redelivered* from it). So for subscribers without a map, who may
            have had the message.

    A message whose sections cannot be read (another message-format) goes out as it is.
    """
    edited = message
    try:
        if effect.annotations:
            added = {decode(key)[0]: decode(value)[0] for key, value in effect.annotations.items()}
            edited = merge_annotations(edited, added)
        if effect.redelivered:
            edited = mark_redelivered(edited)
        attempts = max(effect.attempt, 1) if effect.redelivered and counts_repeats else effect.attempt
        if attempts:
            edited = set_delivery_count(edited, attempts)
    except (DecodeError, LocalProtocolError):
        return message
    return edited


def merge_annotations(message: bytes, changes: Mapping[object, object]) -> bytes:
    """AMQP 1.0 section 3.4.5: entries of `modified` replace those of the same key, but for ours (I-1b)."""
    annotations = {**read_annotations(message), **without_ours(changes)}
    header = b""
    pos = 0
    while pos < len(message):
        code, value = read_section_code(message, pos)
        if code > MESSAGE_ANNOTATIONS_CODE:
            break
        end = skip(message, value, len(message))
        if code == HEADER_CODE:
            header = message[pos:end]
        pos = end
    return header + encode(Described(ULong(MESSAGE_ANNOTATIONS_CODE), annotations)) + message[pos:]
