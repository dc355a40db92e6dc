"""Links that belong to nobody who answers: half-open connections, and a second client with another's identity (A-8)."""

from __future__ import annotations

from chaos.simulator import coverage
from chaos.simulator.connections import OpenLink, SimulatedConnection
from chaos.simulator.state import TIMEOUT_S, WorldState
from chaos.simulator.steps import Choice
from delivery_records import effects, inputs
from delivery_records.attachments.view import SubscriptionMode

STRANGER = "thief"
"""What an attachment says of its client's connection when a second process made it."""


class Strangers:
    """Open links whose client has left without a word, or never says one."""

    def __init__(self, world: WorldState, open_link: OpenLink) -> None:
        """None at first."""
        self._world = world
        self._open_link = open_link
        self._links: dict[int, SimulatedConnection] = {}
        self._silent_since: dict[int, float] = {}

    def leave_open(self, connection: SimulatedConnection | None) -> None:
        """A client goes to another connection and the router does not see that it left."""
        if connection is not None and connection.link in self._world.connections:
            connection.is_open = True
            self._add(connection)
            self._world.coverage[coverage.OUTRUN] += 1

    def attach(self, kind: str, index: int, router: int) -> None:
        """A second process with a client's identity attaches with an empty map, takes credit, and answers nothing.

        It breaks P-1 or S-1, but as it never answers it must harm nobody for longer than its connection lives.
        """
        name = f"{kind}{index}"
        connection = self._open_link(name, router)
        self._add(connection)
        if kind == "p":
            connection.up.append(
                inputs.PublisherAttach(
                    connection.link, *self._world.names(kind, index), self._world.topic(index), {},
                    exactly_once=True, timeout_s=TIMEOUT_S,
                    peer=STRANGER,
                    expiry_policy=self._world.policy, place=connection.place,
                    owner=self._world.owner(index),
                )
            )  # fmt: skip
        else:
            connection.up.append(
                inputs.SubscriberAttach(
                    connection.link, *self._world.names(kind, index), self._world.subscribers[index].topic, {}, True,
                    SubscriptionMode.EXACTLY_ONCE, "link-detach", float(self._world.traits.timeout_s),
                    self._world.traits.map_bound, peer=STRANGER, place=connection.place,
                    owner=self._world.owner(index),
                    patience=self._world.patience, filter=self._world.subscribers[index].filter,
                )
            )  # fmt: skip

    def _add(self, connection: SimulatedConnection) -> None:
        self._links[connection.link] = connection
        self._silent_since[connection.link] = self._world.now

    def end_silent(self, before: float) -> None:
        """The idle time-out of those that say nothing since then."""
        for link in [link for link in self._links if self._silent_since[link] < before]:
            self.end(link)

    def choices(self) -> list[Choice]:
        """The idle time-out ends such a connection."""
        return [("n.idle", link) for link, connection in self._links.items() if connection.is_open]

    def end(self, link: int) -> None:
        """The idle time-out."""
        connection = self._links.pop(link)
        del self._silent_since[link]
        connection.drop()

    def receive(self, connection: SimulatedConnection, effect: effects.Effect) -> None:
        """A frame that nobody answers; when the router ends the link, the connection goes, too."""
        if isinstance(effect, (effects.DetachLink, effects.CloseConnection)) and connection.link in self._links:
            self.end(connection.link)
