"""How one publisher ends, and what is owed of it then (rule A-9a)."""

from __future__ import annotations

from delivery_records.model.inputs import LossCause, PublisherAttach
from delivery_records.publisher.window import Window


class Departure:
    """Of one ingress."""

    __slots__ = ("_presents_map", "_window", "cause", "closes", "is_awaited", "is_kept", "left_at")

    def __init__(self, request: PublisherAttach, window: Window) -> None:
        """The publisher is attached."""
        self._presents_map = request.unsettled is not None
        self._window = window
        self.closes = False
        """Its client wants the link closed."""
        self.cause = LossCause.DETACH
        self.left_at = 0.0
        """When the link was lost."""
        self.is_kept = False
        """Its key would have expired, and what was read is owed."""
        self.is_awaited = False
        """An attach that would end its session waits until nothing is owed."""

    @property
    def resumes(self) -> bool:
        """Whether its client has presented a map, as it will when it attaches again."""
        return self._presents_map

    @property
    def is_reported(self) -> bool:
        """Whether everything that was read has an outcome."""
        return self._window.next_accept >= self._window.end

    @property
    def owed(self) -> int:
        """Deliveries that some subscription owes."""
        return sum(slot.pending > 0 for slot in self._window.slots())
