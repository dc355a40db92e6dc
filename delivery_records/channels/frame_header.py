"""The header of a frame between routers, and what a router on the way does with it (rules T-1, T-2).

It names the origin and every target, so that a router on the way can split the target list by next hop and pass the
payload on as it is: one copy per next hop, nothing decoded (T-2).

    u8 version, u8 kind, u8 hop limit, u64 origin, u16 count, count x (u64 rid, u32 generation, u64 sequence), payload

All numbers are big endian. A datagram (HELLO, BARRIER, APPLIED) has one target with generation and sequence 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, TypeAlias

from delivery_records.channels.codec_error import ChannelCodecError

PROTOCOL_VERSION: Final = 1
"""First byte of every frame. Routers agree on a version when they connect; a frame of another one is refused."""
HOP_LIMIT: Final = 32
"""Hops a frame may take: more than any sensible mesh needs, and the end of a loop while best paths settle."""
MAX_TARGETS: Final = 0xFFFF

Target: TypeAlias = tuple[int, int, int]
"""(router incarnation, channel generation, sequence number)."""

KIND_SYNC: Final = 1
KIND_MSG: Final = 2
KIND_MSG_PART: Final = 3
KIND_SETTLE: Final = 4
KIND_ACK: Final = 5
KIND_NACK: Final = 6
KIND_CREDIT: Final = 7
KIND_CLAIM: Final = 8
KIND_RETURN: Final = 9
KIND_ROOM: Final = 10
KIND_REASON: Final = 11
KIND_ANNOTATIONS: Final = 12
KIND_LARGE: Final = 13
KIND_TAKEN: Final = 14
KIND_NEED: Final = 15
KIND_HELLO: Final = 16
KIND_BARRIER: Final = 17
KIND_APPLIED: Final = 18
_FIRST_SEQUENCED: Final = KIND_SYNC
_LAST_SEQUENCED: Final = KIND_NEED
_FIRST_DATAGRAM: Final = KIND_HELLO
_LAST_DATAGRAM: Final = KIND_APPLIED

_HEADER: Final = Struct(">BBBQH")
_TARGET: Final = Struct(">QIQ")
_HEADER_TO_ONE: Final = Struct(">BBBQHQIQ")
"""Both together: nearly every frame has one target."""
_HEADER_SIZE: Final = _HEADER.size
_TARGET_SIZE: Final = _TARGET.size
_TO_ONE_SIZE: Final = _HEADER_TO_ONE.size
_read_header_to_one: Final = _HEADER_TO_ONE.unpack_from
_write_header_to_one: Final = _HEADER_TO_ONE.pack
_HOP_LIMIT_AT: Final = 2


class Header:
    """What a router on the way must know of a frame (hot path: a plain class).

    Attributes:
        kind, origin, hop_limit: as in the frame.
        targets: whom it is for.
        payload_at: where the payload starts in the frame.
    """

    __slots__ = ("hop_limit", "kind", "origin", "payload_at", "targets")

    def __init__(self, kind: int, origin: int, hop_limit: int, targets: tuple[Target, ...], payload_at: int) -> None:
        self.kind = kind
        self.origin = origin
        self.hop_limit = hop_limit
        self.targets = targets
        self.payload_at = payload_at

    @property
    def carries_body(self) -> bool:
        """True for MSG, MSG-PART and LARGE: what may be dropped when a next hop is too slow (T-2)."""
        return self.kind == KIND_MSG or self.kind == KIND_MSG_PART or self.kind == KIND_LARGE

    @property
    def is_datagram(self) -> bool:
        """True for HELLO, BARRIER and APPLIED: no channel, no sequence."""
        return self.kind >= _FIRST_DATAGRAM


def encode_header(kind: int, origin: int, targets: Sequence[Target], hop_limit: int = HOP_LIMIT) -> bytes:
    """The header for these targets; the payload of `encode_payload` follows it."""
    if len(targets) == 1:
        rid, generation, sequence = targets[0]
        return _write_header_to_one(PROTOCOL_VERSION, kind, hop_limit, origin, 1, rid, generation, sequence)
    assert 0 < len(targets) <= MAX_TARGETS
    header = _HEADER.pack(PROTOCOL_VERSION, kind, hop_limit, origin, len(targets))
    for rid, generation, sequence in targets:
        header += _TARGET.pack(rid, generation, sequence)
    return header


def read_header(frame: bytes) -> Header:
    """Read a frame's header only.

    Raises:
        ChannelCodecError: the bytes are no frame of this protocol version.
    """
    size = len(frame)
    if size >= _TO_ONE_SIZE:  # nearly always to one target
        version, kind, hop_limit, origin, count, rid, generation, sequence = _read_header_to_one(frame)
        if count == 1 and version == PROTOCOL_VERSION and _is_kind(kind):
            return Header(kind, origin, hop_limit, ((rid, generation, sequence),), _TO_ONE_SIZE)
    return _read_other_header(frame)


def _is_kind(kind: int) -> bool:
    return _FIRST_SEQUENCED <= kind <= _LAST_SEQUENCED or _FIRST_DATAGRAM <= kind <= _LAST_DATAGRAM


def _read_other_header(frame: bytes) -> Header:
    """One of several targets, or one that is wrong."""
    if len(frame) < _HEADER_SIZE:
        raise ChannelCodecError(f"a frame of {len(frame)} bytes is shorter than its header")
    version, kind, hop_limit, origin, count = _HEADER.unpack_from(frame)
    if version != PROTOCOL_VERSION:
        raise ChannelCodecError(f"a frame of protocol version {version}; this router speaks {PROTOCOL_VERSION}")
    if not _is_kind(kind):
        raise ChannelCodecError(f"a frame of unknown kind {kind}")
    payload_at = _HEADER_SIZE + count * _TARGET_SIZE
    if count == 0 or payload_at > len(frame):
        raise ChannelCodecError(f"a frame of {len(frame)} bytes names {count} targets")
    if count > 1 and kind >= _FIRST_DATAGRAM:
        raise ChannelCodecError(f"a datagram names {count} targets")
    targets = tuple(_TARGET.iter_unpack(frame[_HEADER_SIZE:payload_at]))
    return Header(kind, origin, hop_limit, targets, payload_at)


def split(frame: bytes, header: Header, next_hop: Callable[[int], int | None]) -> list[tuple[int, bytes]]:
    """Split a frame by next hop, its payload undecoded (T-2).

    Args:
        frame: the whole frame.
        header: what `read_header` read from it.
        next_hop: the next hop for a target's incarnation; None where the target is not to be passed on.

    Returns:
        (next hop, frame) pairs, one per next hop, each with one hop less to go. Empty when no hop is left.
    """
    if header.hop_limit <= 1:
        return []
    if len(header.targets) == 1:
        only = next_hop(header.targets[0][0])
        if only is None:
            return []
        one_less = bytes((header.hop_limit - 1,))
        return [(only, frame[:_HOP_LIMIT_AT] + one_less + frame[_HOP_LIMIT_AT + 1 :])]
    groups: dict[int, list[Target]] = {}
    for target in header.targets:
        hop = next_hop(target[0])
        if hop is not None:
            groups.setdefault(hop, []).append(target)
    payload = frame[header.payload_at :]
    return [
        (hop, encode_header(header.kind, header.origin, targets, header.hop_limit - 1) + payload)
        for hop, targets in groups.items()
    ]
