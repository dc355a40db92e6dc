"""What a link can promise at its peer, and what is different at a peer that is no Oncewire router.

Our routers offer `topic-exactly-once` in their open. A peer that does not is a broker: a link that asks for what only
our routers do is refused before it is attached there, others leave out what brokers do not know.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from oncewire.client.source_terms import SourceTerms
from oncewire.wire import RESOURCE_LOCKED, AmqpError, Open, ReceiverSettleMode, Source, Symbol, vocabulary

LACKS = "it does not offer the capability topic-exactly-once"
OTHERWISE = "connect to an Oncewire router, or open the subscriber with exactly_once=False"
PRODUCT = Symbol("product")
RABBITMQ = "RabbitMQ"
"""It repeats the selector of a queue's consumer in its reply, and does not apply it (4.0)."""


class Guarantee(Enum):
    """What a link promises, as it is attached now."""

    EXACTLY_ONCE = "exactly once"
    """Each subscription processes each message once. A publisher's message is accepted when all of them have."""
    AT_LEAST_ONCE = "at least once"
    """The same, but a message may come twice after a lost connection."""
    BROKER_AT_LEAST_ONCE = "at least once, by a broker"
    """The peer is no Oncewire router. A publisher's message is accepted when the broker has taken it, by the broker's
    rules; subscribers may not have seen it. A message may come twice after a lost connection."""
    AT_MOST_ONCE = "at most once"
    """Messages are sent settled: none comes twice, and some may be lost."""


class Peer(NamedTuple):
    """What a connection leads to.

    Attributes:
        is_network: it is an Oncewire router.
        product: its name of itself; empty if it gives none.
    """

    is_network: bool
    product: str = ""

    @property
    def receiver_settles(self) -> int:
        """The rcv-settle-mode to ask for. RabbitMQ ends the session of a link that asks for the mode second."""
        return ReceiverSettleMode.SECOND if self.is_network else ReceiverSettleMode.FIRST

    def guarantee(self, *, exactly_once: bool) -> Guarantee:
        """Of a link that is not settled."""
        if not self.is_network:
            return Guarantee.BROKER_AT_LEAST_ONCE
        return Guarantee.EXACTLY_ONCE if exactly_once else Guarantee.AT_LEAST_ONCE

    def source(self, terms: SourceTerms, topic: str) -> Source:
        """What a subscriber attaches to. A queue of a broker would show copies of its messages only, and keep them."""
        source = terms.source(topic)
        return source if self.is_network else replace(source, distribution_mode=None)

    def keeps_for_others(self, error: AmqpError) -> bool:
        """Whether a shared subscription stays behind a close because others use it, which our routers do not report."""
        return not self.is_network and error.condition == RESOURCE_LOCKED

    def lacks(self, terms: SourceTerms) -> tuple[str, str] | None:
        """Why a subscriber cannot be attached here, and what to do; None: its reply decides."""
        if self.is_network:
            return None
        if terms.exactly_once:
            return LACKS, OTHERWISE
        if terms.start is not None:
            return "no broker has journals", "connect to an Oncewire router, or read a topic"
        if terms.timeout_s is not None and not terms.settled:
            why = f"no broker keeps a subscription for {terms.timeout_s} s: some end it with the connection"
            return why, "open it with timeout=None, which keeps it until it is closed or unsubscribed, or settled=True"
        if terms.by_group:
            why = "brokers do not keep the messages of one group in order"
            return why, "connect to an Oncewire router, or leave by_group out"
        if terms.selector is not None and self.product == RABBITMQ:
            why = "RabbitMQ sends messages that the selector excludes"
            return why, "connect to an Oncewire router, or leave selector out and bind a queue by routing key"
        return None


def peer_of(remote: Open | None) -> Peer:
    """What the peer's open says of it; None: it has not opened."""
    if remote is None:
        return Peer(is_network=False)
    return Peer(vocabulary.EXACTLY_ONCE in remote.offered_capabilities, str((remote.properties or {}).get(PRODUCT, "")))
