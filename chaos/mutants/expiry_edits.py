"""Edits of what expires (rule E-10)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

_WITH_MAPS = ("stock_publisher=0", "presettled_publisher=0", "settled_subscriber=0", "stock_subscriber=0")
_SLOW = ("ttl_s=4", "lingers=1", "messages=20", "window=8", "prefetch=1")
"""Subscribers that let much wait for credit."""
_SHARED = ("subscribers=3", "sharers=2", "same_names=0", "never=0", "narrows=0", "settled_subscriber=0")

EXPIRY_EDITS: tuple[Edit, ...] = (
    Edit(
        "expired-after-it-was-sent",
        "E-10",
        "            if entry.state is HELD:  # else it was sent, or dropped, in time\n"
        "                self._outgoing.expire(entry)\n",
        "            if entry.state is HELD:\n"
        "                self._outgoing.expire(entry)\n"
        "            if entry.sync is not None:\n",
        "a delivery that the subscriber has, and may process, counts as expired",
        aim=("drop-p", *_SLOW, *_WITH_MAPS),
    ),
    Edit(
        "expired-though-its-map-has-it",
        "E-10",
        "        elif sync is None or number in sync.numbers or self.reduction is not None:\n",
        "        elif sync is None or (number in sync.numbers and ttl_ms) or self.reduction is not None:\n",
        "what the subscriber has presented counts as expired when its ingress repeats it too late",
        aim=("drop-s", "reset", *_SLOW, *_WITH_MAPS),
    ),
    Edit(
        "expired-counts-for-the-start",
        "E-10",
        "    return entry is not None and entry.state is not State.EXPIRED\n",
        "    return entry is not None\n",
        "what expires behind held deliveries makes the next SYNC take those for skipped: they are lost",
        aim=("drop-p", "reset", *_SLOW, *_WITH_MAPS),
    ),
    Edit(
        "expired-too-early",
        "E-10",
        "    return max(0, ceil((deadline - now) * 1000))\n",
        "    return max(0, ceil((deadline - now) * 400))\n",
        "a message expires before its time",
        aim=("drop-s", *_SLOW, *_WITH_MAPS),
    ),
    Edit(
        "expired-is-not-done",
        "E-10",
        "            if entry.sync is not None and self._is_owed:  # c.3, I-1c: else nothing is owed\n",
        "            if False:\n",
        "a publisher waits for ever for a subscription that is not sent its message any more",
        aim=("drop-s", *_SLOW, *_WITH_MAPS),
    ),
    Edit(
        "expired-and-sent",
        "E-10",
        "        self._held.remove(entry)\n"
        '        entry.message = b""\n'
        "        entry.step(GONE if entry.presettled else State.EXPIRED)\n",
        "        pass\n",
        "a subscriber is sent what has counted as expired for it",
        aim=("drop-s", *_SLOW, *_WITH_MAPS),
    ),
    Edit(
        "expired-counts-as-processed",
        "E-10",
        "        if expired:  # E-10: it was never sent there\n",
        "        if False:\n",
        "a publisher learns that a subscription processed a message that it was never sent",
        where="CountedOutcomes._processed_by",
        aim=("drop-s", "require=1", "shipped=1", *_SLOW, *_WITH_MAPS),
    ),
    Edit(
        "expired-though-a-member-has-had-it",
        "E-10",
        "        return number in self._waiting and not was_had and not self._blocking\n",
        "        return number in self._waiting\n",
        "what one member of a shared subscription was sent, and another one is to get, counts as expired",
        aim=("drop-p", "drop-s", "expire-s", *_SLOW, *_SHARED, "stock_publisher=0", "presettled_publisher=0"),
    ),
    Edit(
        "expired-of-a-group",
        "E-10",
        "        return number not in self._group_of and super().may_expire(number)\n",
        "        return super().may_expire(number)\n",
        "what has expired of a group is assigned by the publisher's next router, behind what followed it",
        aim=(
            "drop-p",
            "drop-s",
            "reset",
            "groups=2",
            "refuses=0",
            "out_of_order=0",
            *_SLOW,
            *_SHARED,
            "stock_publisher=0",
            "presettled_publisher=0",
        ),
    ),
)
