"""A subscriber's core that gives the application no copy of a message (rule D-3).

A copy has the user and the message-id of an earlier delivery. Ids of what the application is done with are kept; a copy
of one of these is done with the same outcome. A copy of what the application still has waits for it and shares its
outcome. Until something is done it suppresses nothing: a process that fails before that is sent each copy again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from oncewire.client.arrived_entry import ArrivedEntry
from oncewire.client.core_effects import DeliverMessage, SubscriberEffect
from oncewire.client.defaults import PREFETCH
from oncewire.client.journal_records import DoneId, MessageIdentity, SubscriberChanges, SubscriberState
from oncewire.client.outcomes import ACCEPTED, Outcome, OutcomeKind, rejected
from oncewire.client.subscriber_core import SubscriberCore

IDS_PER_USER = 2048
"""Ids kept of one user: two windows of deliveries (C-1). A stock publisher sends at most a window again, and its first
copy is at most a window behind; the other window is for a second publisher of the same user."""
USERS = 128
"""Users of whom ids are kept: with 2,048 each this is a quarter of a million, 20 MB in a journal, 70 MB in memory."""
REJECTED = rejected("oncewire:rejected-by-application", "a copy of a message that was rejected")
"""Outcome of a copy of a rejected message. The reason of the first rejection is not kept: its length has no bound."""

Identify: TypeAlias = Callable[[bytes, int], MessageIdentity | None]
"""The identity of a payload with a message-format; None: it has none and is no copy of anything."""


class DeduplicatingCore(SubscriberCore):
    """See the module.

    Args:
        identify: reads the identity of a message.
        prefetch: unprocessed deliveries that may come ahead. A copy that waits is one of them.
        exactly_once: as for SubscriberCore.
        recovered: what the journal holds.
        is_shared: as for SubscriberCore.
        ids_per_user: ids kept of one user.
    """

    def __init__(
        self,
        identify: Identify,
        *,
        prefetch: int = PREFETCH,
        exactly_once: bool = True,
        recovered: SubscriberState | None = None,
        is_shared: bool = False,
        ids_per_user: int = IDS_PER_USER,
    ) -> None:
        super().__init__(prefetch=prefetch, exactly_once=exactly_once, recovered=recovered, is_shared=is_shared)
        self._identify = identify
        self._ids_per_user = ids_per_user
        self._done: dict[str, dict[bytes, bool]] = {}
        """By user, the user with the newest id last: ids, the newest last, and whether the message was rejected."""
        self._identities: dict[int, MessageIdentity] = {}
        """By serial, of deliveries that the application has."""
        self._waiting: dict[MessageIdentity, list[int]] = {}
        """Serials of the copies of each of these."""
        self._new_ids: list[DoneId] = []
        self._old_ids: dict[MessageIdentity, None] = {}
        for done in recovered.done_ids if recovered is not None else ():
            self._ids_of(done.identity.user)[done.identity.digest] = done.is_rejected

    # ------------------------------------------------------------------------------------------ the application

    def complete(self, serial: int, outcome: Outcome) -> None:
        """The application has processed a delivery: so have its copies been that wait; the next commit records both.

        Raises:
            KeyError: the delivery was completed before.
        """
        super().complete(serial, outcome)
        identity = self._identities.pop(serial, None)
        if identity is None:
            return
        if outcome.kind in {OutcomeKind.ACCEPTED, OutcomeKind.REJECTED}:  # else it comes again
            self._keep(identity, is_rejected=not outcome.is_accepted)
        for copy in self._waiting.pop(identity):
            super().complete(copy, outcome)

    def end_subscription(self, *, keeps_done: bool = True) -> None:
        """See SubscriberCore; with what is done the ids are kept."""
        super().end_subscription(keeps_done=keeps_done)
        self._identities.clear()
        self._waiting.clear()
        if not keeps_done:
            for user in list(self._done):
                self._forget_user(user)

    # ------------------------------------------------------------------------------------------------- the link

    def _arrive(
        self,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        settled: bool,
        message_format: int,
        effects: list[SubscriberEffect],
    ) -> None:
        super()._arrive(delivery_id, tag, payload, settled, message_format, effects)
        self._hold_back_copies(effects)

    def _take_body(self, entry: ArrivedEntry, payload: bytes, effects: list[SubscriberEffect]) -> None:
        super()._take_body(entry, payload, effects)
        self._hold_back_copies(effects)

    def _hold_back_copies(self, effects: list[SubscriberEffect]) -> None:
        """D-3: take back the effect that hands a delivery over, if the delivery is a copy."""
        handed = effects[-1]
        assert isinstance(handed, DeliverMessage)
        identity = self._identify(handed.payload, handed.message_format)
        if identity is None:
            return
        is_rejected = self._done.get(identity.user, {}).get(identity.digest)
        if is_rejected is None and identity not in self._waiting:
            self._identities[handed.serial] = identity
            self._waiting[identity] = []
            return
        effects.pop()
        self.copies += 1
        self._unprocessed[handed.serial].payload = b""  # if the first one fails here, that one is handed over again
        if is_rejected is None:
            self._waiting[identity].append(handed.serial)
        else:
            super().complete(handed.serial, REJECTED if is_rejected else ACCEPTED)

    # ---------------------------------------------------------------------------------------------- the journal

    def next_commit(self) -> SubscriberChanges:
        """See SubscriberCore; ids are written together with what they stand for."""
        changes = super().next_commit()
        if self._new_ids or self._old_ids:
            kept = tuple(done for done in self._new_ids if done.identity not in self._old_ids)
            changes = changes._replace(done_ids=kept, forgotten_ids=tuple(self._old_ids))
            self._new_ids = []
            self._old_ids = {}
        return changes

    def _keep(self, identity: MessageIdentity, *, is_rejected: bool) -> None:
        ids = self._ids_of(identity.user)
        ids[identity.digest] = is_rejected
        self._old_ids.pop(identity, None)
        self._new_ids.append(DoneId(identity, is_rejected))
        while len(ids) > self._ids_per_user:
            self._forget_id(identity.user, next(iter(ids)))
        if len(self._done) > USERS:
            self._forget_user(next(iter(self._done)))

    def _ids_of(self, user: str) -> dict[bytes, bool]:
        """The ids of a user who now has the newest one."""
        ids = self._done[user] = self._done.pop(user, {})
        return ids

    def _forget_id(self, user: str, digest: bytes) -> None:
        del self._done[user][digest]
        self._old_ids[MessageIdentity(user, digest)] = None

    def _forget_user(self, user: str) -> None:
        for digest in list(self._done[user]):
            self._forget_id(user, digest)
        del self._done[user]
