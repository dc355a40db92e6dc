"""Simulated clients of today: they keep no unsettled map over a reconnect (protocol c.3, c.5)."""

from __future__ import annotations

from collections.abc import Mapping

from chaos.simulator.connections import OpenLink, PartlyReceived
from chaos.simulator.judge import Judge
from chaos.simulator.marks import OUTCOMES, Mark
from chaos.simulator.publishers import Publisher
from chaos.simulator.roles import Keeps
from chaos.simulator.state import TIMEOUT_S, WorldState
from chaos.simulator.steps import Choice
from chaos.simulator.subscribers import Arrived, Subscriber
from delivery_records.model import effects, inputs
from delivery_records.model.outcomes import DeliveryOutcome, Reported
from delivery_records.model.view import SubscriptionMode

_REFUSED = ("oncewire:session-expired", "oncewire:unsettled-unknown")
EMPTY_TAG = b""
"""2.8.7: up to 32 bytes, and no minimum."""


class StockPublisher(Publisher):
    """A null map: what has no outcome yet is sent again as a new message, in a new session."""

    keeps = Keeps.NO_MAP

    def __init__(self, world: WorldState, judge: Judge, open_link: OpenLink, index: int, messages: int) -> None:
        """Send `messages` messages in all."""
        super().__init__(world, judge, open_link, index, messages)
        self._tags: dict[int, bytes] = {}

    def tag(self, number: int) -> bytes:
        """Tags count the transfers of a link, as stock libraries do."""
        return self._tags[number]

    def connect(self, router: int) -> None:
        """Attach without a map."""
        self.connection = self.open_link(f"p{self.index}", router)
        self.resend, self.limit, self.sent, self.is_replied = [], 0, 0, False
        self._ids.clear()
        self._tags.clear()
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

    def quit(self, how: int) -> None:
        """End the link right behind what was sent: detach (0), close it (1), end the session (2) or connection (3)."""
        connection = self.connection
        if connection is None or not self.is_replied or self.is_closing or connection.has_ended:
            return
        connection.has_ended = True
        self.parts.drop()
        cause = {2: inputs.LossCause.SESSION_END, 3: inputs.LossCause.CONNECTION_LOSS}.get(how, inputs.LossCause.DETACH)
        connection.up.append(inputs.LinkDetach(connection.link, how == 1, cause))
        if how >= 2:
            connection.up.append(inputs.EndpointEnded(connection.place.amqp_session))

    def send(self) -> None:
        """Name the transfer, then send it."""
        number = self.resend[0] if self.resend else self.next
        in_use = {self._tags.get(unsettled) for unsettled in self.map}
        is_free = self.world.traits.reuses_tags and EMPTY_TAG not in in_use
        self._tags[number] = EMPTY_TAG if is_free else (self.sent + 1).to_bytes(4, "big")
        super().send()

    def receive(self, effect: effects.Effect) -> None:
        """One frame of the router."""
        if isinstance(effect, effects.PublisherReply) and not self.is_closing:
            self.is_replied = True
            self.resend = list(self.map)
            self.judge.may_come_again((self.index, number) for number in self.resend)
        else:
            super().receive(effect)


class ResumingPublisher(Publisher):
    """Presents its map without the capability, and goes by the map of the reply (2.6.13, 3.4.6).

    What the reply names it resumes, what it does not name it sends as a new delivery, under a new tag. Like a known
    client it keeps its map in no particular order. Refused, it sends all of it as new messages.
    """

    keeps = Keeps.OWN_MAP

    def __init__(self, world: WorldState, judge: Judge, open_link: OpenLink, index: int, messages: int) -> None:
        """Send `messages` messages in all."""
        super().__init__(world, judge, open_link, index, messages)
        self._tags: dict[int, bytes] = {}
        self._named = 0
        """Tags that it has used."""
        self._resuming: list[int] = []
        self._peer = ""
        """Of this connection."""
        self._is_refused = False
        self._is_overtaken = False

    def tag(self, number: int) -> bytes:
        """The newest tag of a message."""
        return self._tags[number]

    def connect(self, router: int) -> None:
        """Attach with the map; without it where a router has refused that."""
        self.connection = self.open_link(f"p{self.index}", router)
        self.resend, self._resuming, self.limit, self.sent, self.is_replied, self._ids = [], [], 0, 0, False, {}
        self._peer = f"p{self.index}@{self.connection.link}"
        self._presented = [] if self._is_refused else [*reversed(self.map)]
        for number in self._presented:
            self.judge.policies.on_presented(self.index, number)
        self._up(
            inputs.PublisherAttach(
                self.connection.link,
                *self.world.names("p", self.index),
                self.world.topic(self.index),
                {self.tag(number): None for number in self._presented},
                timeout_s=TIMEOUT_S,
                peer=self._peer,
                expiry_policy=self.world.policy,
                place=self.connection.place,
                owner=self.world.owner(self.index),
            )
        )

    def can_send(self) -> bool:
        """Also what is to be resumed."""
        return super().can_send() or (self.has_credit() and bool(self._resuming))

    def send(self) -> None:
        """Resume first; then what the router does not have, and new messages, under new tags."""
        if not self._resuming:
            self._named += 1
            self._tags[self.resend[0] if self.resend else self.next] = self._named.to_bytes(4, "big")
            super().send()
            return
        assert self.connection is not None
        number = self._resuming.pop(0)
        self.world.disturbances += 1
        self.sent += 1
        self._ids[self.sent] = number
        body = self.world.body(self.index, number)
        self._up(inputs.PublisherTransfer(self.connection.link, self.sent, self.tag(number), body, resume=True))

    def receive(self, effect: effects.Effect) -> None:
        """One frame of the router."""
        if isinstance(effect, effects.PublisherReply) and not self.is_closing:
            self._on_map(effect.unsettled or {})
            return
        if isinstance(effect, effects.DetachLink) and effect.condition in _REFUSED and not self.is_closing:
            if effect.condition == "oncewire:session-expired":
                self.judge.sessions.on_session_expired(self.index)
            self._is_refused = True
            self.disconnect()
            return
        super().receive(effect)

    def _on_map(self, known: Mapping[bytes, Reported | None]) -> None:
        self.is_replied = True
        for number in [*reversed(self.map)]:
            tag = self.tag(number)
            if tag not in known:
                self.resend.insert(0, number)
                if self._is_refused or self._is_overtaken:
                    self.judge.may_come_again([(self.index, number)])
            elif (reported := known[tag]) is None:
                self._resuming.append(number)
            else:
                self._on_stated(number, reported.outcome)
        self._is_refused = False

    def on_session_begun(self, peer: str) -> None:
        """An attach without a map begins another session; one that it had left does so behind its back (c.5)."""
        self._is_overtaken = self._is_overtaken or self.connection is None or peer != self._peer

    def _on_stated(self, number: int, outcome: DeliveryOutcome) -> None:
        """It has reached its outcome at the router: it is settled here, without a frame (3.4.6)."""
        if outcome is DeliveryOutcome.ACCEPTED:
            self.judge.on_accepted(self.index, number)
        else:
            self.judge.on_refused(self.index, number, outcome)
            self.given_up.add(number)
        self._settled(number)


class StockSubscriber(Subscriber):
    """A null map: settles as it answers, and forgets with its connection what it has not answered."""

    keeps = Keeps.NO_MAP

    def __init__(self, world: WorldState, judge: Judge, open_link: OpenLink, index: int, prefetch: int) -> None:
        """Allow `prefetch` deliveries that are not accepted yet (C-3)."""
        super().__init__(world, judge, open_link, index, prefetch)
        self.done_here: set[tuple[int, int]] = set()
        """Messages it has finished on this link."""

    def connect(self, router: int) -> None:
        """Attach without a map."""
        self.connection = self.open_link(f"s{self.index}", router)
        self.is_replied = False
        self.done_here.clear()
        self._up(
            inputs.SubscriberAttach(
                self.connection.link,
                *self.world.names("s", self.index),
                self.topic,
                None,
                False,
                SubscriptionMode.AT_LEAST_ONCE,
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

    def receive(self, effect: effects.Effect) -> None:
        """One frame of the router; the reply is the confirmation (A-6b)."""
        super().receive(effect)
        if isinstance(effect, effects.SubscriberReply):
            self.judge.on_reply_to_stock(self.index, effect.incarnation)

    def disconnect(self) -> None:
        """Whatever was not answered will come again."""
        super().disconnect()
        self.map.clear()
        self.again.clear()

    def choices(self) -> list[Choice]:
        """As others; and it may refuse what it has not read to its end."""
        found = super().choices()
        partly = self._partly()
        if self.world.traits.refuses and partly is not None and not partly.is_answered and self._oldest() is None:
            found.append(("s.early", self.index))
        return found

    def _partly(self) -> PartlyReceived | None:
        return None if self.connection is None or self.is_closing else self.connection.partly

    def refuse_early(self) -> None:
        """L-3: the answer may cross an abort, and counts for nothing then: it may come again."""
        partly = self._partly()
        assert partly is not None
        partly.is_answered = True
        publisher, number = partly.body[0], int.from_bytes(partly.body[1:5], "big")
        tag, redelivered = partly.first.tag, partly.first.redelivered
        self.judge.may_come_again([(publisher, number)])
        self.judge.on_received(self.index, publisher, number, self.incarnation, self.world.body(publisher, number))
        self.map[tag] = Arrived(publisher, number, Mark.REJECTED, self.incarnation, redelivered)
        self._answer(tag, Mark.REJECTED)
        self.judge.on_processed(self.index, publisher, number, self.incarnation, redelivered)

    def _answer(self, tag: bytes, mark: Mark) -> None:
        entry = self.map.pop(tag)
        if OUTCOMES[mark].is_done:
            self.done_here.add((entry.publisher, entry.number))
        if self.connection is not None and self.is_replied:
            self._up(self._disposition(tag, entry, mark, settled=True))
            self._replenish()

    def _settle(self, tag: bytes) -> None:
        entry: Arrived | None = self.map.get(tag)
        if entry is not None:
            entry.mark = Mark.SETTLED
