"""Letters whose publisher's ingress sends none any more, because the operator's rules have changed (rule I-3e)."""

from __future__ import annotations

from delivery_records.model.letter_topics import gets_letters
from delivery_records.model.tags import is_letter_tag, session_of
from delivery_records.model.turn import Turn
from delivery_records.subscriber.egress import Egress


def settle_former_letters(turn: Turn, egress: Egress) -> None:
    """Settle what no ingress speaks for, and end its stream: what is under way would be settled by nobody either.

    An ingress that has sent its SYNC sends another one with an empty U itself.
    """
    view = turn.view
    subscription = view.subscriptions.get(egress.key)
    if subscription is None:
        return
    for session in _of_letters(turn, egress):
        key = view.sessions.get(session)
        if key is None or view.publishers[key].epoch in egress.syncs:
            continue
        topic = view.publishers[key].record.topic
        if not gets_letters(turn.policy_of(topic), topic, subscription.record.topic):
            egress.on_session_gone(session)


def _of_letters(turn: Turn, egress: Egress) -> set[int]:
    """Sessions whose letters it has, or may still be sent."""
    first = (next(iter(entries), b"") for entries in egress.sessions.values())
    kept = {session_of(tag, turn.nonce) for tag in first if is_letter_tag(tag)}
    return kept | {sync.session for sync in egress.syncs.values() if sync.is_letters}
