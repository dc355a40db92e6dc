"""What a source does about messages that never came (J-8), and about ones that would be gone too early. No Spark."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from bridges.node.errors import BadRequest, SubscriptionEnded, SubscriptionGap
from bridges.node.gaps import Gap
from bridges.node.interface import Node, Offsets

logger = logging.getLogger("oncewire.spark")

MIN_AT_MOST_ONCE_RETENTION_S = 60.0
"""At-most-once gives messages up before it reads them, so they must stay for a while after."""


def check_retention(node: Node, subscription: str) -> None:
    """Refuse to read at most once what is gone before it is read.

    Raises:
        BadRequest: the node keeps messages for too short a time.
    """
    retention_s = float(node.status()["subscriptions"][subscription]["retention_s"])
    if retention_s < MIN_AT_MOST_ONCE_RETENTION_S:
        raise BadRequest(
            f"the subscription {subscription!r} cannot be read at most once",
            f"the node keeps messages for {retention_s:g} s after they were released, which is before they are read",
            f"set its retention (retention_s, or the option retentionMs) to {MIN_AT_MOST_ONCE_RETENTION_S:g} s or more",
        )


def check_not_ended(found: Offsets, name: str) -> None:
    """Refuse to wait for messages that nobody receives (J-14). Call it when all that was received is read.

    Raises:
        SubscriptionEnded: the node does not receive the subscription any more.
    """
    if found.ended:
        raise SubscriptionEnded(
            f"no more messages come from subscription {name!r}",
            f"the bridge node does not receive it any more: {found.ended}",
            "start the query again to subscribe anew; it fails where messages are missing, unless failOnDataLoss=false",
        )


def check_gaps(gaps: Sequence[Gap], name: str, *, fails: bool) -> None:
    """Refuse to skip missing messages of a subscription; or log it.

    Raises:
        SubscriptionGap: there are some, and it `fails`.
    """
    for gap in gaps:
        noted = datetime.fromtimestamp(gap.noted_us / 1_000_000, UTC).isoformat(" ", "seconds")
        what = f"messages of topic {gap.topic!r} are missing from subscription {name!r}"
        why = (
            f"between the positions {gap.position} and {gap.position + 1}: the bridge node was disconnected for longer "
            f"than its timeout_s, or its subscription had been ended; it was created again, noted at {noted}"
        )
        if fails:
            raise SubscriptionGap(
                what,
                why,
                "to continue without them start the query with failOnDataLoss=false until it has passed that position; "
                "a longer timeout_s (subscriptionTimeout) of the node avoids it",
            )
        logger.warning("%s %s; failOnDataLoss is false", what, why)
