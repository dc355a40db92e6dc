"""What a session knows of each of its links; ``Link`` builds on it."""

from __future__ import annotations

from oncewire.wire.performatives import DeliveryState
from oncewire.wire.states import LinkState


class LinkEndpoint:
    """The part of a link that does not need its session.

    Attributes:
        name: the link's name; with the container-ids and the direction it names the link for good.
        is_sender: True if deliveries go from here to the peer.
        state: see ``LinkState``.
        handle: our handle of it, for logs; -1 before it has one.
        detach_written: our detach has left the queues of the session; the engine's own.
        unsettled_tags: delivery-id -> tag of what is unsettled on this attach; the engine's own.
    """

    __slots__ = ("detach_written", "handle", "is_sender", "name", "state", "unsettled_tags")

    def __init__(self, name: str, is_sender: bool) -> None:
        self.name = name
        self.is_sender = is_sender
        self.state = LinkState.INITIAL
        self.handle = -1
        self.detach_written = False
        self.unsettled_tags: dict[int, bytes] = {}

    def receive_disposition(
        self, deliveries: list[tuple[int, bytes]], state: DeliveryState | None, settled: bool
    ) -> None:
        """Take what the peer stated of deliveries of this link."""
        raise NotImplementedError

    def answer_echo(self) -> None:
        """Send the state of the link because the peer asked for it."""
        raise NotImplementedError
