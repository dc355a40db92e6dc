"""What clients' keys in etcd become: the judge learns of each, and sessions of AMQP that wait for one."""

from __future__ import annotations

from chaos.simulator.amqp_sessions import AmqpSessions
from chaos.simulator.etcd import Held
from chaos.simulator.judge import Judge
from chaos.simulator.roles import STRANGER
from chaos.simulator.state import WorldState
from chaos.simulator.stock_clients import ResumingPublisher
from delivery_records.model.view import (
    SESSION_IS_THIS_PUT,
    Kind,
    PublisherRecord,
    Record,
    RouterRecord,
    SubscriptionRecord,
)


class KeyChanges:
    """Keys of attachments that are written and deleted."""

    def __init__(self, world: WorldState, judge: Judge, amqp_sessions: AmqpSessions) -> None:
        """Nothing has changed yet."""
        self._world = world
        self._judge = judge
        self._amqp_sessions = amqp_sessions

    def delete(self, kind: Kind, key: str) -> None:
        """K-5 decides: the attachment has expired."""
        world = self._world
        if (kind, key) in world.etcd.keys:
            for publisher in world.publishers:
                if kind is Kind.PUBLISHER and key == world.publisher_key(publisher.index):
                    self._judge.sessions.condemn(publisher.index)
                    self._judge.ends.excuse(publisher.index)
            for subscriber in world.subscribers:
                if kind is Kind.SUBSCRIPTION and key == world.subscription_key(subscriber.index):
                    self._judge.promises.condemn(subscriber.index)
            world.etcd.delete(kind, key)

    def on_written(self, kind: Kind, key: str, record: Record) -> None:
        """Whoever has put a client's key, the attachment is that router's from now on."""
        world = self._world
        if isinstance(record, RouterRecord):
            return
        client = next((c for c in world.clients() if world.attachment(c) == (kind, key)), None)
        if client is None:
            return
        self._amqp_sessions.on_written(client)
        if isinstance(record, PublisherRecord):
            self._judge.ends.on_session_over(client.index, record.rid)
        is_begun = isinstance(record, PublisherRecord) and record.session == SESSION_IS_THIS_PUT
        if is_begun and isinstance(client, ResumingPublisher):
            client.on_session_begun(record.peer)
        if kind is Kind.SUBSCRIPTION:
            self._judge.promises.on_written(client.index)
            assert isinstance(record, SubscriptionRecord)
            created = self._judge.created(client.index)
            self._judge.filters.on_written(client.index, created, record.filter)
        if client.connection is not None and world.routers[client.connection.router].rid != record.rid:
            self._judge.on_left(client)

    def on_deleted(self, key: str, held: Held) -> None:
        """The key of an attachment, or of a shared subscription, is gone."""
        world = self._world
        record = held.record
        if isinstance(record, SubscriptionRecord) and (record.shared or record.member_of):
            self._judge.shared.on_deleted(key, held)
        if isinstance(record, SubscriptionRecord):
            for subscriber in world.subscribers:
                if key == world.subscription_key(subscriber.index):
                    self._judge.promises.on_key_deleted(subscriber.index, key, held)
        if isinstance(record, PublisherRecord):
            for publisher in world.publishers:
                if key == world.publisher_key(publisher.index):
                    self._judge.sessions.on_key_deleted(publisher.index, is_stolen=record.peer == STRANGER)
                    self._judge.ends.on_session_over(publisher.index, None)
