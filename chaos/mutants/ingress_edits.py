"""Edits of the ingress: what is owed to whom, accepted, settled, given up (rules I)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

INGRESS_EDITS: tuple[Edit, ...] = (
    Edit(
        "owed-by-links-here",
        "I-1",
        "            slot = window.append(transfer.tag)\n            slot.pending = len(self.fanout.cursors)\n",
        "            slot = window.append(transfer.tag)\n"
        "            slot.pending = sum(key in self._parts.to_egresses.egresses for key in self.fanout.cursors)\n",
        "an entry is owed to subscriptions, wherever they are attached",
        aim=("drop-s",),
    ),
    Edit(
        "counted-twice",
        "I-2",
        "        first = max(first, self.through)\n",
        "",
        "an acknowledgement that comes again counts for another subscription",
        aim=("drop-s",),
    ),
    Edit(
        "C5-obligations-of-subscriptions",
        "I-3",
        "        self.forget_egress(egress)\n        subscription = turn.view.subscriptions.get(egress.key)\n",
        "        self.forget_egress(egress)\n"
        "        for ingress in self.ingresses.values():\n"
        "            ingress.on_subscription_deleted(egress.key, '')\n"
        "        subscription = turn.view.subscriptions.get(egress.key)\n",
        "acceptance that waits only for connected subscribers loses what the others owe",
        aim=("drop-s",),
    ),
    Edit(
        "inorder",
        "I-3",
        "            if slot is not None and (slot.pending or slot.state is AWAITED or slot.state is ARRIVING):\n"
        "                return\n"
        "            window.next_accept += 1  # first: telling may take the slot out and move it on\n"
        "            if slot is not None:\n"
        "                self._tell(slot)\n",
        "            if slot is not None and (slot.pending or slot.state is AWAITED or slot.state is ARRIVING):\n"
        "                break\n"
        "            window.next_accept += 1\n"
        "            if slot is not None and slot.state is not TOLD:\n"
        "                self._tell(slot)\n"
        "        for slot in list(window.slots()):\n"
        "            if not slot.pending and slot.state not in (AWAITED, TOLD):\n"
        "                self._tell(slot)\n",
        "a message is settled before an older one, and a subscription that joined between them gets the "
        "older one later",
        aim=(
            "drop-p",
            "crash",
            "shipped=1",
            "out_of_order=1",
            "late_joiner=1",
            "subscribers=2",
            "messages=8",
            "window=8",
            "prefetch=5",
            "stock_publisher=0",
            "stock_subscriber=0",
        ),
    ),
    Edit(
        "C1-settled-is-forgotten",
        "I-4",
        "                self.drop(slot)\n\n    def drop",
        "                if slot.number + 1 < self.window.end:\n"
        "                    self.drop(slot)\n"
        "                else:\n"
        "                    for cursor in self.fanout.cursors.values():\n"
        "                        cursor.through = min(cursor.through, slot.number)\n"
        "                    add_run(self.settled_runs, slot.number)\n"
        "                    self.mark_dirty()\n\n    def drop",
        "an ingress that remembers settled deliveries sends them again to a subscriber that has moved",
        aim=("drop-s",),
    ),
    Edit(
        "C3-activation-declares-U",
        "I-5",
        "        self.fanout.sync_all()\n",
        "        pass\n",
        "the publisher settled and forgot, its router died with the settlement in its socket",
    ),
    Edit(
        "C10-sync-even-when-empty",
        "I-5",
        "        if not by_router:\n            return\n",
        "        if not by_router or not len(self._window):\n            return\n",
        "a subscriber that moved while its delivery was settled never learns it",
        aim=("drop-s",),
    ),
    Edit(
        "C11-sync-when-moved",
        "I-5",
        "            self._tell_start(subscription)\n        self.fanout.sync([subscription])\n",
        "            self._tell_start(subscription)\n            self.fanout.sync([subscription])\n",
        "nobody resends to a subscriber that attached at another router",
        aim=("drop-s",),
    ),
    Edit(
        "joiner-start",
        "I-6",
        "        start = self._window.end\n",
        "        start = 0\n",
        "a new subscription counts for deliveries that do not wait for it",
        aim=("drop-s", "late_joiner=1"),
    ),
    Edit(
        "start-after-a-move",
        "I-6a",
        "        self.fanout.join_all(self._turn.view.matching(self.topic), self._starts)\n",
        "        self.fanout.join_all(self._turn.view.matching(self.topic), ())\n",
        "a subscription that was made anew is sent, by the publisher's next router, what was sent before it",
        aim=("renew-s", "drop-p", "subscribers=2", "shipped=1", "messages=8", "window=8"),
    ),
    Edit(
        "start-of-all-that-was-sent",
        "I-6a",
        "            messages = takewhile(lambda message: message.number <= last, self._messages.values())\n",
        "            messages = takewhile(lambda message: last >= 0, self._messages.values())\n",
        "what was under way to the router when it saw the subscription is owed to it, and is left out",
        aim=("renew-s", "drop-p", "subscribers=2", "shipped=1", "messages=12", "window=8", "prefetch=1"),
    ),
    Edit(
        "C14-old-ingress-ends",
        "I-7",
        "            self._endpoints.forget_ingress(here)\n            if here.link is not None:\n"
        "                self._steal(here, publisher)\n",
        "            if here.link is not None:\n                self._steal(here, publisher)\n",
        "the old ingress' records stay when the publisher has moved",
        aim=("drop-p",),
    ),
    Edit(
        "F8-abandoned-entries",
        "I-9",
        "        for slot in left:\n            self._owner.drop(slot)\n",
        "        del left\n",
        "an entry of the map that the publisher gave up blocks all later acceptances",
        aim=("drop-p", "abandons=1", "shipped=0"),
    ),
    Edit(
        "passed-over-stays",
        "I-9",
        "            self.resends.abandon(slot.number)  # P-1: in order, so what it passed over will not come\n",
        "            pass\n",
        "an entry that the resends have passed over waits for T_resend again and again",
        aim=("drop-p", "abandons=1", "shipped=0"),
    ),
    Edit(
        "F34-outcome-on-arrival",
        "I-3",
        "            slot.verdict = self._of_empty()  # I-3: whoever owed it has ended without it\n",
        "            pass\n",
        "a message whose only subscription ended before it was done is accepted, and nobody has it",
        where="PublisherOutcomes._outcome_of",
        aim=("expire-s", "stock_publisher=1", "publishers=1", "subscribers=1", "settled_subscriber=0"),
    ),
    Edit(
        "ends-unreported",
        "I-3b",
        "        if self._ended_count:\n            self._report_ended(link)\n",
        "",
        "a publisher is told accepted and cannot know that a subscription ended without the message",
        aim=("expire-s", "end-s", "publishers=1", "stock_publisher=0", "stock_subscriber=0"),
    ),
    Edit(
        "ends-reported-too-late",
        "I-3b",
        "        if self._ended_count:\n            self._report_ended(link)\n"
        "        if self._told:\n            told, self._told = self._told, {}\n"
        "            self._dispose(link, told, False)\n",
        "        if self._told:\n            told, self._told = self._told, {}\n"
        "            self._dispose(link, told, False)\n"
        "        if self._ended_count:\n            self._report_ended(link)\n",
        "a publisher has forgotten a message when it hears that a subscription ended without it",
        aim=("expire-s", "end-s", "publishers=1", "stock_publisher=0", "stock_subscriber=0"),
    ),
    Edit(
        "tells-released",
        "I-3",
        "_ACCEPTED: Final = Told(DeliveryOutcome.ACCEPTED)\n",
        "_ACCEPTED: Final = Told(DeliveryOutcome.RELEASED)\n",
        "a publisher is told that nobody had subscribed, and everybody has processed the message",
    ),
)
