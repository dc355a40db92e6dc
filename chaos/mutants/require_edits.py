"""Edits of what a publisher requires (rule I-3c)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

REQUIRE_EDITS: tuple[Edit, ...] = (
    Edit(
        "counted-after-the-move",
        "I-3c",
        "        if slot.repeated or not (self.has_released or len(self.cursors) < self.required):\n",
        "        if not (self.has_released or len(self.cursors) < self.required):\n",
        "a message that a subscription has processed and left is released by the publisher's next router",
        aim=("drop-p", "expire-s", "require=1", "shipped=1", "stock_publisher=0", "presettled_publisher=0"),
    ),
    Edit(
        "counted-after-the-first-copy",
        "I-3c",
        "        self.trace(slot, Rule.TOO_FEW, len(self.cursors), self.required)\n",
        "        super().forward(slot)\n",
        "a released message reaches the subscriptions that were there",
        aim=("expire-s", "require=2", "shipped=1", "subscribers=2", "stock_publisher=0", "presettled_publisher=0"),
    ),
    Edit(
        "released-without-what-is-behind",
        "I-3c",
        "        if outcome.kind is OutcomeKind.RELEASED:\n            self._on_released()\n",
        "",
        "a publisher that ends behind a release presents what it had sent behind it: nobody is there, and the outcome "
        "is unknown",
        aim=("drop-p", "require=1", "shipped=1", "messages=8", "window=8"),
    ),
    Edit(
        "told-though-too-few-have-it",
        "I-3f",
        "                if self._is_short:\n                    return\n",
        "",
        "a message that nobody ever had is unknown to a publisher that waits for subscriptions",
        aim=("drop-p", "require=1", "waits=1", "shipped=1", "messages=8", "window=8"),
    ),
    Edit(
        "waits-with-its-starts",
        "I-3f",
        "() if request.waits else presented_starts(",
        "presented_starts(",
        "the subscription that a publisher has waited for is not owed what it had sent before",
        aim=("drop-p", "require=1", "waits=1", "shipped=1", "messages=8", "window=8"),
    ),
    Edit(
        "waits-for-ever",
        "I-3f",
        "return self._is_short and len(self._fanout.cursors) >= self._required",
        "return False",
        "a publisher waits for subscriptions that are there",
        aim=("drop-p", "require=1", "waits=1", "shipped=1", "messages=8", "window=8"),
    ),
    Edit(
        "forwards-behind-a-released-message",
        "I-3c",
        "        if slot.repeated or not (self.has_released or len(self.cursors) < self.required):\n",
        "        if slot.repeated or len(self.cursors) >= self.required:\n",
        "a subscription skips a released message after a failover, and its publisher takes it for processed",
        aim=(
            "drop-p",
            "renew-s",
            "require=2",
            "shipped=1",
            "routers=2",
            "subscribers=2",
            "messages=8",
            "window=8",
            "prefetch=5",
            "stock_publisher=0",
            "stock_subscriber=0",
            "presettled_publisher=0",
            "settled_subscriber=0",
        ),
    ),
)
