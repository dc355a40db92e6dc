"""Link-state messages between neighbours, and their bytes.

A message is one byte for its kind; an announcement goes on with its link states, each: origin (8 bytes), sequence (8),
age in seconds (2), length of the node id (1) and the node id in UTF-8, number of neighbours (2), and for each neighbour
its incarnation (8) and the cost (4). All numbers are big endian and unsigned.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct, error
from typing import TypeAlias

MAX_COST = 2**32 - 1
MAX_NODE_ID_BYTES = 255
"""Fits the length byte; node ids are host names."""
MAX_NEIGHBOURS = 1_024
"""Links of one router. More are no network this protocol is made for, but somebody's attempt to fill our memory."""
MAX_STATES = 1_024
"""Link states in one announcement."""

_HEARTBEAT, _ANNOUNCEMENT = 0, 1
_STATE = Struct(">QQHB")
_COUNT = Struct(">H")
_LINK = Struct(">QI")


class LinkStateError(ValueError):
    """Bytes that are no link-state message; the neighbour is at fault and its connection is to be closed."""


@dataclass(frozen=True, slots=True)
class LinkStateUpdate:
    """What one router incarnation says of its links (LSU)."""

    origin: int
    node_id: str
    sequence: int
    """Of two updates of one origin the one with the larger sequence is newer."""
    links: tuple[tuple[int, int], ...]
    """(neighbour, cost of sending to it), by neighbour."""
    age_s: int = 0
    """Seconds since the origin made it, as far as known; it is forgotten when too old."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The sender lives."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """Link states the receiver may not have."""

    states: tuple[LinkStateUpdate, ...]


LinkStateMessage: TypeAlias = Heartbeat | Announcement


def encode_message(message: LinkStateMessage) -> bytes:
    """The message's bytes."""
    if isinstance(message, Heartbeat):
        return bytes([_HEARTBEAT])
    parts = [bytes([_ANNOUNCEMENT]), _COUNT.pack(len(message.states))]
    for state in message.states:
        node_id = state.node_id.encode()
        assert len(node_id) <= MAX_NODE_ID_BYTES
        parts += (_STATE.pack(state.origin, state.sequence, state.age_s, len(node_id)), node_id)
        parts.append(_COUNT.pack(len(state.links)))
        parts += [_LINK.pack(neighbour, cost) for neighbour, cost in state.links]
    return b"".join(parts)


def decode_message(data: bytes) -> LinkStateMessage:
    """The message in `data`, which it must fill.

    Raises:
        LinkStateError: it is none.
    """
    try:
        message, end = _decode(data)
    except (error, UnicodeDecodeError, IndexError) as problem:
        raise LinkStateError(f"a malformed link-state message: {problem}") from None
    if end != len(data):
        raise LinkStateError(f"{len(data) - end} bytes too many in a link-state message")
    return message


def _decode(data: bytes) -> tuple[LinkStateMessage, int]:
    kind = data[0]
    if kind == _HEARTBEAT:
        return Heartbeat(), 1
    if kind != _ANNOUNCEMENT:
        raise LinkStateError(f"unknown link-state message {kind}")
    (count,) = _COUNT.unpack_from(data, 1)
    if count > MAX_STATES:
        raise LinkStateError(f"{count} link states in one message, {MAX_STATES} are allowed")
    position = 1 + _COUNT.size
    states = []
    for _ in range(count):
        state, position = _decode_state(data, position)
        states.append(state)
    return Announcement(tuple(states)), position


def _decode_state(data: bytes, position: int) -> tuple[LinkStateUpdate, int]:
    origin, sequence, age_s, name_bytes = _STATE.unpack_from(data, position)
    position += _STATE.size
    node_id = data[position : position + name_bytes].decode()
    position += name_bytes
    (count,) = _COUNT.unpack_from(data, position)
    if count > MAX_NEIGHBOURS:
        raise LinkStateError(f"{count} links of one router, {MAX_NEIGHBOURS} are allowed")
    position += _COUNT.size
    links = []
    for _ in range(count):
        neighbour, cost = _LINK.unpack_from(data, position)
        if not cost:
            raise LinkStateError("a link without cost: costs are at least 1")
        position += _LINK.size
        links.append((neighbour, cost))
    return LinkStateUpdate(origin, node_id, sequence, tuple(links), age_s), position
