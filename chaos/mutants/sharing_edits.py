"""Edits of shared subscriptions (rules SH-1 to SH-6)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

_PLAIN = (
    "stock_publisher=0", "presettled_publisher=0", "settled_subscriber=0", "stock_subscriber=0", "narrows=0", "never=0",
)  # fmt: skip
_TWO = ("sharers=2", "subscribers=2", *_PLAIN)
_ORDERED = (
    "sharers=3", "subscribers=3", "window=8", "messages=20", "refuses=0", "out_of_order=0", *_PLAIN,
)  # fmt: skip

SHARING_EDITS: tuple[Edit, ...] = (
    Edit(
        "shared-ends-though-a-member-comes", "SH-1",
        "        self._expiry.cancel(subscription_path(shared.key))\n",
        "",
        "the time of a shared subscription runs on when a member is attached again, and what it is owed is lost",
        aim=("close-s", "away-s", *_TWO),
    ),
    Edit(
        "member-put-alone", "SH-1",
        "        self._put(attempt, own.mod_revision, member, put)\n",
        "        self._put(attempt, own.mod_revision, member, None if done.record is not None else put)\n",
        "a router that does not see the new member yet deletes the shared subscription at the revision that it knows",
        aim=("close-s", "renew-s", "stall", "longest_s=5", "routers=2", *_TWO),
    ),
    Edit(
        "member-gets-what-all-get", "SH-2",
        "        self._synced = parts.synced_members if self.is_member else parts.synced\n",
        "        self._synced = parts.synced\n",
        "what goes to all subscriptions at a router goes to a member, too, which was not assigned it",
        aim=("sharers=2", "subscribers=3", "routers=1", *_PLAIN),
    ),
    Edit(
        "one-refuses-for-all", "SH-5",
        "        if refused >= self._members.keys():\n",
        "        if refused:\n",
        "one member says undeliverable-here, and no other is asked",
        aim=("refuses=1", "routers=1", "prefetch=1", "window=8", "messages=20", *_TWO),
    ),
    Edit(
        "a-refusal-before-all-have-answered", "SH-5",
        "        if self._blocking:\n            self._unclaimed[number]",
        "        if False:\n            self._unclaimed[number]",
        "a member refuses for good what another one has in its map, which has not answered: a third gets it",
        where="Share.on_refused_for_good",
        aim=(
            "crash", "drop-p", "drop-s", "declines=1", "refuses=1", "sharers=3", "subscribers=3", "messages=8",
            "prefetch=2", "routers=2", "shipped=0", *_PLAIN,
        ),
    ),
    Edit(
        "a-retry-before-all-have-answered", "SH-5",
        "        if number in self._unclaimed:\n            return  # SH-4: it was sent",
        "        if False:\n            return  # SH-4: it was sent",
        "what a member wanted again is assigned when its delay is over, and once more when all have answered",
        aim=(
            "drop-p", "drop-s", "refuses=1", "lingers=1", "sharers=3", "subscribers=3", "publishers=1", "routers=2",
            "messages=8", *_PLAIN,
        ),
    ),
    Edit(
        "the-second-claim-is-forgotten", "SH-5",
        "                self._also.setdefault(number, {})[member.key] = None\n",
        "                pass\n",
        "two members claim a delivery, and the first refuses it: a third gets what the second has processed",
        aim=(
            "drop-p", "half-p", "away-p", "declines=1", "lingers=1", "sharers=4", "subscribers=4", "window=8",
            "messages=20", "prefetch=1", "refuses=0", "shipped=0", *_PLAIN,
        ),
    ),
    Edit(
        "told-of-no-room-for-ever", "SH-2",
        "        if has_grown or (free and self._short):\n",
        "        if has_grown:\n",
        "an ingress that was notified that there is no room never hears of it again",
        aim=("publishers=2", "prefetch=1", "window=8", "messages=20", "routers=1", *_TWO),
    ),
    Edit(
        "states-credit-when-it-looks", "SH-2",
        "        if self._spent and self.outgoing.free_credit:\n",
        "        if self._left is None:\n",
        "a message waits for a timer, though a member that has answered nothing has given credit for one more",
        aim=("prefetch=1", "window=8", "messages=20", "refuses=0", "groups=0", "pulls=1", *_TWO),
    ),
    Edit(
        "takes-back-what-a-member-has", "SH-2",
        "        if number in member.has and number not in member.claimed:\n",
        "        if number in member.has:\n",
        "the body for a delivery in a member's map comes back, for its link is gone: another member gets it",
        aim=("drop-s", "drop-p", "half-s", "routers=2", "window=8", "messages=8", *_TWO),
    ),
    Edit(
        "reassigned-while-its-member-is-away", "SH-3",
        "            self._state_room(member, room)\n            if room:\n",
        "            self._state_room(member, room)\n"
        "            for number in [] if room else list(member.has):\n"
        "                self._take_back(number)\n"
        "            if True:\n",
        "a member that comes back has processed what another one was given",
        aim=("drop-s", *_TWO),
    ),
    Edit(
        "nobody-gets-what-the-dead-had", "SH-3",
        "            for number in list(member.has):\n                self._take_back(number)\n",
        "            pass\n",
        "what a member had when its key was deleted blocks its publisher for ever",
        aim=("expire-s", "crash-s", "close-s", *_TWO),
    ),
    Edit(
        "assigned-before-all-have-answered", "SH-4",
        "            if self._blocking:\n",
        "            if False:\n",
        "the publisher's next router gives away what a member has that is not attached",
        where="Share.offer",
        aim=("drop-p", "drop-s", *_TWO),
    ),
    Edit(
        "released-at-the-first-answer", "SH-4",
        "        self._state_room(member, room)\n        self._blocking.discard(key)\n",
        "        self._state_room(member, room)\n        self._blocking.clear()\n",
        "the publisher's next router gives away what a member has that answers later",
        aim=("drop-p", "drop-s", *_TWO),
    ),
    Edit(
        "claims-are-not-heard", "SH-4",
        "            self._on_claimed(member, number)\n",
        "            pass\n",
        "what a member has is assigned to another one by the publisher's next router",
        aim=("drop-p", *_TWO),
    ),
    Edit(
        "claims-only-what-is-not-done", "SH-4",
        "        for number in sorted(state.numbers):\n",
        "        for number in sorted(n for n, entry in state.numbers.items() if entry.outcome is None):\n",
        "a CLAIM overtakes the ACK of what is done, which is given to another member meanwhile",
        aim=("drop-p", "routers=2", *_TWO),
    ),
    Edit(
        "members-skip", "SH-4",
        "        is_part = self.reduction is not None or self.is_member or is_letters\n",
        "        is_part = self.reduction is not None or is_letters\n",
        "what another member has counts as processed, for it precedes something that this one has",
        aim=("drop-p", "drop-s", "crash-s", *_TWO),
    ),
    Edit(
        "repeats-without-a-flag", "SH-5",
        "            self._again.add(number)\n            self._turn.counts[Decision.ASSIGNED_AGAIN] += 1\n",
        "            self._turn.counts[Decision.ASSIGNED_AGAIN] += 1\n",
        "what an ended member may have processed comes to another without a word of it",
        aim=("away-s", "expire-s", "late_loss=1", *_TWO),
    ),
    Edit(
        "claims-what-it-handed-back", "SH-5",
        "        super()._want_again(entry, outcome, settled, delay_ms)\n"
        "        self._hand_back(self.sessions[entry.tag[SESSION_AT:OWN_TAG_AT]], entry)\n",
        "        super()._want_again(entry, outcome, settled, delay_ms)\n",
        "a member claims what it wanted again, and another one has done since",
        aim=("drop-p", "detach-p", "refuses=1", "session_end=1", "routers=2", *_TWO),
    ),
    Edit(
        "believes-a-stale-map", "SH-4",
        "        self._lives = not request.exactly_once\n",
        "        self._lives = True\n",
        "an attach of a dead connection is read late, and what its client has processed since is given to another",
        aim=("trim-s", "drop-s", "half-s", "window=8", "messages=8", *_TWO),
    ),
    Edit(
        "an-early-outcome-stops-the-echo", "SH-4",
        "        super().on_reput(subscription)\n        self.ask_for_life()\n",
        "        super().on_reput(subscription)\n",
        "a member that states an outcome before it answers the echo never gets a delivery",
        aim=("expire-s", "away-s", "drop-s", "groups=1", "prefetch=2", *_ORDERED),
    ),
    Edit(
        "full-maps-wait-for-the-oldest", "C-4",
        "        if self._over.get(sync.epoch) in sync.numbers or self._heads.get(sync.epoch) != number:\n",
        "        if True:\n",
        "all maps are full of what comes after a delivery that was wanted again, and nothing of it is settled before",
        aim=("map_bound=4", "refuses=1", "window=8", "messages=20", "prefetch=5", "publishers=2", *_TWO),
    ),
    Edit(
        "who-returned-the-oldest-is-never-asked-again", "SH-2",
        "            self._reopen(member)\n        else:",
        "            self._open[member.key] = member\n        else:",
        "a member states room, and is not offered what its publisher waits for, though its map keeps a place for that",
        aim=("map_bound=4", "refuses=1", "window=8", "messages=20", "prefetch=5", "publishers=2", *_TWO),
    ),
    Edit(
        "full-maps-take-what-is-older", "C-4",
        "self._heads.get(sync.epoch) != number:\n",
        "number > min(sync.numbers, default=number):\n",
        "the one place that is kept for a publisher is taken by what it does not wait for yet",
        aim=(
            "expire-s", "renew-s", "close-s", "drop-s", "drop-p", "map_bound=4", "window=8", "messages=20",
            "prefetch=2", "publishers=2", "subscribers=3", "sharers=3", "groups=2", *_PLAIN,
        ),
    ),
    Edit(
        "takes-what-it-has-handed-back", "SH-5",
        "        return assigned is not Assigned.BY_ITS_MAP or sync is None or number in sync.numbers\n",
        "        return True\n",
        "the body that a member's claim brings comes when that member has handed the delivery back: two have it",
        aim=("drop-p", "crash", "publishers=1", "routers=3", "messages=8", "refuses=1", *_TWO),
    ),
    Edit(
        "a-claim-of-a-former-sync", "SH-4",
        "        if serial and serial != member.serial:\n            return",
        "        if serial < 0:\n            return",
        "a channel starts again, the answer to the former SYNC is assigned something, and that to the new one takes it",
        aim=(
            "cut", "drop-s", "sharers=2", "subscribers=2", "publishers=1", "routers=2", "messages=4", "refuses=1",
            "prefetch=5", "shipped=0", *_PLAIN,
        ),
    ),
    Edit(
        "waits-for-one-that-has-ended", "SH-5",
        "            for number in share.refused_by_all():\n",
        "            for number in ():\n",
        "all but one member have refused a message for good, and it waits for that one, which has ended",
        aim=("close-s", "crash-s", "sharers=2", "subscribers=2", "refuses=1", "messages=8", *_PLAIN),
    ),
    Edit(
        "groups-follow-credit", "SH-6",
        "                grouped = subscription.record.grouped\n",
        "                grouped = False\n",
        "the next delivery of a group goes to whoever has credit, before the last one is done",
        aim=("groups=1", *_ORDERED),
    ),
    Edit(
        "a-member-that-joins-gets-groups-at-once", "SH-6",
        "            elif digest not in self._undecided and (slot.repeated or group.member is None):\n"
        "                self._decide(group)\n",
        "            else:\n                self._bind(group, self._best(digest))\n",
        "a member joins, and the next delivery of a group goes to it while the former member has the last one",
        aim=("renew-s", "close-s", "groups=2", *_ORDERED),
    ),
    Edit(
        "groups-of-the-dead-go-nowhere", "SH-6",
        "            if group.member == key or group.is_split:\n                self._let_go(group)\n",
        "            pass\n",
        "what waits for a member whose key is deleted waits for ever",
        aim=("expire-s", "close-s", "groups=2", *_ORDERED),
    ),
    Edit(
        "a-group-belongs-to-the-first-claim", "SH-6",
        "        if not self._members or is_early:\n",
        "        if not self._members:\n",
        "a member that has done what precedes gets the next of a group, and one that has not answered has the last",
        aim=("drop-p", "drop-s", "renew-s", "groups=1", *_ORDERED),
    ),
    Edit(
        "what-was-on-its-way-overtakes", "SH-6",
        "            overtakes = self._returned.overtakes(publisher_epoch, number, message, message_format)\n",
        "            overtakes = False\n",
        "a delivery goes back for want of credit, and the next of its group, which was on its way, finds some",
        aim=("groups=1", "prefetch=2", "publishers=2", "routers=2", *_ORDERED),
    ),
    Edit(
        "a-former-member-takes-what-waits", "SH-6",
        "        if group is not None and number in self._waiting and group.member != member.key:\n"
        "            return  # it waits for another one: what this one had it had before its key was deleted\n",
        "",
        "a member that comes back after its key was deleted claims a delivery of a group that another one has",
        aim=(
            "crash-s", "expire-s", "renew-s", "away-s", "groups=1", "prefetch=3", *_ORDERED,
            "window=16", "publishers=1", "routers=1", "shipped=1", "durable=1",
        ),
    ),
)  # fmt: skip
