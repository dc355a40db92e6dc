"""Where clients go instead of here: what a redirect names, and the list of other routers in our open (K-8a)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from delivery_records.model.view import RouterRecord, View
from oncewire.wire import Fields, UShort
from oncewire.wire.vocabulary import HOSTNAME, NETWORK_HOST, PORT, SCHEME

LIST_BYTES = 256
"""The list may take so much of our open, which must fit the smallest frame a client can ask for: 512 bytes."""
ENTRY_BYTES = 40
"""An entry of the list without its host."""
AMQPS = "amqps"
SCHEME_BYTES = 2 + len("scheme") + 2 + len(AMQPS)


class _Address(NamedTuple):
    host: str
    port: int
    tls: bool


def other_routers(view: View, rid: int) -> list[RouterRecord]:
    """The routers a client of incarnation `rid` can go to: alive, with an address, and neither draining nor leaving.

    Workers of a group have one address. It is named once; and never by themselves, for a client that is sent back to
    where it is may land at the same worker again. Where there is nothing else it connects there anew by itself.
    """
    own = view.routers.get(rid)
    own_name = None if own is None else own.record.node_id
    own_address = None if own is None else _address(own.record)
    found: dict[_Address, RouterRecord] = {}
    for other, router in sorted(view.routers.items()):
        record, address = router.record, _address(router.record)
        if other == rid or record.node_id == own_name:  # a former life of our own, whose lease has not ended yet
            continue
        if address is not None and address != own_address and not (record.draining or record.leaving):
            found.setdefault(address, record)
    return list(found.values())


def choose(others: Sequence[RouterRecord], container_id: str) -> RouterRecord | None:
    """The router this client is sent to; by rendezvous hash, so that the clients of one router go to all others."""

    def weight(record: RouterRecord) -> bytes:
        return hashlib.sha256(f"{container_id}|{record.node_id}".encode()).digest()

    return max(others, key=weight, default=None)


def redirect_info(target: RouterRecord) -> dict[str, object]:
    """The info of `amqp:connection:redirect` and `amqp:link:redirect` (AMQP 1.0 sections 2.8.16, 2.8.17)."""
    found = _address(target) or _Address("", 0, False)
    info: dict[str, object] = {str(HOSTNAME): found.host, str(NETWORK_HOST): found.host, str(PORT): UShort(found.port)}
    return info | ({str(SCHEME): AMQPS} if found.tls else {})


def server_list(others: Sequence[RouterRecord], turn: int) -> list[Fields]:
    """Entries of `failover-server-list`, as many as fit; each `turn` begins with another router.

    The scheme is left out where the router listens without TLS: a client keeps to its own, which may be TLS that ends
    in front of the router.
    """
    found: list[Fields] = []
    left = LIST_BYTES
    for index in range(len(others)):
        address = _address(others[(turn + index) % len(others)])
        assert address is not None
        left -= ENTRY_BYTES + len(address.host) + (SCHEME_BYTES if address.tls else 0)
        if left < 0:
            break
        entry: Fields = {NETWORK_HOST: address.host, PORT: UShort(address.port)}
        found.append({**entry, SCHEME: AMQPS} if address.tls else entry)
    return found


def _address(record: RouterRecord) -> _Address | None:
    """Where clients connect to; None if the router's key names none that can be read."""
    try:
        parts = urlsplit(record.amqp)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return None if not host or not port else _Address(host, port, parts.scheme == AMQPS)
