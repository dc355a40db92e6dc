"""Expiry of attachments: decided in one place, by compare-and-delete (rule K-5).

The owning router proposes the deletion T after it lost the link, or after the AMQP session or connection that the
expiry policy names has ended (A-9); for the keys of a dead incarnation every live router does, one after the other by
rank. A re-attach changes the mod revision, so a late proposal loses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from delivery_records.model.inputs import EndpointEnded, LinkPlace, LossCause
from delivery_records.model.limits import EXPIRY_RETRY_S, ORPHAN_RANK_STEP_S
from delivery_records.model.outcomes import Decision
from delivery_records.model.proposals import Proposals
from delivery_records.model.terms import timeout_of
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn
from delivery_records.model.view import Publisher, Subscription


def _keeps_nothing(_path: str) -> bool:
    return False


def awaited_endpoint(policy: str, cause: LossCause, place: LinkPlace) -> int:
    """Whose end starts the time of a terminus (AMQP 1.0 section 3.5.6); 0 = it starts now."""
    if policy == "session-end" and cause is LossCause.DETACH:
        return place.amqp_session
    if policy == "connection-close" and cause is not LossCause.CONNECTION_LOSS:
        return place.connection
    return 0


class Expiry:
    """Timers of attachments without a live link. Owners are etcd paths (`subs/<h>`, `pubs/<h>`)."""

    __slots__ = ("_awaited", "_paths", "_proposals", "_turn", "keeps")

    def __init__(self, turn: Turn, proposals: Proposals) -> None:
        """No attachment is waiting."""
        self.keeps: Callable[[str], bool] = _keeps_nothing
        """Whether a key is kept beyond its time; then `on_timer` is called again (A-9a)."""
        self._turn = turn
        self._proposals = proposals
        self._awaited: dict[str, int] = {}
        """The AMQP session or connection whose end starts the time of a detached terminus."""
        self._paths: dict[int, dict[str, None]] = {}
        """The same, the other way round."""

    def on_link_lost(
        self, path: str, attachment: Subscription | Publisher, policy: str, cause: LossCause, place: LinkPlace
    ) -> None:
        """The terminus is suspended: its time starts, or waits for the end that its policy names (A-9)."""
        endpoint = awaited_endpoint(policy, cause, place)
        if endpoint:
            self._wait(path, endpoint)
        else:
            self._start(path, timeout_of(attachment))

    def on_attachment_lost(self, path: str, attachment: Subscription | Publisher, endpoint: int = 0) -> None:
        """The attachment is ours, but has no link: a put whose client had gone (K-2a).

        Args:
            endpoint: what `cancel` returned when this put was seen: it goes on waiting for that.
        """
        if endpoint:
            self._wait(path, endpoint)
        else:
            self._start(path, timeout_of(attachment))

    def on_orphan(self, path: str, attachment: Subscription | Publisher) -> None:
        """Its router is gone: every router counts from its own observation, by rank (K-5)."""
        delay = timeout_of(attachment) + self._rank(path) * ORPHAN_RANK_STEP_S
        self._start(path, delay)

    def on_endpoint_ended(self, ended: EndpointEnded) -> None:
        """A-9: the time of what waited for this AMQP session or connection starts."""
        for path in self._paths.pop(ended.number, ()):
            del self._awaited[path]
            attachment = self._turn.view.attachment(path)
            assert attachment is not None, "a deletion cancels"
            self._start(path, timeout_of(attachment))

    def cancel(self, path: str) -> int:
        """The attachment was put again or deleted; returns the endpoint whose end it waited for, or 0."""
        self._turn.timers.cancel(Timer.EXPIRY, path)
        endpoint = self._awaited.pop(path, 0)
        if endpoint:
            paths = self._paths[endpoint]
            del paths[path]
            if not paths:
                del self._paths[endpoint]
        return endpoint

    def is_counting(self, path: str) -> bool:
        """True while the attachment's time runs."""
        return self._turn.timers.is_set(Timer.EXPIRY, path)

    def on_timer(self, path: str) -> None:
        """Propose the deletion; whoever re-attached meanwhile has changed the revision."""
        attachment = self._turn.view.attachment(path)
        if attachment is None or self.keeps(path):
            return
        self._turn.note(Decision.EXPIRY_PROPOSED, key=path, name=attachment.name)
        self._proposals.delete(path, attachment.epoch)
        self._turn.timers.set(Timer.EXPIRY, path, self._turn.now + EXPIRY_RETRY_S)

    def _start(self, path: str, delay: float) -> None:
        self._turn.timers.set(Timer.EXPIRY, path, self._turn.now + delay)

    def _wait(self, path: str, endpoint: int) -> None:
        self._awaited[path] = endpoint
        self._paths.setdefault(endpoint, {})[path] = None

    def _rank(self, path: str) -> int:
        """This router's place among the live ones by rendezvous hash: one proposer instead of all at once."""

        def weight(rid: int) -> bytes:
            return hashlib.sha256(f"{path}|{rid}".encode()).digest()

        mine = weight(self._turn.rid)
        return sum(1 for rid in self._turn.view.routers if rid != self._turn.rid and weight(rid) < mine)
