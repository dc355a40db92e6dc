"""Why an attach is refused before the record core hears of it (A-8)."""

from __future__ import annotations

from collections.abc import Sequence

QUEUE = "queue"
SHARED = "shared"
RESERVED_PREFIX = "$"


class LinkRefusal(Exception):
    """The attach cannot be granted.

    Attributes:
        condition: the AMQP error condition the client hears.
        description: one sentence for its user.
    """

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description


def refuse_unless_topic(address: str | None, capabilities: Sequence[str]) -> None:
    """Refuse what is not a topic subscription or a topic.

    Raises:
        LinkRefusal: a queue, a shared subscription or a reserved address was asked for.
    """
    if QUEUE in capabilities:
        raise LinkRefusal("amqp:not-implemented", "queues are not offered here; every address is a topic")
    if SHARED in capabilities:
        raise LinkRefusal(
            "amqp:not-implemented", "shared subscriptions are not offered; subscribe exclusively"
        )
    if address is not None and address.startswith(RESERVED_PREFIX):
        raise LinkRefusal("amqp:not-found", f"there is no node {address!r}; addresses with $ are reserved")
