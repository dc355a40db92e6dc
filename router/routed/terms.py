"""What an attach asks for or grants, without the handle; what routers change of it on the way (R-3, R-4)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from oncewire.wire import Attach, Described, Fields, Source, Symbol, Target, UByte, ULong, UnsettledMap, vocabulary

MAX_HOPS = 16
"""Routers an attach is forwarded by: more means that paths go round in circles."""
MAX_HOP_NAME = 200
"""Bytes of a link's name between routers; a longer one is replaced by its digest, so that it fits every frame."""


@dataclass(frozen=True, slots=True)
class Terms:
    """An attach without name, handle and role."""

    snd_settle_mode: int
    rcv_settle_mode: int
    source: Source | None
    target: Target | Described | None
    unsettled: UnsettledMap | None
    incomplete_unsettled: bool
    initial_delivery_count: int
    max_message_size: int | None
    offered_capabilities: tuple[Symbol, ...]
    desired_capabilities: tuple[Symbol, ...]
    properties: Fields | None


@dataclass(frozen=True, slots=True)
class Origin:
    """Who attached (R-4)."""

    container_id: str
    user: str | None
    link_name: str
    vhost: str = ""
    """The virtual host; empty: the default one."""


@dataclass(frozen=True, slots=True)
class Way:
    """Where an attach between routers goes."""

    rid: int
    """The incarnation whose service is meant."""
    hops: int
    """Routers that have forwarded it."""


def terms_of(attach: Attach) -> Terms:
    """The terms of an attach that came."""
    return Terms(
        attach.snd_settle_mode,
        attach.rcv_settle_mode,
        attach.source,
        attach.target,
        attach.unsettled,
        attach.incomplete_unsettled,
        attach.initial_delivery_count or 0,
        attach.max_message_size,
        attach.offered_capabilities,
        attach.desired_capabilities,
        attach.properties,
    )


def address_of(attach: Attach) -> str | None:
    """The address of the node the link is for: the target where the peer sends, else the source."""
    node = attach.source if attach.role else attach.target
    return node.address if isinstance(node, Source | Target) else None


def cleaned(properties: Fields | None) -> Fields:
    """A client's link properties without those that only routers set (R-4)."""
    found = properties or {}
    return {key: value for key, value in found.items() if not key.startswith(vocabulary.ROUTER_PREFIX)}


def signed(terms: Terms, origin: Origin) -> Terms:
    """A client's terms with who it is (R-4)."""
    properties = cleaned(terms.properties)
    properties[vocabulary.ROUTER_CONTAINER] = origin.container_id
    properties[vocabulary.ROUTER_LINK] = origin.link_name
    if origin.user is not None:
        properties[vocabulary.ROUTER_USER] = origin.user
    if origin.vhost:
        properties[vocabulary.ROUTER_VHOST] = origin.vhost
    return replace(terms, properties=properties)


def addressed(terms: Terms, way: Way | None) -> Terms:
    """Terms with where they go next; None = to a service, which learns nothing of the way."""
    properties = dict(terms.properties or {})
    properties.pop(vocabulary.ROUTER_TO, None)
    properties.pop(vocabulary.ROUTER_HOPS, None)
    if way is None:
        properties.pop(vocabulary.ROUTER_VHOST, None)
    if way is not None:
        properties[vocabulary.ROUTER_TO] = ULong(way.rid)
        properties[vocabulary.ROUTER_HOPS] = UByte(way.hops)
    return replace(terms, properties=properties or None)


def served_name(vhost: str, prefix: str) -> str:
    """A prefix that a service of a virtual host serves, as routers know it; neither has a space."""
    return f"{vhost} {prefix}" if vhost else prefix


def prefixes_in(vhost: str, served: Iterable[str]) -> list[str]:
    """The prefixes of one virtual host."""
    parts = (each.rpartition(" ") for each in served)
    return [prefix for name, _, prefix in parts if name == vhost]


def way_of(attach: Attach) -> Way | None:
    """Where an attach of another router goes; None if it does not say."""
    properties = attach.properties or {}
    rid, hops = properties.get(vocabulary.ROUTER_TO), properties.get(vocabulary.ROUTER_HOPS)
    if not isinstance(rid, int) or not isinstance(hops, int):
        return None
    return Way(int(rid), int(hops))


def hop_name(properties: Fields | None, name: str) -> str:
    """The link's name beyond the first router: names are unique for one container only (2.6.1)."""
    found = properties or {}
    whole = f"{found.get(vocabulary.ROUTER_CONTAINER, '')}|{found.get(vocabulary.ROUTER_LINK, name)}"
    whole = served_name(str(found.get(vocabulary.ROUTER_VHOST, "")), whole)
    return whole if len(whole.encode()) <= MAX_HOP_NAME else hashlib.sha256(whole.encode()).hexdigest()
