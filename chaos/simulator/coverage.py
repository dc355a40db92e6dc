"""Situations a campaign must meet: what is never met has not been tested.

Two sources: what the worlds notice (`SOMETIMES`), and the decisions record cores count themselves (`Decision`), but
for those of `NEVER`, which no simulated world can lead to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delivery_records.model.outcomes import Decision

THIRD_ROUTER = "a client resumed at a third router while another router was down"
DEAD_PUT = "a put arrived after the death of the router that had sent it"
UNKNOWN_PUT = "a put was carried out and its answer was lost"
TOGETHER = "several writes were carried out in one transaction"
VETTED = "what was read after the fence deadline was thrown away"
FENCED = "a router fenced itself while its lease was still good"
LEASE_FIRST = "a lease ended while its router stood still"
SURVIVED_CUT = "a router was cut off from etcd and came back before its fence deadline"
ALL_DOWN = "all routers were down at once"
OVERLAP = "a router failed while another one was down"
RELOADED = "a view was loaded again with changes its watch had not shown"
TORN = "a client crashed with a transaction that was durable and not yet reported"
BODY_AGAIN = "a restarted subscriber was sent the body of a delivery it had before"
GIVEN_UP = "a restarted subscriber was notified that a delivery will not come again"
EXPIRY_RACE = "an acceptance was reported while a subscription it had waited for was gone"
IN_DOUBT = "a publisher sent again, marked in doubt, what an expired session had left"
COPY_DROPPED = "a subscriber was sent a copy of what it was done with, and dropped it"
COPY_WAITED = "a subscriber was sent a copy of what its application had, and kept it back"
REPLACED = "a publisher's process that was paused attached beside the one that had replaced it"
OUTRUN = "a client was attached at two routers at once"
LATE_READ = "a router read frames of a connection its client had left"
DYING_READ = "a client read frames of a router that was dead"
LEFT_AT_REST = "a client without a map left a draining router with everything settled"
DRAIN_LIMIT = "the limit of a drain was over before all was settled"
ENDED_BY_OPERATOR = "an operator ended a subscription"
KEPT_SESSION = "a client was detached and kept its AMQP session"
SAME_SESSION = "a client attached again in the AMQP session it had kept"
ENDED_REPORTED = "an acceptance was reported behind the report of a subscription that had ended without the message"
ONLY_STORED = "a message was accepted that subscriptions have stored, and none has processed"
TOO_FEW = "a message was released because there were fewer subscriptions than its publisher requires"
NOBODY = "a message was refused by its topic's policy, because no subscription matched"
SHARED_EXPIRED = "a message expired before a member of a shared subscription took it"
MEMBER_ENDED = "a member of a shared subscription ended"
SHARED_ENDED = "a shared subscription ended"
SHARED_TWICE = "a message was processed by two members, because one had ended with it"
GROUPED = "a member processed the next message of a group"
LETTER = "a dead-letter subscriber was sent a letter"
LETTER_FIRST = "a publisher was notified of a message that was rejected, behind its dead letter"
ONCE_IS_ONCE = "a message that was sent at most once had to arrive, for nothing failed"
ORDER_TOO_LATE = "a subscription was attached again before an operator could end it"

SOMETIMES = (
    THIRD_ROUTER,
    DEAD_PUT,
    UNKNOWN_PUT,
    TOGETHER,
    VETTED,
    FENCED,
    LEASE_FIRST,
    SURVIVED_CUT,
    ALL_DOWN,
    OVERLAP,
    RELOADED,
    TORN,
    BODY_AGAIN,
    GIVEN_UP,
    EXPIRY_RACE,
    IN_DOUBT,
    COPY_DROPPED,
    COPY_WAITED,
    REPLACED,
    OUTRUN,
    LATE_READ,
    DYING_READ,
    LEFT_AT_REST,
    DRAIN_LIMIT,
    ENDED_BY_OPERATOR,
    ORDER_TOO_LATE,
    KEPT_SESSION,
    SAME_SESSION,
    ENDED_REPORTED,
    ONLY_STORED,
    TOO_FEW,
    NOBODY,
    MEMBER_ENDED,
    SHARED_ENDED,
    SHARED_TWICE,
    GROUPED,
    LETTER,
    LETTER_FIRST,
    SHARED_EXPIRED,
    ONCE_IS_ONCE,
)

NEVER: Mapping[Decision, str] = {
    Decision.PUBLISHER_NEVER_SETTLES: "every simulated publisher settles",
    Decision.TRANSFER_NOT_ACTIVE: "simulated publishers send on credit only",
    Decision.TRANSFER_ABORTED: "small transfers are whole in the simulator",
    Decision.TRANSFER_RESUME_IGNORED: "simulated publishers resume what the reply's map has",
    Decision.TRANSFER_MALFORMED: "messages are not read in the simulator",
    Decision.FILTER_TOO_COSTLY: "messages are not read in the simulator",
    Decision.ANNOTATIONS_REFUSED: "simulated subscribers add a few bytes",
    Decision.TRANSFER_TAG_IN_USE: "simulated publishers keep to P-2",
}
"""Decisions that wait for clients of another kind, with the reason."""


def expected() -> list[str]:
    """Everything a campaign must have met."""
    return [*SOMETIMES, *(decision.value for decision in Decision if decision not in NEVER)]


def missed(met: Mapping[str, Any]) -> list[str]:
    """What of `expected()` was not met."""
    return [name for name in expected() if not met.get(name)]
