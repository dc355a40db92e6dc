"""What a simulated world and its judge know of each client, whatever code makes its decisions."""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from chaos.simulator.connections import SimulatedConnection
from delivery_records.model import effects

STRANGER = "thief"
"""What an attachment says of its client's connection when a second process made it."""


class Keeps(Enum):
    """What a client keeps over a reconnect, and so what it is promised (c.3, c.5)."""

    MAP = auto()
    """Exactly once."""
    OWN_MAP = auto()
    """Exactly once while its router holds its deliveries, else at least once: it resumes as AMQP says (A-3b)."""
    NO_MAP = auto()
    """At least once, as the clients of today."""
    NOTHING = auto()
    """At most once: nothing is owed to it or by it."""


class ClientRole(Protocol):
    """A publisher or subscriber."""

    index: int
    keeps: Keeps
    connection: SimulatedConnection | None
    is_replied: bool
    is_wanted: bool
    is_closing: bool

    def connect(self, router: int) -> None:
        """Attach."""

    def receive(self, effect: effects.Effect) -> None:
        """One frame of the router."""

    def disconnect(self) -> None:
        """The connection drops."""

    def leftover(self) -> str:
        """What is unfinished, in words; empty when it is done."""


class PublisherRole(ClientRole, Protocol):
    """Sends messages 0, 1, 2, ..."""

    messages: int
    given_up: set[int]

    @property
    def next(self) -> int:
        """The first message that was never sent."""

    def die(self) -> None:
        """Its process is gone for good."""


class SubscriberRole(ClientRole, Protocol):
    """Has one subscription."""

    topic: str
    prefetch: int
    """Deliveries that it gives credit for beyond those that it has (C-3)."""
    filter: str
