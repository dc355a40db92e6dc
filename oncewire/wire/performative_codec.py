"""Performatives and SASL frame bodies as bytes: the one entrance to the hot and the generic codec."""

from __future__ import annotations

from typing import cast

from oncewire.wire.decoding import MAX_FRAME_VALUES, MAX_VALUES, DecodeBudget, read_value, truncated
from oncewire.wire.errors import DecodeError
from oncewire.wire.field_codec import (
    COMPOSITES,
    build,
    descriptor_code,
    encode_composite,
    encode_state,
    encode_unsettled_map,
)
from oncewire.wire.hot_codec import (
    decode_disposition,
    decode_flow,
    decode_transfer,
    encode_disposition,
    encode_flow,
    encode_transfer,
)
from oncewire.wire.performatives import Disposition, Flow, Performative, SaslFrame, Transfer
from oncewire.wire.types import Described

__all__ = [
    "MAX_UNSETTLED_ENTRY_SIZE",
    "decode_performative",
    "decode_sasl_frame",
    "encode_disposition",
    "encode_flow",
    "encode_performative",
    "encode_state",
    "encode_transfer",
    "encode_unsettled_map",
    "unsettled_map_bound",
]

_FIRST_PERFORMATIVE, _LAST_PERFORMATIVE = 0x10, 0x18
_FIRST_SASL, _LAST_SASL = 0x40, 0x44

# C-4: what an attach needs beside its map, and the bound on a map entry: tag (2 + 32 bytes) and a bare state (4).
ATTACH_OVERHEAD = 512
MAX_UNSETTLED_ENTRY_SIZE = 48


def encode_performative(performative: Performative | SaslFrame) -> bytes:
    """Encode a performative or the body of a SASL frame, without frame header and payload.

    Raises:
        LocalProtocolError: a mandatory field is None, or a value does not fit its field.
    """
    if isinstance(performative, Transfer):
        t = performative
        return encode_transfer(
            t.handle,
            t.delivery_id,
            t.delivery_tag,
            t.message_format,
            t.settled,
            more=t.more,
            rcv_settle_mode=t.rcv_settle_mode,
            state=t.state,
            resume=t.resume,
            aborted=t.aborted,
            batchable=t.batchable,
        )
    if isinstance(performative, Disposition):
        d = performative
        return encode_disposition(d.role, d.first, d.last, d.settled, d.state, batchable=d.batchable)
    if isinstance(performative, Flow):
        return encode_flow(performative)
    return encode_composite(performative)


def decode_performative(
    buf: bytes, pos: int = 0, end: int = -1, max_values: int = MAX_VALUES
) -> tuple[Performative, int]:
    """Decode the performative at the start of an AMQP frame body.

    Args:
        buf: the bytes, as ``FrameParser.next_frame`` returns them with the two positions.
        pos: where the frame body starts.
        end: where it ends; -1 = the end of ``buf``.
        max_values: how many values it may consist of, all levels together.

    Returns:
        The performative and the position after it, where the payload of a transfer starts.

    Raises:
        DecodeError: malformed, no performative, or a mandatory field is missing.
    """
    if end < 0 or end > len(buf):
        end = len(buf)
    # the usual descriptor: 0x00, smallulong, code; at least one byte of list follows
    if 0 <= pos <= end - 4 and buf[pos] == 0 and buf[pos + 1] == 0x53:
        code = buf[pos + 2]
        if code == 0x14:
            transfer = decode_transfer(buf, pos + 3, end)
            if transfer is not None:
                return transfer
        elif code == 0x15:
            disposition = decode_disposition(buf, pos + 3, end)
            if disposition is not None:
                return disposition
        elif code == 0x13:
            flow = decode_flow(buf, pos + 3, end)
            if flow is not None:
                return flow
    body, pos = _decode_body(buf, pos, end, _FIRST_PERFORMATIVE, _LAST_PERFORMATIVE, max_values)
    return cast("Performative", body), pos


def decode_sasl_frame(buf: bytes, pos: int = 0, end: int = -1) -> tuple[SaslFrame, int]:
    """Decode the body of a SASL frame; arguments, result and errors as for ``decode_performative``."""
    if end < 0 or end > len(buf):
        end = len(buf)
    body, pos = _decode_body(buf, pos, end, _FIRST_SASL, _LAST_SASL, MAX_FRAME_VALUES)
    return cast("SaslFrame", body), pos


def _decode_body(buf: bytes, pos: int, end: int, lowest: int, highest: int, max_values: int) -> tuple[object, int]:
    if not 0 <= pos < end:
        truncated()
    if buf[pos] != 0:  # before anything is built: what is not described is no performative
        raise DecodeError("a frame body does not start with a described list")
    value, pos = read_value(buf, pos, end, DecodeBudget(max_values))
    assert isinstance(value, Described)
    code = descriptor_code(value.descriptor)
    if not lowest <= code <= highest:
        raise DecodeError(f"{value.descriptor!r} does not belong at the start of this frame")
    return build(COMPOSITES[code], value.value), pos


def unsettled_map_bound(max_frame_size: int) -> int:
    """Return how many entries of bare states an attach of ``max_frame_size`` bytes holds for certain (C-4)."""
    return max(0, (max_frame_size - ATTACH_OVERHEAD) // MAX_UNSETTLED_ENTRY_SIZE)
