"""What operators and the shell see of publishers and subscribers: rows of one moment, nothing of the core itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from delivery_records.attachments.barrier import AttachBarrier
from delivery_records.attachments.endpoints import Endpoints
from delivery_records.diagnostics.lateness import Late, late
from delivery_records.diagnostics.waits import Holder, Owing, Wait, holder, owing, unsettled_since, waiting
from delivery_records.model.tags import OWN_TAG_AT, SESSION_AT
from delivery_records.model.turn import Turn
from delivery_records.publisher.ingress import Ingress
from delivery_records.subscriber.egress import Egress


@dataclass(frozen=True, slots=True)
class PublisherFigures:
    """One publisher at its ingress."""

    key: str
    name: str
    topic: str
    user: str
    peer: str
    session: int
    link: int | None
    """None: suspended (A-9)."""
    phase: str
    unsettled: int
    unreceived: int
    reported: int
    bytes: int
    credit: int
    """Deliveries that it may send now."""
    received: int
    """Transfers on this attach."""
    presented: int
    """Numbers below it came with its map: their deliveries are older than is known here."""
    decided: int
    """First number whose outcome has not been reported."""
    end: int
    """The number of its next delivery."""
    since: float | None
    """When the oldest unsettled delivery arrived, on the core's clock."""

    @property
    def granted(self) -> int:
        """Deliveries that it may have unsettled now: those it has, and those it may send."""
        return self.unsettled + max(0, self.credit - self.unreceived)


@dataclass(frozen=True, slots=True)
class SubscriberFigures:
    """One subscription at its egress."""

    key: str
    name: str
    link: int
    created: int
    """The revision with which its life began."""
    is_proven: bool
    confirmed: bool
    unsettled: int
    held: int
    """Of these: what waits here for credit, or for a place in its map."""
    held_since: float
    credit: int


@dataclass(slots=True)
class Totals:
    """Gauges of one record core; all 0 while there is none."""

    late: Late = field(default_factory=Late)
    window_deliveries: int = 0
    window_bytes: int = 0
    held_deliveries: int = 0
    publisher_links: int = 0
    publisher_credit: int = 0
    """Deliveries that attached publishers may send now, in all."""
    publishers_without_credit: int = 0
    subscriber_links: int = 0
    subscriber_credit: int = 0
    subscribers_without_credit: int = 0
    barriers_waiting: int = 0
    routers: int = 0
    subscriptions: int = 0
    publishers: int = 0
    applied_revision: int = 0
    trace_steps: int = 0
    dead_letters_waiting: int = 0
    """Dead letters that no subscription is there for (I-3e)."""


class Figures:
    """Reads the endpoints of one record core when somebody asks; it changes nothing."""

    __slots__ = ("_barrier", "_endpoints", "_turn")

    def __init__(self, turn: Turn, endpoints: Endpoints, barrier: AttachBarrier) -> None:
        """Of these endpoints."""
        self._turn = turn
        self._endpoints = endpoints
        self._barrier = barrier

    # ------------------------------------------------------------------ publishers

    def publisher(self, key: str) -> PublisherFigures | None:
        """The publisher of an attachment's key, if its window is here."""
        ingress = self._endpoints.ingresses.get(key)
        return None if ingress is None else _of_publisher(ingress)

    def publishers(self) -> Iterator[PublisherFigures]:
        """All whose windows are here. Nothing may be handled before the last was taken."""
        return map(_of_publisher, self._endpoints.ingresses.values())

    def publisher_on(self, link: int) -> PublisherFigures | None:
        """Whose link it is, if a publisher's."""
        found = self._endpoints.links.get(link)
        return _of_publisher(found) if isinstance(found, Ingress) else None

    def arrival(self, key: str, number: int) -> float | None:
        """When a delivery arrived; None where it is not known any more, as of one settled with its outcome."""
        ingress = self._endpoints.ingresses.get(key)
        return None if ingress is None else ingress.arrivals.known(number)

    def wait(self, key: str) -> Wait | None:
        """What a publisher waits for; None when nothing of it is unsettled here."""
        ingress = self._endpoints.ingresses.get(key)
        return None if ingress is None else waiting(ingress)

    def owing(self, key: str, number: int, most: int, looks: int) -> tuple[list[Owing], int]:
        """The first subscriptions that owe a delivery of a publisher: see `waits.owing`."""
        ingress = self._endpoints.ingresses.get(key)
        if ingress is None:
            return [], 0
        return owing(self._turn, self._endpoints.egresses, ingress, number, most, looks)

    def window_bytes(self, link: int) -> tuple[int, bool]:
        """What the window of a publisher's link holds, and whether whole deliveries are to come again (C-6)."""
        found = self._endpoints.links.get(link)
        if not isinstance(found, Ingress):
            return 0, False
        # L-4: F1 is for deliveries that are stored whole; what has begun to come goes on as its subscribers take it.
        return found.window.body_bytes, found.window.unreceived > 0 and not found.large.is_arriving

    def stream_bytes(self, link: int) -> int:
        """Bytes of a publisher's large messages that wait for those who get them (L-4)."""
        found = self._endpoints.links.get(link)
        return found.fanout.streams.held_bytes if isinstance(found, Ingress) else 0

    # ------------------------------------------------------------------ subscribers

    def subscriber(self, key: str) -> SubscriberFigures | None:
        """The subscription of an attachment's key, if its link is here."""
        egress = self._endpoints.egresses.get(key)
        return None if egress is None else _of_subscriber(egress)

    def subscribers(self) -> Iterator[SubscriberFigures]:
        """All whose links are here. Nothing may be handled before the last was taken."""
        return map(_of_subscriber, self._endpoints.egresses.values())

    def subscriber_on(self, link: int) -> SubscriberFigures | None:
        """Whose link it is, if a subscriber's."""
        found = self._endpoints.links.get(link)
        return _of_subscriber(found) if isinstance(found, Egress) else None

    def holder(self, key: str, tag: bytes) -> Holder | None:
        """Where a delivery, by its network tag, is on its way to a subscription; None: there is no such one."""
        subscription = self._turn.view.subscriptions.get(key)
        return None if subscription is None else holder(self._turn, self._endpoints.egresses, subscription, tag)

    def has_entry(self, key: str, tag: bytes) -> bool:
        """Whether a delivery, by its network tag, has arrived at the egress of a subscription here, if one is here."""
        egress = self._endpoints.egresses.get(key)
        return egress is None or tag in egress.sessions.get(tag[SESSION_AT:OWN_TAG_AT], {})

    def former(self, key: str) -> int:
        """Deliveries of a subscription that are kept for what may be resumed, and are settled here."""
        egress = self._endpoints.egresses.get(key)
        return 0 if egress is None else sum(map(len, egress.sessions.values())) - egress.unsettled

    # ------------------------------------------------------------------ all together

    def totals(self, now: float) -> Totals:
        """Gauges, `now` on the core's clock."""
        view, endpoints = self._turn.view, self._endpoints
        found = Totals(
            late=late(endpoints.ingresses.values(), now),
            barriers_waiting=self._barrier.waiting,
            routers=len(view.routers),
            subscriptions=len(view.subscriptions),
            publishers=len(view.publishers),
            applied_revision=view.applied,
            trace_steps=len(self._turn.trace),
            publisher_links=sum(isinstance(endpoint, Ingress) for endpoint in endpoints.links.values()),
        )
        for ingress in endpoints.ingresses.values():
            letters = ingress.fanout.letters
            found.dead_letters_waiting += 0 if letters is None else letters.waiting
        for publisher in self.publishers():
            found.window_deliveries += publisher.unsettled
            found.window_bytes += publisher.bytes
            if publisher.link is not None:
                found.publisher_credit += publisher.credit
                found.publishers_without_credit += not publisher.credit
        for subscriber in self.subscribers():
            found.subscriber_links += 1
            found.subscriber_credit += subscriber.credit
            found.subscribers_without_credit += not subscriber.credit
            found.held_deliveries += subscriber.held
        return found


def _of_publisher(ingress: Ingress) -> PublisherFigures:
    window, credit = ingress.window, ingress.credit
    return PublisherFigures(
        ingress.key,
        ingress.name,
        ingress.topic,
        ingress.user,
        ingress.peer,
        ingress.session,
        ingress.link,
        ingress.phase.value,
        len(window),
        window.unreceived,
        window.reported,
        window.body_bytes,
        max(0, credit.limit - credit.received),
        credit.received,
        ingress.arrivals.presented,
        window.next_accept,
        window.end,
        unsettled_since(ingress),
    )


def _of_subscriber(egress: Egress) -> SubscriberFigures:
    outgoing = egress.outgoing
    return SubscriberFigures(
        egress.key,
        egress.name,
        egress.link,
        egress.created,
        egress.proof.is_proven,
        egress.proof.confirmed,
        egress.unsettled,
        outgoing.held,
        outgoing.held_since,
        max(0, outgoing.limit - outgoing.sent),
    )
