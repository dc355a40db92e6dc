"""Network tags: the delivery tag a subscriber sees, and the key of a link in etcd.

A publisher's tag is unique only within one session of that publisher, so the network qualifies it:
`[1 flags][4 cluster nonce][6 session, big endian][<= 21 publisher tag]`, at most 32 bytes (AMQP 1.0 section 2.8.7).
No per-message mapping is needed: the session number, an etcd revision, stands for the publisher.
"""

from __future__ import annotations

import hashlib
from typing import Final

MAX_TAG_BYTES: Final = 32
"""AMQP 1.0 section 2.8.7: a delivery-tag is up to 32 octets of binary data."""
VERBATIM_BYTES: Final = 21
"""What is left of 32 bytes behind flags, nonce and session."""
NONCE_BYTES: Final = 4
ERA_BITS = 15
"""With it an incarnation stays below 2^63, which every database can hold."""
SESSION_BYTES: Final = 6
REVISION_BITS = 8 * SESSION_BYTES
"""Of an etcd revision: 2^48 are 8,900 years of a thousand writes per second."""
SESSION_AT: Final = 1
"""Where nonce and session begin in a network tag: the same bytes for all deliveries of a session."""
OWN_TAG_AT: Final = 1 + NONCE_BYTES + SESSION_BYTES
"""Where they end, and the publisher's own tag or its digest begins."""
_OWNED = b"\xff\xff\xff\xff"
"""No length of a container-id: the key has an owner."""
_FLAG_VERBATIM: Final = b"\x00"
_FLAG_DIGEST: Final = b"\x01"
_LETTER_BIT: Final = 2
"""In the flags of a letter's tag (I-3e)."""
_FLAG_LETTER_VERBATIM: Final = b"\x02"
_FLAG_LETTER_DIGEST: Final = b"\x03"


def network_tag(nonce: bytes, session: int, publisher_tag: bytes, is_letter: bool = False) -> bytes:
    """The tag of one delivery toward subscribers.

    Args:
        nonce: the cluster nonce, 4 bytes.
        session: the publisher's session (an etcd revision below 2**48).
        publisher_tag: the tag the publisher chose, 1 to 32 bytes.
        is_letter: of the letter of that delivery (I-3e).
    """
    assert len(nonce) == NONCE_BYTES
    if len(publisher_tag) <= VERBATIM_BYTES:
        flag = _FLAG_LETTER_VERBATIM if is_letter else _FLAG_VERBATIM
        return flag + nonce + session.to_bytes(SESSION_BYTES, "big") + publisher_tag
    digest = hashlib.sha256(publisher_tag).digest()[:VERBATIM_BYTES]
    flag = _FLAG_LETTER_DIGEST if is_letter else _FLAG_DIGEST
    return flag + nonce + session.to_bytes(SESSION_BYTES, "big") + digest


def is_letter_tag(tag: bytes) -> bool:
    """Whether a network tag is that of a letter (I-3e)."""
    return bool(tag) and tag[0] & _LETTER_BIT != 0


def original_tag(tag: bytes) -> bytes:
    """The network tag of the message whose letter has this one (I-3e); any other tag is its own."""
    return bytes((tag[0] & ~_LETTER_BIT,)) + tag[1:] if is_letter_tag(tag) else tag


def session_of(tag: bytes, nonce: bytes) -> int:
    """The session a network tag belongs to, or 0 when the tag is not one of this cluster's."""
    if len(tag) < OWN_TAG_AT or len(tag) > MAX_TAG_BYTES or tag[1 : 1 + NONCE_BYTES] != nonce:
        return 0
    return int.from_bytes(tag[1 + NONCE_BYTES : OWN_TAG_AT], "big")


def own_tag(tag: bytes) -> bytes | None:
    """The publisher's own tag in a network tag; None where only a digest of it is known."""
    return tag[OWN_TAG_AT:] if tag[:1] in (_FLAG_VERBATIM, _FLAG_LETTER_VERBATIM) else None


def link_key(container_id: str, link_name: str, vhost: str = "", user: str = "") -> str:
    """The key of a link's identity in etcd: 40 hex digits (A-2c).

    Length prefixes keep ("ab", "c") and ("a", "bc") apart.
    """
    parts = _sized(container_id) + link_name.encode()
    if vhost or user:
        parts = _OWNED + _sized(vhost) + _sized(user) + parts
    return hashlib.sha256(parts).digest()[:20].hex()


def shared_key(container_id: str, name: str, vhost: str = "", user: str = "") -> str:
    """The key of a shared subscription (SH-1): that of a link with a name that is no name of an AMQP link's.

    An empty container-id stands for all: its members may have any.
    """
    return link_key(container_id, f"\x1fshared\x1f{name}", vhost, user)


def _sized(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(4, "big") + encoded
