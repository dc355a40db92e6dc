"""What a session knows of each of its links; ``Link`` builds on it."""

from __future__ import annotations

from typing import Final

from oncewire.wire.performatives import DeliveryState
from oncewire.wire.states import LinkState

# Before every position of a session, and not next to one.
NOWHERE: Final = -(1 << 62)


class LinkEndpoint:
    """The part of a link that does not need its session.

    Attributes:
        name: the link's name; with the container-ids and the direction it names the link for good.
        is_sender: True if deliveries go from here to the peer.
        state: see ``LinkState``.
        handle: our handle of it, for logs; -1 before it has one.
        detach_written: our detach has left the queues of the session; the engine's own.
        unsettled_count: how many deliveries are unsettled on this attach.
        unsettled_first, unsettled_last, unsettled_ranges: where they may be in the table of the session: positions in a
            row, and ranges of such before; the engine's own.
    """

    __slots__ = (
        "detach_written",
        "handle",
        "is_sender",
        "name",
        "state",
        "unsettled_count",
        "unsettled_first",
        "unsettled_last",
        "unsettled_ranges",
    )

    def __init__(self, name: str, is_sender: bool) -> None:
        self.name = name
        self.is_sender = is_sender
        self.state = LinkState.INITIAL
        self.handle = -1
        self.detach_written = False
        self.unsettled_count = 0
        self.unsettled_first = self.unsettled_last = NOWHERE
        self.unsettled_ranges: list[tuple[int, int]] = []

    def receive_disposition(
        self, ids: list[int], tags: list[bytes], state: DeliveryState | None, settled: bool
    ) -> None:
        """Take what the peer stated of deliveries of this link."""
        raise NotImplementedError

    def answer_echo(self) -> None:
        """Send the state of the link because the peer asked for it."""
        raise NotImplementedError
