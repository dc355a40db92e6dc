"""What a bridge node gets from the network: messages of publishers of several kinds, copies of them, a subscription."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from oncewire.client.transactions.sequence_header import Producer, ProducerId, SequenceHeader
from oncewire.wire import Message, encode_message, vocabulary

TOPIC = "orders"
BORN_MS = 1
PRODUCER = "till"
"""Of several users: a name is its user's (J-13)."""
COPY_SHARE = 0.3
LATE_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Sent:
    """One message.

    Attributes:
        body: its own, which copies share; empty = the end of a transaction.
        payload: as it is encoded.
        incarnation: of the subscription that owes it.
    """

    body: bytes
    payload: bytes
    incarnation: int


@dataclass
class Link:
    """The subscription of one node.

    Attributes:
        unsettled: by delivery-tag, in order, what it owes the node.
        incarnation: of the subscription; 0 = the network has deleted it.
        has_missed: messages were published while there was none.
    """

    unsettled: dict[bytes, Sent] = field(default_factory=dict)
    incarnation: int = 1
    has_missed: bool = False


class Network:
    """Publishers, and one subscription for each node."""

    def __init__(
        self, random: Random, nodes: int, users: tuple[str, ...], *, has_transactions: bool, has_logins: bool = True
    ) -> None:
        self.random = random
        self.links = [Link() for _ in range(nodes)]
        self.counting: set[bytes] = set()
        """Bodies that must be read: of all but what was rolled back, or was missed."""
        self.never: set[bytes] = set()
        """Bodies of what was rolled back, or is not decided yet."""
        self.has_logins = has_logins
        self._users = users
        self._has_transactions = has_transactions
        self._producers = {user: Producer(ProducerId(PRODUCER, BORN_MS)) for user in users}
        self._numbers = self._tags = 0
        self._late: list[tuple[bytes, SequenceHeader, str]] = []
        self.incarnations = 1

    def publish(self) -> None:
        """Some messages: plain ones, numbered ones, a transaction; and now and then a copy of what was sent before."""
        kind = self.random.randrange(3)
        if kind == 0:
            self._send(self._body(), None, "")
        elif kind == 1 or not self._has_transactions:
            user = self.random.choice(self._users)
            made = [(self._body(), self._producers[user].alone()) for _ in range(self.random.choice((1, 3)))]
            self.random.shuffle(made)  # a later one may overtake an earlier one over a failover
            for body, header in made:
                self._send(body, header, user)
        else:
            self._transact(self.random.choice(self._users))
        while self._late and self.random.random() < COPY_SHARE:
            body, header, user = self._late.pop(self.random.randrange(len(self._late)))
            self._owe(body, self._encoded(body, header, user))

    def _transact(self, user: str) -> None:
        producer = self._producers[user]
        bodies = [self._body() for _ in range(self.random.randint(1, 3))]
        self.never.update(bodies)
        self.counting.difference_update(bodies)
        for body in bodies:
            self._send(body, producer.pending(), user)
        commits = self.random.random() < 0.6
        self._send(b"", producer.ack() if commits else producer.rollback(), user)
        if commits:
            self.never.difference_update(bodies)
            self.counting.update(bodies)

    def _body(self) -> bytes:
        self._numbers += 1
        body = b"%d" % self._numbers
        self.counting.add(body)
        return body

    def _send(self, body: bytes, header: SequenceHeader | None, user: str) -> None:
        self._owe(body, self._encoded(body, header, user))
        if header is not None and self.random.random() < LATE_SHARE:
            self._late.append((body, header, user))

    def _encoded(self, body: bytes, header: SequenceHeader | None, user: str) -> bytes:
        annotations = {} if header is None else header.annotations()
        if user and self.has_logins:
            annotations[vocabulary.USER] = user
        return encode_message(Message(body, annotations=annotations))

    def _owe(self, body: bytes, payload: bytes) -> None:
        for link in self.links:
            self._tags += 1
            if link.incarnation:
                link.unsettled[b"%06d" % self._tags] = Sent(body, payload, link.incarnation)
            else:
                link.has_missed = True
                self.counting.discard(body)

    # --- the subscription ---------------------------------------------------------------------------------------------

    def delete(self, link: Link) -> None:
        """The network, or an operator, deletes a subscription: it owes nothing any more."""
        link.incarnation = 0
        self.counting.difference_update(sent.body for sent in link.unsettled.values())
        link.has_missed = link.has_missed or bool(link.unsettled)
        link.unsettled.clear()

    def attach(self, link: Link) -> int:
        """A node is there: what it is owed from now on is of this incarnation."""
        if not link.incarnation:
            self.incarnations += 1
            link.incarnation = self.incarnations
        return link.incarnation
