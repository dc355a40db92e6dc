"""Short ways for the three performatives of the hot path: transfer, disposition and flow.

The decoders read the encodings that peers really send and give up (None) on everything else, malformed bytes
included; the generic tables then decide what it was. So the two can differ in speed only. A decoder may look past the
end of the list while it reads, because it accepts its result only if the last field ended exactly where the list ends.
"""

from __future__ import annotations

from oncewire.wire.decoding import DecodeBudget, read_value
from oncewire.wire.encoding import encode_binary, encode_uint
from oncewire.wire.errors import DecodeError
from oncewire.wire.field_codec import NULL, encode_composite, to_state
from oncewire.wire.performatives import ACCEPTED, DeliveryState, Disposition, Flow, Transfer

TRUE = b"\x41"
FALSE = b"\x42"
ACCEPTED_OCTETS = b"\x00\x53\x24\x45"

# What decode functions return for a uint that is null, and for bytes that they leave to the generic decoder.
_NULL_UINT = -1
_UNUSUAL = -2

_SMALL_UINTS: tuple[bytes, ...] = tuple(encode_uint(number) for number in range(256))


def _heads(code: int, count: int) -> tuple[bytes, ...]:
    """The bytes before the fields of a performative with ``count`` fields, by the size of the fields (1.4)."""
    return tuple(bytes((0, 0x53, code, 0xC0, size + 1, count)) for size in range(255))


_MAX_TRANSFER_FIELDS = 6
_TRANSFER_HEADS: tuple[tuple[bytes, ...], ...] = tuple(_heads(0x14, n) for n in range(_MAX_TRANSFER_FIELDS + 1))
_DISPOSITION_HEADS: tuple[bytes, ...] = _heads(0x15, 5)
# A tag of AMQP's 32 bytes (2.8.7) and all other fields fit a list8 many times over.
_MAX_FAST_TAG = 32


# --- transfer ---------------------------------------------------------------------------------------------------------


def encode_transfer(
    handle: int,
    delivery_id: int | None = None,
    delivery_tag: bytes | None = None,
    message_format: int | None = None,
    settled: bool | None = None,
    more: bool = False,
    rcv_settle_mode: int | None = None,
    state: DeliveryState | None = None,
    resume: bool = False,
    aborted: bool = False,
    batchable: bool = False,
) -> bytes:
    """Encode a transfer performative (2.7.5) from its fields; the arguments are those of ``Transfer``, in order.

    Raises:
        LocalProtocolError: a number is out of its range.
    """
    if (
        delivery_id is None
        or delivery_tag is None
        or len(delivery_tag) > _MAX_FAST_TAG
        or rcv_settle_mode is not None
        or state is not None
        or resume
        or aborted
        or batchable
        or handle < 0
        or delivery_id < 0
    ):
        return encode_composite(
            Transfer(
                handle,
                delivery_id,
                delivery_tag,
                message_format,
                settled,
                more,
                rcv_settle_mode,
                state,
                resume,
                aborted,
                batchable,
            )
        )
    fields = (
        (_SMALL_UINTS[handle] if handle < 256 else encode_uint(handle))
        + (_SMALL_UINTS[delivery_id] if delivery_id < 256 else encode_uint(delivery_id))
        + encode_binary(delivery_tag)
        + (NULL if message_format is None else b"\x43" if message_format == 0 else encode_uint(message_format))
        + (FALSE if settled is False else NULL if settled is None else TRUE)
    )
    if more:
        fields += TRUE
        return _TRANSFER_HEADS[6][len(fields)] + fields
    return _TRANSFER_HEADS[5][len(fields)] + fields


def decode_transfer(buf: bytes, pos: int, end: int) -> tuple[Transfer, int] | None:
    """Decode the list of a transfer, ``pos`` being behind its descriptor; None = leave it to the generic decoder."""
    try:
        return _decode_transfer(buf, pos, end)
    except IndexError:  # a read past the end of the buffer
        return None


def _decode_transfer(buf: bytes, pos: int, end: int) -> tuple[Transfer, int] | None:
    if buf[pos] != 0xC0:
        return None
    stop = pos + 2 + buf[pos + 1]
    count = buf[pos + 2]
    if stop > end or not 3 <= count <= 11:
        return None
    pos += 3
    # handle and delivery-id: written out, because they cost more than all the rest when they are calls
    code = buf[pos]
    if code == 0x43:
        handle = 0
        pos += 1
    elif code == 0x52:
        handle = buf[pos + 1]
        pos += 2
    elif code == 0x70:
        handle = int.from_bytes(buf[pos + 1 : pos + 5], "big")
        pos += 5
    else:
        return None
    code = buf[pos]
    if code == 0x70:
        delivery_id = int.from_bytes(buf[pos + 1 : pos + 5], "big")
        pos += 5
    elif code == 0x52:
        delivery_id = buf[pos + 1]
        pos += 2
    elif code == 0x43:
        delivery_id = 0
        pos += 1
    else:
        return None
    if buf[pos] != 0xA0:
        return None
    size = buf[pos + 1]
    delivery_tag = buf[pos + 2 : pos + 2 + size]
    pos += 2 + size
    transfer = Transfer(handle, delivery_id, delivery_tag)
    if count > 3:
        code = buf[pos]
        if code == 0x43:
            transfer.message_format = 0
            pos += 1
        elif code == 0x40:
            pos += 1
        else:
            number, pos = _read_uint(buf, pos)
            if number == _UNUSUAL:
                return None
            transfer.message_format = number
    if count > 4:
        code = buf[pos]
        pos += 1
        if code == 0x42:
            transfer.settled = False
        elif code == 0x41:
            transfer.settled = True
        elif code != 0x40:
            return None
    if count > 5:
        code = buf[pos]
        pos += 1
        if code == 0x41:
            transfer.more = True
        elif code != 0x42 and code != 0x40:
            return None
    if count > 6:
        pos = _decode_transfer_rest(transfer, buf, pos, stop, count)
    return (transfer, stop) if pos == stop else None


def _decode_transfer_rest(transfer: Transfer, buf: bytes, pos: int, stop: int, count: int) -> int:
    """Decode the seventh and later fields; return where they end, or _UNUSUAL."""
    code = buf[pos]
    pos += 1
    if code == 0x50:
        transfer.rcv_settle_mode = buf[pos]
        pos += 1
    elif code != 0x40:
        return _UNUSUAL
    if count > 7:
        if buf[pos] == 0x40:
            pos += 1
        else:
            state = _read_state(buf, pos, stop)
            if state is None:
                return _UNUSUAL
            transfer.state, pos = state
    for index in range(8, count):
        code = buf[pos]
        pos += 1
        if code == 0x41:
            if index == 8:
                transfer.resume = True
            elif index == 9:
                transfer.aborted = True
            else:
                transfer.batchable = True
        elif code != 0x42 and code != 0x40:
            return _UNUSUAL
    return pos


# --- disposition ------------------------------------------------------------------------------------------------------


def encode_disposition(
    role: bool,
    first: int,
    last: int | None = None,
    settled: bool = False,
    state: DeliveryState | None = None,
    batchable: bool = False,
) -> bytes:
    """Encode a disposition performative (2.7.6) from its fields; the arguments are those of ``Disposition``.

    Raises:
        LocalProtocolError: a number is out of its range.
    """
    if state is not ACCEPTED or batchable:
        return encode_composite(Disposition(role, first, last, settled, state, batchable))
    fields = (
        (TRUE if role else FALSE)
        + encode_uint(first)
        + (NULL if last is None else encode_uint(last))
        + (TRUE if settled else FALSE)
        + ACCEPTED_OCTETS
    )
    return _DISPOSITION_HEADS[len(fields)] + fields


def decode_disposition(buf: bytes, pos: int, end: int) -> tuple[Disposition, int] | None:
    """Decode the list of a disposition, ``pos`` being behind its descriptor; None = leave it to the generic decoder."""
    try:
        return _decode_disposition(buf, pos, end)
    except IndexError:  # a read past the end of the buffer
        return None


def _decode_disposition(buf: bytes, pos: int, end: int) -> tuple[Disposition, int] | None:
    if buf[pos] != 0xC0:
        return None
    stop = pos + 2 + buf[pos + 1]
    count = buf[pos + 2]
    code = buf[pos + 3]
    if stop > end or not 2 <= count <= 6 or (code != 0x41 and code != 0x42):
        return None
    first, pos = _read_uint(buf, pos + 4)
    if first < 0:
        return None
    disposition = Disposition(code == 0x41, first)
    if count > 2:
        last, pos = _read_uint(buf, pos)
        if last >= 0:
            disposition.last = last
        elif last == _UNUSUAL:
            return None
    if count > 3:
        code = buf[pos]
        pos += 1
        if code == 0x41:
            disposition.settled = True
        elif code != 0x42 and code != 0x40:
            return None
    if count > 4:
        if buf[pos : pos + 4] == ACCEPTED_OCTETS:
            disposition.state = ACCEPTED
            pos += 4
        elif buf[pos] == 0x40:
            pos += 1
        else:
            state = _read_state(buf, pos, stop)
            if state is None:
                return None
            disposition.state, pos = state
    if count > 5:
        code = buf[pos]
        pos += 1
        if code == 0x41:
            disposition.batchable = True
        elif code != 0x42 and code != 0x40:
            return None
    return (disposition, stop) if pos == stop else None


# --- flow -------------------------------------------------------------------------------------------------------------


def encode_flow(flow: Flow) -> bytes:
    """Encode a flow performative (2.7.4).

    Raises:
        LocalProtocolError: a mandatory field is None or a number is out of its range.
    """
    if (
        flow.properties
        or flow.available is not None
        or flow.handle is None
        or flow.delivery_count is None
        or flow.link_credit is None
    ):
        return encode_composite(flow)
    fields = (
        (NULL if flow.next_incoming_id is None else encode_uint(flow.next_incoming_id))
        + encode_uint(flow.incoming_window)
        + encode_uint(flow.next_outgoing_id)
        + encode_uint(flow.outgoing_window)
        + encode_uint(flow.handle)
        + encode_uint(flow.delivery_count)
        + encode_uint(flow.link_credit)
    )
    count = 7
    if flow.drain or flow.echo:
        fields += NULL + (TRUE if flow.drain else FALSE) + (TRUE if flow.echo else FALSE)
        count = 10
    return b"\x00\x53\x13\xc0" + bytes((len(fields) + 1, count)) + fields


def decode_flow(buf: bytes, pos: int, end: int) -> tuple[Flow, int] | None:
    """Decode the list of a flow, ``pos`` being behind its descriptor; None = leave it to the generic decoder."""
    try:
        return _decode_flow(buf, pos, end)
    except IndexError:  # a read past the end of the buffer
        return None


def _decode_flow(buf: bytes, pos: int, end: int) -> tuple[Flow, int] | None:
    if buf[pos] != 0xC0:
        return None
    stop = pos + 2 + buf[pos + 1]
    count = buf[pos + 2]
    if stop > end or not 4 <= count <= 10:
        return None
    pos += 3
    numbers: list[int] = []
    for index in range(min(count, 8)):
        number, pos = _read_uint(buf, pos)
        if number == _UNUSUAL or (number == _NULL_UINT and 1 <= index <= 3):
            return None
        numbers.append(number)
    flow = Flow(None if numbers[0] < 0 else numbers[0], numbers[1], numbers[2], numbers[3])
    if count > 4 and numbers[4] >= 0:
        flow.handle = numbers[4]
    if count > 5 and numbers[5] >= 0:
        flow.delivery_count = numbers[5]
    if count > 6 and numbers[6] >= 0:
        flow.link_credit = numbers[6]
    if count > 7 and numbers[7] >= 0:
        flow.available = numbers[7]
    for index in range(8, count):
        code = buf[pos]
        pos += 1
        if code == 0x41:
            if index == 8:
                flow.drain = True
            else:
                flow.echo = True
        elif code != 0x42 and code != 0x40:
            return None
    return (flow, stop) if pos == stop else None


# --- shared -----------------------------------------------------------------------------------------------------------


def _read_uint(buf: bytes, pos: int) -> tuple[int, int]:
    """Return a uint and the position after it; _NULL_UINT for null, _UNUSUAL for anything else."""
    code = buf[pos]
    if code == 0x52:
        return buf[pos + 1], pos + 2
    if code == 0x70:
        return int.from_bytes(buf[pos + 1 : pos + 5], "big"), pos + 5
    if code == 0x43:
        return 0, pos + 1
    if code == 0x40:
        return _NULL_UINT, pos + 1
    return _UNUSUAL, pos


def _read_state(buf: bytes, pos: int, end: int) -> tuple[DeliveryState, int] | None:
    try:
        value, pos = read_value(buf, pos, end, DecodeBudget())
        return to_state(value), pos
    except DecodeError:
        return None
