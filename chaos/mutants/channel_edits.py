"""Edits of channels between routers, and of credit (rules T and C)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

_WIDE = ("window=8", "messages=8", "prefetch=50")
"""Maps of some entries."""
_AWAITS_REST = (
    "        if isinstance(request, SubscriberAttach) and request.entries > len(request.unsettled or ()):\n"
)

CHANNEL_EDITS: tuple[Edit, ...] = (
    Edit(
        "C12-next-number-only", "T-1",
        "        if sequence != self.received + 1:\n", "        if False:\n",
        "a stream with a lost frame in it has a hole",
        aim=("reset",),
    ),
    Edit(
        "doubled-frames", "T-1",
        "        if sequence <= self.received:\n"
        "            self._turn.counts[Decision.FRAME_STALE] += 1\n"
        "            return None\n"
        "        if sequence != self.received + 1:\n",
        "        if sequence > self.received + 1:\n",
        "a frame that arrives twice is taken twice",
        aim=("double", "shipped=0", "routers=2"),
    ),
    Edit(
        "causal", "T-3",
        "        if place in self._parked or _revision(message) > self._turn.view.applied:\n",
        "        if False:\n",
        "a SYNC that arrives before the egress knows its own attach is dropped for good",
        aim=("drop-s", "drop-p", "routers=2"),
    ),
    Edit(
        "parked-are-overtaken", "T-3",
        "        if place in self._parked or _revision",
        "        if _revision",
        "a message overtakes the SYNC that waits for the watch",
        aim=("drop-p", "drop-s", "routers=2"),
    ),
    Edit(
        "reset-repeats", "T-4",
        "            self._on_up(self.rid)\n", "            pass\n",
        "frames lost with a channel are never sent again",
        aim=("reset", "routers=2"),
    ),
    Edit(
        "first-frames-are-dropped", "T-4",
        "        self._is_first = True\n", "        self._is_first = False\n",
        "what a publisher sends settled before the first channel to a subscription is open never arrives there",
        aim=("presettled_publisher=1", "routers=2"),
    ),
    Edit(
        "bodies-without-credit", "T-5",
        "            self.send_control(Credit(self._credit_given))\n", "            pass\n",
        "an egress that gives no more credit stops its publishers after 4 MiB",
        aim=("drop-s", "large=1", "routers=2", "messages=60", "window=30", "prefetch=50"),
    ),
    Edit(
        "overtakes-what-waits", "T-6",
        "        if publisher_epoch in self.lines:\n            return False\n", "",
        "a message or a settlement overtakes the bodies of its publisher that wait for credit",
        aim=("reset", "large=1", "routers=2", "messages=60", "window=30", "prefetch=50"),
    ),
    Edit(
        "ack-epoch", "T-7",
        "        ingress = self.by_epoch.get(ack.publisher_epoch)  # T-7: numbers of this epoch only\n",
        "        ingress = self.by_epoch.get(ack.publisher_epoch) or "
        "next(iter(self.by_epoch.values()), None)\n",
        "an acknowledgement of an older window is read with the numbers of the newer one",
        aim=("drop-p", "window=8", "messages=8"),
    ),
    Edit(
        "largest-epoch", "T-8",
        "        return max((message.publisher_epoch, *message.subscription_epochs))\n",
        "        return message.publisher_epoch\n",
        "a message that names an epoch not applied yet is handled",
        aim=("drop-p", "drop-s", "routers=2"),
    ),
    Edit(
        "probe", "T-9",
        "        if self.state is ChannelState.OPENING or self._probed < self.sent:\n            self._hello_delay",
        "        if self.state is ChannelState.OPENING:\n            self._hello_delay",
        "the last frames of a quiet channel are lost and nobody asks",
        aim=("reset", "routers=2"),
    ),
    Edit(
        "probe-unheard", "T-9",
        "        elif hello.sent > self.received:\n"
        '            self.restart("frames were lost on the way")  # T-9\n',
        "",
        "a probe that shows lost frames restarts nothing",
        aim=("reset", "routers=2"),
    ),
    Edit(
        "F1-credit-for-resends", "C-1",
        "        wanted = window.unreceived + max(", "        wanted = max(",
        "a resumed map that fills the window may not be sent again",
        aim=("drop-p",),
    ),
    Edit(
        "forgets-attached-windows", "C-6",
        "        forgettable = self._endpoints.disconnected\n",
        "        forgettable = self._endpoints.ingresses\n",
        "of an attached publisher, whose link says nothing of it, nothing would be accepted any more",
        aim=("large=1",),
    ),
    Edit(
        "F36-bodies-refuse-maps", "C-6",
        " or self._maps + size <= self.limit // MAP_SHARE\n", "\n",
        "the subscribers that a full router waits for are refused for their maps",
        aim=(
            "drop-s", "drop-p", "crash-s", "shipped=1", "durable=1", "large=1", "publishers=2", "routers=1",
            "window=8", "messages=8", "prefetch=50",
        ),
    ),
    Edit(
        "C16-unaccepted-counts-only", "C-3",
        "        return self._is_locked_out(entry)\n\n    @property\n    def _is_full(self) -> bool:\n",
        "        return False\n\n    @property\n    def _is_full(self) -> bool:\n        return self.mapped >= 1\n",
        "credit that comes back on settlement deadlocks two publishers and two subscribers",
        aim=("drop-p", "publishers=2", "subscribers=2"),
    ),
    Edit(
        "credit-of-repeats", "C-3",
        "        limit = self._received + self._prefetch - self._held + len",
        "        limit = self._prefetch + len",
        "what arrives settled or again gives its credit back to nobody",
        aim=("drop-s", "shipped=1"),
    ),
    Edit(
        "map-bound", "C-4",
        "        return self._is_locked_out(entry)\n\n    @property\n", "        return False\n\n    @property\n",
        "publishers whose windows do not fit a subscriber's map deadlock each other",
        aim=("drop-s", "publishers=2", "map_bound=2", "window=8", "messages=8", "prefetch=50"),
    ),
    Edit(
        "parts-not-resumed", "C-4",
        "            return entry.state in IN_REPLY\n", "            return False\n",
        "a subscriber that has not said what became of its entries, and whose map does not fit a frame, never can",
        aim=(
            "crash-s", "narrows=1", "rounds=1", "shipped=1", "durable=1", "out_of_order=1", "window=8", "messages=8",
            "prefetch=50",
        ),
    ),
    Edit(
        "done-first", "C-4",
        "            self._presented = self._part(entries, map_bound)\n",
        "            entries.sort(key=lambda entry: not entry.recorded)\n"
        "            self._presented = entries[:map_bound]\n",
        "outcomes fill the part, and the older delivery that its publisher must hear of first is never presented",
        aim=(
            "drop-s", "crash-s", "narrows=1", "rounds=1", "shipped=1", "durable=1", "out_of_order=1", "window=8",
            "messages=8", "prefetch=50",
        ),
    ),
    Edit(
        "the-dead-fill-the-map", "C-4",
        _AWAITS_REST, "        if isinstance(request, SubscriberAttach) and request.entries:\n"
        "            request = attempt.request = replace(request, entries=0, incomplete=True)\n"
        "        if attempt.rest:\n",
        "publishers that are gone leave more in a map than a frame holds, and each attach is a round without end",
        aim=("die-p", "drop-s", "publishers=6", "mortals=5", "map_bound=2", "shipped=1", *_WIDE),
    ),
    Edit(
        "begins-with-the-first-part", "C-4",
        _AWAITS_REST, "        if attempt.rest:\n",
        "the reply leaves out what has not come yet, and its subscriber takes that for settled",
        aim=("drop-s", "narrows=1", "shipped=1", *_WIDE),
    ),
    Edit(
        "rest-is-never-left-out", "C-4",
        "        for entry in [*self._presented, *self._rest] if is_whole else self._presented:\n",
        "        for entry in self._presented:\n",
        "what was settled while the subscriber was away stays in its map, where it was no part of the attach",
        aim=("drop-s", "narrows=1", "shipped=1", *_WIDE),
    ),
)  # fmt: skip
