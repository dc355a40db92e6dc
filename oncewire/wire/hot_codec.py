"""Short ways for the three performatives of the hot path: transfer, disposition and flow.

A delivery that fits one frame is most of all traffic and has a way of its own, without a ``Transfer`` in between.

The decoders know the encodings that peers really send and give up (None) on everything else, malformed bytes
included; the generic tables then decide what it was. So the two can differ in speed only. A decoder may look past the
end of the list while it reads, because it accepts its result only if the last field ends exactly where the list ends.

The fields behind the numbers are a few bytes that take few values (null, true, false, a state without fields), so
they are looked up as a whole in tables made once.
"""

from __future__ import annotations

import struct
from itertools import product
from typing import TypeAlias

from oncewire.wire.encoding import encode_binary, encode_uint
from oncewire.wire.field_codec import NULL, encode_composite, encode_state
from oncewire.wire.frames import AMQP_FRAME, FRAME_HEADER_SIZE, MIN_DATA_OFFSET, FrameParser
from oncewire.wire.performatives import ACCEPTED, RELEASED, DeliveryState, Disposition, Flow, Transfer

TRUE = b"\x41"
FALSE = b"\x42"

_unpack_uint = struct.Struct(">I").unpack_from


def _heads(code: int, count: int) -> tuple[bytes, ...]:
    """The bytes in front of the fields of a performative with ``count`` fields, by the size of the fields (1.4)."""
    return tuple(bytes((0, 0x53, code, 0xC0, size + 1, count)) for size in range(255))


def _read_uint(buf: bytes, pos: int, stop: int) -> tuple[int, int]:
    """Return a uint and the position after it; -1 and ``pos`` for anything else. ``pos`` must be in ``buf``."""
    code = buf[pos]
    if code == 0x70 and pos + 5 <= stop:
        return _unpack_uint(buf, pos + 1)[0], pos + 5
    if code == 0x52 and pos + 2 <= stop:
        return buf[pos + 1], pos + 2
    return (0, pos + 1) if code == 0x43 else (-1, pos)


# --- transfer ---------------------------------------------------------------------------------------------------------

# A longer tag is not legal (2.8.7); the bound keeps all fields within a list8.
_MAX_FAST_TAG = 32
_TRANSFER_HEADS = _heads(0x14, 5)
_TRANSFER_MORE_HEADS = _heads(0x14, 6)

# (number of fields, message-format, settled, more, rcv-settle-mode)
_TransferTail = tuple[int, int | None, bool | None, bool, int | None]


def _transfer_tails() -> dict[bytes, _TransferTail]:
    """The fields behind the delivery tag as peers send them, up to a batchable that is false or left out."""
    formats: dict[bytes, int | None] = {b"\x43": 0, NULL: None}
    settleds: dict[bytes, bool | None] = {FALSE: False, TRUE: True, NULL: None}
    mores = {FALSE: False, TRUE: True, NULL: False}
    modes: dict[bytes, int | None] = {NULL: None, b"\x50\x00": 0, b"\x50\x01": 1}
    tails: dict[bytes, _TransferTail] = {b"": (3, None, None, False, None)}
    for f, fmt in formats.items():
        tails[f] = (4, fmt, None, False, None)
        for s, settled in settleds.items():
            tails[f + s] = (5, fmt, settled, False, None)
            for m, more in mores.items():
                tails[f + s + m] = (6, fmt, settled, more, None)
                for r, mode in modes.items():
                    tails[f + s + m + r] = (7, fmt, settled, more, mode)
                    for rest in product((NULL,), (NULL, FALSE), (NULL, FALSE), (NULL, FALSE)):
                        tails[f + s + m + r + b"".join(rest)] = (11, fmt, settled, more, mode)
    return tails


_TRANSFER_TAILS = _transfer_tails()


def encode_transfer(
    handle: int,
    delivery_id: int | None = None,
    delivery_tag: bytes | None = None,
    message_format: int | None = None,
    settled: bool | None = None,
    *,
    more: bool = False,
    rcv_settle_mode: int | None = None,
    state: DeliveryState | None = None,
    resume: bool = False,
    aborted: bool = False,
    batchable: bool = False,
) -> bytes:
    """Encode a transfer performative (2.7.5) from its fields, which are those of ``Transfer``.

    Raises:
        LocalProtocolError: a number is out of its range.
    """
    if (
        delivery_id is None
        or delivery_tag is None
        or len(delivery_tag) > _MAX_FAST_TAG
        or message_format is None
        or settled is None
        or not (rcv_settle_mode is None and state is None)
        or resume
        or aborted
        or batchable
    ):
        transfer = Transfer(
            handle, delivery_id, delivery_tag, message_format, settled, more, rcv_settle_mode, state
        )
        transfer.resume = resume
        transfer.aborted = aborted
        transfer.batchable = batchable
        return encode_composite(transfer)
    fields = (
        encode_uint(handle)
        + encode_uint(delivery_id)
        + encode_binary(delivery_tag)
        + encode_uint(message_format)
        + (TRUE if settled else FALSE)
    )
    if more:
        return _TRANSFER_MORE_HEADS[len(fields) + 1] + fields + TRUE
    return _TRANSFER_HEADS[len(fields)] + fields


def decode_transfer(buf: bytes, pos: int, end: int) -> tuple[Transfer, int] | None:
    """Decode the list of a transfer, ``pos`` being behind its descriptor; None = leave it to the generic decoder."""
    if end - pos < 9 or buf[pos] != 0xC0:  # constructor, size, count, and at least three fields of two bytes
        return None
    stop = pos + 2 + buf[pos + 1]
    if stop > end or stop < pos + 9:
        return None
    count = buf[pos + 2]
    pos += 3
    # the usual forms of both numbers are written out: a call would cost as much as all the rest
    code = buf[pos]
    if code == 0x43:
        handle = 0
        pos += 1
    elif code == 0x52:
        handle = buf[pos + 1]
        pos += 2
    else:
        handle, pos = _read_uint(buf, pos, stop)
    if buf[pos] == 0x70 and pos + 7 <= stop:
        delivery_id: int = _unpack_uint(buf, pos + 1)[0]
        pos += 5
    else:
        delivery_id, pos = _read_uint(buf, pos, stop)
    if handle < 0 or delivery_id < 0 or pos + 2 > stop or buf[pos] != 0xA0:
        return None
    first = pos + 2
    pos = first + buf[pos + 1]
    if pos > stop:
        return None
    tail = _TRANSFER_TAILS.get(buf[pos:stop])
    if tail is None or tail[0] != count:
        return None
    return Transfer(handle, delivery_id, buf[first:pos], tail[1], tail[2], tail[3], tail[4]), stop


# A delivery in one frame, by the fields behind its tag: (number of fields, settled, message-format). One that says
# who settles first (rcv-settle-mode, 2.7.5) is rare, and goes the way of any transfer.
_WHOLE_TAILS = {
    octets: (count, settled is True, message_format or 0)
    for octets, (count, message_format, settled, more, mode) in _TRANSFER_TAILS.items()
    if not more and mode is None
}
# Descriptor and constructor of a transfer as one number.
_TRANSFER_START = 0x005314C0
_FRAME_KIND = MIN_DATA_OFFSET << 8 | AMQP_FRAME
# (channel, handle, delivery-id, tag, settled, message-format, payload)
WholeDelivery: TypeAlias = tuple[int, int, int, bytes, bool, int, bytes]

# Frame size, data offset and type, channel; then start, size and count of the transfer, handle 0, delivery-id,
# constructor and size of the tag. Behind any other handle the last four are a byte further on.
_unpack_to_tag = struct.Struct(">IHHIBBBBIBB").unpack_from
_unpack_id_and_tag = struct.Struct(">BIBB").unpack_from
_ID_AT = FRAME_HEADER_SIZE + 8
# With handle 0, an empty tag (2.8.7 has no minimum) and nothing behind it.
_SHORTEST_WHOLE = FRAME_HEADER_SIZE + 14


def take_whole_delivery(parser: FrameParser) -> WholeDelivery | None:
    """Take the next frame if it is there and holds a delivery that ends in it, in its usual form.

    Returns:
        Its fields; None = nothing was taken: ask ``parser.next_frame``, which also knows what is wrong.
    """
    buf = parser.buf
    pos = parser.pos
    left = len(buf) - pos
    if left < _SHORTEST_WHOLE:
        return None
    size, kind, channel, start, fields, count, code, uint, delivery_id, binary, tag_size = _unpack_to_tag(
        buf, pos
    )
    if start != _TRANSFER_START or kind != _FRAME_KIND or size > left or size > parser.max_frame_size:
        return None
    handle = 0
    first = pos + 22
    if code == 0x52 and size > _SHORTEST_WHOLE:
        handle = uint
        first = pos + 23
        uint, delivery_id, binary, tag_size = _unpack_id_and_tag(buf, pos + _ID_AT)
    elif code != 0x43:
        return None
    behind = first + tag_size
    stop = pos + 13 + fields
    end = pos + size
    if uint != 0x70 or binary != 0xA0 or behind > stop or stop > end or tag_size > _MAX_FAST_TAG:
        return None
    tail = _WHOLE_TAILS.get(buf[behind:stop])
    if tail is None or tail[0] != count:
        return None
    parser.pos = end
    return channel, handle, delivery_id, buf[first:behind], tail[1], tail[2], buf[stop:end]


# The same fields, two of them as one number where that is possible.
_pack_with_handle_0 = struct.Struct(">IHHIHHIH").pack
_pack_with_handle = struct.Struct(">IHHIHHBIH").pack
MAX_WHOLE_HANDLE = 0xFF
_UNSETTLED_TAIL = b"\x43\x42"
_SETTLED_TAIL = b"\x43\x41"
# Up to the tag, and the two fields of a byte behind it.
_WHOLE_HEAD = FRAME_HEADER_SIZE + 16


def encode_whole_delivery(
    channel: int, handle: int, delivery_id: int, tag: bytes, settled: bool, payload_size: int
) -> bytes:
    """Encode frame header and transfer of a delivery in one frame, with message-format 0; its payload follows.

    ``handle`` is at most ``MAX_WHOLE_HANDLE`` and ``tag`` has at most 32 bytes.
    """
    size = len(tag)
    frame = _WHOLE_HEAD + size + payload_size
    fields = (size + 11) << 8 | 5
    binary = 0xA000 | size
    if handle:
        uint = 0x5200 | handle
        head = _pack_with_handle(
            frame + 1, _FRAME_KIND, channel, _TRANSFER_START, fields + 0x100, uint, 0x70, delivery_id, binary
        )
    else:
        head = _pack_with_handle_0(
            frame, _FRAME_KIND, channel, _TRANSFER_START, fields, 0x4370, delivery_id, binary
        )
    return head + tag + (_SETTLED_TAIL if settled else _UNSETTLED_TAIL)


# --- disposition ------------------------------------------------------------------------------------------------------

_DISPOSITION_HEADS = _heads(0x15, 5)
_SETTLE_HEADS = _heads(0x15, 4)

# (number of fields, settled, state)
_DispositionTail = tuple[int, bool, DeliveryState | None]


def _disposition_tails() -> dict[bytes, _DispositionTail]:
    """The fields behind ``last`` as peers send them; a batchable that is true is only a hint (2.7.6), yet kept."""
    settleds = {FALSE: False, TRUE: True, NULL: False}
    states: dict[bytes, DeliveryState | None] = {NULL: None}
    for state in (ACCEPTED, RELEASED):
        octets = encode_state(state)
        states[octets] = state
        states[octets[:3] + b"\xc0\x01\x00"] = state  # the empty list in its longer form
    tails: dict[bytes, _DispositionTail] = {b"": (3, False, None)}
    for s, settled in settleds.items():
        tails[s] = (4, settled, None)
        for o, state_or_none in states.items():
            tails[s + o] = (5, settled, state_or_none)
            tails[s + o + NULL] = (6, settled, state_or_none)
            tails[s + o + FALSE] = (6, settled, state_or_none)
    return tails


_DISPOSITION_TAILS = _disposition_tails()
_ENCODED_ACCEPTED = encode_state(ACCEPTED)


def encode_disposition(
    role: bool,
    first: int,
    last: int | None = None,
    settled: bool = False,
    state: DeliveryState | None = None,
    *,
    batchable: bool = False,
) -> bytes:
    """Encode a disposition performative (2.7.6) from its fields, which are those of ``Disposition``.

    Raises:
        LocalProtocolError: a number is out of its range.
    """
    settles = settled and state is None  # the last step of the exactly-once exchange
    if not (settles or state is ACCEPTED) or batchable:
        return encode_composite(Disposition(role, first, last, settled, state, batchable))
    fields = (
        (TRUE if role else FALSE)
        + encode_uint(first)
        + (NULL if last is None else encode_uint(last))
        + (TRUE if settled else FALSE)
    )
    if settles:
        return _SETTLE_HEADS[len(fields)] + fields
    fields += _ENCODED_ACCEPTED
    return _DISPOSITION_HEADS[len(fields)] + fields


def decode_disposition(buf: bytes, pos: int, end: int) -> tuple[Disposition, int] | None:
    """Decode the list of a disposition, ``pos`` being behind its descriptor; None = leave it to the generic decoder."""
    if end - pos < 6 or buf[pos] != 0xC0:  # constructor, size, count, and three fields of a byte
        return None
    stop = pos + 2 + buf[pos + 1]
    role = buf[pos + 3]
    if stop > end or stop < pos + 6 or not 0x41 <= role <= 0x42:
        return None
    count = buf[pos + 2]
    first, pos = _read_uint(buf, pos + 4, stop)
    if first < 0 or pos >= stop:
        return None
    last: int | None = None
    if buf[pos] == 0x40:
        pos += 1
    else:
        last, pos = _read_uint(buf, pos, stop)
        if last < 0:
            return None
    tail = _DISPOSITION_TAILS.get(buf[pos:stop])
    if tail is None or tail[0] != count:
        return None
    return Disposition(role == 0x41, first, last, tail[1], tail[2]), stop


# --- flow -------------------------------------------------------------------------------------------------------------

_MAX_FLOW_NUMBERS = 8
# the positions of drain and echo behind the eight numbers
_FLOW_TAILS: dict[bytes, tuple[int, bool, bool]] = {
    b"": (8, False, False),
    **{drain: (9, drain == TRUE, False) for drain in (NULL, FALSE, TRUE)},
    **{
        drain + echo: (10, drain == TRUE, echo == TRUE)
        for drain, echo in product((NULL, FALSE, TRUE), repeat=2)
    },
}


def encode_flow(flow: Flow) -> bytes:
    """Encode a flow performative (2.7.4).

    Raises:
        LocalProtocolError: a mandatory field is None or a number is out of its range.
    """
    if (
        flow.properties is not None
        or flow.handle is None
        or flow.delivery_count is None
        or flow.link_credit is None
        or flow.next_incoming_id is None
    ):
        return encode_composite(flow)
    fields = (
        encode_uint(flow.next_incoming_id)
        + encode_uint(flow.incoming_window)
        + encode_uint(flow.next_outgoing_id)
        + encode_uint(flow.outgoing_window)
        + encode_uint(flow.handle)
        + encode_uint(flow.delivery_count)
        + encode_uint(flow.link_credit)
    )
    count = 7
    if flow.drain or flow.echo or flow.available is not None:
        fields += NULL if flow.available is None else encode_uint(flow.available)
        fields += (TRUE if flow.drain else FALSE) + (TRUE if flow.echo else FALSE)
        count = 10
    return b"\x00\x53\x13\xc0" + bytes((len(fields) + 1, count)) + fields


def decode_flow(buf: bytes, pos: int, end: int) -> tuple[Flow, int] | None:
    """Decode the list of a flow, ``pos`` being behind its descriptor; None = leave it to the generic decoder."""
    if end - pos < 7 or buf[pos] != 0xC0:  # constructor, size, count, and four fields of a byte
        return None
    stop = pos + 2 + buf[pos + 1]
    count = buf[pos + 2]
    if stop > end or not 4 <= count <= 10:
        return None
    pos += 3
    numbers: list[int | None] = []
    for _ in range(min(count, _MAX_FLOW_NUMBERS)):
        if pos >= stop:
            return None
        if buf[pos] == 0x40:
            numbers.append(None)
            pos += 1
            continue
        number, pos = _read_uint(buf, pos, stop)
        if number < 0:
            return None
        numbers.append(number)
    numbers += [None] * (_MAX_FLOW_NUMBERS - len(numbers))
    incoming_window, next_outgoing_id, outgoing_window = numbers[1:4]
    tail = _FLOW_TAILS.get(buf[pos:stop])
    if tail is None or tail[0] != max(count, _MAX_FLOW_NUMBERS):
        return None
    if incoming_window is None or next_outgoing_id is None or outgoing_window is None:
        return None
    flow = Flow(numbers[0], incoming_window, next_outgoing_id, outgoing_window)
    flow.handle, flow.delivery_count, flow.link_credit, flow.available = numbers[4:]
    flow.drain = tail[1]
    flow.echo = tail[2]
    return flow, stop
