"""The W3C trace context of a message: where it stands in AMQP, and how it is read and written.

The W3C's draft for AMQP says: publishers put `traceparent` into the application-properties; whoever is on the way may
not touch those and writes the message annotation of that name instead; readers look at the annotation first. A router
does just that, and only for messages that are sampled. `tracestate` goes through as it came.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from oncewire.wire.annotations import APPLICATION_PROPERTIES_CODE, MESSAGE_ANNOTATIONS_CODE, read_section_code
from oncewire.wire.decoding import DecodeBudget, read_compound_header, read_value, skip
from oncewire.wire.errors import DecodeError, LocalProtocolError
from oncewire.wire.types import Symbol
from router.clients.message_edits import merge_annotations

TRACEPARENT = Symbol("traceparent")
_KEY = TRACEPARENT.encode()
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
QUICK_LOOK_BYTES = 16_384
"""A message up to this size is searched for the word first; in larger ones reading the sections is cheaper."""
_SAMPLED = 1
_VERSION_0 = "00"
_NO_VERSION = "ff"


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A place in a trace."""

    trace_id: int
    """128 bits, not 0."""
    span_id: int
    """64 bits, not 0: the span that what follows is a child of."""
    is_sampled: bool

    def text(self) -> str:
        """As `traceparent` has it."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"


def parse(text: object) -> TraceContext | None:
    """The context a `traceparent` stands for; None when it is malformed, which means the same as none at all."""
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    trace_id, span_id = int(trace, 16), int(span, 16)
    if not trace_id or not span_id or version == _NO_VERSION or (more and version == _VERSION_0):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def read_context(message: bytes, *, also_properties: bool) -> TraceContext | None:
    """The trace context of a message of message-format 0.

    Args:
        message: encoded.
        also_properties: look into the application-properties, too, where the annotation is not there; they belong to
            the bare message, which a router reads for nothing else.

    Returns:
        None without a context, or where the sections cannot be read: that is for the record core to say (I-1b).
    """
    if len(message) <= QUICK_LOOK_BYTES and _KEY not in message:
        return None  # as nearly all: one search costs a tenth of reading the sections
    try:
        pos = 0
        while True:
            code, value = read_section_code(message, pos)
            if code > APPLICATION_PROPERTIES_CODE or (code > MESSAGE_ANNOTATIONS_CODE and not also_properties):
                return None
            if code in (MESSAGE_ANNOTATIONS_CODE, APPLICATION_PROPERTIES_CODE):
                found = parse(_entry(message, value))
                if found is not None:
                    return found
            pos = skip(message, value, len(message))
    except (DecodeError, IndexError):
        return None


def with_context(message: bytes, context: TraceContext) -> bytes:
    """The message with this context in its annotations; the bare message is copied. Malformed ones stay as they are."""
    try:
        return merge_annotations(message, {TRACEPARENT: context.text()})
    except (DecodeError, LocalProtocolError):
        return message


def _entry(message: bytes, pos: int) -> object:
    """The value of `traceparent` in the map at `pos`; other entries are passed over undecoded."""
    code = message[pos]
    if code not in (0xC1, 0xD1):
        return None
    count, pos, stop = read_compound_header(message, pos + 1, len(message), 1 if code == 0xC1 else 4)
    if count > stop - pos:
        return None
    for _ in range(count // 2):
        key_end = skip(message, pos, stop)
        if key_end - pos == len(_KEY) + 2 and message[pos] in (0xA1, 0xA3) and message[pos + 2 : key_end] == _KEY:
            return read_value(message, key_end, stop, DecodeBudget())[0]
        pos = skip(message, key_end, stop)
    return None
