"""Messages between routers as the payloads of frames (rules T-1, T-8); the header is frame_header.py."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error, unpack_from
from typing import Final

from delivery_records.channels.annotations_codec import annotations_payload, read_annotations
from delivery_records.channels.codec_error import ChannelCodecError
from delivery_records.channels.frame_header import (
    HOP_LIMIT,
    KIND_ACK,
    KIND_ANNOTATIONS,
    KIND_APPLIED,
    KIND_BARRIER,
    KIND_CLAIM,
    KIND_CREDIT,
    KIND_HELLO,
    KIND_LARGE,
    KIND_MSG,
    KIND_MSG_PART,
    KIND_NACK,
    KIND_NEED,
    KIND_REASON,
    KIND_RETURN,
    KIND_ROOM,
    KIND_SETTLE,
    KIND_SYNC,
    KIND_TAKEN,
    Header,
    Target,
    encode_header,
)
from delivery_records.channels.large_codec import ASSIGNED_FLAGS, MAX_ATTEMPT, large_head, read_assigned, read_large
from delivery_records.model.messages import (
    Ack,
    Annotations,
    Applied,
    Barrier,
    Claim,
    Credit,
    Datagram,
    ExpiringMsg,
    FormerAnnotations,
    Hello,
    LargePart,
    Msg,
    MsgPart,
    Nack,
    Need,
    Reason,
    Return,
    Room,
    RouterMessage,
    Run,
    Settle,
    Sync,
    Taken,
)
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.tags import MAX_TAG_BYTES

MAX_RUNS: Final = 0xFFFF
"""Runs of numbers in one SETTLE or ACK, and subscriptions in one MSG: what a 16-bit count can say."""

MAX_DELAY_MS: Final = 0xFFFFFFFE
"""Longest delay one NACK can name, 49 days: no topic's cap is longer (I-3d)."""
_NO_DELAY: Final = 0xFFFFFFFF
_FAILED_AS_PRESENTED: Final = 2
"""In the place of failed = 1."""

_MSG: Final = Struct(">QQQIBHBH")  # publisher epoch, after, number, format, flags, attempt, tag length, named
_TTL: Final = Struct(">I")
_PART: Final = Struct(">QQ")  # offset, total
_SYNC: Final = Struct(">QII")  # publisher epoch, subscriptions, tags
_SYNC_TAG: Final = Struct(">QB")  # number, tag length
_SYNC_LETTERS: Final = b"\x01"
"""Behind the tags: it is of a letters stream (I-3e). Nothing stands there else."""
_SETTLE: Final = Struct(">QH")
_ACK: Final = Struct(">QQBH")
_NACK: Final = Struct(">QQQB")
_NACK_MORE: Final = Struct(">HI")  # attempts, delay; left out where there is neither
_REASON: Final = Struct(">QQHH")  # publisher epoch, subscription epoch, size of the error, runs
_CLAIM: Final = Struct(">QQIH")
_SERIAL: Final = Struct(">I")
"""At the end of a SYNC to a member and of its CLAIM (SH-4)."""
_RETURN: Final = Struct(">QQQ")
_ROOM: Final = Struct(">QQI")
_TAKEN: Final = Struct(">QQQQ")
_NEED: Final = Struct(">QQQ")
_RUN: Final = Struct(">QI")
_HELLO: Final = Struct(">IBQQQ")
_NUMBER: Final = Struct(">Q")
_read_msg_head: Final = _MSG.unpack_from
_write_msg_head: Final = _MSG.pack
_MSG_SIZE: Final = _MSG.size

_FLAG_NAMED: Final = 1
_FLAG_REDELIVERED: Final = 2
_FLAG_SETTLED: Final = 4
_FLAG_EXPIRES: Final = 16
"""What is left follows the epochs."""
MAX_TTL_MS: Final = 0xFFFFFFFF
"""Longest life one MSG can name, 49 days: more than any topic's policy (E-10)."""
_FLAG_LARGE: Final = 32


_OUTCOME_CODES: Final = {
    DeliveryOutcome.ACCEPTED: 1,
    DeliveryOutcome.REJECTED: 2,
    DeliveryOutcome.RELEASED: 3,
    DeliveryOutcome.MODIFIED: 4,
    DeliveryOutcome.MODIFIED_FAILED: 5,
    DeliveryOutcome.UNDELIVERABLE: 6,
    DeliveryOutcome.EXPIRED: 7,
    DeliveryOutcome.UNDELIVERABLE_FAILED: 8,
}
_OUTCOMES: Final = {code: outcome for outcome, code in _OUTCOME_CODES.items()}


# --- encoding ---------------------------------------------------------------------------------------------------------


def encode_frame(origin: int, targets: Sequence[Target], message: RouterMessage, hop_limit: int = HOP_LIMIT) -> bytes:
    """One sequenced frame for all `targets`, which share a next hop."""
    kind, head, body = encode_payload(message)
    return encode_header(kind, origin, targets, hop_limit) + head + body


def encode_datagram(origin: int, rid: int, message: Datagram, hop_limit: int = HOP_LIMIT) -> bytes:
    """One unsequenced message for router `rid`."""
    if isinstance(message, Hello):
        kind = KIND_HELLO
        payload = _HELLO.pack(message.generation, message.is_reply, message.sent, message.received, message.applied)
    elif isinstance(message, Barrier):
        kind, payload = KIND_BARRIER, _NUMBER.pack(message.revision)
    else:
        kind, payload = KIND_APPLIED, _NUMBER.pack(message.revision)
    return encode_header(kind, origin, ((rid, 0, 0),), hop_limit) + payload


def encode_payload(message: RouterMessage) -> tuple[int, bytes, bytes]:
    """The payload in two pieces, (kind, head, body), so that a body is not copied before it is written."""
    if isinstance(message, Msg):
        return KIND_MSG, _msg_head(message), message.message
    if isinstance(message, Ack):
        code = _OUTCOME_CODES[message.outcome]
        head = _ACK.pack(message.publisher_epoch, message.subscription_epoch, code, len(message.runs))
        return KIND_ACK, head + _runs(message.runs), b""
    if isinstance(message, Settle):
        return (KIND_SETTLE, _SETTLE.pack(message.publisher_epoch, len(message.runs)) + _runs(message.runs), b"")
    if isinstance(message, MsgPart):
        return (KIND_MSG_PART, _msg_head(message.head) + _PART.pack(message.offset, message.total), message.data)
    if isinstance(message, Sync):
        return KIND_SYNC, _sync(message), b""
    if isinstance(message, Nack):
        return KIND_NACK, _nack(message), b""
    if isinstance(message, Credit):
        return KIND_CREDIT, _NUMBER.pack(message.granted_bytes), b""
    if isinstance(message, Reason):
        return KIND_REASON, _reason(message), b""
    if isinstance(message, LargePart):
        return KIND_LARGE, large_head(message), message.data
    if isinstance(message, Taken):
        named = message.publisher_epoch, message.subscription_epoch, message.number, message.taken
        return KIND_TAKEN, _TAKEN.pack(*named), b""
    if isinstance(message, Need):
        return KIND_NEED, _NEED.pack(message.publisher_epoch, message.subscription_epoch, message.number), b""
    if isinstance(message, (Annotations, FormerAnnotations)):
        return KIND_ANNOTATIONS, annotations_payload(message), b""
    return _sharing_payload(message)


def _sharing_payload(message: Claim | Return | Room) -> tuple[int, bytes, bytes]:
    epochs = (message.publisher_epoch, message.subscription_epoch)
    if isinstance(message, Claim):
        head = _CLAIM.pack(*epochs, message.room, len(message.runs))
        serial = _SERIAL.pack(message.serial) if message.serial else b""
        return KIND_CLAIM, head + _runs(message.runs) + serial, b""
    if isinstance(message, Return):
        return KIND_RETURN, _RETURN.pack(*epochs, message.number), b""
    return KIND_ROOM, _ROOM.pack(*epochs, message.room), b""


def _nack(message: Nack) -> bytes:
    failed = _FAILED_AS_PRESENTED if message.is_presented else int(message.failed)
    head = _NACK.pack(message.publisher_epoch, message.subscription_epoch, message.number, failed)
    delay_ms = message.delay_ms
    if not message.attempts and delay_ms is None:
        return head
    return head + _NACK_MORE.pack(
        min(message.attempts, MAX_ATTEMPT), _NO_DELAY if delay_ms is None else min(delay_ms, MAX_DELAY_MS)
    )


def _reason(message: Reason) -> bytes:
    error = message.error.encode(errors="replace")
    head = _REASON.pack(message.publisher_epoch, message.subscription_epoch, len(error), len(message.runs))
    return head + error + _runs(message.runs)


def _msg_head(message: Msg) -> bytes:
    to = message.to
    flags = _FLAG_NAMED if to is not None else 0
    if message.redelivered:
        flags |= _FLAG_REDELIVERED
    if message.settled:
        flags |= _FLAG_SETTLED
    if message.assigned:
        flags |= ASSIGNED_FLAGS[message.assigned]
    if message.is_large:
        flags |= _FLAG_LARGE
    ttl = b""
    if type(message) is ExpiringMsg:
        flags |= _FLAG_EXPIRES
        ttl = _TTL.pack(min(message.ttl_ms, MAX_TTL_MS))
    named = len(to) if to is not None else 0
    tag = message.tag
    head = (
        _write_msg_head(
            message.publisher_epoch,
            message.after,
            message.number,
            message.message_format,
            flags,
            min(message.attempt, MAX_ATTEMPT),
            len(tag),
            named,
        )
        + tag
    )
    if to:
        head += b"".join([_NUMBER.pack(epoch) for epoch in to])
    return head + ttl if ttl else head


def _sync(message: Sync) -> bytes:
    assert len(message.numbers) == len(message.tags)
    parts = [_SYNC.pack(message.publisher_epoch, len(message.subscription_epochs), len(message.tags))]
    parts += [_NUMBER.pack(epoch) for epoch in message.subscription_epochs]
    for number, tag in zip(message.numbers, message.tags, strict=True):
        parts.append(_SYNC_TAG.pack(number, len(tag)))
        parts.append(tag)
    if message.is_letters:
        parts.append(_SYNC_LETTERS)
    if message.serial:
        parts.append(_SERIAL.pack(message.serial))
    return b"".join(parts)


def _runs(runs: Sequence[Run]) -> bytes:
    assert len(runs) <= MAX_RUNS
    return b"".join([_RUN.pack(first, count) for first, count in runs])


# --- decoding ---------------------------------------------------------------------------------------------------------


def decode_message(frame: bytes, header: Header) -> RouterMessage:
    """Decode a sequenced frame's payload.

    Raises:
        ChannelCodecError: the payload is malformed, or the frame is a datagram.
    """
    try:
        message, end = _decode_message(frame, header)
    except (error, KeyError) as fault:
        raise ChannelCodecError(f"a frame of kind {header.kind} is malformed: {fault}") from None
    if end != len(frame):
        raise ChannelCodecError(f"a frame of kind {header.kind} has {len(frame) - end} bytes too many")
    return message


def decode_datagram(frame: bytes, header: Header) -> Datagram:
    """Decode a datagram's payload.

    Raises:
        ChannelCodecError: the payload is malformed, or the frame is a sequenced one.
    """
    payload = frame[header.payload_at :]
    try:
        if header.kind == KIND_HELLO:
            generation, is_reply, sent, received, applied = _HELLO.unpack(payload)
            return Hello(generation, bool(is_reply), sent, received, applied)
        if header.kind == KIND_BARRIER:
            return Barrier(_NUMBER.unpack(payload)[0])
        if header.kind == KIND_APPLIED:
            return Applied(_NUMBER.unpack(payload)[0])
    except error as fault:
        raise ChannelCodecError(f"a datagram of kind {header.kind} is malformed: {fault}") from None
    raise ChannelCodecError(f"kind {header.kind} is not a datagram")


def _decode_message(frame: bytes, header: Header) -> tuple[RouterMessage, int]:
    kind, at = header.kind, header.payload_at
    if kind == KIND_MSG:
        msg, at = _read_msg(frame, at)
        msg.message = frame[at:]
        return msg, len(frame)
    if kind == KIND_ACK:
        publisher, subscription, code, count = _ACK.unpack_from(frame, at)
        runs, at = _read_runs(frame, at + _ACK.size, count)
        return Ack(publisher, subscription, _OUTCOMES[code], runs), at
    if kind == KIND_SETTLE:
        publisher, count = _SETTLE.unpack_from(frame, at)
        runs, at = _read_runs(frame, at + _SETTLE.size, count)
        return Settle(publisher, runs), at
    if kind == KIND_MSG_PART:
        msg, at = _read_msg(frame, at)
        offset, total = _PART.unpack_from(frame, at)
        data = frame[at + _PART.size :]
        if offset + len(data) > total:
            raise ChannelCodecError(f"a part ends at {offset + len(data)} in a message of {total} bytes")
        return MsgPart(msg, offset, total, data), len(frame)
    if kind == KIND_SYNC:
        return _read_sync(frame, at)
    if kind == KIND_NACK:
        return _read_nack(frame, at)
    if kind == KIND_CREDIT:
        return Credit(_NUMBER.unpack_from(frame, at)[0]), at + _NUMBER.size
    if kind == KIND_CLAIM:
        publisher, subscription, room, count = _CLAIM.unpack_from(frame, at)
        runs, at = _read_runs(frame, at + _CLAIM.size, count)
        serial, at = _read_serial(frame, at)
        return Claim(publisher, subscription, room, runs, serial), at
    if kind == KIND_RETURN:
        publisher, subscription, number = _RETURN.unpack_from(frame, at)
        return Return(publisher, subscription, number), at + _RETURN.size
    if kind == KIND_ROOM:
        publisher, subscription, room = _ROOM.unpack_from(frame, at)
        return Room(publisher, subscription, room), at + _ROOM.size
    return _decode_other(frame, kind, at)


def _read_reason(frame: bytes, at: int) -> tuple[Reason, int]:
    publisher, subscription, size, count = _REASON.unpack_from(frame, at)
    at += _REASON.size
    if at + size > len(frame):
        raise ChannelCodecError(f"an error of {size} bytes does not fit in {len(frame) - at} bytes")
    error_text = frame[at : at + size].decode(errors="replace")
    runs, at = _read_runs(frame, at + size, count)
    return Reason(publisher, subscription, error_text, runs), at


def _decode_other(frame: bytes, kind: int, at: int) -> tuple[RouterMessage, int]:
    """What comes seldom, or with large bodies."""
    if kind == KIND_REASON:
        return _read_reason(frame, at)
    if kind == KIND_ANNOTATIONS:
        return read_annotations(frame, at)
    if kind == KIND_LARGE:
        return read_large(frame, at), len(frame)
    if kind == KIND_TAKEN:
        publisher, subscription, number, taken = _TAKEN.unpack_from(frame, at)
        return Taken(publisher, subscription, number, taken), at + _TAKEN.size
    if kind == KIND_NEED:
        publisher, subscription, number = _NEED.unpack_from(frame, at)
        return Need(publisher, subscription, number), at + _NEED.size
    raise ChannelCodecError(f"kind {kind} is a datagram, not a sequenced frame")


def _read_nack(frame: bytes, at: int) -> tuple[Nack, int]:
    publisher, subscription, number, failed = _NACK.unpack_from(frame, at)
    at += _NACK.size
    presented = failed == _FAILED_AS_PRESENTED
    if at == len(frame):
        return Nack(publisher, subscription, number, bool(failed), is_presented=presented), at
    attempts, delay_ms = _NACK_MORE.unpack_from(frame, at)
    wish = None if delay_ms == _NO_DELAY else delay_ms
    return Nack(publisher, subscription, number, bool(failed), attempts, wish, presented), at + _NACK_MORE.size


def _read_msg(frame: bytes, at: int) -> tuple[Msg, int]:
    publisher, after, number, message_format, flags, attempt, tag_length, named = _read_msg_head(frame, at)
    at += _MSG_SIZE
    end = at + tag_length
    if tag_length > MAX_TAG_BYTES or end > len(frame):
        raise ChannelCodecError(f"a tag of {tag_length} bytes")
    tag = frame[at:end]
    to: tuple[int, ...] | None = None
    if flags & _FLAG_NAMED:
        to = unpack_from(f">{named}Q", frame, end)
        end += named * _NUMBER.size
    if flags <= _FLAG_NAMED:  # nearly all
        return Msg(publisher, number, tag, b"", to, False, False, attempt, after, message_format), end
    redelivered, settled = bool(flags & _FLAG_REDELIVERED), bool(flags & _FLAG_SETTLED)
    is_large = bool(flags & _FLAG_LARGE)
    msg = Msg(
        publisher,
        number,
        tag,
        b"",
        to,
        redelivered,
        settled,
        attempt,
        after,
        message_format,
        read_assigned(flags),
        is_large,
    )
    if flags & _FLAG_EXPIRES:
        msg = ExpiringMsg(msg, _TTL.unpack_from(frame, end)[0])
        end += _TTL.size
    return msg, end


def _read_sync(frame: bytes, at: int) -> tuple[Sync, int]:
    publisher, subscriptions, count = _SYNC.unpack_from(frame, at)
    at += _SYNC.size
    if subscriptions * _NUMBER.size + count * _SYNC_TAG.size > len(frame) - at:
        raise ChannelCodecError(f"a SYNC of {len(frame)} bytes claims {subscriptions} subscriptions and {count} tags")
    epochs = unpack_from(f">{subscriptions}Q", frame, at)
    at += subscriptions * _NUMBER.size
    numbers: list[int] = []
    tags: list[bytes] = []
    for _ in range(count):
        number, tag_length = _SYNC_TAG.unpack_from(frame, at)
        at += _SYNC_TAG.size
        end = at + tag_length
        if tag_length > MAX_TAG_BYTES or end > len(frame):
            raise ChannelCodecError(f"a SYNC with a tag of {tag_length} bytes")
        numbers.append(number)
        tags.append(frame[at:end])
        at = end
    is_letters = len(frame) - at != _SERIAL.size and frame[at : at + 1] == _SYNC_LETTERS
    serial, at = _read_serial(frame, at + is_letters)
    return Sync(publisher, epochs, tuple(numbers), tuple(tags), is_letters, serial), at


def _read_serial(frame: bytes, at: int) -> tuple[int, int]:
    if at == len(frame):
        return 0, at
    return _SERIAL.unpack_from(frame, at)[0], at + _SERIAL.size


def _read_runs(frame: bytes, at: int, count: int) -> tuple[tuple[Run, ...], int]:
    end = at + count * _RUN.size
    if end > len(frame):
        raise ChannelCodecError(f"{count} runs do not fit in {len(frame) - at} bytes")
    return tuple(_RUN.iter_unpack(frame[at:end])), end
