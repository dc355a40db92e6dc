"""Edits of what a policy does: to a slow subscription (rule K-5b), and to time-outs (K-5c)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

PATIENCE_EDITS: tuple[Edit, ...] = (
    Edit(
        "slow-though-it-answers",
        "K-5b",
        "        self.unanswered.pop(entry, None)\n",
        "",
        "a subscriber that answers everything is ended, and what it is owed is lost",
        aim=("drop-s", "patience_s=2", "expels=1", "routers=1", "messages=4"),
    ),
    Edit(
        "slow-for-what-its-publisher-owes",
        "K-5b",
        "        return self.is_replied and self.sent >= self.limit and bool(waits)\n",
        "        return self.held > 0\n",
        "a subscriber whose map is full of what its publishers do not settle is ended for their fault",
        aim=("away-p", "patience_s=2", "expels=1", "routers=1", "map_bound=2", "messages=6", "window=8", "prefetch=50"),
    ),
    Edit(
        "expelled-before-the-watch",
        "K-5b",
        "            egress.on_patience_timer()\n",
        "            egress.on_patience_timer()\n"
        "            if egress.is_expelled:\n"
        "                [each.on_subscription_deleted(egress.key, '') for each in self.ingresses.values()]\n",
        "a router that forgets at once what a slow subscription is owed accepts it although the deletion fails",
        aim=("drop-s", "patience_s=2", "expels=1", "slow_store=1", "routers=2"),
    ),
    Edit(
        "patience-unstated",
        "K-5b",
        "timeout_of(subscription), request.patience,\n",
        "timeout_of(subscription),\n",
        "a subscriber that is not told how long it may take cannot keep to it",
        aim=("drop-s", "patience_s=10", "routers=1"),
    ),
    Edit(
        "kept-for-longer-than-granted",
        "K-5c",
        "        return Terms(cap_s, CAPPED_NEVER)\n    asked",
        "        return Terms(limits.subscription_timeout_cap_s, CAPPED_NEVER)\n    asked",
        "a subscriber that asks for `never` holds its topic for longer than its user may",
        aim=("drop-s", "never=1", "longest_s=20", "routers=1"),
    ),
    Edit(
        "a-session-for-longer-than-granted",
        "K-5c",
        "    return Terms(max(0.0, min(max(asked, held_s), cap_s)), request.expiry_policy)\n",
        "    return Terms(max(0.0, min(asked, limits.publisher_timeout_cap_s)), request.expiry_policy)\n",
        "a publisher's session is kept for longer than its user may",
        aim=("drop-p", "longest_s=20", "routers=1"),
    ),
    Edit(
        "a-stale-attach-shortens-a-session",
        "K-5d",
        "min(max(asked, held_s), cap_s)",
        "min(asked, cap_s)",
        "an attach that is read late shortens what a later one was promised",
        aim=("drop-p", "away-p", "short_sessions=1", "shipped=0", "stock_publisher=0", "presettled_publisher=0"),
    ),
)
