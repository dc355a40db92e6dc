"""Edits of shared subscriptions (rules SH-1 to SH-5)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

_PLAIN = (
    "stock_publisher=0", "presettled_publisher=0", "settled_subscriber=0", "stock_subscriber=0", "narrows=0", "never=0",
)  # fmt: skip
_TWO = ("sharers=2", "subscribers=2", *_PLAIN)

SHARING_EDITS: tuple[Edit, ...] = (
    Edit(
        "shared-ends-though-a-member-comes", "SH-1", "watch_handlers",
        "        self._expiry.cancel(subscription_path(shared.key))\n",
        "",
        "the time of a shared subscription runs on when a member is attached again, and what it is owed is lost",
        aim=("close-s", "away-s", *_TWO),
    ),
    Edit(
        "member-put-alone", "SH-1", "attaching",
        "        self._put(attempt, own.mod_revision, member, put)\n",
        "        self._put(attempt, own.mod_revision, member, None if done.record is not None else put)\n",
        "a router that does not see the new member yet deletes the shared subscription at the revision that it knows",
        aim=("close-s", "renew-s", "stall", "longest_s=5", "routers=2", *_TWO),
    ),
    Edit(
        "member-gets-what-all-get", "SH-2", "egress",
        "        self._synced = parts.synced_members if self.is_member else parts.synced\n",
        "        self._synced = parts.synced\n",
        "what goes to all subscriptions at a router goes to a member, too, which was not assigned it",
        aim=("sharers=2", "subscribers=3", "routers=1", *_PLAIN),
    ),
    Edit(
        "told-of-no-room-for-ever", "SH-2", "member",
        "        if not (has_grown or (free and self._short)):\n",
        "        if not has_grown:\n",
        "an ingress that was notified that there is no room never hears of it again",
        aim=("publishers=2", "prefetch=1", "window=8", "messages=20", "routers=1", *_TWO),
    ),
    Edit(
        "takes-back-what-a-member-has", "SH-2", "sharing",
        "        if number in member.has and number not in member.claimed:\n",
        "        if number in member.has:\n",
        "the body for a delivery in a member's map comes back, for its link is gone: another member gets it",
        aim=("drop-s", "drop-p", "half-s", "routers=2", "window=8", "messages=8", *_TWO),
    ),
    Edit(
        "reassigned-while-its-member-is-away", "SH-3", "sharing",
        "            member.room, member.is_full = room + len(member.has), not room\n            self._tried.clear()\n",
        "            member.room, member.is_full = room + len(member.has), not room\n"
        "            for number in [] if room else list(member.has):\n"
        "                self._take_back(number)\n"
        "            self._tried.clear()\n",
        "a member that comes back has processed what another one was given",
        aim=("drop-s", *_TWO),
    ),
    Edit(
        "nobody-gets-what-the-dead-had", "SH-3", "sharing",
        "            for number in list(member.has):\n                self._take_back(number)\n",
        "            pass\n",
        "what a member had when its key was deleted blocks its publisher for ever",
        aim=("expire-s", "crash-s", "close-s", *_TWO),
    ),
    Edit(
        "assigned-before-all-have-answered", "SH-4", "sharing",
        "            if self._blocking:\n",
        "            if False:\n",
        "the publisher's next router gives away what a member has that is not attached",
        aim=("drop-p", "drop-s", *_TWO),
    ),
    Edit(
        "released-at-the-first-answer", "SH-4", "sharing",
        "        self._blocking.discard(key)\n        self._tried",
        "        self._blocking.clear()\n        self._tried",
        "the publisher's next router gives away what a member has that answers later",
        aim=("drop-p", "drop-s", *_TWO),
    ),
    Edit(
        "claims-are-not-heard", "SH-4", "sharing",
        "            self._on_claimed(member, number)\n",
        "            pass\n",
        "what a member has is assigned to another one by the publisher's next router",
        aim=("drop-p", *_TWO),
    ),
    Edit(
        "claims-only-what-is-not-done", "SH-4", "member",
        "        for number in sorted(state.numbers):\n",
        "        for number in sorted(n for n, entry in state.numbers.items() if entry.outcome is None):\n",
        "a CLAIM overtakes the ACK of what is done, which is given to another member meanwhile",
        aim=("drop-p", "routers=2", *_TWO),
    ),
    Edit(
        "members-skip", "SH-4", "egress",
        "        is_part = self.reduction is not None or self.is_member\n",
        "        is_part = self.reduction is not None\n",
        "what another member has counts as processed, for it precedes something that this one has",
        aim=("drop-p", "drop-s", "crash-s", *_TWO),
    ),
    Edit(
        "repeats-without-a-flag", "SH-5", "sharing",
        "            self._again.add(number)\n            self._turn.counts[Decision.ASSIGNED_AGAIN] += 1\n",
        "            self._turn.counts[Decision.ASSIGNED_AGAIN] += 1\n",
        "what an ended member may have processed comes to another without a word of it",
        aim=("away-s", "expire-s", "late_loss=1", *_TWO),
    ),
    Edit(
        "claims-what-it-handed-back", "SH-5", "member",
        "        super()._want_again(entry, outcome, settled, delay_ms)\n"
        "        self._hand_back(self.sessions[entry.tag[SESSION_AT:OWN_TAG_AT]], entry)\n",
        "        super()._want_again(entry, outcome, settled, delay_ms)\n",
        "a member claims what it wanted again, and another one has done since",
        aim=("drop-p", "detach-p", "refuses=1", "session_end=1", "routers=2", *_TWO),
    ),
    Edit(
        "believes-a-stale-map", "SH-4", "member",
        "        self._lives = not request.exactly_once\n",
        "        self._lives = True\n",
        "an attach of a dead connection is read late, and what its client has processed since is given to another",
        aim=("trim-s", "drop-s", "half-s", "window=8", "messages=8", *_TWO),
    ),
    Edit(
        "full-maps-wait-for-the-oldest", "C-4", "member",
        "        if self._over.get(sync.epoch, number) in sync.numbers or number > min(sync.numbers,"
        " default=number):\n",
        "        if True:\n",
        "all maps are full of what comes after a delivery that was wanted again, and nothing of it is settled before",
        aim=("map_bound=4", "refuses=1", "window=8", "messages=20", "prefetch=5", "publishers=2", *_TWO),
    ),
)  # fmt: skip
