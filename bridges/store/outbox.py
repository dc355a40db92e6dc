"""Messages for topics: written by the transaction that decides on them, sent by outbox_publisher.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridges.store import statements as sql
from bridges.store.crash_points import CrashPoint, passed
from oncewire.store.errors import InvalidRequest
from oncewire.store.rules_core import check_count, check_message, check_topic, to_us
from oncewire.store.store import Transaction

MAX_TOPICS = 256
"""Topics that one store publishes to: each is a link of its publisher."""
OUTBOX_NOTICE = " outbox"
"""Announced like a queue whose items are ready (W-13); no queue can have this name."""


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be published to a topic.

    Attributes:
        topic: where it goes.
        payload: the encoded AMQP message; `new_message` encodes it.
    """

    topic: str
    payload: bytes


def publish(do: Transaction, messages: Sequence[NewMessage]) -> None:
    """Publish messages to topics if this transaction commits (W-21); `OutboxPublisher` sends them."""
    check_count(len(messages))
    by_topic: dict[str, list[bytes]] = {}
    for message in messages:
        check_topic(message.topic)
        check_message(message.payload)
        by_topic.setdefault(message.topic, []).append(message.payload)
    for topic in sorted(by_topic):  # all transactions lock topics in this order
        _add(do, topic, by_topic[topic])
    do.touched.add(OUTBOX_NOTICE)
    passed(CrashPoint.OUTBOX_WRITTEN)


def _add(do: Transaction, topic: str, payloads: Sequence[bytes]) -> None:
    """W-21: the topic's numbers follow the order of the commits."""
    ((assigned,),) = do.execute(sql.ASSIGN, (topic, len(payloads)))
    first = assigned - len(payloads)
    if first == 0 and do.execute(sql.COUNT_TOPICS)[0][0] > MAX_TOPICS:
        raise InvalidRequest(
            f"nothing was published to the topic {topic!r}",
            f"messages of this store go to {MAX_TOPICS} topics already",
            "use fewer topics, or another store for some of them",
        )
    created = to_us(do.now)
    do.write_many(sql.PUT_ROW, [(topic, number, payload, created) for number, payload in enumerate(payloads, first)])
