"""Simulated links of the weakest mode: pre-settled transfers, settled deliveries (protocol c.3).

Nothing is owed to them and nothing is repeated; still nothing may come twice or out of order, and nothing may be left.
"""

from __future__ import annotations

from chaos.simulator.publishers import Publisher
from chaos.simulator.roles import Keeps
from chaos.simulator.state import TIMEOUT_S
from chaos.simulator.subscribers import Subscriber
from delivery_records.model import effects, inputs
from delivery_records.model.view import SubscriptionMode


class PresettledPublisher(Publisher):
    """Sends each message once and hears nothing of it (I-1c)."""

    keeps = Keeps.NOTHING

    def connect(self, router: int) -> None:
        """Attach without a map."""
        self.connection = self.open_link(f"p{self.index}", router)
        self.limit, self.sent, self.is_replied = 0, 0, False
        self._up(
            inputs.PublisherAttach(
                self.connection.link,
                *self.world.names("p", self.index),
                self.world.topic(self.index),
                None,
                peer=f"p{self.index}",
                expiry_policy=self.world.policy,
                place=self.connection.place,
                owner=self.world.owner(self.index),
            )
        )

    def send(self) -> None:
        """The next message; whatever becomes of it."""
        assert self.connection is not None
        number = self.next
        self.next += 1
        self.sent += 1
        self.given_up.add(number)
        self.judge.on_first_send(self.index, number)
        body = self.world.body(self.index, number)
        # Every time the same tag, an empty one, as Qpid JMS does: it names nothing that could be unsettled.
        self._up(inputs.PublisherTransfer(self.connection.link, self.sent, b"", body, settled=True))


class SettledSubscriber(Subscriber):
    """Takes what comes, settled, and answers nothing."""

    keeps = Keeps.NOTHING

    def connect(self, router: int) -> None:
        """Attach without a map."""
        self.connection = self.open_link(f"s{self.index}", router)
        self.is_replied = False
        self._up(
            inputs.SubscriberAttach(
                self.connection.link,
                *self.world.names("s", self.index),
                self.topic,
                None,
                False,
                SubscriptionMode.AT_MOST_ONCE,
                self.world.policy,
                TIMEOUT_S,
                peer=f"s{self.index}",
                place=self.connection.place,
                owner=self.world.owner(self.index),
                patience=self.world.patience,
                share=self.world.share_of(self.index),
                filter=self.filter,
                stores=self.world.stores(self.index),
            )
        )

    def crash(self, *, is_durable: bool = False) -> None:
        """It has no map to lose."""
        self.disconnect()

    def receive(self, effect: effects.Effect) -> None:
        """One frame of the router; the reply is the confirmation (A-6b)."""
        super().receive(effect)
        if isinstance(effect, effects.SubscriberReply):
            self.judge.on_reply_to_stock(self.index, effect.incarnation)

    def _on_delivery(self, delivery: effects.Deliver) -> None:
        self._on_settled_delivery(delivery)
