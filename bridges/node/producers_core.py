"""Which messages of which producers a journal holds already (J-2): by user, producer and number above a floor. Pure.

A producer numbers its messages and states with each the lowest number that it has not settled (the floor). What is
below the floor was accepted by everybody it was owed to, so it can only be a copy: the journal need not remember it. A
mark of the highest number seen would not do: after a failover a later message may overtake an earlier one.

A producer is its user's, as routers state it (J-13): what somebody else sends under its name changes nothing for it.
What was known of it without a user, before there were logins, holds for each user's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from oncewire.client.transactions.sequence_set import SequenceSet

MAX_PRODUCERS = 100_000
"""Of one user: rows of a hundred bytes each, far more than sinks and topics of one network, and no danger to memory."""
MAX_GAPS = 65_536
"""Ranges above one producer's floor. A window of 1,024 messages cannot make more; a stuck floor could."""
MAX_USER_GAPS = 1_000_000
"""Ranges above the floors of all producers of one user, about 100 MB: ten for each of MAX_PRODUCERS."""
MAX_PRODUCER_BYTES = 512
"""Of a producer's name: it is kept for good."""


class Judgement(Enum):
    """What to do with a message that names its producer; the value is the metric's label."""

    NEW = "new"
    """Append it."""
    DUPLICATE = "duplicate"
    """It was appended before: accept it and do nothing."""
    TOO_MANY_PRODUCERS = "too-many-producers"
    """Reject it: its user has as many as may be, and a later copy could not be recognised."""
    TOO_MANY_GAPS = "too-many-gaps"
    """Reject it: the floors of its producer, or of its user's, do not advance, or they do not number their messages."""
    TOO_MUCH_PENDING = "too-much-pending"
    """Reject it: open transactions of its user hold as much as one user's may (J-12)."""
    MALFORMED_HEADER = "malformed-header"
    """Reject it: its transaction cannot be read, and this journal holds committed messages only (J-12)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who produced a message: name, number, the lowest number not settled when it was sent; and the user (J-13)."""

    producer: str
    sequence: int
    floor: int
    user: str = ""


@dataclass(frozen=True, slots=True)
class ProducerRow:
    """One producer as it is stored; `seen` is the text of a SequenceSet."""

    producer: str
    floor: int
    seen: str
    user: str = ""


class _Producer:
    __slots__ = ("floor", "seen")

    def __init__(self, floor: int, seen: SequenceSet) -> None:
        self.floor = floor
        self.seen = seen


class ProducerLedger:
    """All producers of one journal.

    `judge()` changes the ledger at once: when the transaction that stores `changes()` fails, make a new ledger from
    what is stored.
    """

    def __init__(
        self,
        rows: Iterable[ProducerRow] = (),
        *,
        max_producers: int = MAX_PRODUCERS,
        max_user_gaps: int = MAX_USER_GAPS,
    ) -> None:
        self._max_producers = max_producers
        self._max_user_gaps = max_user_gaps
        self._changed: dict[tuple[str, str], _Producer] = {}
        self._producers = {
            (row.user, row.producer): _Producer(row.floor, SequenceSet.from_text(row.seen)) for row in rows
        }
        self._counts = Counter(user for user, _ in self._producers)
        self._gaps = Counter[str]()
        for (user, _), found in self._producers.items():
            self._gaps[user] += found.seen.range_count

    def __len__(self) -> int:
        return len(self._producers)

    def judge(self, identity: Identity) -> Judgement:
        """Decide about one message, and remember it if it is new."""
        key = identity.user, identity.producer
        producer = self._producers.get(key)
        if producer is None:
            if self._counts[identity.user] >= self._max_producers:
                return Judgement.TOO_MANY_PRODUCERS
            before = self._producers.get(("", identity.producer))
            producer = _Producer(0, SequenceSet())
            if before is not None:
                producer = _Producer(before.floor, before.seen.copy())
            self._producers[key] = producer
            self._counts[identity.user] += 1
            self._gaps[identity.user] += producer.seen.range_count
        others = self._gaps[identity.user] - producer.seen.range_count
        judged = self._judge(key, producer, identity, others)
        self._gaps[identity.user] = others + producer.seen.range_count
        return judged

    def _judge(self, key: tuple[str, str], producer: _Producer, identity: Identity, others: int) -> Judgement:
        floor = min(identity.floor, identity.sequence)  # a message is not settled while it is sent
        if floor > producer.floor:
            producer.floor = floor
            producer.seen.remove_below(floor)
            self._changed[key] = producer
        if identity.sequence < producer.floor or identity.sequence in producer.seen:
            return Judgement.DUPLICATE
        count = producer.seen.range_count
        if count >= MAX_GAPS or others + count >= self._max_user_gaps:
            return Judgement.TOO_MANY_GAPS
        producer.seen.add(identity.sequence, identity.sequence)
        self._changed[key] = producer
        return Judgement.NEW

    def changes(self) -> list[ProducerRow]:
        """The producers that changed since the last call, to be stored with the messages."""
        rows = [
            ProducerRow(name, found.floor, found.seen.to_text(), user) for (user, name), found in self._changed.items()
        ]
        self._changed.clear()
        return rows
