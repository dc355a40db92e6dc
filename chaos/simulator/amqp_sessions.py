"""AMQP sessions that stay open when their link is detached: the policy `session-end` counts from their end (A-9)."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.simulator import coverage
from chaos.simulator.connections import SimulatedConnection
from chaos.simulator.judge import Judge
from chaos.simulator.publishers import Publisher
from chaos.simulator.roles import ClientRole
from chaos.simulator.routers import Router
from chaos.simulator.shipped_publisher import ShippedPublisher
from chaos.simulator.state import SESSION_END, Feed, WorldState
from chaos.simulator.steps import Choice
from delivery_records.model import effects, inputs
from delivery_records.model.view import SubscriptionRecord

REFUSED_S = 130.0
"""A client that etcd's refusal has detached waits for so long: more than T_pub by any clock."""


@dataclass(slots=True)
class _Kept:
    """A session that its client keeps without a link."""

    client: ClientRole
    place: inputs.LinkPlace
    router: int
    rid: int
    holds: bool
    """The terminus is this session's: nobody has attached it since."""


class AmqpSessions:
    """Detached links whose client keeps the session, to attach in it again or to end it later."""

    def __init__(self, world: WorldState, judge: Judge, feed: Feed) -> None:
        """None."""
        self._world = world
        self._judge = judge
        self._feed = feed
        self._answered: dict[int, bool] = {}
        """Detached links, until the client reads the answer: whether the terminus is still this session's."""
        self._kept: dict[int, _Kept] = {}
        """By the session's number."""

    def detach(self, client: ClientRole, seconds: float) -> None:
        """A client detaches without closing; with the answer it goes away for a while, and its session stays."""
        connection = client.connection
        if connection is None or not client.is_replied or client.is_closing or connection.has_ended:
            return
        connection.up.append(inputs.LinkDetach(connection.link, False))
        connection.leaves_for, connection.has_ended = seconds, True
        if isinstance(client, (Publisher, ShippedPublisher)):
            client.parts.drop()

    def survives(self, connection: SimulatedConnection) -> bool:
        """A-1: etcd's refusal ends an attached link, and not its session; whether its client waits there for etcd."""
        client = self._world.client_of(connection)
        if client is None or self._world.policy != SESSION_END or client.is_closing:
            return False
        replies = (effects.PublisherReply, effects.SubscriberReply)
        if client.is_replied or any(isinstance(effect, replies) for effect in connection.down):
            connection.leaves_for = REFUSED_S
        return connection.leaves_for == REFUSED_S

    def on_answer(self, router: Router, connection: SimulatedConnection) -> None:
        """The router answers that detach: the terminus is suspended."""
        world = self._world
        client = world.client_of(connection)
        if client is None:
            return
        waits = world.policy == SESSION_END
        held = world.etcd.keys.get(world.attachment(client))
        if held is not None and isinstance(held.record, SubscriptionRecord):
            # It is link-detach where the subscriber asks for never, and until it has shown life.
            waits = held.record.expiry_policy == SESSION_END
        self._answered[connection.link] = waits and world.is_up_to_date(router, client)
        if not self._answered[connection.link]:
            self._judge.on_left(client)

    def keep(self, client: ClientRole, connection: SimulatedConnection) -> None:
        """The client has read the answer."""
        world = self._world
        holds = self._answered.pop(connection.link, False)
        world.hold_off(client, connection.leaves_for)
        router = world.routers[connection.router]
        if router.records is None or connection.is_dead:
            return
        connection.is_kept = True
        place = connection.place
        self._kept[place.amqp_session] = _Kept(client, place, router.index, router.rid, holds)
        world.coverage[coverage.KEPT_SESSION] += 1
        if holds:
            self._judge.on_joined(client)

    def take(self, client: ClientRole, router: int) -> inputs.LinkPlace | None:
        """A client attaches again at that router: in the session it kept there, if it did."""
        for number, kept in self._kept.items():
            if kept.client is client and kept.router == router:
                del self._kept[number]
                if kept.holds:
                    self._judge.on_left(client)
                self._world.coverage[coverage.SAME_SESSION] += 1
                return kept.place
        return None

    def on_written(self, client: ClientRole) -> None:
        """Somebody has put the client's key: from now on no session that was kept before counts."""
        for link in self._answered:
            connection = self._world.connections.get(link)
            if connection is not None and client.connection is connection:
                self._answered[link] = False
        for kept in self._kept.values():
            if kept.client is client:
                self._let_go(kept)

    def on_router_lost(self, rid: int) -> None:
        """A router is dead, or is for the others: every router counts from its own observation (K-5)."""
        for number, kept in list(self._kept.items()):
            if kept.rid == rid:
                self._let_go(kept)
                router = self._world.routers[kept.router]
                if router.records is None or router.rid != rid:
                    del self._kept[number]

    def choices(self) -> list[Choice]:
        """Such a session ends."""
        world = self._world
        return [
            ("n.end", number)
            for number, kept in self._kept.items()
            if not world.routers[kept.router].is_stalled(world.now)
        ]

    def end(self, number: int) -> None:
        """It ends, and its connection with it."""
        kept = self._kept.pop(number)
        self._let_go(kept)
        router = self._world.routers[kept.router]
        self._feed(router, ends_of(kept.place))

    def _let_go(self, kept: _Kept) -> None:
        if kept.holds:
            kept.holds = False
            self._judge.on_left(kept.client)


def ends_of(place: inputs.LinkPlace) -> list[inputs.Input]:
    """What a router is notified of when a session ends together with its connection."""
    return [inputs.EndpointEnded(place.amqp_session), inputs.EndpointEnded(place.connection)]
