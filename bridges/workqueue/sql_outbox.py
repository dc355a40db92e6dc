"""Messages for topics in the SQL stores: written by the transaction that decides on them, sent by outbox.py."""

from __future__ import annotations

from collections.abc import Sequence

from bridges.workqueue import sql_statements as sql
from bridges.workqueue.crash_points import CrashPoint, passed
from bridges.workqueue.errors import InvalidRequest
from bridges.workqueue.items import NewMessage
from bridges.workqueue.rules_core import check_count, check_message, check_topic
from bridges.workqueue.sql_base import SqlTransaction

MAX_TOPICS = 256
"""Topics that one store publishes to: each is a link of its publisher."""
OUTBOX_NOTICE = " outbox"
"""Announced like a queue whose items are ready (W-13); no queue can have this name."""


class SqlOutbox(SqlTransaction):
    """Publish; see Operations."""

    def publish(self, messages: Sequence[NewMessage]) -> None:
        """Add messages to the outbox; see Operations."""
        check_count(len(messages))
        by_topic: dict[str, list[bytes]] = {}
        for message in messages:
            check_topic(message.topic)
            check_message(message.payload)
            by_topic.setdefault(message.topic, []).append(message.payload)
        for topic in sorted(by_topic):  # all transactions lock topics in this order
            self._add(topic, by_topic[topic])
        self.touched.add(OUTBOX_NOTICE)
        passed(CrashPoint.OUTBOX_WRITTEN)

    def _add(self, topic: str, payloads: Sequence[bytes]) -> None:
        """W-21: the topic's numbers follow the order of the commits."""
        ((assigned,),) = self.execute(sql.ASSIGN, (topic, len(payloads)))
        first = assigned - len(payloads)
        if first == 0 and self.execute(sql.COUNT_TOPICS)[0][0] > MAX_TOPICS:
            raise InvalidRequest(
                f"nothing was published to the topic {topic!r}",
                f"messages of this store go to {MAX_TOPICS} topics already",
                "use fewer topics, or another store for some of them",
            )
        for number, payload in enumerate(payloads, first):
            self.execute(sql.PUT_ROW, (topic, number, payload, self._now_us))
