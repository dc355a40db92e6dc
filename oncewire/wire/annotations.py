"""Changes to the sections before the bare message, made on the bytes (AMQP 1.0 part 3.2, rule I-1b).

A router adds its annotations to every message, so this is done without decoding: the sections in front are found by
their descriptors, the entries to keep are copied as bytes, and everything from the first section of the bare message
to the end goes through byte for byte, also where nothing is there. All functions raise ``DecodeError`` if what is in
front of the bare message is malformed, or there is no section at all; a delivery with such a message is rejected with
``amqp:decode-error``. The message-format must be 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncewire.wire.decoding import DecodeBudget, check_end, read_compound_header, read_value, skip
from oncewire.wire.encoding import compound, encode, encode_binary, encode_string, encode_symbol, encode_uint
from oncewire.wire.errors import DecodeError
from oncewire.wire.types import Symbol, ULong
from oncewire.wire.vocabulary import (
    DEAD_LETTER_ATTEMPTS,
    DEAD_LETTER_COUNT,
    DEAD_LETTER_ERROR,
    DEAD_LETTER_PREFIX,
    DEAD_LETTER_REASON,
    DEAD_LETTER_SUBSCRIPTION,
    DEAD_LETTER_TOPIC,
    IN_DOUBT,
    PUBLISHER,
    REDELIVERED,
    SESSION,
    TAG,
    TOPIC_PREFIX,
    USER,
)

# 3.2: the codes of the sections' descriptors
HEADER_CODE: Final = 0x70
DELIVERY_ANNOTATIONS_CODE: Final = 0x71
MESSAGE_ANNOTATIONS_CODE: Final = 0x72
PROPERTIES_CODE: Final = 0x73
APPLICATION_PROPERTIES_CODE: Final = 0x74
DATA_CODE: Final = 0x75
SEQUENCE_CODE: Final = 0x76
VALUE_CODE: Final = 0x77
FOOTER_CODE: Final = 0x78

SECTION_SYMBOLS = {
    b"amqp:header:list": HEADER_CODE,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS_CODE,
    b"amqp:message-annotations:map": MESSAGE_ANNOTATIONS_CODE,
    b"amqp:properties:list": PROPERTIES_CODE,
    b"amqp:application-properties:map": APPLICATION_PROPERTIES_CODE,
    b"amqp:data:binary": DATA_CODE,
    b"amqp:amqp-sequence:list": SEQUENCE_CODE,
    b"amqp:amqp-value:*": VALUE_CODE,
    b"amqp:footer:map": FOOTER_CODE,
}

_SECTION_NAMES: Final = {code: symbol.decode().split(":")[1] for symbol, code in SECTION_SYMBOLS.items()}
_LIST_CODES: Final = frozenset({0x45, 0xC0, 0xD0})
MAX_FRONT_BYTES: Final = 1 << 20
"""As much as a router reads before it passes the beginning of a large message on (L-1)."""
_ANNOTATIONS_HEAD: Final = b"\x00\x53\x72"
_CUT_DESCRIPTOR: Final = "the message ends in the descriptor of a section"
_NO_MAP: Final = "the section message-annotations is not a map"
_HEADER_HEAD: Final = b"\x00\x53\x70"
# delivery-count is the fifth field of header (3.2.1)
_DELIVERY_COUNT_INDEX: Final = 4
# Publishers of one router whose annotations are not made anew for each message.
MAX_REMEMBERED: Final = 4096
# Only routers set annotations whose names begin so.
_OURS: Final = (TOPIC_PREFIX, DEAD_LETTER_PREFIX)
_OURS_AS_TEXT: Final = (TOPIC_PREFIX.decode(), DEAD_LETTER_PREFIX.decode())


def read_section_code(message: bytes, pos: int) -> tuple[int, int]:
    """Read the descriptor of the section at ``pos`` in any of its three forms.

    Returns:
        The section's code, and where its value starts.

    Raises:
        DecodeError: no described value, or no section of a message.
    """
    if pos + 3 > len(message):
        raise DecodeError(_CUT_DESCRIPTOR)
    form = message[pos + 1]
    if message[pos] != 0:
        raise DecodeError("a section of the message does not start with a descriptor")
    if form == 0x53:
        code = message[pos + 2]
        pos += 3
    elif form == 0x80:
        if pos + 10 > len(message):
            raise DecodeError(_CUT_DESCRIPTOR)
        code = int.from_bytes(message[pos + 2 : pos + 10], "big")
        pos += 10
    elif form in {0xA3, 0xB3}:
        stop = skip(message, pos + 1, len(message))
        code = SECTION_SYMBOLS.get(message[pos + (3 if form == 0xA3 else 6) : stop], 0)
        pos = stop
    else:
        raise DecodeError("the descriptor of a section is neither a ulong nor a symbol")
    if not HEADER_CODE <= code <= FOOTER_CODE:
        raise DecodeError(f"the message has a section with the unknown descriptor 0x{code:x}")
    if pos >= len(message):
        raise DecodeError(f"the message ends in the section {_SECTION_NAMES[code]}")
    return code, pos


def data_body(message: bytes) -> bytes | None:
    """Return the body of a message that ends with one data section, as most do; what lies before it is not decoded.

    Returns:
        The body; None: it has another one, something follows it, or its sections are out of order. Decode it then.

    Raises:
        DecodeError: a section before the body has no descriptor, or is cut.
    """
    size, pos, last = len(message), 0, 0
    while pos < size:
        code, value = read_section_code(message, pos)
        if code > DATA_CODE or code <= last:
            return None
        last = code
        if code < DATA_CODE:
            pos = skip(message, value, size)
            continue
        form, start, length = message[value], 0, 0
        if form == 0xA0 and value + 1 < size:
            start, length = value + 2, message[value + 1]
        elif form == 0xB0 and value + 4 < size:
            start, length = value + 5, int.from_bytes(message[value + 1 : value + 5], "big")
        return message[start:] if start > 0 and start + length == size else None
    return None


class _Prefix:
    """Where the sections in front of the bare message are; a start of -1 means that there is none."""

    __slots__ = ("annotations_start", "bare_start", "header_end", "header_start", "header_value")

    def __init__(self, message: bytes) -> None:
        self.header_start = -1
        self.header_value = -1
        self.header_end = -1
        self.annotations_start = -1
        pos = 0
        last = HEADER_CODE - 1
        size = len(message)
        if not size:
            raise DecodeError("the message has no section")
        while pos < size:
            code, value = read_section_code(message, pos)
            if code >= PROPERTIES_CODE:
                break
            end = _section_end(message, code, value)
            if code <= last:
                raise DecodeError(f"the section {_SECTION_NAMES[code]} is there twice, or out of order")
            last = code
            if code == HEADER_CODE:
                self.header_start = pos
                self.header_value = value
                self.header_end = end
            elif code == MESSAGE_ANNOTATIONS_CODE:
                self.annotations_start = value
            pos = end
        if pos >= size > MAX_FRONT_BYTES:  # L-1: of a large message this is the beginning, and more of them may follow
            raise DecodeError(f"the sections before the bare message are longer than {MAX_FRONT_BYTES} bytes")
        self.bare_start = pos

    def header(self, message: bytes) -> bytes:
        """The header section as it is, empty if there is none."""
        return message[self.header_start : self.header_end] if self.header_end > 0 else b""


def _section_end(message: bytes, code: int, value: int) -> int:
    """Return where a section before the bare message ends."""
    name = _SECTION_NAMES[code]
    try:
        end = skip(message, value, len(message))
    except DecodeError as error:
        raise DecodeError(f"the section {name} cannot be read: {error.description}") from None
    if code == HEADER_CODE and message[value] not in _LIST_CODES:
        raise DecodeError(f"the section {name} is not a list")
    return end


def _usual_bare_start(message: bytes) -> int:
    """Return where the bare message starts if nothing or only a header is in front of it, as in most messages; else -1.

    It knows the usual forms only and finds nothing wrong: -1 sends the message the long way.
    """
    size = len(message)
    start = 0
    if size > 5 and message[2] == HEADER_CODE and message[1] == 0x53 and message[0] == 0:
        if message[3] == 0xC0 and message[4] > 0:
            start = 5 + message[4]
        elif message[3] == 0x45:
            start = 4
    if start + 3 < size and message[start] == 0 and message[start + 1] == 0x53:
        return start if PROPERTIES_CODE <= message[start + 2] < FOOTER_CODE else -1
    return -1


def splice_annotations(message: bytes, added: bytes, count: int, keep: tuple[bytes, ...] = ()) -> bytes:
    """Return the message with our annotations in place of those that only routers may set (I-1b).

    The header is kept, delivery-annotations are dropped, message annotations whose key starts with ``x-opt-topic-`` or
    ``x-opt-dead-letter-`` are dropped, ``added`` is put behind the others; the bare message and the footer are copied.

    Args:
        message: an encoded message of message-format 0.
        added: encoded keys and values, one after the other.
        count: how many pairs ``added`` holds.
        keep: keys with the prefix that a client may set.

    Raises:
        DecodeError: the part in front of the bare message is malformed.
    """
    start = _usual_bare_start(message)
    if start == 0:
        return _ANNOTATIONS_HEAD + compound(0xC1, 0xD1, 2 * count, added) + message
    if start > 0:
        head = message[:start] + _ANNOTATIONS_HEAD + compound(0xC1, 0xD1, 2 * count, added)
        return head + message[start:]
    prefix = _Prefix(message)
    kept, kept_count = _kept_entries(message, prefix.annotations_start, _OURS, keep)
    return _with_annotations(message, prefix, kept + added, kept_count + 2 * count)


def mark_redelivered(message: bytes) -> bytes:
    """Return the message with the annotation ``x-opt-topic-redelivered`` = true, other annotations unchanged.

    Raises:
        DecodeError: the part in front of the bare message is malformed.
    """
    return _marked(message, REDELIVERED, _REDELIVERED_PAIR)


def mark_in_doubt(message: bytes) -> bytes:
    """Return the message with the annotation ``x-opt-topic-in-doubt`` = true, other annotations unchanged (A-5).

    Raises:
        DecodeError: the part in front of the bare message is malformed.
    """
    return _marked(message, IN_DOUBT, _IN_DOUBT_PAIR)


def annotate_dead_letter(
    message: bytes, *, reason: str, topic: str, subscription: str, attempts: int, error: str, count: int
) -> bytes:
    """Return the copy of a message that goes to a dead-letter topic (I-3e), other annotations unchanged.

    Args:
        message: as it was sent to subscriptions.
        reason: why the first subscription failed it.
        topic: it was published to.
        subscription: the first that failed it.
        attempts: it made.
        error: it stated; empty: none.
        count: subscriptions that failed it.

    Raises:
        DecodeError: the part in front of the bare message is malformed.
    """
    added = b"".join(
        (
            encode_symbol(DEAD_LETTER_REASON),
            encode_symbol(Symbol(reason)),
            encode_symbol(DEAD_LETTER_TOPIC),
            encode_string(topic),
            encode_symbol(DEAD_LETTER_SUBSCRIPTION),
            encode_string(subscription),
            encode_symbol(DEAD_LETTER_ATTEMPTS),
            encode_uint(attempts),
            encode_symbol(DEAD_LETTER_COUNT),
            encode_uint(count),
            encode_symbol(DEAD_LETTER_ERROR) + encode_string(error) if error else b"",
        )
    )
    return replace_annotations(message, (DEAD_LETTER_PREFIX,), added, 5 + bool(error))


def _marked(message: bytes, key: Symbol, pair: bytes) -> bytes:
    """What a client has set under our prefix stays, too: by its producer's number a copy is known."""
    return replace_annotations(message, (key.encode(),), pair, 1)


def replace_annotations(message: bytes, dropped: tuple[bytes, ...], added: bytes, count: int) -> bytes:
    """Return the message with other annotations, of which the rest is as before.

    Args:
        message: an encoded message of message-format 0.
        dropped: with what the keys begin that are not kept.
        added: encoded keys and values, one after the other.
        count: how many pairs ``added`` holds.

    Raises:
        DecodeError: the part in front of the bare message is malformed.
    """
    prefix = _Prefix(message)
    kept, kept_count = _kept_entries(message, prefix.annotations_start, dropped, ())
    return _with_annotations(message, prefix, kept + added, kept_count + 2 * count)


def add_annotations(message: bytes, dropped: tuple[bytes, ...], added: bytes, count: int) -> bytes:
    """Return what ``replace_annotations`` does, of messages that a router has annotated.

    What is in their annotations is copied unread, unless what is dropped stands somewhere in it.

    Raises:
        DecodeError: the part in front of the bare message is malformed, and was read.
    """
    size, start = len(message), 0
    if size > 5 and message[2] == HEADER_CODE and message[1] == 0x53 and message[0] == 0:
        if message[3] == 0xC0 and message[4] > 0:
            start = 5 + message[4]
        elif message[3] == 0x45:
            start = 4
    if start + 6 < size and message[start : start + 3] == _ANNOTATIONS_HEAD:
        entries, stop, pairs = 0, 0, 0
        if message[start + 3] == 0xC1:
            entries, stop, pairs = start + 6, start + 5 + message[start + 4], message[start + 5]
        elif message[start + 3] == 0xD1 and start + 12 < size:
            entries = start + 12
            stop = start + 8 + int.from_bytes(message[start + 4 : start + 8], "big")
            pairs = int.from_bytes(message[start + 8 : entries], "big")
        if entries <= stop and _is_bare(message, stop):
            content = message[entries:stop]
            for name in dropped:
                if name in content:
                    return replace_annotations(message, dropped, added, count)
            annotations = compound(0xC1, 0xD1, pairs + 2 * count, content + added)
            return message[: start + 3] + annotations + message[stop:]
    return replace_annotations(message, dropped, added, count)


def _is_bare(message: bytes, pos: int) -> bool:
    """Whether a section of the bare message stands there, in the usual form."""
    if pos + 3 >= len(message) or message[pos] != 0 or message[pos + 1] != 0x53:
        return False
    return PROPERTIES_CODE <= message[pos + 2] < FOOTER_CODE


def _with_annotations(message: bytes, prefix: _Prefix, entries: bytes, count: int) -> bytes:
    annotations = compound(0xC1, 0xD1, count, entries)  # a map8 grows into a map32 by itself
    return b"".join((prefix.header(message), _ANNOTATIONS_HEAD, annotations, message[prefix.bare_start :]))


def _map_content(message: bytes, pos: int) -> tuple[int, int, int]:
    """Return count, start and end of the content of the map at ``pos``."""
    code = message[pos]
    if code not in {0xC1, 0xD1}:
        raise DecodeError(_NO_MAP)
    count, start, stop = read_compound_header(message, pos + 1, len(message), 1 if code == 0xC1 else 4)
    if count % 2 or count > stop - start:
        raise DecodeError("the annotations of the message claim a number of entries that cannot be")
    return count, start, stop


def _kept_entries(message: bytes, pos: int, dropped: tuple[bytes, ...], keep: tuple[bytes, ...]) -> tuple[bytes, int]:
    """Return entries of the map at ``pos`` whose keys start with none of ``dropped``, as bytes, and 2 x how many."""
    if pos < 0:
        return b"", 0
    count, pos, stop = _map_content(message, pos)
    first = pos
    kept: list[bytes] = []
    kept_count = 0
    for _ in range(count // 2):
        entry = pos
        key_end = skip(message, pos, stop)
        code = message[pos]
        pos = skip(message, key_end, stop)
        if code in {0xA1, 0xA3}:  # a key sent as a string would reach subscribers under our name, too
            key = message[entry + 2 : key_end]
        elif code in {0xB1, 0xB3}:
            key = message[entry + 5 : key_end]
        else:  # ulong keys are legal (3.2.10) and never ours
            key = b""
        if key.startswith(dropped) and key not in keep:
            continue
        kept.append(message[entry:pos])
        kept_count += 2
    check_end(pos, stop)
    return (message[first:stop] if kept_count == count else b"".join(kept)), kept_count


def _publisher_pairs(publisher: str, user: str, session: int, in_doubt: bool) -> bytes:
    pairs = encode_symbol(PUBLISHER) + encode_string(publisher) + encode_symbol(SESSION) + encode(ULong(session))
    if user:
        pairs += encode_symbol(USER) + encode_string(user)
    if in_doubt:
        pairs += encode_symbol(IN_DOUBT) + b"\x41"
    return pairs + encode_symbol(TAG)


def topic_annotations(
    publisher: str, tag: bytes, session: int, in_doubt: bool = False, user: str = ""
) -> tuple[bytes, int]:
    """Return the annotations that name a delivery, encoded for ``splice_annotations``, and how many pairs they are.

    Args:
        publisher: container id and link name of the publisher, ``container-id/link-name``.
        tag: the publisher's own delivery tag.
        session: the publisher's session number.
        in_doubt: the publisher does not know whether an earlier copy was delivered.
        user: who the publisher is, as logged in; empty: anonymous, and no annotation says so.
    """
    return _publisher_pairs(publisher, user, session, in_doubt) + encode_binary(tag), 3 + in_doubt + bool(user)


class _Publisher:
    """What the annotations of a publisher's deliveries have in common: all in front of the tag."""

    __slots__ = ("name", "section", "tag_size", "user")

    def __init__(self, name: str, session: int, user: str, tag_size: int) -> None:
        self.name = name
        self.user = user
        self.tag_size = tag_size
        pairs, count = topic_annotations(name, bytes(tag_size), session, user=user)
        section = _ANNOTATIONS_HEAD + compound(0xC1, 0xD1, 2 * count, pairs)
        self.section = section[: len(section) - tag_size]


class DeliveryAnnotator:
    """Adds the annotations that name a delivery: ``topic_annotations`` and ``splice_annotations`` in one step."""

    __slots__ = ("_keep", "_publishers")

    def __init__(self, keep: tuple[bytes, ...] = ()) -> None:
        """Keep these keys with our prefix where a client has set them."""
        self._keep = keep
        self._publishers: dict[int, _Publisher] = {}
        """By session: only the tag changes between a publisher's messages, and its size hardly ever."""

    def annotate(self, message: bytes, publisher: str, tag: bytes, session: int, user: str = "") -> bytes:
        """Return the message with the annotations of this delivery.

        Raises:
            DecodeError: as ``splice_annotations``.
        """
        start = _usual_bare_start(message)
        if start < 0:
            added, count = topic_annotations(publisher, tag, session, user=user)
            return splice_annotations(message, added, count, self._keep)
        size = len(tag)
        known = self._publishers.get(session)
        if known is None or known.tag_size != size or known.user != user or known.name != publisher:
            known = self._remember(publisher, session, user, size)
        if start == 0:
            return known.section + tag + message
        return message[:start] + known.section + tag + message[start:]

    def _remember(self, publisher: str, session: int, user: str, tag_size: int) -> _Publisher:
        if len(self._publishers) >= MAX_REMEMBERED:
            self._publishers.clear()
        known = self._publishers[session] = _Publisher(publisher, session, user, tag_size)
        return known


_REDELIVERED_PAIR: Final = encode_symbol(REDELIVERED) + b"\x41"
_IN_DOUBT_PAIR: Final = encode_symbol(IN_DOUBT) + b"\x41"


def set_delivery_count(message: bytes, count: int) -> bytes:
    """Return the message with ``count`` in header.delivery-count; the other header fields stay as they are (I-1b).

    Raises:
        DecodeError: the part in front of the bare message is malformed.
    """
    prefix = _Prefix(message)
    fields: list[bytes] = []
    if prefix.header_end > 0:
        fields = _list_items(message, prefix.header_value)
    rest = fields[_DELIVERY_COUNT_INDEX + 1 :]
    fields = fields[:_DELIVERY_COUNT_INDEX]
    fields += [b"\x40"] * (_DELIVERY_COUNT_INDEX - len(fields))
    fields.append(encode_uint(count))
    fields += rest
    header = _HEADER_HEAD + compound(0xC0, 0xD0, len(fields), b"".join(fields))
    return header + message[max(0, prefix.header_end) :]


def _list_items(message: bytes, pos: int) -> list[bytes]:
    """Return the encoded items of the list at ``pos``."""
    code = message[pos]
    if code == 0x45:
        return []
    if code not in {0xC0, 0xD0}:
        raise DecodeError("the header of the message is not a list")
    count, pos, stop = read_compound_header(message, pos + 1, len(message), 1 if code == 0xC0 else 4)
    if count > stop - pos:
        raise DecodeError("the header of the message claims a number of fields that cannot be")
    items: list[bytes] = []
    for _ in range(count):
        end = skip(message, pos, stop)
        items.append(message[pos:end])
        pos = end
    check_end(pos, stop)
    return items


def without_ours(annotations: Mapping[Any, object]) -> dict[object, object]:
    """What a subscriber adds to a message, without the names that only routers and publishers set (I-1b)."""
    return {
        key: value for key, value in annotations.items() if not (isinstance(key, str) and key.startswith(_OURS_AS_TEXT))
    }


def read_annotations(message: bytes) -> dict[object, object]:
    """Return the message annotations, decoded; empty if there are none.

    Raises:
        DecodeError: the part in front of the bare message, or an annotation, is malformed.
    """
    prefix = _Prefix(message)
    if prefix.annotations_start < 0:
        return {}
    value, _ = read_value(message, prefix.annotations_start, len(message), DecodeBudget())
    if not isinstance(value, dict):
        raise DecodeError(_NO_MAP)
    return value
