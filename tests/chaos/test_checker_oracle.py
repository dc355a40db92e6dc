"""The checker against a naive oracle that states each word's definition over all events, without folding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.checker import PublisherHistory, SubscriberHistory, judge
from chaos.clients.events import Accepted, Confirmed, Event, Incarnation, Processed, Received, Sent
from tests.support.effort import rounds

NAMES = ("p", "q", "stranger")
SEQS = st.integers(1, 5)
EXPECTED = [f"d{seq}" for seq in range(1, 5)]
"""Number 5 is in nobody's share."""
SUBSCRIBED = frozenset({"p", "q"})


def publisher_events() -> st.SearchStrategy[list[Event]]:
    kinds = st.one_of(
        st.builds(lambda seq: Sent(0.0, seq, f"d{seq}"), SEQS),
        st.builds(lambda seq: Accepted(0.0, seq), SEQS),
        st.builds(lambda seq: Sent(0.0, seq, "altered"), SEQS),
    )
    return st.lists(kinds, max_size=14)


def subscriber_events() -> st.SearchStrategy[list[Event]]:
    names = st.sampled_from(NAMES)
    kinds = st.one_of(
        st.builds(lambda name, seq: Received(0.0, name, seq, f"d{seq}"), names, SEQS),
        st.builds(lambda name, seq: Processed(0.0, name, seq, f"d{seq}"), names, SEQS),
        st.builds(lambda name, seq: Processed(0.0, name, seq, f"d{seq}"), names, SEQS),
        st.builds(lambda name, seq: Processed(0.0, name, seq, "altered"), names, SEQS),
        st.builds(lambda number: Incarnation(0.0, number), st.integers(1, 2)),
        st.just(Confirmed(0.0)),
    )
    return st.lists(kinds, max_size=20)


def at_times(events: Sequence[Event], times: Sequence[int]) -> list[Event]:
    return [replace(event, t=float(t)) for event, t in zip(events, sorted(times)[: len(events)], strict=True)]


TIMES = st.lists(st.integers(0, 30), min_size=20, max_size=20)
HISTORIES = st.tuples(
    st.builds(at_times, publisher_events(), TIMES),
    st.builds(at_times, publisher_events(), TIMES),
    st.builds(at_times, subscriber_events(), TIMES),
)


class Oracle:
    """Every definition, literally."""

    def __init__(self, published: dict[str, list[Event]], seen: list[Event]) -> None:
        self.published = published
        self.seen = seen
        numbers = [(at, event.number) for at, event in enumerate(seen) if isinstance(event, Incarnation)]
        starts = [0, *(at for (_, before), (at, now) in pairwise(numbers) if before != now), len(seen)]
        self.lives = [seen[start:end] for start, end in pairwise(starts)]

    def valid(self, event: Event) -> bool:
        if not isinstance(event, Received | Processed) or event.publisher not in SUBSCRIBED:
            return False
        was_sent = any(isinstance(e, Sent) and e.seq == event.seq for e in self.published[event.publisher])
        return was_sent and event.seq <= len(EXPECTED) and event.digest == EXPECTED[event.seq - 1]

    def processed(self) -> list[tuple[str, int]]:
        return [(e.publisher, e.seq) for e in self.seen if isinstance(e, Processed) and self.valid(e)]

    def unexpected(self) -> int:
        wrong = {
            (e.publisher, e.seq, e.digest)
            for e in self.seen
            if isinstance(e, Received | Processed) and not self.valid(e)
        }
        return len(wrong)

    def duplicated(self) -> int:
        return len(self.processed()) - len(set(self.processed()))

    def firsts(self, life: Sequence[Event]) -> list[tuple[str, int]]:
        """First processings of what last arrived in this life, or, without having arrived, was processed in it."""
        found: list[tuple[str, int]] = []
        arrived_in: dict[tuple[str, int], Sequence[Event]] = {}
        before: set[tuple[str, int]] = set()
        for each in self.lives:
            for event in each:
                if not isinstance(event, Received | Processed) or not self.valid(event):
                    continue
                key = event.publisher, event.seq
                if isinstance(event, Received):
                    arrived_in[key] = each
                elif key not in before:
                    before.add(key)
                    if arrived_in.get(key, each) is life:
                        found.append(key)
        return found

    def reordered(self) -> int:
        count = 0
        for life in self.lives:
            firsts = self.firsts(life)
            for at, (name, seq) in enumerate(firsts):
                count += any(other == name and later > seq for other, later in firsts[:at])
        return count

    def owes(self, life: Sequence[Event], name: str, seq: int, sent: float) -> bool:
        confirmed = [e.t for e in life if isinstance(e, Confirmed)][:1]
        after_one = any(other == name and earlier < seq for other, earlier in self.firsts(life))
        return any(sent > t for t in confirmed) or after_one

    def missing(self) -> tuple[int, int]:
        lost = excused = 0
        for name in SUBSCRIBED:
            sent = {e.seq: e.t for e in reversed(self.published[name]) if isinstance(e, Sent)}
            accepted = {e.seq for e in self.published[name] if isinstance(e, Accepted)}
            for seq in sent.keys() & accepted:
                if (name, seq) in self.processed():
                    continue
                owing = [life for life in self.lives if self.owes(life, name, seq, sent[seq])]
                holes = [life for life in owing if any(o == name and s > seq for o, s in self.firsts(life))]
                if self.lives[-1] in owing or holes:
                    lost += 1
                elif owing:
                    excused += 1
        return lost, excused


@pytest.mark.slow
@settings(max_examples=rounds(600), deadline=None)
@given(HISTORIES)
def test_the_checker_agrees_with_the_definitions(histories: tuple[list[Event], list[Event], list[Event]]) -> None:
    p, q, seen = histories
    verdict = judge(
        [PublisherHistory("p", EXPECTED, p), PublisherHistory("q", EXPECTED, q)],
        [SubscriberHistory("s", SUBSCRIBED, seen)],
    )
    oracle = Oracle({"p": p, "q": q}, seen)
    found = verdict.subscribers[0]
    assert (found.lost, found.excused) == oracle.missing()
    assert found.duplicated == oracle.duplicated()
    assert found.reordered == oracle.reordered()
    assert found.unexpected == oracle.unexpected()
    assert found.processed == len(set(oracle.processed()))
    assert found.incarnations == len(oracle.lives)


@settings(max_examples=rounds(200), deadline=None)
@given(HISTORIES)
def test_gaps_never_overlap_and_lie_within_the_experiment(histories: tuple[list[Event], ...]) -> None:
    p, q, seen = histories
    verdict = judge(
        [PublisherHistory("p", EXPECTED, p), PublisherHistory("q", EXPECTED, q)],
        [SubscriberHistory("s", SUBSCRIBED, seen)],
    )
    ordered = sorted(verdict.gaps, key=lambda gap: gap.start)
    assert all(gap.start <= gap.end for gap in ordered)
    assert all(first.end <= second.start for first, second in pairwise(ordered))
    assert list(verdict.gaps) == sorted(verdict.gaps, key=lambda gap: -gap.seconds)
