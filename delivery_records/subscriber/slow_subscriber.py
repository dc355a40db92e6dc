"""Whether a subscriber makes no progress and has to go (rule K-5b)."""

from __future__ import annotations

from delivery_records.model.endpoint import Endpoint
from delivery_records.model.outcomes import Decision
from delivery_records.model.patience import SlowAction
from delivery_records.model.turn import Turn
from delivery_records.subscriber.outgoing import Outgoing
from delivery_records.subscriber.progress import Progress
from delivery_records.subscriber.proof import ProofOfLife


def action_if_slow(
    endpoint: Endpoint, peer: str, outgoing: Outgoing, progress: Progress | None, proof: ProofOfLife, turn: Turn
) -> SlowAction | None:
    """K-5b: is the oldest unanswered delivery of this subscriber the one that it was?"""
    sent = outgoing.sent if outgoing.is_out_of_credit else -1
    if progress is not None and outgoing.large.is_starved:
        progress.on_moved()
    if progress is None or not progress.is_slow(holds=outgoing.held > 0, sent_in_all=sent):
        return None
    if turn.is_draining or outgoing.is_closing or proof.is_writing:
        return None  # the link ends anyway, or a deletion at this epoch would lose
    turn.note(
        Decision.SUBSCRIBER_SLOW,
        subscription=endpoint.name,
        key=endpoint.key,
        epoch=endpoint.epoch,
        link=outgoing.link,
        action=progress.patience.action.value,
        seconds=progress.patience.seconds,
        held=outgoing.held,
        unanswered=len(progress.unanswered),
        peer=peer,
    )
    return progress.patience.action
