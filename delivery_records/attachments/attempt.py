"""One attach on its way to being in the view: what it asks for, and how far it is (A-2)."""

from __future__ import annotations

from enum import Enum

from delivery_records.attachments.refusals import entries_of
from delivery_records.model.inputs import PublisherAttach, ReadDone, SubscriberAttach
from delivery_records.model.outcomes import DeliveryOutcome


class AttachStep(Enum):
    """Where one attach is."""

    COLLECTING = "collecting"
    QUEUED = "queued"
    READING = "reading"
    READING_SHARED = "reading-shared"
    PUTTING = "putting"
    DELETING = "deleting"
    PAUSING = "pausing"


class Attempt:
    """One attach on its way to being in the view."""

    __slots__ = (
        "expect",
        "found",
        "is_lost",
        "is_over_view",
        "link",
        "nonce",
        "path",
        "place",
        "presented",
        "request",
        "rest",
        "since",
        "step",
        "tries",
    )

    def __init__(self, request: PublisherAttach | SubscriberAttach, path: str, place: int) -> None:
        """The request of link `request.link` for the key at `path`; `place`: among all attaches (A-2d)."""
        self.request = request
        self.place = place
        self.link = request.link
        self.path = path
        self.presented = entries_of(request)
        """Entries of its map that the budget counts, until a link takes them over or nobody wants them (C-6)."""
        self.rest: dict[bytes, DeliveryOutcome | None] = {}
        """Of its map, what has come behind the attach (C-4)."""
        self.step = AttachStep.QUEUED
        self.nonce = ""
        self.expect = 0
        """Mod revision its put compares with."""
        self.found: ReadDone | None = None
        """What its key holds, while the shared subscription's is read (SH-1)."""
        self.tries = 0
        self.is_lost = False
        """The client has gone meanwhile; if the put is seen it counts as attached and lost (K-2a)."""
        self.is_over_view = False
        """Its put is over what this router's view shows, which nobody has read in etcd (A-2b)."""
        self.since = 0.0
        """When the attach was read."""
