"""Whether a subscriber makes no progress and has to go (rule K-5b)."""

from __future__ import annotations

from typing import Protocol

from delivery_records.model.inputs import SubscriberAttach
from delivery_records.model.outcomes import Decision
from delivery_records.model.patience import SlowAction
from delivery_records.model.turn import Turn
from delivery_records.subscriber.outgoing import Outgoing
from delivery_records.subscriber.progress import Progress
from delivery_records.subscriber.proof import ProofOfLife


class Watched(Protocol):
    """The egress, as this part of it knows it."""

    key: str
    epoch: int
    name: str
    link: int
    request: SubscriberAttach
    progress: Progress | None
    outgoing: Outgoing
    proof: ProofOfLife


def action_if_slow(egress: Watched, turn: Turn) -> SlowAction | None:
    """K-5b: is the oldest unanswered delivery the one that it was?"""
    progress, outgoing = egress.progress, egress.outgoing
    sent = outgoing.sent if outgoing.is_out_of_credit else -1
    if progress is not None and outgoing.large.is_starved:
        progress.on_moved()
    if progress is None or not progress.is_slow(holds=outgoing.held > 0, sent_in_all=sent):
        return None
    if turn.is_draining or egress.outgoing.is_closing or egress.proof.is_writing:
        return None  # the link ends anyway, or a deletion at this epoch would lose
    turn.note(
        Decision.SUBSCRIBER_SLOW,
        subscription=egress.name,
        key=egress.key,
        epoch=egress.epoch,
        link=egress.link,
        action=progress.patience.action.value,
        seconds=progress.patience.seconds,
        held=outgoing.held,
        unanswered=len(progress.unanswered),
        peer=egress.request.peer,
    )
    return progress.patience.action
