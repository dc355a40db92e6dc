"""Simulated routers: the shipped routed links between engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from chaos.routed.code import WINDOW_FRAMES, Code
from chaos.routed.pipes import End, Pipes, engine
from oncewire.wire import (
    AmqpError,
    Connection,
    ConnectionClosed,
    ConnectionLost,
    ConnectionOpened,
    DeliveryReceived,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    Role,
    SessionEnded,
    StateError,
    Symbol,
)

HELD_BYTES = 64_000
MAX_MESSAGE_SIZE = 8_000
LOST = "the way to the other end of the link is interrupted; attach again"


class Carrier:
    """A router's end of a connection, as `ClientConnection` and `PeerConnection` are."""

    def __init__(self, router: SimRouter, connection: Connection, *, is_router: bool) -> None:
        self.engine = connection
        self.routed = router.code.half.CarriedLinks()
        self.is_behind = False
        self.router = router
        self._is_router = is_router
        self.end = End(connection, self._on_event, self._on_lost)
        self.end.after = self.routed.release

    def mark_dirty(self) -> None:
        """Everything is written after each step."""

    def _on_event(self, event: Event) -> None:
        half = self.router.code.half.Half
        if isinstance(event, ConnectionOpened):
            prefixes = None if self._is_router else self.router.code.links.served_prefixes(event.open)
            if prefixes is not None:
                self.router.links.add_service(self, prefixes, "")
        elif isinstance(event, ConnectionClosed | ConnectionLost):
            self._on_lost()
        elif isinstance(event, SessionEnded):
            for link in event.session.links:
                if isinstance(link.context, half):
                    link.context.on_lost(LOST)
        elif isinstance(event, LinkAttached | LinkDetached | LinkFlow | DeliveryReceived | DispositionReceived):
            if isinstance(event.link.context, half):
                self._on_half(event.link.context, event)
            elif isinstance(event, LinkAttached):
                self._open(event.link)

    def _on_half(self, half: Any, event: Event) -> None:
        if isinstance(event, LinkAttached):
            half.on_attached()
        elif isinstance(event, LinkDetached):
            half.on_detached(event)
        elif isinstance(event, LinkFlow):
            half.on_flow(event)
        elif isinstance(event, DeliveryReceived):
            half.on_delivery(event)
        elif isinstance(event, DispositionReceived):
            half.on_disposition(event)

    def _open(self, link: Any) -> None:
        router = self.router
        try:
            if self._is_router:
                router.links.open_from_router(self, link)
            else:
                container = self.engine.remote_container_id or ""
                router.links.open_from_client(self, link, router.code.terms.Origin(container, None, link.name))
        except router.code.links.RoutedRefusal as refusal:
            with suppress(StateError):
                link.refuse(AmqpError(Symbol(refusal.condition), str(refusal)))

    def _on_lost(self) -> None:
        self.routed.lose(LOST)
        self.router.links.remove_service(self)


class SimRouter:
    """One incarnation of a router. Paths and places are what it has learnt, which may be out of date."""

    def __init__(self, code: Code, pipes: Pipes, rid: int, on_services: Callable[[int, frozenset[str]], None]) -> None:
        self.code = code
        self.rid = rid
        self.carriers: list[Carrier] = []
        self.neighbours: dict[int, Carrier] = {}
        self.distances: dict[int, int] = {}
        self.next_hops: dict[int, int] = {}
        self._pipes = pipes
        limits = code.limits.RoutedLimits(("queue://", "journal://"), HELD_BYTES, MAX_MESSAGE_SIZE)
        self.links = code.links.RoutedLinks(rid, limits, self, lambda found: on_services(rid, found))

    def routed_distances(self) -> Mapping[int, int]:
        """See `Paths`."""
        return self.distances

    def routed_next(self, rid: int) -> Carrier | None:
        """See `Paths`."""
        carrier = self.neighbours.get(self.next_hops.get(rid, -1))
        return carrier if carrier is not None and self._pipes.is_open(carrier.end) else None

    def accept(self) -> Carrier:
        """The router's end of a connection of a client or service."""
        return self._carrier(Role.SERVER, is_router=False)

    def link_to(self, other: SimRouter) -> None:
        """Connect two routers."""
        ours, theirs = self._carrier(Role.CLIENT, is_router=True), other._carrier(Role.SERVER, is_router=True)
        self.neighbours[other.rid], other.neighbours[self.rid] = ours, theirs
        self._pipes.connect(ours.end, theirs.end)

    def _carrier(self, role: Role, *, is_router: bool) -> Carrier:
        window = {"incoming_window": WINDOW_FRAMES} if is_router else {}
        carrier = Carrier(self, engine(role, f"router-{self.rid}", channel_max=1023, **window), is_router=is_router)
        self.carriers.append(carrier)
        return carrier
