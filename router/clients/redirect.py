"""Where clients go instead of here: what a redirect names, and the list of other routers in our open (K-8a)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from urllib.parse import urlsplit

from delivery_records.attachments.view import RouterRecord, View
from oncewire.wire import Fields, UShort
from oncewire.wire.vocabulary import HOSTNAME, NETWORK_HOST, PORT

LIST_BYTES = 256
"""The list may take so much of our open, which must fit the smallest frame a client can ask for: 512 bytes."""
ENTRY_BYTES = 40
"""An entry of the list without its host."""


def other_routers(view: View, rid: int) -> list[RouterRecord]:
    """The routers a client of incarnation `rid` can go to: alive, with an address, and neither draining nor leaving."""
    own = view.routers.get(rid)
    own_name = None if own is None else own.record.node_id
    return [
        router.record
        for other, router in sorted(view.routers.items())
        if other != rid
        and router.record.node_id != own_name  # a former life of our own, whose lease has not ended yet
        and not (router.record.draining or router.record.leaving)
        and _address(router.record) is not None
    ]


def choose(others: Sequence[RouterRecord], container_id: str) -> RouterRecord | None:
    """The router this client is sent to; by rendezvous hash, so that the clients of one router go to all others."""

    def weight(record: RouterRecord) -> bytes:
        return hashlib.sha256(f"{container_id}|{record.node_id}".encode()).digest()

    return max(others, key=weight, default=None)


def redirect_info(target: RouterRecord) -> dict[str, object]:
    """The info of `amqp:connection:redirect` and `amqp:link:redirect` (AMQP 1.0 sections 2.8.16, 2.8.17)."""
    host, port = _address(target) or ("", 0)
    return {str(HOSTNAME): host, str(NETWORK_HOST): host, str(PORT): UShort(port)}


def server_list(others: Sequence[RouterRecord], turn: int) -> list[Fields]:
    """Entries of `failover-server-list`, as many as fit; each `turn` begins with another router.

    The scheme is left out: a client keeps to its own, which may be TLS that ends in front of the router.
    """
    found: list[Fields] = []
    left = LIST_BYTES
    for index in range(len(others)):
        address = _address(others[(turn + index) % len(others)])
        assert address is not None
        left -= ENTRY_BYTES + len(address[0])
        if left < 0:
            break
        found.append({NETWORK_HOST: address[0], PORT: UShort(address[1])})
    return found


def _address(record: RouterRecord) -> tuple[str, int] | None:
    """Host and port clients connect to; None if the router's key names none that can be read."""
    try:
        parts = urlsplit(record.amqp)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return None if not host or not port else (host, port)
