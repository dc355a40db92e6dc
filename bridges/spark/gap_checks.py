"""What a source does about messages that never came: the network had deleted its subscription (J-8). No Spark here."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from bridges.node.errors import SubscriptionGap
from bridges.node.gaps import Gap

logger = logging.getLogger("oncewire.spark")


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
            f"than its timeout_s, and its subscription was created again, noted at {noted}"
        )
        if fails:
            raise SubscriptionGap(
                what,
                why,
                "to continue without them start the query with failOnDataLoss=false until it has passed that position; "
                "a longer timeout_s (subscriptionTimeout) of the node avoids it",
            )
        logger.warning("%s %s; failOnDataLoss is false", what, why)
