"""The client links of this router, and what becomes of one that ends (rules A-9, E-7, I-7)."""

from __future__ import annotations

from typing import TypeAlias

from delivery_records.attachments.attaching import Attaching
from delivery_records.attachments.attempt import Attempt
from delivery_records.attachments.barrier import AttachBarrier
from delivery_records.attachments.expiry import Expiry
from delivery_records.model.endpoint import Endpoint
from delivery_records.model.inputs import LossCause
from delivery_records.model.outcomes import Decision
from delivery_records.model.terms import held_terms
from delivery_records.model.timers import OF_AN_EGRESS, OF_AN_INGRESS
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn
from delivery_records.model.view import Kind, publisher_path, split_path, subscription_path
from delivery_records.publisher.ingress import Ingress
from delivery_records.subscriber.egress import Egress

Link: TypeAlias = Attempt | Ingress | Egress
"""What a client link is at this router, from its attach on."""


class Endpoints:
    """Links by number, publishers and subscriptions by key."""

    __slots__ = (
        "_attaching",
        "_barrier",
        "_expiry",
        "_turn",
        "disconnected",
        "egresses",
        "ingress_by_epoch",
        "ingresses",
        "links",
    )

    def __init__(
        self,
        turn: Turn,
        attaching: Attaching,
        expiry: Expiry,
        barrier: AttachBarrier,
        egresses: dict[str, Egress],
        ingress_by_epoch: dict[int, Ingress],
    ) -> None:
        """Nobody is attached."""
        self._turn = turn
        self._attaching = attaching
        self._expiry = expiry
        self._barrier = barrier
        self.links: dict[int, Link] = attaching.links
        self.ingresses: dict[str, Ingress] = attaching.ingresses
        self.ingress_by_epoch = ingress_by_epoch
        self.disconnected: dict[str, Ingress] = {}
        """Those whose link is gone, longest first: their windows are forgotten for room (C-6)."""
        self.egresses = egresses

    def of_path(self, path: str) -> Ingress | Egress | None:
        """What serves the attachment at `subs/<h>` or `pubs/<h>`."""
        kind, key = split_path(path)
        return self.egresses.get(key) if kind is Kind.SUBSCRIPTION else self.ingresses.get(key)

    def is_here(self, endpoint: Endpoint) -> bool:
        """False when a newer attach has taken its place, or nothing is remembered of it."""
        return self.ingresses.get(endpoint.key) is endpoint or self.egresses.get(endpoint.key) is endpoint

    def open_ingress(self, ingress: Ingress, link: int) -> None:
        """A publisher is attached here (A-3)."""
        self.ingresses[ingress.key] = ingress
        self.ingress_by_epoch[ingress.epoch] = ingress
        self.links[link] = ingress

    def open_egress(self, egress: Egress) -> None:
        """A subscription is attached here (A-6)."""
        self.egresses[egress.key] = egress
        self._turn.budget.hold_map(len(egress.request.unsettled or ()))
        self.links[egress.link] = egress
        self._turn.plan_version += 1

    # ------------------------------------------------------------------ the link ends

    def lose(self, link: int, endpoint: Link, cause: LossCause) -> None:
        """A-9: the link is suspended; its terminus stays until its timer or a newer attach."""
        self.links.pop(link, None)
        if isinstance(endpoint, Attempt):
            self._attaching.on_link_gone(endpoint)
        else:
            self.suspend(endpoint, cause)

    def suspend(self, endpoint: Endpoint, cause: LossCause) -> None:
        """The link of a publisher or a subscriber is gone."""
        if isinstance(endpoint, Ingress):
            self._suspend_publisher(endpoint, cause)
        else:
            assert isinstance(endpoint, Egress)
            self._suspend_subscriber(endpoint, cause)

    def _suspend_publisher(self, ingress: Ingress, cause: LossCause) -> None:
        """T_pub starts as its policy says (A-9, K-5)."""
        if ingress.link is not None:
            self.links.pop(ingress.link, None)
        ingress.on_link_lost()
        if self.ingresses.get(ingress.key) is ingress:
            self.disconnected[ingress.key] = ingress
        publisher = self._turn.view.publishers.get(ingress.key)
        if publisher is not None:
            policy = ingress.expiry_policy
            self._expiry.on_link_lost(publisher_path(ingress.key), publisher, policy, cause, ingress.place)

    def _suspend_subscriber(self, egress: Egress, cause: LossCause) -> None:
        """Forget all but the K-5 timer (E-7, A-9)."""
        turn = self._turn
        turn.note(Decision.SUBSCRIBER_LOST, subscription=egress.name, cause=cause.value)
        if turn.tracing is not None:
            for tag in [tag for entries in egress.sessions.values() for tag in entries]:
                turn.tracing.seen(tag, Rule.LINK_LOST, egress.name)
        self.forget_egress(egress)
        subscription = turn.view.subscriptions.get(egress.key)
        if subscription is not None:
            policy = held_terms(subscription.record).expiry_policy
            self._expiry.on_link_lost(subscription_path(egress.key), subscription, policy, cause, egress.request.place)

    def forget_egress(self, egress: Egress) -> None:
        """Drop everything this router remembers of the subscription's link."""
        turn = self._turn
        self.links.pop(egress.link, None)
        egress.outgoing.flush()
        egress.outgoing.release()
        egress.forget()
        if self.egresses.get(egress.key) is egress:
            del self.egresses[egress.key]
            turn.budget.release_map(len(egress.request.unsettled or ()))
        turn.plan_version += 1
        self._barrier.forget(egress.key)
        for timer in OF_AN_EGRESS:
            turn.timers.cancel(timer, egress.key)

    def forget_ingress(self, ingress: Ingress) -> None:
        """I-7: the window belongs to the newest epoch alone."""
        self.ingresses.pop(ingress.key, None)
        self.disconnected.pop(ingress.key, None)
        self.ingress_by_epoch.pop(ingress.epoch, None)
        ingress.retire()
        if ingress.link is not None:
            self.links.pop(ingress.link, None)
        for timer in OF_AN_INGRESS:
            self._turn.timers.cancel(timer, ingress.key)
