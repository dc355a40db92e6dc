"""Short ways for the three performatives of the hot path: transfer, disposition and flow.

A delivery that fits one frame is most of all traffic and has a way of its own (``whole_delivery``).

The decoders know the encodings that peers really send and give up (None) on everything else, malformed bytes
included; the generic tables then decide what it was. So the two can differ in speed only. A decoder may look past the
end of the list while it reads, because it accepts its result only if the last field ends exactly where the list ends.

The fields behind the numbers are a few bytes that take few values (null, true, false, a state without fields), so
they are looked up as a whole in tables made once.
"""

from __future__ import annotations

import struct
from itertools import product
from typing import Final

from oncewire.wire.encoding import encode_binary, encode_uint
from oncewire.wire.field_codec import NULL, encode_composite, encode_state
from oncewire.wire.performatives import ACCEPTED, RELEASED, DeliveryState, Disposition, Flow, Transfer

TRUE: Final = b"\x41"
FALSE: Final = b"\x42"

_unpack_uint: Final = struct.Struct(">I").unpack_from


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
MAX_FAST_TAG: Final = 32
_TRANSFER_HEADS: Final = _heads(0x14, 5)
_TRANSFER_MORE_HEADS: Final = _heads(0x14, 6)

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


TRANSFER_TAILS: Final = _transfer_tails()


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
        or len(delivery_tag) > MAX_FAST_TAG
        or message_format is None
        or settled is None
        or not (rcv_settle_mode is None and state is None)
        or resume
        or aborted
        or batchable
    ):
        transfer = Transfer(handle, delivery_id, delivery_tag, message_format, settled, more, rcv_settle_mode, state)
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
    tail = TRANSFER_TAILS.get(buf[pos:stop])
    if tail is None or tail[0] != count:
        return None
    return Transfer(handle, delivery_id, buf[first:pos], tail[1], tail[2], tail[3], tail[4]), stop


# --- disposition ------------------------------------------------------------------------------------------------------

_DISPOSITION_HEADS: Final = _heads(0x15, 5)
_SETTLE_HEADS: Final = _heads(0x15, 4)

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


_DISPOSITION_TAILS: Final = _disposition_tails()
_ENCODED_ACCEPTED: Final = encode_state(ACCEPTED)


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

_MAX_FLOW_NUMBERS: Final = 8
# the positions of drain and echo behind the eight numbers
_FLOW_TAILS: Final[dict[bytes, tuple[int, bool, bool]]] = {
    b"": (8, False, False),
    **{drain: (9, drain == TRUE, False) for drain in (NULL, FALSE, TRUE)},
    **{drain + echo: (10, drain == TRUE, echo == TRUE) for drain, echo in product((NULL, FALSE, TRUE), repeat=2)},
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
