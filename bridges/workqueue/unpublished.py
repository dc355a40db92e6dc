"""Messages of the outbox that ended otherwise than accepted: they stay until somebody decides (W-24)."""

from __future__ import annotations

from dataclasses import dataclass

from bridges.workqueue import sql_statements as sql
from bridges.workqueue.errors import UnknownEntry
from bridges.workqueue.items import NewMessage
from bridges.workqueue.rules_core import check_count
from bridges.workqueue.store import Operations
from oncewire.client import Outcome
from oncewire.client.sqlite_journal import outcome_from_text

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
