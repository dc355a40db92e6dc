"""Edits that a schedule shows which no seed finds: it is written down in `tests/delivery_records/scenarios`.

A lease must end, a subscription be confirmed, and only then the publisher send, each at the right router; or a deletion
must be seen by one router and not by the other while a copy waits for credit; or a stale attach must reach etcd between
the write that shows life and the close.
"""

from __future__ import annotations

from chaos.mutants.edits import Edit

DIRECTED: tuple[Edit, ...] = (
    Edit(
        "fence-late",
        "K-3",
        "FENCE_FRACTION = 2 / 3\n",
        "FENCE_FRACTION = 6\n",
        "a router goes on confirming after its lease has ended and others no longer wait for it",
        is_directed=True,
    ),
    Edit(
        "unvetted-reads",
        "K-3a",
        "        if self._lost or now >= self.deadline:\n"
        "            self._fenced = True\n"
        "        return not self._fenced\n",
        "        return True\n",
        "what was sent while the process was stopped is accepted after its lease has ended (F14)",
        is_directed=True,
    ),
    Edit(
        "deleted-where-seen",
        "T-3",
        "        self._left_at = self._turn.view.applied\n",
        "",
        "a message for all synced subscriptions reaches one that the ingress knows to be deleted, behind a hole",
        is_directed=True,
    ),
    Edit(
        "settle-before-the-deletion",
        "T-3",
        "            self._make_settles_wait()\n",
        "",
        "a subscription that is deleted and does not know it yet loses what is held for it, and gets what comes after",
        is_directed=True,
    ),
    Edit(
        "unsubscribed-too-early",
        "E-8",
        "            endpoint.outgoing.is_closing = True  # E-8\n",
        "            endpoint.outgoing.is_closing = True\n"
        "            self.turn.out.append(effects.DetachLink(detach.link, True))\n",
        "a client that believes it has unsubscribed leaves a subscription behind (F3)",
        is_directed=True,
    ),
    Edit(
        "lost-close-looks-done",
        "E-8",
        "            self._turn.out.append(effects.DetachLink(link, True, STOLEN, _LOST_CLOSE))\n",
        "            self._turn.out.append(effects.DetachLink(link, True))\n",
        "a close that lost its compare is answered as if it had won (F3)",
        is_directed=True,
    ),
    Edit(
        "F3-no-ghosts",
        "A-10",
        "        provisional = record is None and terms.timeout_s > PROVISIONAL_TIMEOUT_S  # A-10\n",
        "        provisional = False\n",
        "a stale attach brings a closed subscription back for as long as its timeout",
        is_directed=True,
    ),
    Edit(
        "any-flow-shows-life",
        "A-10",
        "        if flow.delivery_count > 0 or flow.echoed_epoch == self.epoch:\n",
        "        if True:\n",
        "a flow pipelined behind a stale attach brings a closed subscription back for as long as its timeout",
        is_directed=True,
    ),
    Edit(
        "session-behind-its-subscriber",
        "K-4",
        "        turn.view.announce(snapshot.entries)\n",
        "",
        "a snapshot settles what a subscriber has processed of a publisher that moved later (F37)",
        is_directed=True,
    ),
)
