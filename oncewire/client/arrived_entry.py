"""What a subscriber's core knows of a delivery, and the map that it presents of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from oncewire.client.outcomes import Outcome


@dataclass(frozen=True, slots=True)
class PresentedMap:
    """What to attach with: tag -> recorded outcome, or None."""

    unsettled: dict[bytes, Outcome | None]
    rest: dict[bytes, Outcome | None] = field(default_factory=dict)
    """What does not fit the attach and follows behind it (C-4)."""


class ArrivedEntry:
    """One delivery. Hot path: a plain class."""

    __slots__ = (
        "again",
        "attach",
        "counts",
        "delivery_id",
        "lacks_body",
        "message_format",
        "outcome",
        "payload",
        "pre_settled",
        "receiver_settles",
        "recorded",
        "serial",
        "settled",
        "stored",
        "tag",
    )

    def __init__(self, serial: int, tag: bytes, payload: bytes) -> None:
        self.serial = serial
        self.tag = tag
        self.payload = payload
        self.delivery_id = 0
        self.attach = 0  # the attach that delivery_id belongs to
        self.counts = False  # takes one of this attach's prefetched places
        # By the router, or left out for we presented null (then until it comes again): forget it when it is processed.
        self.settled = False
        self.pre_settled = False  # never was in the map: at-most-once
        self.receiver_settles = False  # on this attach: the router wants the outcome settled (AMQP 2.7.5)
        self.outcome: Outcome | None = None
        self.stored = False  # the journal holds the tag, or will with the commit under way
        self.recorded = False  # the journal holds the outcome
        self.lacks_body = False  # arrived before a restart and not done: the body comes again
        self.again = 0
        self.message_format = 0
