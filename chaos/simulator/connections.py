"""A simulated client's link, seen from both of its ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from delivery_records.model import effects, inputs


@dataclass(slots=True)
class PartlyReceived:
    """A delivery that a subscriber has begun to read."""

    first: effects.DeliverPart
    body: bytearray
    is_answered: bool = False
    """In the middle (L-3)."""


@dataclass(slots=True)
class SimulatedConnection:
    """One link at one router: what is under way up and down. Bytes of a dead connection may still be read (N-1)."""

    link: int
    router: int
    up: deque[inputs.Input]
    down: deque[effects.Effect]
    is_open: bool = True
    read_at: float = 0.0
    """When its router last read something of it."""
    is_dead: bool = False
    """Its router died; the client has not seen that yet (N-1)."""
    place: inputs.LinkPlace = inputs.NO_PLACE
    leaves_for: float = 0.0
    """The client has detached, and comes back after so many seconds; it keeps its AMQP session."""
    has_ended: bool = False
    """The client has ended the link: it sends no transfer behind that (AMQP 1.0 section 2.6.6)."""
    is_kept: bool = False
    """That session is open, though the link is gone."""
    streams: bool = False
    """A publisher may send large messages on it (L-1)."""
    partly: PartlyReceived | None = None
    """The delivery that its subscriber has begun to read (L-3)."""

    def drop(self) -> None:
        """The client is gone: what was under way to it is lost, what it sent may still be read."""
        self.is_open = False
        self.down.clear()


OpenLink: TypeAlias = Callable[[str, int], SimulatedConnection]
"""Client's name, router's index -> its new link there."""
