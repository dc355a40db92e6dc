"""What a round of faults cost: how long until every flow was back at rate, and how long one waited for a message.

A flow is a pair of publisher and subscription, looked at alone: in a subscription as a whole, one publisher's messages
hide that another's do not come.

A flow is *behind* while a message that its publisher sent more than BEHIND_S ago has not reached the subscriber. With
none of them behind, messages arrive as they are sent, and what piled up meanwhile has arrived: flows are at rate.

The *recovery time* of a round runs from its first fault until no flow is behind any more. What began more than CALM_S
after the last repair and the last flow's catching up is not the fault's doing. It is 0 where no flow was ever
behind: the network led everything around the fault, or had room for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from chaos.checker import Gap, PublisherHistory, SubscriberHistory, gaps_of
from chaos.clients.events import Received, Sent
from chaos.network.faults import Fault, longest_gap_from

BEHIND_S = 0.1
"""Undisturbed messages arrive within 10 ms, on a busy machine within 50 ms."""
CALM_S = 1.0


@dataclass(frozen=True, slots=True)
class Flow:
    """One publisher's messages to one subscription: when each was sent, and when it arrived first."""

    name: str
    """publisher > subscriber"""
    pairs: Sequence[tuple[float, float]]
    """In the order in which they were sent; what never arrived is not here."""


@dataclass(frozen=True, slots=True)
class Round:
    """Faults that were fired together."""

    faults: Sequence[Fault]
    repaired: float
    """When everything was whole again: connections pass everything on, processes run and are ready."""

    @property
    def began(self) -> float:
        """When the first one was fired; never, where none was."""
        return min((fault.t for fault in self.faults), default=float("inf"))


@dataclass(frozen=True, slots=True)
class RoundCost:
    """A round, and what it cost. All times are in seconds, from its first fault on."""

    faults: Sequence[Fault]
    repaired_s: float
    recovery_s: float
    """Until no flow was behind any more."""
    wait_s: float
    """The longest time for which a flow with messages outstanding got none."""


def flows_of(publishers: Sequence[PublisherHistory], subscribers: Sequence[SubscriberHistory]) -> list[Flow]:
    """All flows of an experiment."""
    sent = {each.name: _sent(each) for each in publishers}
    flows = []
    for subscriber in subscribers:
        arrived: dict[str, dict[int, float]] = {name: {} for name in subscriber.publishers & sent.keys()}
        for event in subscriber.events:
            if isinstance(event, Received) and event.publisher in arrived:
                arrived[event.publisher].setdefault(event.seq, event.t)
        for name, times in sorted(arrived.items()):
            pairs = [(t, times[seq]) for seq, t in sent[name].items() if seq in times]
            flows.append(Flow(f"{name} > {subscriber.name}", pairs))
    return flows


def _sent(history: PublisherHistory) -> dict[int, float]:
    sent: dict[int, float] = {}
    for event in history.events:
        if isinstance(event, Sent):
            sent.setdefault(event.seq, event.t)
    return sent


def flow_gaps(flows: Iterable[Flow]) -> list[Gap]:
    """Times in which a flow with messages outstanding got none; named as the flow."""
    gaps: list[Gap] = []
    for flow in flows:
        end = max((arrived for _, arrived in flow.pairs), default=0.0)
        gaps += gaps_of(flow.name, (sent for sent, _ in flow.pairs), (arrived for _, arrived in flow.pairs), end)
    return gaps


def times_behind(flows: Iterable[Flow]) -> list[Gap]:
    """Times in which a flow was behind, in order; named as the flow. Those of one flow do not overlap."""
    return sorted((span for flow in flows for span in _behind(flow)), key=lambda span: span.start)


def _behind(flow: Flow) -> Iterator[Gap]:
    start = end = float("-inf")
    for sent, arrived in flow.pairs:
        late = sent + BEHIND_S
        if arrived <= late:
            continue
        if late > end:
            if end > start:
                yield Gap(flow.name, start, end)
            start = late
        end = max(end, arrived)
    if end > start:
        yield Gap(flow.name, start, end)


def costs_of_rounds(rounds: Sequence[Round], flows: Sequence[Flow]) -> list[RoundCost]:
    """What each round cost, until the next one begins."""
    gaps, behind = flow_gaps(flows), times_behind(flows)
    costs = []
    for number, each in enumerate(rounds):
        end = min((later.began for later in rounds[number + 1 :]), default=float("inf"))
        if each.faults:
            costs.append(_cost(each, gaps, behind, end))
    return costs


def _cost(each: Round, gaps: Sequence[Gap], behind: Sequence[Gap], end: float) -> RoundCost:
    began = each.began
    caught_up = began
    for span in behind:
        if span.start >= min(end, max(each.repaired, caught_up) + CALM_S):
            break
        caught_up = max(caught_up, span.end)
    return RoundCost(each.faults, each.repaired - began, caught_up - began, longest_gap_from(gaps, began, end))
