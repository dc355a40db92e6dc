"""What the shell of a link needs of the connection it belongs to."""

from __future__ import annotations

from typing import Protocol

from delivery_records.model.effects import DetachLink
from delivery_records.model.inputs import LinkPlace
from oncewire.wire import Link
from router.clients.large_sending import Sendings
from router.clients.link_policy import LinkPolicy
from router.process.logs import EventLog
from router.records_driver import RecordsDriver


class LinkOwner(Protocol):
    """One client's connection, for its publisher and subscriber links; `ClientConnection` is it."""

    log: EventLog
    max_message_size: int
    kept_message_size: int
    """Bytes of the largest message that is stored whole (L-1)."""
    sendings: Sendings
    """Links that send large messages."""
    container_id: str
    peer: str
    """The client's address and port."""
    is_dirty: bool
    """Whether it is written at the end of this turn; asked before `mark_dirty`, for there is a call less then."""

    @property
    def policy(self) -> LinkPolicy:
        """What the operator's rules say of the user's links."""
        ...

    def refuse_unless_allowed(self, link: Link, address: str | None) -> None:
        """Look at the rules of access; `address` is None where a subscription is looked up.

        Raises:
            LinkRefusal: they do not allow this user this link.
        """

    @property
    def driver(self) -> RecordsDriver:
        """The incarnation that serves the client."""
        ...

    @property
    def frame_size(self) -> int:
        """The smaller of both max-frame-sizes (C-4)."""
        ...

    def place_of(self, link: Link) -> LinkPlace:
        """The AMQP session and the connection of a link (A-9)."""
        ...

    def mark_dirty(self) -> None:
        """Write at the end of this turn."""

    def detach(self, number: int, link: Link, effect: DetachLink) -> None:
        """Detach a link, or answer its detach; before the attach was answered this is a refusal (A-8)."""

    def close(self, condition: str, description: str) -> None:
        """Close the connection with an error."""

    def fail(self) -> None:
        """A fault of our own: end the connection (K-3b)."""
