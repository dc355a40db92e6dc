"""A client that comes back, at the same router or at another one, with the unsettled map that a test gives it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from oncewire.wire import (
    ACCEPTED,
    Attach,
    DeliveryState,
    Disposition,
    Flow,
    ReceiverSettleMode,
    SenderSettleMode,
    Source,
    Target,
    ULong,
    UnsettledMap,
)
from oncewire.wire.performatives import TerminusDurability, TerminusExpiryPolicy
from oncewire.wire.vocabulary import CONFIRMED, ECHO, EXACTLY_ONCE
from tests.conformance.peer import WINDOW, Delivery, Dial, Peer
from tests.conformance.routers import TwoRouters

CREDIT = 100
LINK = "link"
"""The name of every link here; containers differ."""
TIMEOUT_S = 60
_numbers = itertools.count(1)


class Place(Enum):
    """Where a client goes on."""

    SAME_ROUTER = "same-router"
    OTHER_ROUTER = "other-router"


class Ending(Enum):
    """How a client leaves, but for a close of its link."""

    DETACH = "detach"
    END = "end"
    CLOSE = "close"
    DROP = "drop"

    def carry_out(self, peer: Peer) -> None:
        """End the link with handle 0, its session, or its connection."""
        if self is Ending.DETACH:
            assert not peer.detach().closed
        elif self is Ending.END:
            peer.end()
        elif self is Ending.CLOSE:
            peer.close()
        else:
            peer.drop()


class Kind(Enum):
    """What a client promises: the capability `topic-exactly-once`, or nothing but its unsettled map."""

    PLAIN = "plain"
    CAPABILITY = "capability"


EVERYWHERE = pytest.mark.parametrize("place", Place, ids=lambda place: place.value)
SERVED = pytest.mark.parametrize(
    ("kind", "place"),
    [
        pytest.param(kind, place, id=f"{kind.value}-{place.value}")
        for kind, place in [
            (Kind.CAPABILITY, Place.SAME_ROUTER),
            (Kind.CAPABILITY, Place.OTHER_ROUTER),
            (Kind.PLAIN, Place.SAME_ROUTER),
        ]
    ],
)
"""Where a publisher may come back with a map: without the capability only at the router that served it (A-3c)."""
EVERYBODY = pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.value)


@dataclass(frozen=True)
class Network:
    """Two routers, and a topic that no other test uses."""

    dial: Dial
    routers: TwoRouters
    topic: str

    def client(self, kind: Kind = Kind.CAPABILITY) -> Client:
        """One more container."""
        return Client(self, f"client-{next(_numbers)}", kind)

    def port(self, place: Place) -> int:
        """Where a client connects that was at the first router before."""
        return self.routers.first if place is Place.SAME_ROUTER else self.routers.second


class Client:
    """One container-id with one link, which is attached again and again, each time on a new connection."""

    def __init__(self, network: Network, container_id: str, kind: Kind) -> None:
        self.container_id = container_id
        self.kind = kind
        self.peer: Peer
        self._network = network

    def connect(self, place: Place = Place.SAME_ROUTER, *, window: int = WINDOW, **fields: Any) -> Peer:
        """A new connection and session; the former connection stays as it is."""
        self.peer = self._network.dial(self._network.port(place))
        self.peer.open(container_id=self.container_id, **fields)
        self.peer.begin(incoming_window=window)
        return self.peer

    def send_attach(self, role: bool, handle: int = 0, **fields: Any) -> None:
        """Send the attach that `publish` or `subscribe` would send."""
        terms: dict[str, Any] = {
            "address": self._network.topic,
            "durable": TerminusDurability.UNSETTLED_STATE,
            "expiry_policy": TerminusExpiryPolicy.LINK_DETACH,
            "timeout": TIMEOUT_S,
        }
        source = Source(**terms) if role else Source(address=LINK)
        target = Target(address=LINK) if role else Target(**terms)
        fields.setdefault("rcv_settle_mode", ReceiverSettleMode.SECOND)
        if role:
            fields.setdefault("snd_settle_mode", SenderSettleMode.UNSETTLED)
        self.peer.send_attach(
            role,
            LINK,
            handle,
            source=source,
            target=target,
            desired_capabilities=(EXACTLY_ONCE,) if self.kind is Kind.CAPABILITY else (),
            **fields,
        )

    def publish(self, unsettled: UnsettledMap | None, handle: int = 0, **fields: Any) -> Attach:
        """Attach the sending link and wait for its credit."""
        self.send_attach(False, handle, unsettled=unsettled, **fields)
        reply = self.peer.attached(handle)
        assert reply.target is not None, "the attach was refused"
        while True:
            flow = self._link_flow(handle)
            self._answer(flow, handle)
            if flow.link_credit:
                return reply

    def subscribe(self, unsettled: UnsettledMap | None, handle: int = 0, credit: int = CREDIT, **fields: Any) -> Attach:
        """Attach the receiving link, wait until the subscription is confirmed, and grant credit."""
        self.send_attach(True, handle, unsettled=unsettled, **fields)
        reply = self.peer.attached(handle)
        assert reply.source is not None, "the attach was refused"
        while EXACTLY_ONCE in reply.offered_capabilities:
            flow = self._link_flow(handle)
            self._answer(flow, handle)
            if CONFIRMED in (flow.properties or {}):
                break
        if credit:
            self.peer.send_flow(handle, credit)
        return reply

    def _link_flow(self, handle: int) -> Flow:
        while True:
            flow = self.peer.expect(Flow)
            if flow.handle == self.peer.remote_handle(handle):
                return flow

    def _answer(self, flow: Flow, handle: int) -> None:
        """A-4, A-10: proof of life."""
        value = (flow.properties or {}).get(ECHO)
        if isinstance(value, int):
            self.peer.send_flow(handle, 0, properties={ECHO: ULong(value)})


def taken(peer: Peer) -> Delivery:
    """The next delivery; what the router settles meanwhile is not looked at."""
    return peer.delivery(Disposition)


def stated(peer: Peer, delivery_id: int) -> None:
    """The publisher is sent the outcome accepted for this delivery, unsettled."""
    found = peer.outcome(delivery_id)
    assert (found.state, bool(found.settled)) == (ACCEPTED, False)


def settle(peer: Peer, delivery_id: int) -> None:
    """The publisher settles this delivery."""
    peer.send(Disposition(False, delivery_id, delivery_id, True, ACCEPTED))


def accepted(peer: Peer, delivery_id: int) -> None:
    """The publisher is sent accepted, and settles."""
    stated(peer, delivery_id)
    settle(peer, delivery_id)


def answer(peer: Peer, delivery: Delivery, outcome: DeliveryState = ACCEPTED) -> None:
    """The subscriber states an outcome and does not settle."""
    peer.dispose(delivery.id, state=outcome, settled=False)


def settled(peer: Peer, delivery: Delivery) -> None:
    """The router settles this delivery at the subscriber."""
    while True:
        found = peer.expect(Disposition, Flow)
        assert not found.role, "a disposition of the sending end was expected"
        if found.settled and found.first <= delivery.id <= (found.first if found.last is None else found.last):
            return


def pair(
    network: Network, *, reader: Kind = Kind.CAPABILITY, publisher: Kind = Kind.CAPABILITY
) -> tuple[Client, Client]:
    """A subscriber and a publisher of these kinds, at work at the first router."""
    clients = network.client(reader), network.client(publisher)
    for client in clients:
        client.connect()
    clients[0].subscribe({})
    clients[1].publish({})
    return clients


def passes(publisher: Peer, reader: Peer, tag: bytes, body: bytes) -> None:
    """This message is the next that the subscriber gets, once and whole."""
    number = publisher.transfer(body, delivery_tag=tag)
    found = taken(reader)
    assert (found.body, bool(found.frames[0].resume)) == (body, False), "nothing else has come before"
    answer(reader, found)
    accepted(publisher, number)
