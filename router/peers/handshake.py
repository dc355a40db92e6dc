"""What two routers say to each other in the open frames of their connection (HELLO)."""

from __future__ import annotations

from dataclasses import dataclass

from delivery_records.channels import frame_header
from oncewire.wire import Fields, Open, UByte, UInt, ULong, vocabulary

MAX_CHALLENGE_BYTES = 64
"""Of any release: more says nothing more."""


@dataclass(frozen=True, slots=True)
class NeighbourIdentity:
    """What a neighbour says of itself when the connection opens (HELLO)."""

    node_id: str
    rid: int
    cost: int
    challenge: bytes
    """To be answered (K-1b); empty if it asks for no proof."""


def open_properties(rid: int, nonce: bytes, cost: int, challenge: bytes) -> Fields:
    """What a router says of itself in its open frame: incarnation, protocol versions, cluster, cost, challenge."""
    return {
        vocabulary.ROUTER_INCARNATION: ULong(rid),
        vocabulary.ROUTER_PROTOCOL_MIN: UByte(frame_header.PROTOCOL_VERSION),
        vocabulary.ROUTER_PROTOCOL_MAX: UByte(frame_header.PROTOCOL_VERSION),
        vocabulary.ROUTER_NONCE: nonce,
        vocabulary.ROUTER_COST: UInt(cost),
        vocabulary.ROUTER_CHALLENGE: challenge,
    }


def identify(open_frame: Open, rid: int, nonce: bytes) -> NeighbourIdentity | str:
    """Who the neighbour is, or why it cannot be one.

    Args:
        open_frame: the neighbour's.
        rid: this router's incarnation.
        nonce: of this router's cluster.
    """
    properties: Fields = open_frame.properties or {}
    other = properties.get(vocabulary.ROUTER_INCARNATION)
    cost = properties.get(vocabulary.ROUTER_COST)
    oldest = properties.get(vocabulary.ROUTER_PROTOCOL_MIN)
    newest = properties.get(vocabulary.ROUTER_PROTOCOL_MAX)
    challenge = properties.get(vocabulary.ROUTER_CHALLENGE, b"")
    if (
        vocabulary.INTER_ROUTER not in open_frame.desired_capabilities
        or not isinstance(other, int)
        or not isinstance(cost, int)
        or not isinstance(oldest, int)
        or not isinstance(newest, int)
        or not isinstance(challenge, bytes)
        or len(challenge) > MAX_CHALLENGE_BYTES
    ):
        return "only routers of this network may connect here"
    if not oldest <= frame_header.PROTOCOL_VERSION <= newest:
        return f"protocol versions {oldest} to {newest} do not contain {frame_header.PROTOCOL_VERSION}"
    if properties.get(vocabulary.ROUTER_NONCE) != nonce:
        return "the other router belongs to another cluster: its etcd has another nonce"
    if other == rid:
        return "this router has connected to itself"
    return NeighbourIdentity(open_frame.container_id, other, max(1, cost), challenge)
