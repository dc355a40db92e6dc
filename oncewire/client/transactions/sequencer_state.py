"""What a sequencer knows of one producer, and how a checkpoint keeps it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from oncewire.client.transactions.sequence_header import ProducerId, SequenceHeader
from oncewire.client.transactions.sequence_set import SequenceSet

Message = TypeVar("Message")


class StateError(ValueError):
    """A stored producer state cannot be read: the checkpoint is damaged or a newer version wrote it."""


@dataclass(frozen=True, slots=True)
class WaitingAck:
    """An ack, or the last message of a transaction, that came before all that it commits.

    Attributes:
        begins: the first number it commits.
        sequence: its own number. That of a last message is pending, too, and it commits itself.
    """

    begins: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Placed(Generic[Message]):
    """A message and its place in the journal."""

    position: int
    message: Message


@dataclass(slots=True)
class ProducerState(Generic[Message]):
    """One producer as one reader has seen it so far.

    Attributes:
        producer: who.
        finished: numbers that can have no further effect: delivered, dropped, ended, or known never to come.
        pending: numbers that came with CONTINUE and are not ended. Nothing is in both sets.
        waiting: acks that lack a message, by their number.
        first_position: journal position of the oldest pending message, or a lower one; 0 if none is pending.
        last_seen: when the last message of this producer came, in seconds of the caller's clock.
        ring: those pending messages that are still in memory, by position: (number, message). Not in a checkpoint.
    """

    producer: ProducerId
    finished: SequenceSet = field(default_factory=SequenceSet)
    pending: SequenceSet = field(default_factory=SequenceSet)
    waiting: dict[int, WaitingAck] = field(default_factory=dict)
    first_position: int = 0
    last_seen: float = 0.0
    ring: dict[int, tuple[int, Message]] = field(default_factory=dict)

    @property
    def range_count(self) -> int:
        """What the state costs beside the ring: one for each range of numbers and each waiting ack."""
        return self.finished.range_count + self.pending.range_count + len(self.waiting)

    def knows(self, sequence: int) -> bool:
        """Return whether the message with this number has been here or can no longer come."""
        return sequence in self.finished or sequence in self.pending or sequence in self.waiting

    def lacks(self, begins: int, sequence: int, floor: int) -> bool:
        """Return whether a number from begins to below sequence may still come, given that none below the floor can."""
        first = max(begins, floor)
        last = sequence - 1
        if first > last:
            return False
        here = self.finished.count(first, last) + self.pending.count(first, last)
        # The number of a waiting ack inside the range is one that came; that of a last message was just counted.
        here += sum(first <= number <= last and number not in self.pending for number in self.waiting)
        return here < last - first + 1

    def continued_by(self, producer: ProducerId) -> ProducerState[Message]:
        """Return what a user begins with whose producer was known without one (SQ-9). Changes nothing here."""
        return ProducerState(
            producer,
            self.finished.copy(),
            self.pending.copy(),
            dict(self.waiting),
            self.first_position,
            self.last_seen,
            dict(self.ring),
        )

    def hand_over(self) -> None:
        """Its pending messages are a user's now: here they are over (SQ-9)."""
        for first, last in self.pending.ranges():
            self.finished.add(first, last)
        for sequence in self.waiting:
            self.finished.add(sequence, sequence)
        self.pending, self.waiting, self.ring, self.first_position = SequenceSet(), {}, {}, 0

    def encode(self) -> str:
        """Return it as text for a checkpoint; the ring is left out, the journal has those messages."""
        waiting = [[ack.begins, ack.sequence] for ack in self.waiting.values()]
        parts = [self.finished.ranges(), self.pending.ranges(), waiting, self.first_position, self.last_seen]
        return json.dumps(parts, separators=(",", ":"))


def decode_state(producer: ProducerId, text: str) -> ProducerState[Message]:
    """Read a stored state.

    Raises:
        StateError: the text is none.
    """
    try:
        finished, pending, waiting, first_position, last_seen = json.loads(text)
        return ProducerState(
            producer,
            SequenceSet(tuple(map(tuple, finished))),
            SequenceSet(tuple(map(tuple, pending))),
            {int(sequence): WaitingAck(int(begins), int(sequence)) for begins, sequence in waiting},
            int(first_position),
            float(last_seen),
        )
    except (ValueError, TypeError, AssertionError) as error:
        raise StateError(f"the stored state of producer {producer} cannot be read: {error}") from error


class JournalHole(Exception):
    """The journal no longer has messages that an ack commits: it was trimmed too far, or it is another journal."""


class Reread(Generic[Message]):
    """A commit whose messages are no longer all in memory: read them from the journal again, now.

    The caller reads the positions from ``first_position`` to ``last_position``, both inclusive, in order, passes each
    header to ``wants`` and processes the messages for which it is true; then it calls ``finish``.

    Attributes:
        producer: whose transaction it is.
        first_position, last_position: where its messages are.
    """

    __slots__ = ("_before", "_missing", "first_position", "last_position", "producer")

    def __init__(self, producer: ProducerId, missing: SequenceSet, first_position: int, last_position: int) -> None:
        self.producer = producer
        self._before = replace(producer, user="")  # what it published before routers stated its user (SQ-9)
        self.first_position = first_position
        self.last_position = last_position
        self._missing = missing

    def wants(self, header: SequenceHeader | None) -> bool:
        """Return whether the message with this header belongs to the commit; true once for each of its messages."""
        if header is None or header.sequence not in self._missing:
            return False
        if header.producer != self.producer and header.producer != self._before:
            return False
        self._missing.remove(header.sequence, header.sequence)
        return True

    def finish(self) -> None:
        """Check that nothing was missing. Call it before the transaction that these messages belong to commits.

        Raises:
            JournalHole: something was; roll the transaction back.
        """
        if self._missing:
            raise JournalHole(
                f"messages {self._missing.ranges()} of producer {self.producer} are committed, but the journal does "
                f"not have them between positions {self.first_position} and {self.last_position}; keep the journal "
                "from `oldest_needed` on, or restore it"
            )
