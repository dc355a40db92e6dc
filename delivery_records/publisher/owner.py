"""The ingress as its parts know it: whose window it is, and what they ask of it."""

from __future__ import annotations

from delivery_records.model.endpoint import Endpoint
from delivery_records.model.inputs import PublisherTransfer
from delivery_records.model.limits import TopicPolicy
from delivery_records.model.trace import Rule
from delivery_records.publisher.window import Slot


class Owner(Endpoint):
    """One publisher at its ingress. `Ingress` is the only one; its parts could not name it without a circle."""

    __slots__ = ("exactly_once", "link", "policy", "session", "topic", "user")

    exactly_once: bool
    """It has the capability (c.5)."""
    link: int | None
    """None: it is suspended (A-9)."""
    policy: TopicPolicy
    """Of its topic (I-3d)."""
    session: int
    topic: str
    user: str
    """As logged in; each message carries it (I-1b)."""

    def on_transfer(self, transfer: PublisherTransfer) -> None:
        """I-1: store the delivery whole, then forward it to every subscription that owes it."""
        raise NotImplementedError

    def send_on(self, slot: Slot) -> None:
        """I-1: it is stored; to everybody who owes it or listens."""
        raise NotImplementedError

    def limit_life(self, slot: Slot) -> None:
        """E-10: it is stored; where its topic's policy limits the life of messages, its time begins."""
        raise NotImplementedError

    def on_settled(self, tags: tuple[bytes, ...] | list[bytes]) -> None:
        """I-4: the publisher settled; forget the deliveries and notify everybody who has them."""
        raise NotImplementedError

    def drop(self, slot: Slot) -> None:
        """Forget a delivery and settle it at all that have it: settled, given up or abandoned (I-4, I-4a, I-9)."""
        raise NotImplementedError

    def mark_dirty(self) -> None:
        """Have `flush` called at the end of this turn."""
        raise NotImplementedError

    def detach(self, condition: str, description: str) -> None:
        """Suspend the link from our side; the terminus stays (A-9)."""
        raise NotImplementedError

    def trace(self, slot: Slot, rule: Rule, *fields: object) -> None:
        """A step of a delivery of this publisher, while an operator wants to see them."""
        raise NotImplementedError
