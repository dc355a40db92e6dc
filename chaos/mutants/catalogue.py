"""The rules that can be edited out, each with the counterexample or finding that made it.

Names C1 to C16, mutants and F1 to F24 are those of docs/protocol.md.
"""

from __future__ import annotations

from chaos.mutants.edits import Edit

EDITS: tuple[Edit, ...] = (
    Edit(
        "C1-settled-is-forgotten", "I-4", "ingress",
        "                self._drop(slot)\n\n    def _drop",
        "                if slot.number + 1 < self.window.end:\n"
        "                    self._drop(slot)\n"
        "                else:\n"
        "                    for cursor in self.fanout.cursors.values():\n"
        "                        cursor.through = min(cursor.through, slot.number)\n"
        "                    add_run(self.settled_runs, slot.number)\n"
        "                    self.mark_dirty()\n\n    def _drop",
        "an ingress that remembers settled deliveries sends them again to a subscriber that has moved",
        aim=("drop-s",),
    ),
    Edit(
        "C2-absence-means-settled", "E-2", "egress",
        "        for entry in [entry for tag, entry in entries.items() if tag not in unsettled]:\n",
        "        for entry in []:\n",
        "a subscriber's entry whose settlement was lost is held for ever",
    ),
    Edit(
        "C3-activation-declares-U", "I-5", "ingress",
        "        self.fanout.sync_all()\n", "        pass\n",
        "the publisher settled and forgot, its router died with the settlement in its socket",
    ),
    Edit(
        "C4-attach-barrier", "A-6", "barrier",
        "        core = self._core\n        if core.view.applied < created:\n            return False\n",
        "        core = self._core\n        return True\n",
        "an attach confirmed before every router knows it misses accepted messages",
        aim=("drop-s",),
    ),
    Edit(
        "C5-obligations-of-subscriptions", "I-3", "records",
        "        self.forget_egress(egress)\n        subscription = self.view.subscriptions.get(egress.key)\n",
        "        self.forget_egress(egress)\n"
        "        for ingress in self.ingresses.values():\n"
        "            ingress.on_subscription_deleted(egress.key)\n"
        "        subscription = self.view.subscriptions.get(egress.key)\n",
        "acceptance that waits only for connected subscribers loses what the others owe",
    ),
    Edit(
        "C6-latest-publisher-epoch", "E-1", "peering",
        "        if not self._is_current(sync.publisher_epoch):\n            return\n"
        "        key = self._core.view.publisher_epochs[sync.publisher_epoch]\n",
        "        key = self._core.view.publisher_epochs.get(sync.publisher_epoch) or "
        "next(iter(self._core.view.publishers), '')\n        if not key:\n            return\n",
        "frames of a zombie ingress are taken for current ones",
        aim=("drop-p",),
    ),
    Edit(
        "C7-skip-what-precedes-the-start", "E-2", "egress",
        "                found = entries[tag] = Entry(tag, State.SKIPPED)\n",
        "                continue\n                found = entries[tag] = Entry(tag, State.SKIPPED)\n",
        "a subscription that joined between two messages gets the older one behind the newer one",
        aim=("drop-p", "drop-s"),
    ),
    Edit(
        "C8-expiry-in-one-place", "K-5", "reactions",
        "        self._orphans(rid)\n",
        "        self._orphans(rid)\n"
        "        for key, subscription in core.view.subscriptions.items():\n"
        "            if subscription.record.rid == rid:\n"
        "                for ingress in core.ingresses.values():\n"
        "                    ingress.on_subscription_deleted(key)\n",
        "a router that times a subscription out on its own accepts what the subscriber still expects",
    ),
    Edit(
        "C9-sessions-end", "E-6", "egress",
        "        for entry in self.sessions.pop(prefix[1:], {}).values():\n            self._settle(entry)\n",
        "        self.sessions.get(prefix[1:])\n",
        "deliveries of a publisher that never comes back stay unsettled for ever",
    ),
    Edit(
        "C10-sync-even-when-empty", "I-5", "fanout",
        "        if not by_router:\n            return\n",
        "        if not by_router or not len(self._ingress.window):\n            return\n",
        "a subscriber that moved while its delivery was settled never learns it",
    ),
    Edit(
        "C11-sync-when-moved", "I-5", "ingress",
        "            self.fanout.join(subscription)\n        self.fanout.sync([subscription])\n",
        "            self.fanout.join(subscription)\n            self.fanout.sync([subscription])\n",
        "nobody resends to a subscriber that attached at another router",
    ),
    Edit(
        "C12-next-number-only", "T-1", "channel",
        "        if sequence != self.received + 1:\n", "        if False:\n",
        "a stream with a lost frame in it has a hole",
        aim=("reset",),
    ),
    Edit(
        "C14-old-ingress-ends", "I-7", "reactions",
        "            self._forget_ingress(here)\n            if here.link is not None:\n"
        "                self._steal_publisher(here, publisher)\n",
        "            if here.link is not None:\n                self._steal_publisher(here, publisher)\n",
        "the old ingress' records stay when the publisher has moved",
    ),
    Edit(
        "C15-session-in-the-tag", "A-4", "ingress",
        "record, session=SESSION_IS_THIS_PUT)", "record, session=1)",
        "a publisher that restarts its tags meets its own stale entries",
    ),
    Edit(
        "C16-unaccepted-counts-only", "C-3", "egress",
        "        return self._is_locked_out(entry)\n\n    @property\n    def _is_full(self) -> bool:\n",
        "        return False\n\n    @property\n    def _is_full(self) -> bool:\n        return self.mapped >= 1\n",
        "credit that comes back on settlement deadlocks two publishers and two subscribers",
    ),
    Edit(
        "live", "A-4", "ingress",
        "        if self.phase is Phase.PROVING:\n            core.out.append(effects.AskEcho",
        "        if self.phase is Phase.PROVING and resumed:\n            self._activate()\n"
        "        elif self.phase is Phase.PROVING:\n            core.out.append(effects.AskEcho",
        "a stale attach read from a dead connection declares U from a stale map",
        aim=("drop-p",),
    ),
    Edit(
        "session1", "A-4", "attaching",
        "        if not unsettled and not request.exactly_once:\n",
        "        if not unsettled and (not request.exactly_once or not old_session):\n",
        "a stale attach creates the session a later resume falls into",
        aim=("drop-p", "expire-p"),
    ),
    Edit(
        "session2", "A-4", "attaching",
        "        if not unsettled and not request.exactly_once:\n",
        "        if not unsettled:\n",
        "a stale attach replaces the session that a later resume relies on",
        aim=("drop-p",),
    ),
    Edit(
        "expired", "A-5", "attaching",
        "        if unsettled and (not old_session or moved_topic):\n", "        if False:\n",
        "a resume of a session that ended looks legitimate",
    ),
    Edit(
        "credit", "A-4", "ingress",
        "        self.core.remember_reput(nonce, self)\n        self.core.timers.set(Timer.UNKNOWN_PUT, nonce,",
        "        self.core.remember_reput(nonce, self)\n        self._activate()\n"
        "        self.core.timers.set(Timer.UNKNOWN_PUT, nonce,",
        "a delivery sent before its session is in etcd falls into the old session",
    ),
    Edit(
        "causal", "T-3", "peering",
        "        if place in self._parked or _revision(message) > self._core.view.applied:\n",
        "        if False:\n",
        "a SYNC that arrives before the egress knows its own attach is dropped for good",
    ),
    Edit(
        "held-copy", "E-5", "egress",
        '        state = entry.state\n        entry.state = GONE\n        entry.message = b""\n',
        "        state = entry.state\n        if not entry.is_held:\n            entry.state = GONE\n",
        "a settlement overtakes a copy that waits for credit",
        aim=("drop-p", "crash-s"),
    ),
    Edit(
        "F1-credit-for-resends", "C-1", "credit",
        "        wanted = window.unreceived + max(", "        wanted = max(",
        "a resumed map that fills the window may not be sent again",
        aim=("drop-p",),
    ),
    Edit(
        "F2-proof-of-life", "A-4", "ingress",
        "        if self.phase is Phase.PROVING and flow.echoed_epoch == self.epoch:\n",
        "        if self.phase is Phase.PROVING:\n",
        "a flow pipelined behind a stale attach counts as proof of life",
        aim=("drop-p",),
    ),
    Edit(
        "F3-no-ghosts", "A-10", "attaching",
        "        provisional = record is None and timeout > PROVISIONAL_TIMEOUT_S  # A-10\n",
        "        provisional = False\n",
        "a stale attach brings a closed subscription back for as long as its timeout",
        aim=("drop-s", "close-s"),
    ),
    Edit(
        "F8-abandoned-entries", "I-9", "ingress",
        "        for slot in left:\n            self._drop(slot)\n", "        del left\n",
        "an entry of the map that the publisher gave up blocks all later acceptances",
        aim=("drop-p",),
    ),
    Edit(
        "reset-repeats", "T-4", "channel",
        "        self._core.sync_router(self.rid)\n", "",
        "frames lost with a channel are never sent again",
    ),
    Edit(
        "ack-epoch", "T-7", "peering",
        "        ingress = self._core.ingress_by_epoch.get(ack.publisher_epoch)  # T-7: numbers of this epoch only\n",
        "        ingress = self._core.ingress_by_epoch.get(ack.publisher_epoch) or "
        "next(iter(self._core.ingresses.values()), None)\n",
        "an acknowledgement of an older window is read with the numbers of the newer one",
        aim=("drop-p",),
    ),
    Edit(
        "probe", "T-9", "channel",
        "        if self.state is ChannelState.OPENING or self._probed < self.sent:\n            self._hello_delay",
        "        if self.state is ChannelState.OPENING:\n            self._hello_delay",
        "the last frames of a quiet channel are lost and nobody asks",
        aim=("reset",),
    ),
    Edit(
        "new-epoch-ends-streams", "A-10", "egress",
        "        for sync in list(self.syncs.values()):\n            self._drop_held(sync)\n        self.forget()\n",
        "",
        "a message to all synced subscriptions overtakes a named one that named the older epoch",
        aim=("drop-p",),
    ),
    Edit(
        "deleted-where-seen", "T-3", "fanout",
        "        self._left_at = self._core.view.applied\n", "",
        "a message for all synced subscriptions reaches one that the ingress knows to be deleted, behind a hole",
        aim=("expire-s", "drop-s"),
    ),
    Edit(
        "joiner-start", "I-6", "fanout",
        "        start = self._ingress.window.end\n", "        start = 0\n",
        "a new subscription counts for deliveries that do not wait for it",
    ),
    Edit(
        "map-bound", "C-4", "egress",
        "        return self._is_locked_out(entry)\n\n    @property\n", "        return False\n\n    @property\n",
        "publishers whose windows do not fit a subscriber's map deadlock each other",
    ),
)  # fmt: skip


def by_name(name: str) -> Edit:
    """The edit of that name."""
    return next(edit for edit in EDITS if edit.name == name)
