"""The verdict on an experiment, from the clients' journals and the source data; the network is not asked.

Words as Jepsen uses them. For one subscription:

* *lost*: the publisher got accepted, the message was owed to the subscription, and it was not processed.
  Owed are messages sent after the subscription was confirmed (G1) and those that follow one it processed (G4).
* *duplicated*: processed more than once (each further time counts).
* *repeated*: processed more than once, too, but by another member of a shared subscription, which was shown that
  somebody had it before: that is all that can be had where a member leaves with what it has (SH-3).
* *reordered*: processed after a later message of the same publisher (G3); of a shared subscription with groups, after
  a later one of the same publisher and group (SH-6); of one without, order is not promised.
* *unexpected*: received or processed, but never sent, not of this subscription's topics, or with other content
  than the source has at that place.
* *stuck*: received and never processed; for a publisher: a message of its share without an outcome.
* *excused*: owed to a subscription incarnation that ended (expired), and not processed: the network said so (G4).

The functions are pure: events and expected digests in, `Verdict` out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from chaos.clients.events import (
    Accepted,
    Confirmed,
    Event,
    Incarnation,
    OutcomeUnknown,
    Processed,
    Received,
    Refused,
    Resumed,
    Sent,
)
from chaos.clients.groups import group_of

Key: TypeAlias = tuple[str, int]
"""A message: its publisher's name and its number in the publisher's share, from 1."""

ALLOWED = frozenset({"excused", "repeated"})
"""Counts that are no findings."""
EXAMPLES_SHOWN = 5
"""Messages named per finding: enough to start looking, short enough to read."""

GAP_KEPT_S = 0.05
"""Shorter gaps are the rhythm of the load; of those only each client's longest is kept."""


@dataclass(frozen=True, slots=True)
class PublisherHistory:
    """What a publisher did: its events in order, and the digests of its share of the source, seq 1 first."""

    name: str
    expected: Sequence[str]
    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class SubscriberHistory:
    """What a subscriber saw: its events in order, and the publishers whose topics it subscribes to."""

    name: str
    publishers: frozenset[str]
    events: Sequence[Event]
    is_shared: bool = False
    """The events are those of all members of a shared subscription."""
    left_with: frozenset[Key] = frozenset()
    """What members had processed that are gone for good: another may process it once more if it is flagged."""
    groups: int = 0
    """Groups of half of each publisher's messages, which members get in order; 0: none."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which a client with messages outstanding heard nothing of them."""

    client: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class PublisherVerdict:
    """Counts of one publisher."""

    name: str
    planned: int
    published: int
    accepted: int
    refused: int
    unknown: int
    stuck: int
    unexpected: int
    """Sent although it is not in the source, or accepted although never sent."""
    resumed: int
    longest_gap: Gap | None

    @property
    def passed(self) -> bool:
        """True when every message of the share was accepted, and nothing else was sent."""
        failed = self.stuck or self.unexpected or self.refused or self.unknown
        return self.accepted == self.planned and not failed


@dataclass(frozen=True, slots=True)
class SubscriberVerdict:
    """Counts of one subscription, with a few examples (`publisher/seq`) of each finding."""

    name: str
    received: int
    processed: int
    lost: int
    duplicated: int
    repeated: int
    reordered: int
    unexpected: int
    stuck: int
    excused: int
    redelivered: int
    resumed: int
    incarnations: int
    longest_gap: Gap | None
    examples: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """True when nothing was lost, duplicated, reordered, unexpected or stuck."""
        return not (self.lost or self.duplicated or self.reordered or self.unexpected or self.stuck)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement: per publisher and per subscription."""

    publishers: Sequence[PublisherVerdict]
    subscribers: Sequence[SubscriberVerdict]
    gaps: Sequence[Gap]
    """The subscriptions' gaps, longest first."""

    @property
    def passed(self) -> bool:
        """True when every publisher and every subscription passed."""
        return all(p.passed for p in self.publishers) and all(s.passed for s in self.subscribers)

    def total(self, count: str) -> int:
        """Sum a count, by name, over all publishers and subscriptions that have it."""
        return sum(getattr(each, count, 0) for each in (*self.publishers, *self.subscribers))

    def findings(self) -> list[str]:
        """One line per thing that is wrong; empty when the verdict is passed."""
        lines = [
            f"publisher {each.name}: {count} {getattr(each, count)}"
            for each in self.publishers
            for count in ("stuck", "unexpected", "refused", "unknown")
            if getattr(each, count)
        ]
        lines += [
            f"publisher {each.name}: accepted {each.accepted} of {each.planned}"
            for each in self.publishers
            if each.accepted != each.planned
        ]
        for subscriber in self.subscribers:
            for count, examples in subscriber.examples.items():
                if count not in ALLOWED:
                    number = getattr(subscriber, count)
                    lines.append(f"subscriber {subscriber.name}: {count} {number}: {', '.join(examples)}")
        return lines


def judge(publishers: Sequence[PublisherHistory], subscribers: Sequence[SubscriberHistory]) -> Verdict:
    """Judge an experiment that has ended."""
    journals = [history.events for history in publishers] + [history.events for history in subscribers]
    end = max((events[-1].t for events in journals if events), default=0.0)
    sources = {publisher.name: _Source(publisher) for publisher in publishers}
    judged = [_judge_subscriber(_Subscription(each, sources), sources, end) for each in subscribers]
    gaps = sorted((gap for _, found in judged for gap in found), key=lambda gap: gap.seconds, reverse=True)
    return Verdict(
        publishers=[sources[each.name].verdict(end) for each in publishers],
        subscribers=[verdict for verdict, _ in judged],
        gaps=gaps,
    )


def longest_gap_within(gaps: Iterable[Gap], start: float, end: float) -> Gap | None:
    """Find the longest gap of the time from `start` to `end`: what a fault at `start` cost.

    A gap belongs to the time its middle lies in: one that a fault makes began a little before it, at the last message.
    """
    return _longest([gap for gap in gaps if start <= (gap.start + gap.end) / 2 < end])


class _Source:
    """A publisher's history, folded: what it sent and when, and what was reported to it."""

    def __init__(self, history: PublisherHistory) -> None:
        self.history = history
        self.sent: dict[int, float] = {}
        self.outcomes: dict[int, float] = {}
        self.accepted: set[int] = set()
        self.refused: set[int] = set()
        self.unknown: set[int] = set()
        self.unexpected: set[tuple[int, str]] = set()
        self.resumed = 0
        for event in history.events:
            self._fold(event)

    def holds(self, seq: int, digest: str) -> bool:
        """State whether the source has this content at this place."""
        expected = self.history.expected
        return 1 <= seq <= len(expected) and expected[seq - 1] == digest

    def _fold(self, event: Event) -> None:
        if isinstance(event, Sent):
            # A client killed between this line and the send writes it again in its next life: the first counts.
            self.sent.setdefault(event.seq, event.t)
            if not self.holds(event.seq, event.digest):
                self.unexpected.add((event.seq, event.digest))
        elif isinstance(event, Accepted):
            self._reported(event.seq, event.t, self.accepted)
        elif isinstance(event, Refused):
            self._reported(event.seq, event.t, self.refused)
        elif isinstance(event, OutcomeUnknown):
            self._reported(event.seq, event.t, self.unknown)
        elif isinstance(event, Resumed):
            self.resumed += 1

    def _reported(self, seq: int, t: float, outcome: set[int]) -> None:
        outcome.add(seq)
        if seq in self.sent:
            self.outcomes.setdefault(seq, t)
        else:
            self.unexpected.add((seq, "outcome of a message that was never sent"))

    def verdict(self, end: float) -> PublisherVerdict:
        planned = range(1, len(self.history.expected) + 1)
        answered = self.accepted | self.refused | self.unknown
        return PublisherVerdict(
            name=self.history.name,
            planned=len(planned),
            published=len(self.sent),
            accepted=len(self.accepted),
            refused=len(self.refused),
            unknown=len(self.unknown - self.accepted),
            stuck=len((self.sent.keys() | set(planned)) - answered),
            unexpected=len(self.unexpected),
            resumed=self.resumed,
            longest_gap=_longest(gaps_of(self.history.name, self.sent.values(), self.outcomes.values(), end)),
        )


@dataclass(slots=True)
class _Life:
    """One subscription incarnation: since when messages are owed to it, and how far it processed each publisher."""

    confirmed: float | None = None
    lowest: dict[str, int] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)

    def owes(self, key: Key, sent: float) -> bool:
        """State whether the message must be processed: sent after the confirmation (G1) or after one processed (G4)."""
        publisher, seq = key
        return (self.confirmed is not None and sent > self.confirmed) or seq > self.lowest.get(publisher, seq)


class _Subscription:
    """A subscriber's history, folded."""

    def __init__(self, history: SubscriberHistory, sources: Mapping[str, _Source]) -> None:
        self.history = history
        self.lives = [_Life()]
        self.receptions: dict[Key, float] = {}
        self._arrived_in: dict[Key, _Life] = {}
        """The incarnation a message last arrived in; it may be processed in a later one.

        What a process died with may come anew in the next incarnation, and is no part of the earlier stream then.
        """
        self.processed: set[Key] = set()
        self.received = self.redelivered = self.resumed = 0
        self.duplicated: list[Key] = []
        self.repeated: list[Key] = []
        self._flagged: set[Key] = set()
        """What came last with the sign that somebody had it before."""
        self.reordered: list[Key] = []
        self._last_of_group: dict[Key, int] = {}
        """By publisher and group, the highest number that was processed (SH-6)."""
        self.unexpected: dict[tuple[str, int, str], None] = {}
        self._sources = sources
        self._number: int | None = None
        for event in history.events:
            self._fold(event)

    def _fold(self, event: Event) -> None:
        if isinstance(event, Received):
            self.received += 1
            self.redelivered += event.redelivered
            self._mark((event.publisher, event.seq), event.redelivered)
            if self._vet(event):
                self.receptions.setdefault((event.publisher, event.seq), event.t)
                self._arrived_in[event.publisher, event.seq] = self.lives[-1]
        elif isinstance(event, Processed):
            if self._vet(event):
                self._process((event.publisher, event.seq))
        elif isinstance(event, Confirmed):
            if self.lives[-1].confirmed is None:
                self.lives[-1].confirmed = event.t
        elif isinstance(event, Resumed):
            self.resumed += 1
        elif isinstance(event, Incarnation) and event.number != self._number and not self.history.is_shared:
            # Incarnations of members are no end of the subscription: it owes to the others what one leaves (SH-3).
            if self._number is not None:
                self.lives.append(_Life())
            self._number = event.number

    def _mark(self, key: Key, redelivered: bool) -> None:
        if redelivered:
            self._flagged.add(key)
        else:
            self._flagged.discard(key)

    def _vet(self, event: Received | Processed) -> bool:
        source = self._sources.get(event.publisher) if event.publisher in self.history.publishers else None
        if source is not None and event.seq in source.sent and source.holds(event.seq, event.digest):
            return True
        self.unexpected[event.publisher, event.seq, event.digest] = None
        return False

    def _process(self, key: Key) -> None:
        publisher, seq = key
        if key in self.processed:
            is_repeat = key in self.history.left_with and key in self._flagged and key not in self.repeated
            (self.repeated if is_repeat else self.duplicated).append(key)
            return
        self.processed.add(key)
        life = self._arrived_in.get(key, self.lives[-1])
        life.lowest[publisher] = min(seq, life.lowest.get(publisher, seq))
        if seq >= life.highest.get(publisher, 0):
            life.highest[publisher] = seq
        elif not self.history.is_shared:
            self.reordered.append(key)
        group = group_of(seq, self.history.groups)
        if group is not None:
            last = self._last_of_group.get((publisher, group), 0)
            if seq < last:
                self.reordered.append(key)
            self._last_of_group[publisher, group] = max(seq, last)

    def is_lost(self, key: Key, sent: float) -> bool | None:
        """Classify an accepted message that was not processed: True lost, False excused, None not owed at all."""
        *ended, last = self.lives
        if last.owes(key, sent):
            return True
        owing = [life for life in ended if life.owes(key, sent)]
        if not owing:
            return None
        # What an incarnation processed has no holes (G4); only the tail it was owed at its end is excused.
        return any(key[1] < life.highest.get(key[0], 0) for life in owing)


def _judge_subscriber(
    subscription: _Subscription, sources: Mapping[str, _Source], end: float
) -> tuple[SubscriberVerdict, list[Gap]]:
    lost: list[Key] = []
    excused: list[Key] = []
    awaited: list[float] = []
    for publisher in sorted(subscription.history.publishers & sources.keys()):
        source = sources[publisher]
        for seq, sent in source.sent.items():
            key = (publisher, seq)
            if key in subscription.receptions:
                awaited.append(sent)
            if key in subscription.processed or seq not in source.accepted:
                continue
            lost_or_excused = subscription.is_lost(key, sent)
            if lost_or_excused is not None:
                (lost if lost_or_excused else excused).append(key)
            if lost_or_excused and key not in subscription.receptions:
                awaited.append(sent)
    stuck = [key for key in subscription.receptions if key not in subscription.processed]
    stuck = sorted(set(stuck) - set(lost) - set(excused))
    gaps = gaps_of(subscription.history.name, awaited, subscription.receptions.values(), end)
    findings: dict[str, list[Key]] = {
        "lost": lost,
        "duplicated": subscription.duplicated,
        "repeated": subscription.repeated,
        "reordered": subscription.reordered,
        "unexpected": [(publisher, seq) for publisher, seq, _ in subscription.unexpected],
        "stuck": stuck,
        "excused": excused,
    }
    verdict = SubscriberVerdict(
        name=subscription.history.name,
        received=subscription.received,
        processed=len(subscription.processed),
        **{count: len(keys) for count, keys in findings.items()},
        redelivered=subscription.redelivered,
        resumed=subscription.resumed,
        incarnations=len(subscription.lives),
        longest_gap=_longest(gaps),
        examples={
            count: [f"{publisher}/{seq}" for publisher, seq in keys[:EXAMPLES_SHOWN]]
            for count, keys in findings.items()
            if keys
        },
    )
    return verdict, gaps


def _longest(gaps: Sequence[Gap]) -> Gap | None:
    return max(gaps, key=lambda gap: gap.seconds, default=None)


def gaps_of(client: str, asked: Iterable[float], answered: Iterable[float], end: float) -> list[Gap]:
    """List the times when something was outstanding and nothing came: those over GAP_KEPT_S, or the longest."""
    steps = sorted([(t, 0) for t in asked] + [(t, 1) for t in answered])
    kept: list[Gap] = []
    longest: Gap | None = None
    outstanding = 0
    since = 0.0
    for t, is_answer in [*steps, *([(end, 1)] if steps else [])]:
        if outstanding and is_answer:
            gap = Gap(client, since, t)
            if gap.seconds >= GAP_KEPT_S:
                kept.append(gap)
            elif longest is None or gap.seconds > longest.seconds:
                longest = gap
        if is_answer or not outstanding:
            since = t
        outstanding += -1 if is_answer else 1
    return kept or ([longest] if longest is not None else [])
