"""Edits of the client library's maps (rules P-a, P-b and S-a)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

CLIENT_EDITS: tuple[Edit, ...] = (
    Edit(
        "settles-before-recording", "P-a",
        "            self._on_released()\n"
        "        effects: list[PublisherEffect] = []\n",
        "            self._on_released()\n"
        "        effects: list[PublisherEffect] = [SettleDeliveries([delivery_id for delivery_id, _ in deliveries])]\n",
        "a publisher that settles before it has recorded the outcome presents, after a crash, what "
        "nobody knows any more",
        aim=("crash-p", "torn-p", "drop-s", "shipped=1"),
    ),
    Edit(
        "F30-recorded-before-attach", "P-a",
        "        return not (self._expiring or self._decided or self._committing_decided)\n",
        "        return not self._expiring\n",
        "an outcome told on the old connection and recorded on the new one takes a delivery from under those "
        "who are owed it there",
        aim=("drop-p", "late_joiner=1", "subscribers=2", "shipped=1", "durable=1", "messages=12", "window=8",
             "prefetch=1", "out_of_order=0"),
    ),
    Edit(
        "presents-a-map-of-another", "P-b",
        "ProveOwner(echo) if self._is_shared else AnswerEcho(echo)",
        "AnswerEcho(echo)",
        "a process that was paused while another one took its journal over presents what that one has settled",
        where="PublisherCore.flow",
        aim=("pause-p", "shipped=1", "durable=1"),
    ),
    Edit(
        "forgets-with-its-subscription", "S-a",
        "            if entry.outcome is not None and keeps_done and self._exactly_once:\n",
        "            if False:\n",
        "a subscriber that subscribes again is sent what it has processed already, where its publisher's router died "
        "before it had told the start",
        aim=("renew-s", "crash", "drop-p", "subscribers=2", "shipped=1", "messages=8", "window=8"),
    ),
    Edit(
        "resends-in-disorder", "P-a",
        "                self._queue.append(message)\n"
        "        if not self._exactly_once:",
        "                self._queue.appendleft(message)\n"
        "        if not self._exactly_once:",
        "resends out of order are taken for abandoned",
        aim=("drop-p", "shipped=1"),
    ),
    Edit(
        "new-before-resends", "P-a",
        "        self._queue.extend(self._committing_messages)\n",
        "        self._queue.extendleft(reversed(self._committing_messages))\n",
        "a new message before the resends means that they will not come",
        aim=("drop-p", "shipped=1"),
    ),
    Edit(
        "presents-what-was-not-sent", "P-a",
        "                message.presented = message.handed\n"
        "                self._presented += message.handed\n",
        "                message.presented = True\n"
        "                self._presented += 1\n",
        "a message that was never sent counts as older than a subscription that was confirmed before it",
        aim=("drop-p", "drop-s", "close-s", "shipped=1"),
    ),
    Edit(
        "sent-before-stored", "P-a",
        "            if message.number >= self._exposed_before and not (message.handed or message.presented):\n"
        "                return\n",
        "",
        "after a crash the map does not hold what has reached a socket",
        aim=("crash-p", "torn-p", "shipped=1", "durable=1"),
    ),
    Edit(
        "recovered-counts-as-new", "P-a",
        "        handed = stored.number < self._exposed_before\n",
        "        handed = False\n",
        "after a crash the map is not presented",
        aim=("crash-p", "shipped=1", "durable=1"),
    ),
    Edit(
        "done-is-done-again", "S-a",
        "        elif entry.recorded:\n"
        "            assert entry.outcome is not None\n"
        "            self._answer(entry, effects)\n",
        "        elif entry.recorded:\n"
        "            self._take_body(entry, payload, effects)\n",
        "a delivery that is done in the map goes to the application again",
        aim=("drop-s", "drop-p", "shipped=1"),
    ),
    Edit(
        "done-is-forgotten", "S-a",
        "                if self._settles_first:\n"
        "                    self._forget(entry)\n",
        "                self._forget(entry)\n",
        "a subscriber that forgets before the settlement processes the repeat",
        aim=("drop-s", "shipped=1"),
    ),
    Edit(
        "done-without-what-came-before", "S-a",
        "            written += self._earlier_unfinished(written)\n",
        "            pass\n",
        "after a restart a delivery that is missing before a done one looks like one before the start",
        aim=(
            "crash-s", "torn-s", "drop-p", "shipped=1", "durable=1", "out_of_order=1",
            "stock_subscriber=0", "messages=8", "window=8", "prefetch=5",
        ),
    ),
    Edit(
        "left-out-is-kept", "S-a",
        "                self._settle(entry, effects)  # A-6: a left-out entry is settled\n",
        "                pass\n",
        "an entry that the router left out of its reply is kept for ever",
        where="SubscriberCore.attached",
        aim=("drop-s", "drop-p", "shipped=1"),
    ),
    Edit(
        "outcome-before-it-is-stored", "S-a",
        "    return {entry.tag: entry.outcome if entry.recorded else None for entry in entries}\n",
        "    return {entry.tag: entry.outcome for entry in entries}\n",
        "an outcome is told that a crash can still undo",
        aim=("drop-s", "crash-s", "shipped=1", "durable=1"),
    ),
    Edit(
        "arrived-is-delivered-again", "S-a",
        "        elif entry.lacks_body:\n"
        "            self._take_body",
        "        elif True:\n"
        "            self._take_body",
        "a delivery that has arrived and is not done goes to the application twice (F22)",
        aim=("drop-s", "drop-p", "shipped=1", "stock_subscriber=0"),
    ),
    Edit(
        "body-is-not-taken", "S-a",
        "        elif entry.lacks_body:\n"
        "            self._take_body(entry, payload, effects)\n",
        "",
        "a delivery whose body went with the process waits for ever",
        aim=(
            "crash-s", "torn-s", "drop-p", "shipped=1", "durable=1", "out_of_order=1",
            "stock_subscriber=0", "messages=8", "window=8", "prefetch=5",
        ),
    ),
)  # fmt: skip
