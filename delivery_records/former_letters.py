"""Letters whose publisher's ingress sends none any more, because the operator's rules have changed (rule I-3e)."""

from __future__ import annotations

from delivery_records.egress import Egress
from delivery_records.letter_topics import gets_letters
from delivery_records.tags import is_letter_tag, session_of
from delivery_records.turn import Turn


def settle_former_letters(turn: Turn, egress: Egress) -> None:
    """Settle what no ingress speaks for: one that has sent its SYNC sends another one with an empty U itself."""
    view = turn.view
    subscription = view.subscriptions.get(egress.key)
    if subscription is None:
        return
    for entries in list(egress.sessions.values()):
        tag = next(iter(entries), b"")
        session = session_of(tag, turn.nonce)
        key = view.sessions.get(session)
        if key is None or not is_letter_tag(tag) or view.publishers[key].epoch in egress.syncs:
            continue
        topic = view.publishers[key].record.topic
        if not gets_letters(turn.policy_of(topic), topic, subscription.record.topic):
            egress.on_session_gone(session)
