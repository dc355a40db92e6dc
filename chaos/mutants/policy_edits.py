"""Edits of what topics' policies decide (rules I-3d and E-4a)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

POLICY_EDITS: tuple[Edit, ...] = (
    Edit(
        "refused-after-the-move", "I-3d",
        "        elif not slot.processed and not slot.repeated:\n",
        "        elif not slot.processed:\n",
        "a message that a subscription has processed and left is rejected by the publisher's next router",
        aim=("drop-p", "expire-s", "on_empty=3", "stock_publisher=0", "presettled_publisher=0", "settled_subscriber=0"),
    ),
    Edit(
        "refused-after-it-was-sent", "I-3d",
        "        if slot.verdict is None and not slot.processed and not (self._exactly_once or slot.repeated):\n",
        "        if slot.verdict is None and not slot.processed:\n",
        "a message that a subscription was sent is rejected when that subscription ends, though it may be processed",
        aim=("expire-s", "on_empty=3", "stock_publisher=0", "presettled_publisher=0", "settled_subscriber=0"),
    ),
    Edit(
        "accepted-though-rejected", "I-3d",
        "OnEmpty.RELEASE: DeliveryOutcome.RELEASED, OnEmpty.REJECT: DeliveryOutcome.REJECTED\n",
        "OnEmpty.RELEASE: DeliveryOutcome.RELEASED, OnEmpty.REJECT: None\n",
        "a message that nobody gets is accepted, and its topic's policy rejects such messages",
        aim=("drop-s", "on_empty=3", "late_joiner=1", "subscribers=1", "presettled_publisher=0"),
    ),
    Edit(
        "done-too-early", "E-4a",
        "        if entry.failed >= self.policy.max_attempts:\n",
        "        if entry.failed + 1 >= self.policy.max_attempts:\n",
        "a delivery counts as rejected before its subscription has failed as often as the policy allows",
        aim=(
            "drop-p", "attempts=3", "refuses=1", "shipped=0", "stock_publisher=0", "presettled_publisher=0",
            "settled_subscriber=0",
        ),
    ),
    Edit(
        "failed-attempts-die-with-the-ingress", "E-4a",
        "        if failed:\n            entry.attempt += 1\n",
        "",
        "a delivery is sent as if it had not failed, although it failed before its publisher's router crashed",
        aim=(
            "drop-p", "crash", "refuses=1", "shipped=0", "routers=2", "stock_publisher=0", "presettled_publisher=0",
            "settled_subscriber=0",
        ),
    ),
    Edit(
        "failed-attempts-are-not-stated", "E-4a",
        "            nack = Nack(entry.sync.epoch, entry.sync.named, entry.number, failed, entry.attempt, delay_ms)\n",
        "            nack = Nack(entry.sync.epoch, entry.sync.named, entry.number, failed, 0, delay_ms)\n",
        "a delivery that its subscription fails is tried again without end while its publisher moves",
        aim=(
            "drop-p", "attempts=2", "refuses=1", "shipped=0", "routers=2", "stock_publisher=0",
            "presettled_publisher=0", "settled_subscriber=0",
        ),
    ),
    Edit(
        "presented-failures-are-not-counted", "E-4a",
        "        if outcome is DeliveryOutcome.MODIFIED_FAILED:\n",
        "        if False:\n",
        "a subscriber that fails, and loses its router before that hears of it, is sent the delivery without end",
        aim=(
            "trim-s", "attempts=3", "refuses=1", "shipped=0", "stock_publisher=0", "presettled_publisher=0",
            "settled_subscriber=0", "stock_subscriber=0",
        ),
    ),
    Edit(
        "next-attempt-too-early", "E-4a",
        "            delay = min(nack.delay_ms / 1000, self.policy.retry_cap_s)\n",
        "            pass\n",
        "a subscriber that asked for time gets the delivery again before it",
        aim=("drop-p", "delay_ms=4000", "refuses=1", "shipped=0", "presettled_publisher=0", "settled_subscriber=0"),
    ),
)  # fmt: skip
