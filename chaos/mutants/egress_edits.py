"""Edits of the egress: what its subscriber has, gets, and is told (rules E)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

EGRESS_EDITS: tuple[Edit, ...] = (
    Edit(
        "F33-entries-of-another-topic",
        "E-6",
        "    return matches(pattern, publisher.topic)\n",
        "    return True\n",
        "a subscription that comes back with another topic keeps entries that nobody will ever settle",
        aim=("retopic-s", "topics=2", "publishers=2", "messages=8"),
    ),
    Edit(
        "C6-latest-publisher-epoch",
        "E-1",
        "        key = self._turn.view.publisher_epochs.get(sync.publisher_epoch)\n",
        "        key = self._turn.view.publisher_epochs.get(sync.publisher_epoch)\n"
        "        key = key or next(iter(self._turn.view.publishers), None)\n",
        "frames of a zombie ingress are taken for current ones",
        aim=("drop-p", "clog", "routers=2", "shipped=0"),
    ),
    Edit(
        "C2-absence-means-settled",
        "E-2",
        "        for entry in [entry for tag, entry in entries.items() if tag not in unsettled]:\n",
        "        for entry in []:\n",
        "a subscriber's entry whose settlement was lost is held for ever",
        aim=("drop-p", "drop-s"),
    ),
    Edit(
        "C7-skip-what-precedes-the-start",
        "E-2",
        "                found = entries[tag] = Entry(tag, State.SKIPPED)\n",
        "                continue\n                found = entries[tag] = Entry(tag, State.SKIPPED)\n",
        "a subscription that joined between two messages gets the older one behind the newer one",
        aim=(
            "crash-p",
            "drop-s",
            "shipped=1",
            "durable=1",
            "late_joiner=1",
            "subscribers=2",
            "messages=12",
            "window=8",
            "out_of_order=0",
        ),
    ),
    Edit(
        "dropped-before-the-first-credit",
        "I-1c",
        "        if not self._presettled.has_room(len(message), is_credit_known=self.limit > 0):\n",
        "        if self.sent >= self.limit:\n",
        "what was sent settled when a subscriber was confirmed, and its credit is on its way, never arrives there",
        aim=("presettled_publisher=1",),
    ),
    Edit(
        "settled-before-the-first-credit",
        "I-1c",
        "            if self._mode is _AT_MOST_ONCE and not is_large and self._outlives_its_stream(entry):\n"
        "                return  # of a large one only the beginning may be here\n",
        "",
        "what an at-most-once subscriber waits for goes with its settlement, which waits for nobody",
        aim=("settled_subscriber=1", "prefetch=1", "messages=8"),
    ),
    Edit(
        "flagged-for-the-first-time",
        "E-3",
        "            if redelivered and number >= sync.first_new:\n",
        "            if False:\n",
        "what was held when a subscription got its whole time-out is flagged as a repeat, and was sent to nobody",
        aim=("routers=2", "timeout_s=90", "prefetch=1", "messages=8", "window=8"),
    ),
    Edit(
        "a-link-repeats-without-a-flag",
        "E-3",
        "            self.first_new = sync.numbers[-1] + 1 if sync.numbers else 0\n",
        "            self.first_new = 0\n",
        "a subscriber without a map gets again what an earlier link was sent, and cannot know it",
        aim=("drop-s", "stock_subscriber=1"),
    ),
    Edit(
        "held-in-disorder",
        "E-3",
        "        self._line[entry] = None\n",
        "        self._line[entry] = None\n        self._line.move_to_end(entry, last=False)\n",
        "deliveries that wait for credit overtake each other",
        aim=("drop-s", "prefetch=1", "messages=8", "window=8"),
    ),
    Edit(
        "tag-used-again",
        "E-3",
        "            if whole in sync.entries or whole in outgoing.settling:\n"
        "                self._free_tag(sync, whole)\n"
        "            entry = Entry(whole, HELD)\n",
        "            entry = Entry(whole, HELD)\n",
        "a message whose tag has just been settled overtakes the settlement, and is taken for the one before it",
        aim=("drop-p", "stock_publisher=1", "reuses_tags=1", "batches=1", "stock_subscriber=0", "messages=8"),
    ),
    Edit(
        "tag-used-again-over-a-restart",
        "E-3",
        "            unsettled -= {tag for tag, number in numbered if old.is_former(tag, state.epoch, number)}\n",
        "            pass\n",
        "a channel restarts between a settlement and a message with its tag, and the older delivery answers for it",
        aim=(
            "reset",
            "cut",
            "shed",
            "stock_publisher=1",
            "reuses_tags=1",
            "stock_subscriber=0",
            "messages=20",
            "routers=2",
            "batches=1",
        ),
    ),
    Edit(
        "known-needs-nothing",
        "E-3",
        "        if entry.state in WAITING:\n",
        "        if entry.state in (*WAITING, State.KNOWN):\n",
        "a subscriber that knows a delivery without its body never gets the body again",
        aim=("drop-s", "drop-p"),
    ),
    Edit(
        "done-is-sent-again",
        "E-3",
        "            self._turn.counts[Decision.ALREADY_DONE] += 1\n"
        "            sync.acknowledge(entry.number, entry.outcome)\n"
        "            return False\n",
        "            return True\n",
        "what the subscriber has done is transferred to it once more",
        aim=("drop-s", "drop-p"),
    ),
    Edit(
        "outcome-is-not-passed-on",
        "E-4",
        "                    entry.sync.acknowledge(entry.number, verdict)\n",
        "                    pass\n",
        "an outcome is not acknowledged to the ingress",
        aim=("drop-p",),
    ),
    Edit(
        "again-counts-as-done",
        "E-4a",
        "        is_done = verdict.is_done\n",
        "        is_done = True\n",
        "a delivery that the subscriber wants again is acknowledged as done",
        aim=("drop-s", "refuses=1", "shipped=0"),
    ),
    Edit(
        "again-left-out-is-forgotten",
        "E-4a",
        "        if found:\n",
        "        if found and (outcome is None or outcome.is_done):\n",
        "an entry that was wanted again and is left out of the reply looks like one before the start (F29)",
        aim=("drop-s", "refuses=1", "shipped=0", "routers=2", "window=8", "prefetch=5", "messages=8"),
    ),
    Edit(
        "again-is-no-entry",
        "E-4a",
        "        entry.step(State.AGAIN_HELD if entry.state is State.KNOWN_HELD else State.AGAIN)\n",
        "        entry.state = State.AGAIN\n"
        "        if entry.sync is not None:\n"
        "            entry.sync.entries.pop(entry.tag, None)\n"
        "            entry.sync.numbers.pop(entry.number, None)\n"
        "            self.outgoing.mapped -= 1\n",
        "a delivery that is wanted again is in no map for a while and looks like one before the start",
        aim=("drop-p", "refuses=1", "shipped=0"),
    ),
    Edit(
        "sync-drops-again",
        "E-4a",
        '                entry.step(NO_BODY.get(entry.state, entry.state))\n                entry.message = b""\n',
        "                entry.state = NO_BODY.get(entry.state, entry.state)\n"
        "                if entry.state in WANTED:\n"
        "                    entry.state = GONE\n"
        "                    sync.entries.pop(entry.tag, None)\n",
        "a SYNC forgets what waits for credit to come again (F29)",
        aim=("drop-s", "drop-p", "refuses=1", "shipped=0"),
    ),
    Edit(
        "again-has-no-place",
        "E-4a",
        "        return self.state in IN_REPLY or self.state in WANTED\n",
        "        return self.state in IN_REPLY\n",
        "newer deliveries take the place in the map of one that is wanted again and lock it out",
        aim=("drop-s", "refuses=1", "shipped=0", "publishers=2", "map_bound=2", "window=8", "prefetch=5", "messages=8"),
    ),
    Edit(
        "held-copy",
        "E-5",
        "            self._held.remove(entry)\n        entry.state = GONE",
        "            return\n        entry.state = GONE",
        "a settlement overtakes a copy that waits for credit",
        aim=("drop-p", "crash-s"),
    ),
    Edit(
        "C9-sessions-end",
        "E-6",
        "        for entry in self.sessions.pop(prefix[1:], {}).values():\n"
        "            self.outgoing.trace(entry, Rule.SESSION_GONE)\n            self.outgoing.settle(entry)\n",
        "        self.sessions.get(prefix[1:])\n",
        "deliveries of a publisher that never comes back stay unsettled for ever",
        aim=("expire-p",),
    ),
    Edit(
        "dead-sessions-kept",
        "E-6",
        "            found = live[kind] = is_live(turn, tag, topic)\n",
        "            found = live[kind] = True\n",
        "entries of a session that ended before the attach stay for ever",
        aim=("expire-p", "drop-s"),
    ),
    Edit(
        "newer-epoch-unnoticed",
        "E-7",
        "        if here is not None:\n            self._steal(here, subscription)\n",
        "",
        "a link whose subscription is attached elsewhere goes on",
        aim=("drop-s",),
    ),
    Edit(
        "deletion-unnoticed",
        "E-7",
        '                turn.out.append(effects.DetachLink(egress.link, True, "amqp:resource-deleted", text, info))\n',
        "                pass\n",
        "a subscriber whose subscription was deleted is not told, and waits at a link that nobody serves",
        aim=("expire-s",),
    ),
)
