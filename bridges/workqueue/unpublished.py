"""What is in the outbox: what waits to be published (W-27), and what ended otherwise than accepted (W-24).

The latter stays until somebody decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridges.store import statements as sql
from bridges.store.outbox import NewMessage
from bridges.store.outbox_publisher import NAME
from bridges.workqueue.errors import UnknownEntry
from bridges.workqueue.sql_operations import COUNT_LIMIT
from bridges.workqueue.store import Operations
from oncewire.client import Outcome
from oncewire.client.sqlite_journal import outcome_from_text
from oncewire.store.owners import lease_left
from oncewire.store.rules_core import check_count, to_s

MAX_LISTED = 1000


@dataclass(frozen=True, slots=True)
class Unpublished:
    """A message with another outcome than accepted.

    Attributes:
        topic: where it was sent.
        number: of it in its topic.
        payload: the encoded AMQP message.
        outcome: what became of it. After *unknown* it may have been received or not.
    """

    topic: str
    number: int
    payload: bytes
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class OutboxTopic:
    """What the outbox has for one topic; counts stop at `count_limit`.

    Attributes:
        topic: of the messages.
        unsent: messages that wait for their outcome.
        oldest_s: how long the first of them has waited; None = none waits. What an earlier version wrote has no time.
        unpublished: messages that ended otherwise than accepted.
        has_publisher: whether a process publishes them.
        count_limit: where counting stops.
    """

    topic: str
    unsent: int
    oldest_s: float | None
    unpublished: int
    has_publisher: bool
    count_limit: int = COUNT_LIMIT


def outbox_numbers(do: Operations) -> list[OutboxTopic]:
    """Return the outbox in numbers, by topic; for `Queue.transact` (W-27)."""
    has_publisher = bool(lease_left(do, NAME))
    return [
        OutboxTopic(topic, unsent, None if since is None else max(0.0, do.now - to_s(since)), ended, has_publisher)
        for topic, unsent, since, ended in do.execute(sql.OUTBOX_NUMBERS, (COUNT_LIMIT, COUNT_LIMIT))
    ]


def list_unpublished(do: Operations, limit: int = MAX_LISTED) -> list[Unpublished]:
    """Return such messages, by topic and number; for `Queue.transact`.

    Raises:
        InvalidRequest: the limit is over 1000.
    """
    check_count(limit)
    return [
        Unpublished(topic, number, bytes(payload), outcome_from_text(outcome))
        for topic, number, payload, outcome in do.execute(sql.ENDED_ROWS, (limit,))
    ]


def publish_again(do: Operations, topic: str, number: int) -> None:
    """Publish one of them again, as a new message behind all others of its topic; for `Queue.transact`.

    Raises:
        UnknownEntry: there is none of that number, or none any more.
    """
    payload = drop_unpublished(do, topic, number)
    do.publish([NewMessage(topic, payload)])


def drop_unpublished(do: Operations, topic: str, number: int) -> bytes:
    """Delete one of them and return its payload; for `Queue.transact`.

    Raises:
        UnknownEntry: there is none of that number, or none any more.
    """
    rows = do.execute(sql.DELETE_ENDED, (topic, number))
    if not rows:
        raise UnknownEntry(
            f"there is no unpublished message {number} for the topic {topic!r}",
            "it was published, waits to be, or was decided on before",
            "list them with `oncewire queue unpublished`",
        )
    return bytes(rows[0][0])
