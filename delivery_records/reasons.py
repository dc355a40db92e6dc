"""Why a subscriber rejects: its egress tells the ingress, for the dead letter (rule I-3e)."""

from __future__ import annotations

from collections.abc import Callable

from delivery_records.attachments.view import LETTERS
from delivery_records.channels.messages import Reason, ToIngress
from delivery_records.entries import Entry, SyncState
from delivery_records.limits import LETTER_ERROR_CHARS
from delivery_records.turn import Turn


def tell_reason(turn: Turn, answer: Callable[[SyncState, ToIngress], None], entry: Entry, error: str) -> None:
    """Ahead of the ACK, which goes out at the end of the turn; to nobody whose topic has no dead-letter topic."""
    sync = entry.sync
    if sync is None or sync.is_letters:
        return
    key = turn.view.publisher_epochs.get(sync.epoch)
    if key is None or not turn.policy_of(turn.view.publishers[key].record.topic).dead_letter:
        return
    router = turn.view.routers.get(sync.ingress_rid)
    if sync.ingress_rid == turn.rid or (router is not None and router.record.protocol_max >= LETTERS):
        answer(sync, Reason(sync.epoch, sync.named, error[:LETTER_ERROR_CHARS], ((entry.number, 1),)))
