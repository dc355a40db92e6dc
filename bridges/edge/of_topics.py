"""Between topics and the store of an edge: feeds, and the publisher of the outbox. One edge at a time runs each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridges.edge.of_queues import named, queue_name
from bridges.edge.part import Ground, Kind, Part, PartEnded, Row
from bridges.store.topic_link import TopicLink
from bridges.workqueue import Feed, OutboxPublisher, Queue, TakenOver
from bridges.workqueue.items import DEFAULT_PRIORITY, MAX_PRIORITY
from bridges.workqueue.unpublished import outbox_numbers
from oncewire.client.publisher import SESSION_TIMEOUT_S
from oncewire.settings.parsers import duration, whole_number, yes_or_no
from oncewire.settings.schema import REQUIRED, Setting
from oncewire.store.rules_core import check_topic

LONGEST_S = 0xFFFFFFFF
"""AMQP's longest time-out."""
OUTBOX = "outbox"
COPIES = (
    "Whether what a publisher sends again in a new session, as stock clients do, is stored once: by user and "
    "`message-id`, of each user the last 2,048 (D-3)."
)


class LinkPart(Part):
    """What a `TopicLink` does."""

    def __init__(self, name: str, link: TopicLink) -> None:
        """Own nothing yet."""
        super().__init__(name)
        self._link = link

    @property
    def trouble(self) -> str:
        """See Part."""
        return self._link.trouble

    @property
    def is_owner(self) -> bool:
        """See Part."""
        return self._link.is_owner

    @property
    def tenures(self) -> int:
        """See Part."""
        return self._link.tenures

    @property
    def done(self) -> int:
        """See Part."""
        return self._link.done

    async def run(self) -> None:
        """Run it, or stand by; an end of the subscription by an operator is final."""
        try:
            await self._link.run()
        except TakenOver as error:
            raise PartEnded(f"{error.why}; take it out of the settings, or change them to subscribe again") from error


class OutboxPart(LinkPart):
    """The publisher of the outbox."""

    def __init__(self, ground: Ground, name: str, values: Mapping[str, Any]) -> None:
        """Own nothing yet."""
        link = OutboxPublisher(
            ground.store,
            ground.routers,
            session_timeout=round(values["session_timeout"]),
            require=values["require"],
            tenure=ground.tenure,
            **ground.login,
        )
        super().__init__(name, link)
        self._store = ground.store

    async def rows(self) -> Row:
        """What waits for all topics together."""
        topics = await self._store.transact(outbox_numbers)
        return Row(
            depth=sum(each.unsent for each in topics),
            oldest_s=max((each.oldest_s for each in topics if each.oldest_s is not None), default=None),
            gauges={"unpublished": sum(each.unpublished for each in topics)},
        )


class FeedPart(LinkPart):
    """A feed."""

    def __init__(self, ground: Ground, name: str, values: Mapping[str, Any]) -> None:
        """Own nothing yet."""
        timeout = values["timeout"]
        self._feed = Feed(
            Queue(ground.store, values["queue"]),
            values["topic"],
            ground.routers,
            timeout=None if timeout is None else round(timeout),
            priority=values["priority"],
            drops_copies=values["drop_copies"],
            tenure=ground.tenure,
            **ground.login,
        )
        super().__init__(name, self._feed)

    @property
    def trouble(self) -> str:
        """See Part."""
        is_late = self.is_owner and not self._feed.subscribed.is_set()
        return super().trouble or ("it is not subscribed yet" if is_late else "")


def _topic(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    check_topic(value)
    return value


FEED = Kind(
    "feed",
    named(
        (
            Setting(
                "feed.topic", _topic, REQUIRED, "a topic or a pattern", "Each message of it becomes exactly one item."
            ),
            Setting(
                "feed.queue",
                queue_name,
                REQUIRED,
                "up to 128 printable characters",
                "The queue of the items; it is made if there is none.",
            ),
            Setting(
                "feed.priority",
                whole_number(0, MAX_PRIORITY),
                DEFAULT_PRIORITY,
                f"0 to {MAX_PRIORITY}",
                "Of the items.",
            ),
            Setting("feed.drop_copies", yes_or_no, False, "true or false", COPIES),
            Setting(
                "feed.timeout",
                duration(1, LONGEST_S),
                None,
                "a time such as 7d; empty = the longest that the network allows",
                "How long the network keeps the subscription while no edge runs the feed. Publishers wait meanwhile.",
            ),
        )
    ),
    lambda values: f"{values['topic']} to {values['queue']}",
    FeedPart,
)
PUBLISH = Kind(
    "publish",
    named(
        (
            Setting(
                "publish.require",
                whole_number(0, LONGEST_S),
                0,
                "0 to 4294967295 subscriptions",
                "Messages wait until their topic has so many. 0: without one they count as published.",
            ),
            Setting(
                "publish.session_timeout",
                duration(1, LONGEST_S),
                float(SESSION_TIMEOUT_S),
                "a time such as 24h",
                "How long the network keeps the sessions while no edge publishes.",
            ),
        )
    ),
    lambda _values: OUTBOX,
    OutboxPart,
    is_single=True,
)
