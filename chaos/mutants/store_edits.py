"""Edits of what is written to etcd, read from it, and done when a link is attached (rules K and A)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

STORE_EDITS: tuple[Edit, ...] = (
    Edit(
        "overtakes-its-receiver",
        "A-2d",
        "                return unanswered[link] < place\n",
        "                return False\n",
        "a client's publisher gets credit before its subscriber is there, and its message is nobody's",
        aim=("drop-s", "pairs=1", "slow_store=1"),
    ),
    Edit(
        "acts-before-the-watch",
        "K-2",
        "                    handlers[type(item)](item)\n",
        "                    if type(item) is inputs.ReadDone and item.record is not None:\n"
        "                        attempt = self.attaching._by_nonce.get(item.nonce)\n"
        "                        if attempt is not None and item.mod_revision > self.view.applied:\n"
        "                            from delivery_records.model.view import Change, Kind\n"
        "                            kind, key = Kind(attempt.path[:4]), attempt.path[5:]\n"
        "                            change = Change(kind, key, item.record, item.create_revision, item.mod_revision)\n"
        "                            self._watch.on_changes(inputs.ViewChanges(item.mod_revision, (change,)))\n"
        "                    handlers[type(item)](item)\n",
        "a router that takes what etcd answers into its view before the watch delivers it says that it has "
        "applied what it has not (the core is not told of a put's success, so the answer is that of a read)",
        aim=("drop-s", "drop-p", "stall", "routers=2", "subscribers=2", "window=8", "messages=8"),
    ),
    Edit(
        "nonces-of-one-router",
        "K-2a",
        '        return f"{self._turn.rid:x}.{self._nonces}"\n',
        '        return f"{self._nonces}"\n',
        "a router takes another router's put for its own",
        aim=("drop-p", "drop-s", "routers=2"),
    ),
    Edit(
        "snapshot-without-deletions",
        "K-4",
        "        for change in turn.view.difference(list(snapshot.entries)):\n            self._apply(change)\n",
        "        for change in turn.view.difference(list(snapshot.entries)):\n"
        "            if change.record is not None:\n"
        "                self._apply(change)\n",
        "what was deleted behind a compaction stays in the view",
        aim=("compact", "relist", "expire-s", "expire-p"),
    ),
    Edit(
        "C8-expiry-in-one-place",
        "K-5",
        "        self.on_orphans(rid)\n",
        "        self.on_orphans(rid)\n"
        "        for key, subscription in turn.view.subscriptions.items():\n"
        "            if subscription.record.rid == rid:\n"
        "                for ingress in self._endpoints.ingresses.values():\n"
        "                    ingress.on_subscription_deleted(key, '')\n",
        "a router that times a subscription out on its own accepts what the subscriber still expects",
        aim=("crash",),
    ),
    Edit(
        "expiry-outlives-attach",
        "K-5",
        "        self._turn.timers.cancel(Timer.EXPIRY, path)\n",
        "",
        "the time of a link that was lost goes on although its client is back",
        aim=("drop-p", "drop-s"),
    ),
    Edit(
        "outage-counts",
        "K-6",
        "        delay = timeout_of(attachment) + self._rank(path) * ORPHAN_RANK_STEP_S\n",
        "        delay = self._rank(path) * ORPHAN_RANK_STEP_S\n",
        "a router that has just come takes every key of its dead predecessors for an expired one",
        aim=("crash",),
    ),
    Edit(
        "applied-too-early",
        "K-7",
        "            turn.view.applied = max(turn.view.applied, change.mod_revision)\n"
        "            self._apply(change)\n",
        "            self._advance(changes.revision)\n            self._apply(change)\n",
        "messages are handled at a revision whose changes are not in the view yet",
        aim=("drop-p", "drop-s"),
    ),
    Edit(
        "session-ends-with-the-link",
        "A-2",
        "        session = old_session\n",
        "        session = SESSION_NONE\n",
        "an attach that does not copy the old session ends it, and the map it presents belongs to none",
        aim=("drop-p",),
    ),
    Edit(
        "sessions-outlive-the-nonce",
        "K-9",
        "            if old_session < self._nonce_revision:\n",
        "            if old_session < 0:\n",
        "after a restore a publisher goes on in a session whose tags its subscribers hold under the former nonce",
        aim=("restore",),
    ),
    Edit(
        "nothing-is-remembered",
        "K-9",
        "        if revision < seen.revision:\n",
        "        if revision < 0:\n",
        "after a restore that nobody announces a publisher goes on in an older session of its own",
        aim=("rollback", "drop-p", "crash-p"),
    ),
    Edit(
        "compare-with-the-view",
        "A-2",
        "        attempt.expect = expect\n"
        "        self._name(attempt)\n"
        "        self._proposals.put(attempt.nonce, attempt.path, expect, record, shared)\n",
        "        held = self._turn.view.attachment(attempt.path)\n"
        "        attempt.expect = expect\n"
        "        self._name(attempt)\n"
        "        self._proposals.put(attempt.nonce, attempt.path, held.epoch if held else 0, record, shared)\n",
        "a put over what the view shows instead of what was read undoes a write in between",
        aim=("thief-p", "half-p", "drop-p"),
    ),
    Edit(
        "view-instead-of-read",
        "A-2b",
        "        self._turn.out.append(effects.Read(attempt.nonce, attempt.path))\n",
        "        held = self._turn.view.attachment(attempt.path)\n"
        "        if held is None:\n"
        "            self.on_read(ReadDone(attempt.nonce, None))\n"
        "        else:\n"
        "            self.on_read(ReadDone(attempt.nonce, held.record, held.created, held.epoch))\n",
        "a router with a late watch takes a live session for an expired one",
        aim=("drop-p", "clog", "routers=2"),
    ),
    Edit(
        "judged-before-the-watch",
        "A-3",
        "        attempt = Attempt(request, path, self.order.next_place())\n",
        "        if isinstance(request, SubscriberAttach) and request.unsettled:\n"
        "            from dataclasses import replace\n"
        "            presented = request.unsettled.items()\n"
        "            known = {publisher.session for publisher in turn.view.publishers.values()}\n"
        "            live = {tag: found for tag, found in presented if int.from_bytes(tag[5:11], 'big') in known}\n"
        "            request = replace(request, unsettled=live)\n"
        "        attempt = Attempt(request, path, self.order.next_place())\n",
        "a router with a late watch leaves entries of a session that it does not know yet out of the reply",
        aim=(
            "drop-s",
            "stall",
            "routers=2",
            "subscribers=1",
            "messages=2",
            "prefetch=50",
            "window=8",
            "slow_store=0",
            "stock_publisher=0",
            "stock_subscriber=0",
        ),
    ),
    Edit(
        "resume-is-not-said",
        "A-3a",
        "        resumed = len(self.window) > 0\n",
        "        resumed = False\n",
        "a publisher must refuse a router that does not say it resumed what was presented",
        aim=("drop-p", "shipped=1"),
    ),
    Edit(
        "C15-session-in-the-tag",
        "A-4",
        "record, session=SESSION_IS_THIS_PUT)",
        "record, session=1)",
        "a publisher that restarts its tags meets its own stale entries",
        aim=("crash-p", "drop-p"),
    ),
    Edit(
        "live",
        "A-4",
        "        if self.phase is Phase.PROVING:\n            turn.out.append(effects.AskEcho",
        "        if self.phase is Phase.PROVING and resumed:\n            self._activate()\n"
        "        elif self.phase is Phase.PROVING:\n            turn.out.append(effects.AskEcho",
        "a stale attach read from a dead connection declares U from a stale map",
        aim=("drop-p",),
    ),
    Edit(
        "session1",
        "A-4",
        "        if not unsettled and not request.exactly_once:\n",
        "        if not unsettled and (not request.exactly_once or not old_session):\n",
        "a stale attach creates the session a later resume falls into",
        aim=("drop-p", "expire-p", "shipped=0"),
    ),
    Edit(
        "session2",
        "A-4",
        "        if not unsettled and not request.exactly_once:\n",
        "        if not unsettled:\n",
        "a stale attach replaces the session that a later resume relies on",
        aim=("drop-p",),
    ),
    Edit(
        "credit",
        "A-4",
        "        self._turn.timers.set(Timer.UNKNOWN_PUT, nonce,",
        "        self._activate()\n        self._turn.timers.set(Timer.UNKNOWN_PUT, nonce,",
        "a delivery sent before its session is in etcd falls into the old session",
        where="Ingress._start_session",
    ),
    Edit(
        "F2-proof-of-life",
        "A-4",
        "        if self.phase is Phase.PROVING and flow.echoed_epoch == self.epoch:\n",
        "        if self.phase is Phase.PROVING:\n",
        "a flow pipelined behind a stale attach counts as proof of life",
        aim=("drop-p", "pipelines=1", "shipped=0"),
    ),
    Edit(
        "expired",
        "A-5",
        "        if unsettled and (not old_session or moved_topic):\n",
        "        if False:\n",
        "a resume of a session that ended looks legitimate",
    ),
    Edit(
        "C4-attach-barrier",
        "A-6",
        "        turn = self._turn\n        if turn.view.applied < created:\n            return False\n",
        "        turn = self._turn\n        return True\n",
        "an attach confirmed before every router knows it misses accepted messages",
        aim=("drop-s", "late_joiner=1", "routers=2"),
    ),
    Edit(
        "reply-map-of-done-only",
        "A-6",
        "for tag, entry in entries.items() if entry.state in IN_REPLY]",
        "for tag, entry in entries.items() if entry.state is State.DONE_PRESENTED]",
        "an entry that is left out of the reply map is settled, so leaving one out has it processed twice",
        aim=("drop-s", "drop-p"),
    ),
    Edit(
        "barrier-answered-early",
        "A-6a",
        "            if self._turn.view.applied >= message.revision:\n"
        "                self._turn.out.append(effects.SendDatagram(rid, "
        "Applied(self._turn.view.applied)))\n",
        "            if True:\n"
        "                self._turn.out.append(effects.SendDatagram(rid, Applied(message.revision)))\n",
        "a router that says it has applied what it has not makes a subscription count too early",
        aim=("stall", "late_joiner=1", "routers=2", "messages=20"),
    ),
    Edit(
        "reply-confirms",
        "A-6b",
        "        self.outgoing.is_replied = True\n",
        "        self.outgoing.is_replied = True\n"
        "        if self.exactly_once:\n"
        "            self._turn.out.append(effects.Confirm(self.link, self.created, 0.0, ''))\n",
        "the reply to the attach is taken for the confirmation",
        aim=("drop-s", "late_joiner=1", "routers=2"),
    ),
    Edit(
        "no-settled-resume",
        "A-7",
        "                    self._settle_queue.append(entry)  # A-7: costs credit, goes ahead of held deliveries\n",
        "                    pass\n",
        "an entry of the reply map is never settled at the subscriber",
        aim=("drop-s", "shipped=1"),
    ),
    Edit(
        "suspended-for-ever",
        "A-9",
        "            self._expiry.on_link_lost(subscription_path(egress.key), subscription, policy, cause, ",
        "            (",
        "a link that is gone starts no time-out, so its subscription stays for ever",
        aim=("close-s", "drop-s"),
    ),
    Edit(
        "loss-ends-the-session",
        "A-9",
        "            self._expiry.on_link_lost(publisher_path(ingress.key), publisher, policy, cause, ingress.place)\n",
        "            self._expiry._proposals.delete(publisher_path(ingress.key), publisher.epoch)\n",
        "a lost transport is taken for the end of the session",
        aim=("drop-p",),
    ),
    Edit(
        "refused-with-its-connection",
        "A-1",
        "            self._turn.out.append(refused_by_store(ingress.link, text))\n"
        "            self._endpoints.suspend(ingress, LossCause.DETACH)\n",
        "            self._turn.out.append(refused_by_store(ingress.link, text))\n"
        "            self._endpoints.suspend(ingress, LossCause.CONNECTION_LOSS)\n",
        "a link that etcd refuses counts as lost with its connection, which goes on: its session expires in it",
        aim=("isolate", "outage", "session_end=1", "stock_publisher=0", "leases=1", "slow_store=1"),
    ),
    Edit(
        "session-end-at-the-detach",
        "A-9",
        "        return place.amqp_session\n",
        "        return 0\n",
        "a terminus that is to be kept until its AMQP session ends expires while the session is open",
        aim=("detach-s", "session_end=1", "stock_subscriber=0", "settled_subscriber=0"),
    ),
    Edit(
        "states-what-does-not-hold",
        "A-10",
        "held_terms(subscription.record).expiry_policy, timeout_of(subscription), request.patience,\n",
        "held_terms(subscription.record).expiry_policy, self.proof._terms.timeout_s, request.patience,\n",
        "the reply states the whole time-out of a subscription that is provisional",
        aim=("away-s", "timeout_s=90", "subscribers=1"),
    ),
    Edit(
        "confirmed-before-it-is-written",
        "A-10",
        "        if not self.is_known or self.awaits_proof:\n            return\n",
        "        if self.is_known and self._exactly_once and not self.is_proven:\n"
        "            self._turn.out.append(\n"
        "                effects.Confirm(self._link, self._created, self._terms.timeout_s, '')\n"
        "            )\n"
        "        if not self.is_known or self.awaits_proof:\n"
        "            return\n",
        "a subscriber whose subscription was confirmed loses it after T_prov",
        aim=("away-s", "drop-s", "timeout_s=90", "subscribers=1", "messages=2"),
    ),
    Edit(
        "no-life-and-other-terms",
        "A-10",
        "            terms, provisional = held_terms(record), record.provisional  # A-10: no life, no change\n",
        "            provisional = record.provisional\n",
        "an attach that nobody stands behind shortens the time-out of a subscription that is there",
        aim=("thief-s", "away-s", "never=1", "subscribers=1", "messages=2"),
    ),
    Edit(
        "former-epoch-names-nothing",
        "A-10",
        "        self._parts.former_epochs[self.epoch] = self.key\n",
        "",
        "a message to all synced subscriptions overtakes a named one that named the older epoch, which is dropped",
        aim=("presettled_publisher=1", "routers=2", "timeout_s=90"),
    ),
    Edit(
        "answers-ahead-of-the-new-epoch",
        "A-10",
        "                self.named = epoch\n",
        "                pass\n",
        "what an egress says of the stream before a SYNC is taken for what it says of the one behind it",
        aim=("streams=1", "timeout_s=90", "routers=2", "messages=8", "window=3", "subscribers=2", "prefetch=50"),
    ),
    Edit(
        "F31-replaced-link",
        "K-2a",
        "        if not self._endpoints.is_here(ingress):\n"
        "            return  # K-2a: a newer attach has taken the link over, and its timers are not ours\n",
        "",
        "a put that is given up starts T_pub for a publisher that is attached again",
        aim=("half-p", "drop-p", "isolate", "outage", "slow_store=1", "leases=1"),
    ),
    Edit(
        "never-confirms",
        "A-6b",
        "        if not self.is_known or self.awaits_proof:\n",
        "        if self._exactly_once:\n",
        "a subscriber never learns that its subscription counts",
        aim=("drop-s",),
    ),
    Edit(
        "tells-another-incarnation",
        "A-6",
        "                self.mode, self._turn.told_incarnation(self.created),\n",
        "                self.mode, self._turn.told_incarnation(self.epoch),\n",
        "a subscriber cannot tell a new life of its subscription from a new attach",
        aim=("drop-s",),
    ),
)
