"""Edits of dead letters (rule I-3e)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

_ONE = ("letters=1", "refuses=1", "presettled_publisher=0", "settled_subscriber=0")
_TWO = ("letters=2", *_ONE[1:])

LETTERS_EDITS: tuple[Edit, ...] = (
    Edit(
        "told-before-the-letter", "I-3e",
        "        slot.pending += 1  # the letter, until `_after`\n",
        "",
        "a publisher gets the outcome of a message that was rejected while its letter is under way",
        where="DeadLetters.on_failed",
        aim=("drop-s", *_ONE),
    ),
    Edit(
        "told-when-one-has-the-letter", "I-3e",
        "        if letter.owed or not letter.is_out:\n",
        "        if (letter.owed and not letter.is_done) or not letter.is_out:\n",
        "a publisher gets an outcome when one of two dead-letter subscriptions is done with the letter",
        aim=("drop-s", *_TWO),
    ),
    Edit(
        "letter-for-nobody", "I-3e",
        "        if not letter.is_done:\n",
        "        if False:\n",
        "a publisher gets an outcome though there is no dead-letter subscription for the letter",
        aim=("drop-p", "late_letters=70", "letter_wait=0", *_ONE),
    ),
    Edit(
        "given-up-at-once", "I-3e",
        "            self._waits_until = self._turn.now + wait_s\n",
        "            self._waits_until = self._turn.now\n",
        "a letter is given up in the moment when nobody is there",
        aim=("late_letters=70", "letter_wait=15", *_ONE),
    ),
    Edit(
        "given-up-though-somebody-is-there", "I-3e",
        "        self._wait_anew()\n        self._turn.plan_version",
        "        self._turn.plan_version",
        "letters are given up, for nobody was there before a dead-letter subscription came",
        aim=("late_letters=20", "letter_wait=21", "delay_ms=4000", "messages=40", *_ONE),
    ),
    Edit(
        "given-up-counts-as-accepted", "I-3e",
        "        slot.has_no_letter = True\n        slot.pending -= 1\n        self._note_letter(",
        "        slot.pending -= 1\n        self._note_letter(",
        "a publisher gets the outcome of its topic's policy for a message whose letter nobody has got",
        aim=("late_letters=70", "letter_wait=2", *_ONE),
    ),
    Edit(
        "letter-waits-for-ever", "I-3e",
        "            if letter.is_out and not letter.is_done:\n",
        "            if False:\n",
        "a letter that waited for a dead-letter subscription is not sent to the next one",
        aim=("drop-p", "late_letters=70", "letter_wait=0", *_ONE),
    ),
    Edit(
        "letters-in-disorder", "I-3e",
        "                    break\n"
        "                if letter is not None and not letter.is_out:\n"
        "                    self._send_out(slot, letter)\n"
        "            number += 1\n"
        "        self._through = number\n",
        "                    number += 1\n"
        "                    continue\n"
        "                if letter is not None and not letter.is_out:\n"
        "                    self._send_out(slot, letter)\n"
        "            number += 1\n",
        "a letter overtakes that of an earlier message",
        aim=("drop-s", "subscribers=2", "window=8", "messages=8", "publishers=1", *_ONE),
    ),
    Edit(
        "letters-get-broadcasts", "I-3e",
        "        synced = self._parts.synced_letters if is_letters else self._synced\n",
        "        synced = self._synced\n",
        "a dead-letter subscription at the router of another one gets messages that nobody has failed",
        aim=("drop-p", "subscribers=3", "routers=2", *_ONE),
    ),
    Edit(
        "letter-with-the-tag-of-the-original", "I-3e",
        '        prefix = network_tag(nonce, session, b"", is_letters)\n',
        '        prefix = network_tag(nonce, session, b"")\n',
        "a letter that a subscriber is done with counts as a message of a topic that it does not ask for",
        aim=("drop-p", "drop-s", *_ONE),
    ),
    Edit(
        "letter-of-this-attach", "I-3e",
        '        prefix = network_tag(nonce, session, b"", is_letters)\n',
        '        prefix = network_tag(nonce, sync.publisher_epoch if is_letters else session, b"", is_letters)\n',
        "each ingress makes another letter of the same message",
        aim=("drop-p", *_ONE),
    ),
    Edit(
        "letter-skipped", "I-3e",
        "        is_part = self.reduction is not None or self.is_member or is_letters\n",
        "        is_part = self.reduction is not None or self.is_member\n",
        "a message that is failed after a failover counts as a letter before the start, for a later one was a letter",
        aim=("drop-p", "stock_subscriber=1", "shipped=0", "window=8", "messages=8", *_ONE),
    ),
    Edit(
        "letter-of-an-ended-session", "I-3e",
        "    if publisher is None:\n        return False\n",
        "    if publisher is None:\n        return is_letter_tag(tag)\n",
        "a letter whose publisher's session ended before its subscriber attached stays for ever",
        aim=("expire-p", "drop-s", "crash", *_ONE),
    ),
    Edit(
        "letter-is-not-settled", "I-3e",
        "        if slot.repeated or letter is not None or slot.has_no_letter:\n",
        "        if slot.repeated:\n",
        "a letter stays in the map of its subscriber though its publisher has settled the message",
        aim=("drop-s", *_ONE),
    ),
    Edit(
        "letter-of-a-former-ingress-is-not-settled", "I-3e",
        "        if slot.repeated or letter is not None or slot.has_no_letter:\n",
        "        if letter is not None:\n",
        "a letter that only a former ingress has made stays, for the subscription that failed the message has ended",
        aim=("drop-p", "expire-s", "window=8", "messages=8", *_ONE),
    ),
    Edit(
        "settle-reaches-no-letters-stream", "I-3e",
        "            for synced in (self.synced, self.synced_members, self.synced_letters):\n",
        "            for synced in (self.synced, self.synced_members):\n",
        "a letter at another router than its publisher's stays though its publisher has settled the message",
        aim=("drop-s", "routers=2", *_ONE),
    ),
    Edit(
        "letters-are-not-repeated", "I-3e",
        "                if letter is not None and key in letter.owed:\n"
        "                    self._attempts.replace_attempts(slot.number, (key,))\n"
        "                    self._send_to(subscription, slot, self._body(slot, letter), redelivered=True)\n",
        "                pass\n",
        "a letter that was under way when its subscriber moved is lost",
        aim=("drop-s", "crash", "routers=2", *_ONE),
    ),
    Edit(
        "restart-forgets-letters", "I-3e",
        "                self.letters.sync_router(rid)\n",
        "                pass\n",
        "a letter that was under way when a channel restarted is lost",
        aim=("reset", "crash", "routers=2", *_ONE),
    ),
    Edit(
        "letters-are-not-retried", "I-3e",
        "        return self.letters is not None and self.letters.owes(key, number)\n",
        "        return False\n",
        "a letter that its subscriber wants again does not come again",
        aim=("drop-p", "shipped=0", *_ONE),
    ),
    Edit(
        "letters-of-a-former-policy", "I-3e",
        "                settle_former_letters(turn, egress)  # I-3e\n",
        "                pass\n",
        "letters stay, for their publisher moved when the topic for them was taken out of the rules",
        aim=("reload", "drop-p", "crash", "routers=2", *_ONE),
    ),
    Edit(
        "reload-forgets-letters", "I-3e",
        "            settle_former_letters(self.turn, egress)\n",
        "            pass\n",
        "letters stay, for their publisher had attached anew when the topic for them was taken out of the rules",
        aim=("reload", "drop-p", "crash", *_ONE),
    ),
    Edit(
        "letters-of-a-former-stream", "I-3e",
        "    return kept | {sync.session for sync in egress.syncs.values() if sync.is_letters}\n",
        "    return kept\n",
        "letters that were under way stay, for their publisher has left a router that knew the topic for them",
        aim=(
            "reload", "drop-s", "trim-s", "away-s", "routers=2", "subscribers=2", "prefetch=5", "window=8",
            "messages=8", "shipped=0", "attempts=1", "lingers=1", "reload_at_sync=1", *_TWO,
        ),
    ),
    Edit(
        "no-empty-set-behind-a-policy", "I-3e",
        "            self._former[key] = None\n        for key in [key for key in found",
        "        for key in [key for key in found",
        "letters stay, for the topic for them was taken out of the rules and nobody settles them",
        aim=("reload", "routers=2", *_ONE),
    ),
    Edit(
        "letters-wait-for-room", "I-3e",
        "        if not self.is_letters:\n            return False\n",
        "        return False\n",
        "a letter that its publisher waits for does not fit a map that is full of later ones",
        aim=(
            "drop-p", "drop-s", "half-s", "stock_subscriber=1", "subscribers=1", "routers=2", "map_bound=1", "window=8",
            "prefetch=5", "messages=8", "shipped=0", "attempts=1", "lingers=1", *_TWO,
        ),
    ),
    Edit(
        "poison-without-a-letter", "I-3e",
        "        if not self._policy.dead_letter:\n            self.count_failed",
        "        if not self._policy.dead_letter or self._poisoned[:2] == (subscription.key, slot.number):\n"
        "            self.count_failed",
        "a message that a subscription has failed too often goes to no dead-letter topic",
        aim=("drop-p", "attempts=2", "stock_subscriber=0", *_ONE),
    ),
    Edit(
        "failed-before-the-letter", "I-3e",
        "        if entry.outcome is not None or is_unheard:\n",
        "        if entry.outcome is not None:\n",
        "a letter comes again that was failed too often, before the next router had sent it",
        aim=(
            "drop-p", "drop-s", "stock_subscriber=1", "subscribers=1", "map_bound=1", "window=8", "messages=8",
            "shipped=0", "attempts=1", "lingers=1", *_TWO,
        ),
    ),
    Edit(
        "letter-done-twice", "I-3e",
        "        for key in self._members:  # E-4a: one at this router may have failed it too often\n"
        "            self._send_to(self._turn.view.subscriptions[key], slot, body, redelivered=slot.repeated)\n",
        "        for key in self._members:  # E-4a: one at this router may have failed it too often\n"
        "            self._send_to(self._turn.view.subscriptions[key], slot, body, redelivered=slot.repeated)\n"
        "        self._after(slot.number, letter)\n",
        "a publisher waits for ever, for its letter was failed too often before it was sent again, and counted twice",
        aim=(
            "reload", "drop-p", "drop-s", "routers=2", "subscribers=1", "window=8", "messages=8", "shipped=0",
            "attempts=1", "lingers=1", "reload_at_sync=1", *_ONE,
        ),
    ),
)  # fmt: skip
