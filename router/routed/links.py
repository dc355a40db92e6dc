"""All routed links of one incarnation: which services there are, and where an attach goes (R-1 to R-4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from oncewire.wire import (
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    Attach,
    LocalProtocolError,
    Open,
    ReceiverLink,
    SenderLink,
    vocabulary,
)
from router.routed.choice_core import goes_on, least_loaded, nearest, prefix_of
from router.routed.half import Carrier, NearLink, RoutedLink
from router.routed.limits import RoutedLimits
from router.routed.terms import (
    Origin,
    Terms,
    Way,
    address_of,
    addressed,
    hop_name,
    prefixes_in,
    served_name,
    signed,
    terms_of,
    way_of,
)

MAX_PREFIXES = 16
"""Prefixes of one service."""


class RoutedRefusal(Exception):
    """An attach goes nowhere.

    Attributes:
        condition: the AMQP error condition the client gets.
    """

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition


class Paths(Protocol):
    """The paths to other routers; `Neighbours` has them."""

    def routed_distances(self) -> Mapping[int, int]:
        """Cost of the path to each router that can be reached."""
        ...

    def routed_next(self, rid: int) -> Carrier | None:
        """The connection to the next hop; None = no path, or a router of a version without routed links."""
        ...


class RoutedLinks:
    """The routed links of one incarnation, and the services that are connected to this router."""

    def __init__(
        self, rid: int, limits: RoutedLimits, paths: Paths, on_services: Callable[[frozenset[str]], None]
    ) -> None:
        """There are none yet.

        Args:
            rid: this incarnation.
            limits: the settings.
            paths: to other routers.
            on_services: called with the prefixes that services of this router serve, whenever they change.
        """
        self.limits = limits
        self.places: Mapping[str, frozenset[int]] = {}
        """Incarnations with a service, by prefix with virtual host: what etcd states (R-1)."""
        self.links: dict[RoutedLink, None] = {}
        self.opened = 0
        """Links that were forwarded since the start of the incarnation."""
        self._rid = rid
        self._paths = paths
        self._on_services = on_services
        self._services: dict[Carrier, tuple[str, ...]] = {}

    # --- services (R-1) -----------------------------------------------------------------------------------------------

    def refusal(self, prefixes: tuple[str, ...], *, may_serve: bool) -> RoutedRefusal | None:
        """Why a client may not serve these (R-1); None = it may."""
        known = self.limits.prefixes
        if not may_serve:
            why = "this user may not serve addresses: see the setting services.role"
            return RoutedRefusal(UNAUTHORIZED_ACCESS, why)
        if not prefixes or not set(prefixes) <= set(known):
            why = f"services may serve {', '.join(known) or 'nothing'} here: see the setting services.prefixes"
            return RoutedRefusal(NOT_ALLOWED, why)
        return None

    def add_service(self, carrier: Carrier, prefixes: tuple[str, ...], vhost: str) -> None:
        """A service of a virtual host has connected; it serves that one only."""
        self._services[carrier] = tuple(served_name(vhost, prefix) for prefix in prefixes)
        self._on_services(self.prefixes)

    def remove_service(self, carrier: Carrier) -> None:
        """A connection has ended; it may have been a service's."""
        if self._services.pop(carrier, None) is not None:
            self._on_services(self.prefixes)

    @property
    def prefixes(self) -> frozenset[str]:
        """What the services of this router serve, each with its virtual host (`served_name`)."""
        return frozenset(prefix for prefixes in self._services.values() for prefix in prefixes)

    @property
    def services(self) -> int:
        """Service connections of this router."""
        return len(self._services)

    # --- attaches (R-2, R-3) ------------------------------------------------------------------------------------------

    def serves(self, attach: Attach) -> bool:
        """Whether an attach of a client is for a service."""
        return prefix_of(address_of(attach), self.limits.prefixes) is not None

    def open_from_client(self, carrier: Carrier, link: NearLink, origin: Origin) -> None:
        """Forward the attach of a client.

        Raises:
            RoutedRefusal: it goes nowhere.
        """
        attach = link.remote_attach
        assert attach is not None
        terms = signed(terms_of(attach), origin)
        prefix = prefix_of(address_of(attach), self.limits.prefixes)
        assert prefix is not None
        name = hop_name(terms.properties, link.name)
        served = served_name(origin.vhost, prefix)
        own = self._own(served)
        if own is not None:
            self._join(carrier, link, False, own, name, addressed(terms, None))
            return
        rid = nearest(self.places.get(served, ()), self._paths.routed_distances(), name)
        if rid is None:
            raise RoutedRefusal(
                NOT_FOUND,
                f"no service for {prefix} can be reached; start one, such as `oncewire edge serve`, and attach again",
            )
        self._forward(carrier, link, False, name, terms, Way(rid, 0))

    def open_from_router(self, carrier: Carrier, link: ReceiverLink | SenderLink) -> None:
        """Forward the attach of another router.

        Raises:
            RoutedRefusal: it goes nowhere.
        """
        attach = link.remote_attach
        assert attach is not None
        way = way_of(attach)
        if way is None:
            raise RoutedRefusal(NOT_IMPLEMENTED, "an attach between routers says where it goes")
        terms = terms_of(attach)
        if way.rid != self._rid:
            self._forward(carrier, link, True, link.name, terms, way)
            return
        vhost = str((terms.properties or {}).get(vocabulary.ROUTER_VHOST, ""))
        prefix = prefix_of(address_of(attach), prefixes_in(vhost, self.prefixes))
        own = None if prefix is None else self._own(served_name(vhost, prefix))
        if own is None:
            raise RoutedRefusal(NOT_FOUND, "the service has disconnected from its router; attach again")
        self._join(carrier, link, True, own, link.name, addressed(terms, None))

    def _own(self, prefix: str) -> Carrier | None:
        found = [carrier for carrier, prefixes in self._services.items() if prefix in prefixes]
        return found[least_loaded([len(carrier.routed) for carrier in found])] if found else None

    def _forward(self, carrier: Carrier, link: NearLink, owns: bool, name: str, terms: Terms, way: Way) -> None:
        if not goes_on(way):
            raise RoutedRefusal(NOT_FOUND, "the paths to the service have changed; attach again")
        following = self._paths.routed_next(way.rid)
        if following is None:
            raise RoutedRefusal(
                NOT_FOUND,
                "no path to the service, or one over a router of an older version; attach again, or update the routers",
            )
        self._join(carrier, link, owns, following, name, addressed(terms, Way(way.rid, way.hops + 1)))

    def _join(self, carrier: Carrier, link: NearLink, owns: bool, following: Carrier, name: str, terms: Terms) -> None:
        limits = self.limits.held_bytes, self.limits.max_message_size
        routed = RoutedLink(carrier, link, owns, limits, self._forget)
        try:
            routed.attach(following, name, terms)
        except LocalProtocolError as error:
            routed.abandon()
            raise RoutedRefusal(
                RESOURCE_LIMIT_EXCEEDED, f"the link cannot be forwarded: {error}; attach again at another router"
            ) from None
        self.links[routed] = None
        self.opened += 1

    def _forget(self, routed: RoutedLink) -> None:
        self.links.pop(routed, None)


def served_prefixes(open_frame: Open) -> tuple[str, ...] | None:
    """The prefixes a service says it serves; None = the client is no service."""
    if vocabulary.SERVICE not in open_frame.desired_capabilities:
        return None
    found = (open_frame.properties or {}).get(vocabulary.SERVES)
    values: Iterable[object] = found if isinstance(found, list | tuple) else (found,)
    return tuple(str(value) for value in values if isinstance(value, str))[:MAX_PREFIXES]
