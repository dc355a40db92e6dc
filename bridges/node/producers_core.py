"""Which messages of which producers a journal holds already (J-2): dedup by (producer, sequence) above a floor. Pure.

A producer numbers its messages and tells with each the lowest number that it has not settled (the floor). What is below
the floor was accepted by everybody it was owed to, so it can only be a copy, and the journal need not remember it. A
mark of the highest number seen would not do: after a failover a later message may overtake an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from bridges.node.range_set_core import RangeSet

MAX_PRODUCERS = 100_000
"""Rows of a hundred bytes each: far more than sinks and topics of one network, and still no danger to memory."""
MAX_GAPS = 65_536
"""Ranges above one producer's floor. A window of 1,024 messages cannot make more; a stuck floor could."""
MAX_PRODUCER_BYTES = 512
"""Of a producer's name: it is kept for good."""


class Judgement(Enum):
    """What to do with a message that names its producer; the value is the metric's label."""

    NEW = "new"
    """Append it."""
    DUPLICATE = "duplicate"
    """It was appended before: accept it and do nothing."""
    TOO_MANY_PRODUCERS = "too-many-producers"
    """Reject it: a later copy could not be recognised."""
    TOO_MANY_GAPS = "too-many-gaps"
    """Reject it: its producer's floor does not advance, or it does not number its messages."""
    MALFORMED_HEADER = "malformed-header"
    """Reject it: its transaction cannot be read, and this journal holds committed messages only (J-12)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who produced a message: name, number, and the lowest number not settled when it was sent."""

    producer: str
    sequence: int
    floor: int


@dataclass(frozen=True, slots=True)
class ProducerRow:
    """One producer as it is stored; `seen` is a RangeSet's bytes."""

    producer: str
    floor: int
    seen: bytes


class _Producer:
    __slots__ = ("floor", "seen")

    def __init__(self, floor: int, seen: RangeSet) -> None:
        self.floor = floor
        self.seen = seen


class ProducerLedger:
    """All producers of one journal.

    `judge()` changes the ledger at once: when the transaction that stores `changes()` fails, make a new ledger from
    what is stored.
    """

    def __init__(self, rows: Iterable[ProducerRow] = (), *, max_producers: int = MAX_PRODUCERS) -> None:
        self._max_producers = max_producers
        self._changed: dict[str, _Producer] = {}
        self._producers = {
            row.producer: _Producer(row.floor, RangeSet.from_bytes(row.seen)) for row in rows
        }

    def __len__(self) -> int:
        return len(self._producers)

    def judge(self, identity: Identity) -> Judgement:
        """Decide about one message, and remember it if it is new."""
        producer = self._producers.get(identity.producer)
        if producer is None:
            if len(self._producers) >= self._max_producers:
                return Judgement.TOO_MANY_PRODUCERS
            producer = self._producers[identity.producer] = _Producer(0, RangeSet())
        floor = min(identity.floor, identity.sequence)  # a message is not settled while it is sent
        if floor > producer.floor:
            producer.floor = floor
            producer.seen.discard_below(floor)
            self._changed[identity.producer] = producer
        if identity.sequence < producer.floor or identity.sequence in producer.seen:
            return Judgement.DUPLICATE
        if producer.seen.range_count >= MAX_GAPS:
            return Judgement.TOO_MANY_GAPS
        producer.seen.add(identity.sequence)
        self._changed[identity.producer] = producer
        return Judgement.NEW

    def changes(self) -> list[ProducerRow]:
        """The producers that changed since the last call, to be stored with the messages."""
        rows = [ProducerRow(name, found.floor, found.seen.to_bytes()) for name, found in self._changed.items()]
        self._changed.clear()
        return rows
