"""How long a subscription waited for the next message of a publisher: what a fault costs, per flow.

The checker's gaps are those of a subscription as a whole, in which one publisher's messages hide that another's do not
come. Here each pair of publisher and subscription is looked at alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from chaos.checker import Gap, PublisherHistory, SubscriberHistory, gaps_of
from chaos.events import Received, Sent
from chaos.faults import Fault, FaultCost, longest_gap_from


def flow_gaps(publishers: Sequence[PublisherHistory], subscribers: Sequence[SubscriberHistory]) -> list[Gap]:
    """All gaps of all flows; a flow is named `publisher > subscriber`."""
    sent = {each.name: _sent(each) for each in publishers}
    journals = [history.events for history in publishers] + [history.events for history in subscribers]
    end = max((events[-1].t for events in journals if events), default=0.0)
    gaps: list[Gap] = []
    for subscriber in subscribers:
        received: dict[str, dict[int, float]] = {name: {} for name in subscriber.publishers & sent.keys()}
        for event in subscriber.events:
            if isinstance(event, Received) and event.publisher in received:
                received[event.publisher].setdefault(event.seq, event.t)
        for name, answers in sorted(received.items()):
            asked = [t for seq, t in sent[name].items() if seq in answers]
            gaps += gaps_of(f"{name} > {subscriber.name}", asked, answers.values(), end)
    return gaps


def _sent(history: PublisherHistory) -> dict[int, float]:
    sent: dict[int, float] = {}
    for event in history.events:
        if isinstance(event, Sent):
            sent.setdefault(event.seq, event.t)
    return sent


def costs_of_rounds(rounds: Sequence[Sequence[Fault]], gaps: Sequence[Gap]) -> list[list[FaultCost]]:
    """Attribute to each fault the longest gap from then until the next round; those of a round share what they cost."""
    begins = [min((fault.t for fault in faults), default=float("inf")) for faults in rounds]
    ends = [min(begins[number + 1 :], default=float("inf")) for number in range(len(rounds))]
    return [
        [FaultCost(fault, longest_gap_from(gaps, fault.t, end)) for fault in faults]
        for faults, end in zip(rounds, ends, strict=True)
    ]
