"""Which rules a delivery met, and when: a ring of steps for chosen deliveries, off unless an operator asks.

Hooks in the record core read `if turn.tracing is not None`, and nothing else while tracing is off. What is kept are the
rule's name, numbers and names for its sentence, and the core's own `now`; sentences are made when somebody reads them.
A delivery is named by its network tag, so the steps of all routers fit together. Tracing changes no decision.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass
from enum import Enum

from delivery_records.model.tags import OWN_TAG_AT, network_tag, session_of
from delivery_records.model.view import View

TRACE_STEPS = 20_000
"""Steps kept; the oldest is forgotten first. About 6 MB, and the last 2,000 deliveries between two routers."""
TRACE_TIME_S = 300.0
"""How long tracing stays on if nothing else is asked for."""
TRACE_TIME_CAP_S = 3600.0
"""The longest it may be asked for: what was forgotten must not cost for ever."""
TRACE_NAMES = 64
"""Publishers and topics one choice may name."""
_KNOWN_SESSIONS = 10_000
"""Sessions whose choice is remembered; the memory starts over when it is full."""
_SAMPLE_RANGE = 1 << 32


class Rule(Enum):
    """What happened to a delivery: the rule's name in docs/protocol.md, and a sentence with places for its fields."""

    PRESENTED = ("A-4", "stands in the map its publisher presented: number {0}, owed by {1} subscriptions")
    STORED = ("I-1", "received whole, {2} bytes: number {0} of its publisher's window, owed by {1} subscriptions")
    REPEATED = ("I-1", "received again, {2} bytes: number {0} of its publisher's window, owed by {1} subscriptions")
    MALFORMED = ("I-1b", "cannot be read: {0}; rejected in its place, and sent to nobody")
    TOO_FEW_PROCESS = (
        "I-3g",
        "released and sent to nobody: {0} of {1} required subscriptions that process, or one before it was",
    )
    TOO_FEW = ("I-3c", "released and sent to nobody: {0} of {1} required subscriptions, or one before it was")
    PRESETTLED = ("I-1c", "came settled: sent on once, kept by nobody")
    SENT_ON = ("T-2", "sent to router {0}")
    WAITS_FOR_CHANNEL = ("T-5", "waits for credit of the channel to router {0}")
    WAITS_FOR_OPENING = ("T-4", "waits until the channel to router {0} is open")
    WAITS_FOR_REOPENING = ("T-4", "not sent to router {0}: its channel starts over, and I-5 repeats it then")
    SENT_AGAIN_SYNC = ("I-5", "repeated to {1} subscriptions at router {0}, behind the SYNC")
    SENT_AGAIN_RETRY = ("E-4a", "attempt {1} for subscription {0}")
    NOT_OWED = ("I-6", "not owed to subscription {0}, which came after it")
    OWED_NO_LONGER = ("I-3", "a subscription that owed it is gone: {0} still owe it")
    ACKNOWLEDGED = ("I-2", "subscription {0} is done with it ({1}): {2} still owe it")
    RETRY = ("E-4a", "subscription {0} wants it again: in {1} s")
    POISONED = ("E-4a", "subscription {0} failed {1} times: counts as rejected by it")
    LETTER = ("I-3e", "failed by subscription {0}: a dead letter is owed before its publisher is notified")
    LETTER_SENT = ("I-3e", "dead letter sent to {0} subscriptions; without one it waits")
    LETTER_DONE = ("I-3e", "dead letter is done: {0} still owe it")
    LETTER_GIVEN_UP = ("I-3e", "dead letter is given up, for nobody subscribed to its topic: {0} still owe the message")
    REPORTED = ("I-3", "its publisher gets {0}")
    SETTLED = ("I-4", "settled by its publisher, and forgotten")
    GIVEN_UP = ("I-4a", "settled by its publisher before it got an outcome: given up")
    ABANDONED = ("I-9", "not sent again by its publisher, which went on: given up")
    PARKED = ("T-3", "waits until this router has applied revision {0} of etcd")
    UNPARKED = ("T-3", "revision {0} of etcd is applied: it goes on")
    NOT_SYNCED = ("E-1", "dropped: there is no SYNC of its publisher's epoch {0}")
    SKIPPED = ("E-2", "precedes the start of subscription {0}: acknowledged")
    ACKNOWLEDGED_AGAIN = ("E-2", "subscription {0} was done with it before ({1}): acknowledged again")
    NOT_IN_U = ("E-2", "is not among what its publisher has unsettled: settled at subscription {0}")
    FILTERED = ("E-9", "excluded by the filter of subscription {0}: counts as processed there")
    EXPIRED = ("E-10", "its time was over before it was sent to subscription {0}: it is not sent there")
    ALREADY_DONE = ("E-3", "subscription {0} is done with it: acknowledged, not sent")
    ALREADY_SENT = ("E-3", "subscription {0} has it or is about to: not sent twice")
    NO_REPLY_YET = ("A-6", "waits for subscription {0}: its attach is not answered yet")
    NO_CREDIT = ("C-3", "waits for credit of subscription {0}")
    MAP_FULL = ("C-4", "waits for room in the map of subscription {0}")
    HELD_BY_DRAIN = ("K-8a", "waits: this router drains, and subscription {0} gets nothing new here")
    IN_ORDER = ("E-3", "waits behind older deliveries for subscription {0}")
    DELIVERED = ("E-3", "sent to subscription {0}")
    RESUMED = ("A-7", "resumed at subscription {0}, whose map names it")
    DROPPED = ("I-1c", "came settled and is dropped for subscription {0}: no SYNC or no room")
    ANSWERED = ("E-4", "subscription {0} says {1}")
    WANTED_AGAIN = ("E-4a", "subscription {0} says {1}: the ingress is asked for another attempt")
    SETTLED_AT_SUBSCRIBER = ("E-5", "settled at subscription {0}, and forgotten")
    SESSION_GONE = ("E-6", "its publisher's session is gone: settled at subscription {0}")
    ASSIGNED = ("SH-2", "assigned to member {0} of its shared subscription")
    TAKEN_BACK = ("SH-3", "assigned to nobody: member {0} does not have it, or has ended")
    LINK_LOST = ("A-9", "the link of subscription {0} is lost; it is owed, and sent where the subscriber attaches next")

    @property
    def rule(self) -> str:
        """The name of the rule."""
        return self.value[0]

    @property
    def sentence(self) -> str:
        """What happened, with places for the fields."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which deliveries are traced. Empty sets choose everybody; every router chooses the same of a sample."""

    publishers: frozenset[str] = frozenset()
    """Names `container-id/link-name`."""
    topics: frozenset[str] = frozenset()
    """Topics of publishers, no patterns."""
    sample: float = 1.0
    """Share of the deliveries, above 0 and up to 1."""
    time_s: float = TRACE_TIME_S
    """Tracing ends by itself after so many seconds."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ValueError: a share, a time or a number of names out of bounds.
        """
        if not 0 < self.sample <= 1:
            raise ValueError("sample must be above 0 and at most 1")
        if not 0 < self.time_s <= TRACE_TIME_CAP_S:
            raise ValueError(f"time_s must be above 0 and at most {TRACE_TIME_CAP_S:g} seconds")
        if len(self.publishers) + len(self.topics) > TRACE_NAMES:
            raise ValueError(f"at most {TRACE_NAMES} publishers and topics can be named")


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step of one delivery."""

    tag: bytes
    """Its network tag."""
    rule: str
    """The rule's name on the protocol page."""
    text: str
    at: float
    """The core's `now`, in seconds."""


class Trace:
    """The ring of steps. `Turn.tracing` is this object while tracing is on, and None else."""

    __slots__ = ("_chosen", "_nonce", "_now", "_ring", "_threshold", "_view", "choice", "forgotten", "is_on", "until")

    def __init__(self, view: View, nonce: bytes) -> None:
        """Tracing is off."""
        self._view = view
        self._nonce = nonce
        self._now = 0.0
        self.is_on = False
        self._ring: deque[tuple[bytes, Rule, tuple[object, ...], float]] = deque(maxlen=TRACE_STEPS)
        self._chosen: dict[int, bool] = {}
        self._threshold = 0
        self.choice: Choice | None = None
        """What was asked for last; None: nothing yet."""
        self.until = 0.0
        """When tracing ends, by the core's clock."""
        self.forgotten = 0
        """Steps that had to make room since tracing was switched on."""

    # ------------------------------------------------------------------ switching

    def start(self, choice: Choice, now: float) -> None:
        """Switch tracing on; what an earlier choice gathered is dropped."""
        self._ring.clear()
        self._chosen.clear()
        self._threshold = int(choice.sample * _SAMPLE_RANGE)
        self.choice = choice
        self.until = now + choice.time_s
        self.forgotten = 0
        self.is_on = True

    def stop(self) -> None:
        """Switch tracing off; what was gathered can still be read."""
        self.is_on = False

    def left_s(self, now: float) -> float:
        """Seconds until tracing ends by itself; 0 when it is off."""
        return max(0.0, self.until - now) if self.is_on else 0.0

    def at(self, now: float) -> Trace | None:
        """A turn begins: what its steps go to, or None while tracing is off."""
        self._now = now
        return self if self.is_on else None

    # ------------------------------------------------------------------ reading

    def __len__(self) -> int:
        """Steps that can be read."""
        return len(self._ring)

    def steps_of(self, tag: bytes) -> list[TraceStep]:
        """What this router did with a delivery, oldest first.

        Args:
            tag: the network tag, or the publisher's own, which several publishers may have used.
        """
        is_network_tag = session_of(tag, self._nonce) != 0
        return [
            _readable(step)
            for step in self._ring
            if step[0] == tag or (not is_network_tag and step[0][OWN_TAG_AT:] == tag)
        ]

    def newest(self, count: int) -> list[TraceStep]:
        """The last steps of all deliveries, oldest first."""
        start = max(0, len(self._ring) - count)
        return [_readable(self._ring[at]) for at in range(start, len(self._ring))]

    # ------------------------------------------------------------------ hooks of the record core

    def own(self, session: int, tag: bytes, rule: Rule, *fields: object) -> None:
        """A step of a delivery that is named by its publisher's session and tag, at the ingress."""
        if self._is_chosen(session):
            self._keep(network_tag(self._nonce, session, tag), rule, fields)

    def seen(self, tag: bytes, rule: Rule, *fields: object) -> None:
        """A step of a delivery that is named by its network tag, at the egress."""
        if self._is_chosen(session_of(tag, self._nonce)):
            self._keep(tag, rule, fields)

    def of_epoch(self, publisher_epoch: int, tag: bytes, rule: Rule, *fields: object) -> None:
        """A step of a delivery in a frame, which names its publisher's epoch. One that is over names nobody."""
        view = self._view
        key = view.publisher_epochs.get(publisher_epoch)
        if key is not None:
            self.own(view.publishers[key].session, tag, rule, *fields)

    def _keep(self, tag: bytes, rule: Rule, fields: tuple[object, ...]) -> None:
        now = self._now
        if now >= self.until:
            self.stop()
            return
        if self._threshold < _SAMPLE_RANGE and zlib.crc32(tag) >= self._threshold:
            return
        if len(self._ring) == TRACE_STEPS:
            self.forgotten += 1
        self._ring.append((tag, rule, fields, now))

    def _is_chosen(self, session: int) -> bool:
        chosen = self._chosen.get(session)
        if chosen is None:
            publisher = self._view.publishers.get(self._view.sessions.get(session, ""))
            choice = self.choice
            if publisher is None or choice is None:
                return False  # a session that is over, or one the view does not show yet
            chosen = (not choice.publishers or publisher.name in choice.publishers) and (
                not choice.topics or publisher.record.topic in choice.topics
            )
            if len(self._chosen) >= _KNOWN_SESSIONS:
                self._chosen.clear()
            self._chosen[session] = chosen
        return chosen


def _readable(step: tuple[bytes, Rule, tuple[object, ...], float]) -> TraceStep:
    tag, rule, fields, at = step
    return TraceStep(tag, rule.rule, rule.sentence.format(*fields), at)
