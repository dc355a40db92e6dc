"""Expiry of attachments: decided in one place, by compare-and-delete (rule K-5).

The owning router proposes the deletion T after it lost the link; for the keys of a dead incarnation every live router
does, one after the other by rank. A re-attach changes the mod revision, so a late proposal loses.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from delivery_records.inputs import LossCause
from delivery_records.limits import (
    EXPIRY_RETRY_S,
    ORPHAN_RANK_STEP_S,
    PROVISIONAL_TIMEOUT_S,
    SUSPENDED_EXTRA_S,
)
from delivery_records.outcomes import Decision
from delivery_records.timers import Timer
from delivery_records.view import Publisher, Subscription

if TYPE_CHECKING:
    from delivery_records.records import Records

_POLICY_CAUSES = {
    "link-detach": frozenset(LossCause),
    "session-end": frozenset({LossCause.SESSION_END, LossCause.CONNECTION_LOSS}),
    "connection-close": frozenset({LossCause.CONNECTION_LOSS}),
    "never": frozenset(LossCause),  # K-5: never is the cap, counted from any loss
}


class Expiry:
    """Timers of attachments without a live link. Owners are etcd paths (`subs/<h>`, `pubs/<h>`)."""

    __slots__ = ("_core",)

    def __init__(self, core: Records) -> None:
        """No attachment is waiting."""
        self._core = core

    def on_link_lost(self, path: str, attachment: Subscription | Publisher, policy: str, cause: LossCause) -> None:
        """Start the terminus timer (A-9, AMQP 1.0 section 3.5.6).

        Where the policy's own event (the end of the session or connection) is still to come, it gets SUSPENDED_EXTRA_S.
        """
        expires_now = cause in _POLICY_CAUSES.get(policy, frozenset(LossCause))
        self._start(path, self.timeout_of(attachment) + (0.0 if expires_now else SUSPENDED_EXTRA_S))

    def on_attachment_lost(self, path: str, attachment: Subscription | Publisher) -> None:
        """The attachment is ours, but has no link: a put whose client had gone (K-2a)."""
        self._start(path, self.timeout_of(attachment))

    def on_orphan(self, path: str, attachment: Subscription | Publisher) -> None:
        """Its router is gone: every router counts from its own observation, by rank (K-5)."""
        delay = self.timeout_of(attachment) + self._rank(path) * ORPHAN_RANK_STEP_S
        self._start(path, delay)

    def cancel(self, path: str) -> None:
        """The attachment was put again or deleted."""
        self._core.timers.cancel(Timer.EXPIRY, path)

    def is_counting(self, path: str) -> bool:
        """True while the attachment's time runs."""
        return self._core.timers.is_set(Timer.EXPIRY, path)

    def on_timer(self, path: str) -> None:
        """Propose the deletion; whoever re-attached meanwhile has changed the revision."""
        attachment = self._core.attachment(path)
        if attachment is None:
            return
        self._core.note(Decision.EXPIRY_PROPOSED, key=path, name=attachment.name)
        self._core.propose_deletion(path, attachment.epoch)
        self._core.timers.set(Timer.EXPIRY, path, self._core.now + EXPIRY_RETRY_S)

    def timeout_of(self, attachment: Subscription | Publisher) -> float:
        """T in seconds; a provisional subscription has at most T_prov (A-10)."""
        if isinstance(attachment, Subscription) and attachment.record.provisional:
            return min(attachment.record.timeout_s, PROVISIONAL_TIMEOUT_S)
        return attachment.record.timeout_s

    def _start(self, path: str, delay: float) -> None:
        self._core.timers.set(Timer.EXPIRY, path, self._core.now + delay)

    def _rank(self, path: str) -> int:
        """This router's place among the live ones by rendezvous hash: one proposer instead of all at once."""

        def weight(rid: int) -> bytes:
            return hashlib.sha256(f"{path}|{rid}".encode()).digest()

        mine = weight(self._core.rid)
        return sum(1 for rid in self._core.view.routers if rid != self._core.rid and weight(rid) < mine)
