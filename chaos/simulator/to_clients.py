"""What routers send to clients: put on its way, and shown to the judges whose promises count from here."""

from __future__ import annotations

from typing import TypeAlias

from chaos.simulator.amqp_sessions import AmqpSessions
from chaos.simulator.connections import SimulatedConnection
from chaos.simulator.drains import Drains
from chaos.simulator.judge import Judge
from chaos.simulator.pairs import Pairs
from chaos.simulator.patience_judge import PatienceJudge, check_granted
from chaos.simulator.routers import Router
from chaos.simulator.state import WorldState
from delivery_records.model import effects

_ATTACHED_OR_NOT = (effects.PublisherReply, effects.SubscriberReply, effects.DetachLink, effects.CloseConnection)
ToClient: TypeAlias = (
    effects.PublisherReply
    | effects.SubscriberReply
    | effects.AskEcho
    | effects.GrantPublisherCredit
    | effects.Dispose
    | effects.Deliver
    | effects.DeliverPart
    | effects.SettleAtSubscriber
    | effects.Confirm
    | effects.CompleteDrain
    | effects.NotifyOwing
    | effects.NotifyEnded
    | effects.NotifyAcceptedBy
    | effects.NotifyStart
    | effects.DetachLink
    | effects.CloseConnection
)


class ToClients:
    """Effects of routers that a client reads."""

    def __init__(
        self,
        world: WorldState,
        judge: Judge,
        patience_judge: PatienceJudge,
        amqp_sessions: AmqpSessions,
        pairs: Pairs,
        drains: Drains,
    ) -> None:
        """Nothing was sent yet."""
        self._world = world
        self._judge = judge
        self._patience_judge = patience_judge
        self._amqp_sessions = amqp_sessions
        self._pairs = pairs
        self._drains = drains

    def send(self, router: Router, effect: ToClient) -> None:
        """It is under way from now on."""
        if self._world.patience is not None:
            self._patience_judge.on_effect(effect)
        if self._world.traits.unread:
            self._judge.steals.on_effect(effect)
        if self._world.traits.ttl_s and isinstance(effect, effects.Deliver):
            self._judge.expiry.on_delivered(effect)
        if self._world.traits.longest_s:
            check_granted(effect, self._world.traits.longest_s)
        if self._world.traits.pairs:
            self._pairs.on_effect(effect)
        if self._world.traits.stock_publisher:
            self._judge.ends.on_effect(effect)
        connection = self._world.connections.get(effect.link)
        if connection is not None and connection.is_open:
            if isinstance(effect, effects.Deliver):
                self._judge.calm.on_delivered(self._world.client_of(connection), effect)
            connection.down.append(effect)
            if isinstance(effect, effects.CloseConnection):
                self._drains.on_close(router, connection, effect)
            if isinstance(effect, _ATTACHED_OR_NOT):
                self._watch_link(router, connection, effect)

    def on_slow(self, note: effects.Note) -> None:
        """K-5b: it must have waited as long as it said; then it may end what it saw."""
        link = note.fields["link"]
        assert isinstance(link, int)
        self._patience_judge.check_slow(link)
        if self._world.traits.expels:
            self._judge.promises.on_expelled(note.fields["key"], note.fields["epoch"])

    def _answers_an_end(self, detach: effects.DetachLink, connection: SimulatedConnection) -> bool:
        """Whether the client's own detach or end is answered, so that its AMQP session goes on without the link."""
        if connection.leaves_for and not (detach.closed or detach.condition):
            return True
        return detach.by_store and self._amqp_sessions.survives(connection)

    def _watch_link(self, router: Router, connection: SimulatedConnection, effect: effects.Effect) -> None:
        """T_pub or T_sub begins when the router gives the link up, though the client may read that much later."""
        client = self._world.client_of(connection)
        if client is None:
            return
        if isinstance(effect, (effects.PublisherReply, effects.SubscriberReply)):
            if self._world.is_up_to_date(router, client):
                self._judge.on_joined(client)
        elif isinstance(effect, effects.DetachLink) and self._answers_an_end(effect, connection):
            self._amqp_sessions.on_answer(router, connection)
        else:
            self._judge.on_left(client)
            is_forced = isinstance(effect, effects.DetachLink) and effect.condition == "amqp:link:detach-forced"
            if is_forced and self._world.is_pausing and client in self._world.publishers:
                self._judge.sessions.on_held_up(client.index)
