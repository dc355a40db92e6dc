"""What a subscriber says beside an outcome: why it rejects (I-3e), and what it adds to the message (E-4b).

Its ingress hears of it ahead of the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from delivery_records.model.annotated import merged
from delivery_records.model.limits import LETTER_ERROR_CHARS
from delivery_records.model.messages import Annotations, Reason, ToIngress
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.tags import OWN_TAG_AT, SESSION_AT
from delivery_records.model.turn import Turn
from delivery_records.subscriber.entries import OPEN_AT_SUBSCRIBER, Entry, SyncState


class Statements:
    """Of one subscriber, at its egress."""

    __slots__ = ("_answer", "_is_member", "_sessions", "_turn")

    def __init__(
        self,
        turn: Turn,
        sessions: Mapping[bytes, Mapping[bytes, Entry]],
        answer: Callable[[SyncState, ToIngress], None],
        *,
        is_member: bool,
    ) -> None:
        """Take the entries of an egress, and how it notifies the ingress of a stream.

        `is_member`: what it refuses for good may be another one's (SH-5).
        """
        self._turn = turn
        self._sessions = sessions
        self._answer = answer
        self._is_member = is_member

    def _open(self, tags: Iterable[bytes]) -> list[Entry]:
        """Of these deliveries, those that it has stated no outcome for."""
        found: list[Entry] = []
        for tag in tags:
            entries = self._sessions.get(tag[SESSION_AT:OWN_TAG_AT])
            entry = None if entries is None else entries.get(tag)
            if entry is not None and entry.state in OPEN_AT_SUBSCRIBER:
                found.append(entry)
        return found

    def reject(self, tags: Iterable[bytes], error: str) -> None:
        """I-3e: to nobody whose topic has no dead-letter topic."""
        turn = self._turn
        for entry in self._open(tags):
            sync = entry.sync
            if sync is None or sync.is_letters:
                continue
            key = turn.view.publisher_epochs.get(sync.epoch)
            if key is not None and turn.policy_of(turn.view.publishers[key].record.topic).dead_letter:
                reason = Reason(sync.epoch, sync.named, error[:LETTER_ERROR_CHARS], ((entry.number, 1),))
                self._answer(sync, reason)

    def annotate(self, tags: Iterable[bytes], outcome: DeliveryOutcome, added: Mapping[bytes, bytes]) -> bool:
        """E-4b: keep it with the deliveries. False: with what was added before it is too much for some of them."""
        if outcome.is_done and not self._is_member:
            return True  # there is no later attempt
        fits = True
        for entry in self._open(tags):
            found = merged(entry.annotations, added)
            if found is None:
                fits = False
                continue
            entry.annotations = found
            sync = entry.sync
            if sync is not None:
                self._answer(sync, Annotations(sync.epoch, sync.named, entry.number, found))
        return fits
