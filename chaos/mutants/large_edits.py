"""Edits of what becomes of large messages (rules L-1 to L-7)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

LARGE_EDITS: tuple[Edit, ...] = (
    Edit(
        "large-owed-at-its-end", "L-1",
        "        if is_last:\n            self._arriving = None\n",
        "        if is_last:\n"
        "            slot.pending = len(self._fanout.cursors)\n"
        "            self._arriving = None\n",
        "a subscription that comes in the middle of a delivery is to answer what it was never sent",
        aim=("streams=1", "renew-s", "subscribers=2", "shipped=0", "messages=4"),
    ),
    Edit(
        "told-before-its-end", "L-1",
        "(slot.pending or slot.state is AWAITED or slot.state is ARRIVING)",
        "(slot.pending or slot.state is AWAITED)",
        "the outcome of what nobody subscribes to comes while its publisher is still sending it",
        aim=("streams=1", "close-s", "subscribers=1"),
    ),
    Edit(
        "joins-behind-its-beginning", "L-2",
        "            if stream is None or stream.first:\n",
        "            if stream is None:\n",
        "a subscription that comes when the beginning of a delivery is gone gets what is left of it",
        aim=("streams=1", "drop-s", "subscribers=2", "routers=1"),
    ),
    Edit(
        "unwanted-and-not-said", "L-2",
        "            if sync is not None and not body.is_taken_up:\n",
        "            if body.is_place:\n",
        "a publisher that repeats what a subscription has waits until that takes it again",
        aim=("streams=1", "drop-p", "prefetch=5", "settled_subscriber=0"),
    ),
    Edit(
        "large-and-kept", "L-2",
        "        dropped = sum(len(stream.pieces.popleft()) for _ in range(count))\n        stream.first += count\n",
        "        dropped = sum(len(stream.pieces[at]) for at in range(count))\n        count = 0\n",
        "a router keeps a body that all have taken",
        aim=("streams=1", "drop-p"),
    ),
    Edit(
        "interleaved", "L-3",
        "        if not self.is_replied or self.is_closing or self.large.current is not None:\n"
        "            return False  # L-3: in the middle of a large delivery\n",
        "        if not self.is_replied or self.is_closing:\n            return False\n",
        "a small message is sent in the middle of a large one",
        aim=("streams=2", "drop-s", "publishers=2", "prefetch=50"),
    ),
    Edit(
        "settles-in-the-middle", "L-3",
        "        if not self.is_replied or self.is_closing or self.large.current is not None:\n            return\n",
        "        if not self.is_replied or self.is_closing:\n            return\n",
        "what a subscriber had done is settled by a transfer in the middle of a large one (A-7)",
        where="Outgoing.pump",
        aim=("streams=2", "drop-s", "publishers=2", "prefetch=50"),
    ),
    Edit(
        "no-credit-of-its-own", "L-4",
        "                if target.next < stream.end and target.sent - target.taken < ahead:  # L-4\n",
        "                if target.next < stream.end:\n",
        "what a subscriber does not read waits at its router, whole",
        aim=("streams=1", "drop-s"),
    ),
    Edit(
        "states-it-when-it-looks", "L-4",
        "        if is_due or is_far or self.is_starved:  # L-4: its publisher may have no room for more\n",
        "        if is_due or is_far:\n",
        "a publisher whose window is smaller than a step waits for a timer, and so does all that its subscribers get",
        aim=("streams=1",),
    ),
    Edit(
        "stands-in-the-middle", "L-5",
        "            elif self._turn.now - self._last >= LARGE_STALL_S:\n",
        "            elif self._last < 0:\n",
        "a publisher that stops in the middle of a message keeps all its subscribers there",
        aim=("streams=1", "half-p"),
    ),
    Edit(
        "an-aborted-one-stays", "L-5",
        "            self._owner.drop(slot)\n",
        "            pass\n",
        "what its publisher has given up in the middle stays in the window, and nothing behind it gets an outcome",
        where="LargeArrivals.abort",
        aim=("streams=1", "aborts=1", "shipped=0", "drop-p"),
    ),
    Edit(
        "a-lost-stream-is-forgotten", "L-5",
        "                self._revert(entry, body, is_owed=True)\n        self.line.pump()\n\n    def drop(",
        "                self._revert(entry, body, is_owed=False)\n        self.line.pump()\n\n    def drop(",
        "what follows a message that does not go on is sent, and the message itself is skipped (E-2)",
        aim=(
            "streams=2", "reset", "routers=2", "subscribers=1", "messages=8", "window=8", "prefetch=50", "shipped=0",
            "map_bound=1000",
        ),
    ),
    Edit(
        "sends-nothing-for-long", "L-5",
        "        if not body.is_whole and body.taken >= body.handed and body.since + SILENCE_S <= self._turn.now:\n",
        "        if body.is_place:\n",
        "a subscriber stands in the middle of a message that its publisher has no room to go on with",
        aim=("streams=2", "away-s", "subscribers=2", "messages=20", "window=30", "prefetch=50"),
    ),
    Edit(
        "waits-for-the-slowest", "L-6",
        "                if waits and turn.now - since >= target.patience_s:\n",
        "                if waits and since < 0:\n",
        "a subscriber without credit keeps all others in the middle of a message",
        aim=("streams=1", "drop-s", "subscribers=3", "prefetch=1", "messages=8", "window=8", "lingers=1"),
    ),
    Edit(
        "overtakes-its-place", "L-7",
        "            waits = True  # L-7\n",
        "            pass\n",
        "a message is sent while the publisher is asked for the one before it",
        aim=("streams=2", "drop-s", "reset", "prefetch=50", "messages=8", "window=8", "settled_subscriber=0"),
    ),
    Edit(
        "nobody-asks", "L-7",
        "        self._answer(entry.sync, Need(entry.sync.epoch, entry.sync.named, entry.number))\n",
        "",
        "a subscription that was in the middle of a message when it moved never gets it",
        aim=("streams=1", "drop-s"),
    ),
    Edit(
        "asks-behind-what-waits", "L-7",
        "any(t.taken and t.since > late for t in stream.targets.values())\n",
        "bool(stream.targets)\n",
        "a message that is needed waits for one that waits for a place in a map, which comes when the first is done",
        aim=("streams=2", "crash", "reset", "routers=2", "map_bound=2", "messages=8", "window=8", "prefetch=50"),
    ),
    Edit(
        "a-group-waits-for-the-map", "SH-6",
        "        return bool(self._ahead) and not self._has_large\n",
        "        return bool(self._ahead)\n",
        "a large message of a group is not assigned before the rest of the map, which does not come before it is",
        aim=(
            "streams=1", "sharers=2", "subscribers=2", "groups=1", "drop-p", "messages=6", "window=8", "never=0",
            "settled_subscriber=0", "narrows=0",
        ),
    ),
)
