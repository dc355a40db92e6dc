"""Links beside a client's own: half-open connections, and other processes with its identity (A-8, P-b)."""

from __future__ import annotations

from chaos.simulator import coverage
from chaos.simulator.connections import OpenLink, SimulatedConnection
from chaos.simulator.paused_publisher import PausedPublisher
from chaos.simulator.roles import STRANGER
from chaos.simulator.shipped_publisher import ShippedPublisher
from chaos.simulator.state import TIMEOUT_S, WorldState
from chaos.simulator.steps import Choice
from delivery_records.model import effects, inputs
from delivery_records.model.view import SubscriptionMode


class Strangers:
    """Open links whose client has left without a word or never says one, and those of publishers that were paused."""

    def __init__(self, world: WorldState, open_link: OpenLink) -> None:
        """None at first."""
        self._world = world
        self._open_link = open_link
        self._links: dict[int, SimulatedConnection] = {}
        self._silent_since: dict[int, float] = {}
        self._paused: dict[int, PausedPublisher] = {}
        """By publisher."""
        self._woken: dict[int, PausedPublisher] = {}
        """By link."""

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
                    connection.link,
                    *self._world.names(kind, index),
                    self._world.topic(index),
                    {},
                    exactly_once=True,
                    timeout_s=TIMEOUT_S,
                    peer=STRANGER,
                    expiry_policy=self._world.policy,
                    place=connection.place,
                    owner=self._world.owner(index),
                )
            )
        else:
            connection.up.append(
                inputs.SubscriberAttach(
                    connection.link,
                    *self._world.names(kind, index),
                    self._world.subscribers[index].topic,
                    {},
                    True,
                    SubscriptionMode.EXACTLY_ONCE,
                    "link-detach",
                    float(self._world.traits.timeout_s),
                    self._world.traits.map_bound,
                    peer=STRANGER,
                    place=connection.place,
                    owner=self._world.owner(index),
                    patience=self._world.patience,
                    filter=self._world.subscribers[index].filter,
                    stores=self._world.stores(index),
                )
            )

    def pause(self, publisher: ShippedPublisher) -> None:
        """A publisher's process is paused, its connection is closed, and another one takes over its journal."""
        self._paused[publisher.index] = PausedPublisher(publisher)

    def wake(self, index: int, router: int) -> None:
        """A process that was paused continues beside its successor, and attaches once."""
        paused = self._paused.pop(index)
        if paused.may_attach:
            connection = self._open_link(f"p{index}", router)
            self._add(connection)
            self._woken[connection.link] = paused
            paused.attach(connection, STRANGER)
            self._world.coverage[coverage.REPLACED] += 1

    def lose_router(self, link: int) -> None:
        """A link's router is dead."""
        if link in self._woken:
            self.end(link)

    def _add(self, connection: SimulatedConnection) -> None:
        self._links[connection.link] = connection
        self._silent_since[connection.link] = self._world.now

    def end_silent(self, before: float) -> None:
        """The idle time-out of those that say nothing since then."""
        for link in [link for link in self._links if self._silent_since[link] < before]:
            self.end(link)

    def choices(self) -> list[Choice]:
        """The idle time-out ends such a connection; a paused process continues."""
        found: list[Choice] = [("n.idle", link) for link, connection in self._links.items() if connection.is_open]
        return found + [("p.wake", index, r.index) for index in self._paused for r in self._world.usable_routers()]

    def end(self, link: int) -> None:
        """The idle time-out."""
        connection = self._links.pop(link)
        self._woken.pop(link, None)
        del self._silent_since[link]
        connection.drop()

    def receive(self, connection: SimulatedConnection, effect: effects.Effect) -> None:
        """A frame that nobody answers but who was paused; when the router ends the link, the connection goes, too."""
        paused = self._woken.get(connection.link)
        is_over = isinstance(effect, (effects.DetachLink, effects.CloseConnection)) and connection.link in self._links
        if is_over or (paused is not None and not paused.receive(effect)):
            self.end(connection.link)
