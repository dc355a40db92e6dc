"""Puts the messages of a journal into sequence: each message once, pending ones when their transaction commits.

A journal holds what a topic delivered, in positions 1, 2, 3, ... It may hold a message more than once, mix the messages
of many producers, and hold later messages of a producer before earlier ones. The sequencer reads it in order of
position and says of each message what it is (``Outcome``) and what is to be processed now (effects).

Rules:

* SQ-1 Identity. (producer, number) is processed at most once, whatever comes again and however late.
* SQ-2 Nothing is lost by overtaking. What is known of a producer is the set of its numbers, not its highest number.
* SQ-3 A pending message is processed when an ack that names it is complete, that is when every number from the ack's
  ``begins`` on has come or can no longer come; all of them together, in order of position.
* SQ-4 What a rollback names is never processed, whether it came before or comes later.
* SQ-5 No producer waits for another one, and a message that stands alone waits for nothing.
* SQ-6 A producer that was forgotten is never taken for a new one: after a prune, unknown producers of the same user
  that are not younger than all that were ever pruned are refused.
* SQ-7 The output depends on the journal alone, not on the size of the ring, and not on where a checkpoint was taken.
* SQ-8 A producer is its user's, as routers state it: one name of two users is two producers. What a user sends changes
  nothing for the producers of another, nor does the user's quota when it is full.
* SQ-9 A producer that was known without a user (before the network had logins, or by a release that kept none) is
  continued by each user who sends under its name: what was finished is finished for all of them, and what is pending
  is the first one's.
* SQ-10 Consumers and plain readers set a refused message aside and go on: nobody can stop them by breaking rules.

The core has no clock and does no input or output. Times are the caller's; use the time at which the journal took the
message, so that reading it again decides the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic

from oncewire.client.isolation import Isolation
from oncewire.client.transactions.sequence_header import Flag, ProducerId, SequenceHeader
from oncewire.client.transactions.sequence_set import SequenceSet
from oncewire.client.transactions.sequencer_state import (
    Message,
    Placed,
    ProducerState,
    Reread,
    WaitingAck,
    decode_state,
)

RING_MESSAGES = 4096
"""Pending messages in memory over all producers: about one publisher's window of transactions. More is read again."""
PRODUCER_RETENTION_S = 7 * 24 * 3600.0
"""How long a silent producer is remembered: longer than any writer should be away before it begins a new life."""
MAX_PRODUCERS = 10_000
"""Producers of one user remembered at a time, a few hundred bytes each; more would make each checkpoint's start slow.
Each user has as many, so that nobody's are in the way of another's (SQ-8)."""
MAX_RANGES = 1024
"""Holes in what is known of one producer: more than the unsettled window of a publisher that states its floor makes."""

MAX_USER_RANGES = 100_000
"""Holes in what is known of all producers of one user: ten for each of MAX_PRODUCERS, about 20 MB."""


class Relation(Enum):
    """How a message stands to what is known of its producer."""

    FIRST = "first"
    """New, and nothing of its producer is pending."""
    FURTHER = "further"
    """New, and something of its producer is pending."""
    SEEN = "seen"
    """It was here before, or its number is ended."""
    EMPTY = "empty"
    """An ack or rollback that names nothing that is pending, and nothing that could still come."""
    IN_RING = "in-ring"
    """An ack or last message, and all that it commits is in memory."""
    IN_JOURNAL = "in-journal"
    """An ack or last message, and what it commits is no longer all in memory."""
    PENDING = "pending"
    """A rollback that names pending messages."""
    INCOMPLETE = "incomplete"
    """An ack or last message that names a number that has not come and still can."""
    PRUNED = "pruned"
    """Unknown, and not younger than a producer of its user that was forgotten."""
    CROWDED = "crowded"
    """Unknown, and there is no room for another producer of its user."""
    TANGLED = "tangled"
    """It would make another hole in what is known of its producer, and producer or user has no room for one."""


class Outcome(Enum):
    """What became of a message. Each is a word for logs and a label for metrics."""

    UNSEQUENCED = "unsequenced"
    """It has no header: processed now, each time it comes."""
    DELIVERED = "delivered"
    """It stands alone: processed now."""
    BEGAN = "began"
    """The first pending message of its producer: kept until its transaction ends."""
    EXTENDED = "extended"
    """A further pending message: kept until its transaction ends."""
    COMMITTED = "committed"
    """The end of a transaction: it is processed now, from memory (uncommitted messages were as they came)."""
    COMMITTED_REREAD = "committed-reread"
    """The end of a transaction: it is processed now, read from the journal again."""
    COMMITTED_NOTHING = "committed-nothing"
    """An ack of a transaction of which nothing reached this reader."""
    WAITING = "waiting"
    """An ack or last message that overtook others: it commits when they have come."""
    ROLLED_BACK = "rolled-back"
    """A rollback: pending messages are dropped."""
    ROLLED_BACK_NOTHING = "rolled-back-nothing"
    """A rollback, and nothing was pending; what it names is dropped when it comes."""
    DUPLICATE = "duplicate"
    """It was here before, or it was rolled back before it came: dropped."""
    REFUSED_PRUNED = "refused-pruned"
    """Its producer may be one that was forgotten. Not processed: its writer must begin a new life and send it again."""
    REFUSED_CROWDED = "refused-crowded"
    """Too many producers of its user. Not processed: raise ``max_producers`` or lower ``producer_retention``."""
    REFUSED_TANGLED = "refused-tangled"
    """Too many holes in the numbers of its producer or its user. Not processed: its writer must state its floor."""

    @property
    def is_refusal(self) -> bool:
        """Whether the message is not processed though it may be new: notify its writer or stop; never skip it."""
        return self in REFUSALS


REFUSALS = frozenset({Outcome.REFUSED_PRUNED, Outcome.REFUSED_CROWDED, Outcome.REFUSED_TANGLED})

# The decision, as data: (flag, relation) -> outcome. Pairs that are not here cannot be.
OUTCOMES: Mapping[tuple[Flag, Relation], Outcome] = {
    (Flag.ALONE, Relation.FIRST): Outcome.DELIVERED,
    (Flag.ALONE, Relation.FURTHER): Outcome.DELIVERED,
    (Flag.ALONE, Relation.SEEN): Outcome.DUPLICATE,
    (Flag.ALONE, Relation.PRUNED): Outcome.REFUSED_PRUNED,
    (Flag.ALONE, Relation.CROWDED): Outcome.REFUSED_CROWDED,
    (Flag.ALONE, Relation.TANGLED): Outcome.REFUSED_TANGLED,
    (Flag.CONTINUE, Relation.FIRST): Outcome.BEGAN,
    (Flag.CONTINUE, Relation.FURTHER): Outcome.EXTENDED,
    (Flag.CONTINUE, Relation.SEEN): Outcome.DUPLICATE,
    (Flag.CONTINUE, Relation.PRUNED): Outcome.REFUSED_PRUNED,
    (Flag.CONTINUE, Relation.CROWDED): Outcome.REFUSED_CROWDED,
    (Flag.CONTINUE, Relation.TANGLED): Outcome.REFUSED_TANGLED,
    (Flag.LAST, Relation.IN_RING): Outcome.COMMITTED,
    (Flag.LAST, Relation.IN_JOURNAL): Outcome.COMMITTED_REREAD,
    (Flag.LAST, Relation.INCOMPLETE): Outcome.WAITING,
    (Flag.LAST, Relation.SEEN): Outcome.DUPLICATE,
    (Flag.LAST, Relation.PRUNED): Outcome.REFUSED_PRUNED,
    (Flag.LAST, Relation.CROWDED): Outcome.REFUSED_CROWDED,
    (Flag.LAST, Relation.TANGLED): Outcome.REFUSED_TANGLED,
    (Flag.ACK, Relation.EMPTY): Outcome.COMMITTED_NOTHING,
    (Flag.ACK, Relation.IN_RING): Outcome.COMMITTED,
    (Flag.ACK, Relation.IN_JOURNAL): Outcome.COMMITTED_REREAD,
    (Flag.ACK, Relation.INCOMPLETE): Outcome.WAITING,
    (Flag.ACK, Relation.SEEN): Outcome.DUPLICATE,
    (Flag.ACK, Relation.PRUNED): Outcome.REFUSED_PRUNED,
    (Flag.ACK, Relation.CROWDED): Outcome.REFUSED_CROWDED,
    (Flag.ACK, Relation.TANGLED): Outcome.REFUSED_TANGLED,
    (Flag.ROLLBACK, Relation.EMPTY): Outcome.ROLLED_BACK_NOTHING,
    (Flag.ROLLBACK, Relation.PENDING): Outcome.ROLLED_BACK,
    (Flag.ROLLBACK, Relation.SEEN): Outcome.DUPLICATE,
    (Flag.ROLLBACK, Relation.PRUNED): Outcome.REFUSED_PRUNED,
    (Flag.ROLLBACK, Relation.CROWDED): Outcome.REFUSED_CROWDED,
    (Flag.ROLLBACK, Relation.TANGLED): Outcome.REFUSED_TANGLED,
}


@dataclass(frozen=True, slots=True)
class Batch(Generic[Message]):
    """Process these messages, in this order, within one transaction of yours."""

    messages: tuple[Placed[Message], ...]


@dataclass(frozen=True, slots=True)
class Step(Generic[Message]):
    """What one message led to.

    Attributes:
        outcome: what became of it.
        effects: what to process now, in order. A message that fills a hole can complete acks that waited for it.
        continues: its user continues a producer that was known without one; what is pending is the user's now (SQ-9).
    """

    outcome: Outcome
    effects: tuple[Batch[Message] | Reread[Message], ...] = ()
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A producer that was silent for too long.

    Attributes:
        producer: who.
        dropped: how many pending messages of it are given up; if not 0, its writer died and none took over.
    """

    producer: ProducerId
    dropped: int


class Sequencer(Generic[Message]):
    """One reader's view of one journal.

    Args:
        isolation: what it sees of transactions.
        ring_messages: pending messages kept in memory; 0 reads every commit from the journal.
        producer_retention: seconds after which ``prune`` forgets a silent producer.
        max_producers: producers of one user remembered at a time.
        max_ranges: holes remembered of one producer.
        max_user_ranges: holes remembered of all producers of one user.

    Attributes:
        position: of the last message fed, 0 before the first.
        horizons: by user, the latest birth of a producer that was forgotten (SQ-6). Those of users who lost none are
            not there.
    """

    def __init__(
        self,
        isolation: Isolation = Isolation.READ_COMMITTED,
        *,
        ring_messages: int = RING_MESSAGES,
        producer_retention: float = PRODUCER_RETENTION_S,
        max_producers: int = MAX_PRODUCERS,
        max_ranges: int = MAX_RANGES,
        max_user_ranges: int = MAX_USER_RANGES,
    ) -> None:
        self.isolation = isolation
        self.producer_retention = producer_retention
        self.position = 0
        self.horizons: dict[str, int] = {}
        self._ring_messages = ring_messages
        self._max_producers = max_producers
        self._max_ranges = max_ranges
        self._max_user_ranges = max_user_ranges
        self._states: dict[ProducerId, ProducerState[Message]] = {}
        # Owners of what is in memory, by position: the oldest goes first when the ring is full.
        self._ring: dict[int, ProducerState[Message]] = {}
        self._changed: set[ProducerId] = set()
        self._counts = Counter[str]()  # producers by user
        self._ranges = Counter[str]()  # and what they cost

    # --- reading ------------------------------------------------------------------------------------------------------

    def feed(self, position: int, header: SequenceHeader | None, message: Message, now: float) -> Step[Message]:
        """Take the journal's next message.

        Args:
            position: its place, above that of every message fed before.
            header: what its annotations say (``read_header``).
            message: whatever the caller wants back.
            now: when the journal took it, in seconds; it never goes back.

        Returns:
            What became of it. Process its effects before the next call; where ``outcome.is_refusal``, notify the
            writer or stop. Store ``changes()`` and ``position`` in the transaction of the effects.
        """
        assert position > self.position, (position, self.position)
        self.position = position
        if header is None:
            return Step(Outcome.UNSEQUENCED, (Batch((Placed(position, message),)),))
        state = self._states.get(header.producer)
        is_new, before = state is None, None
        if state is None:
            before = self._known_without_user(header.producer)
            state = ProducerState(header.producer) if before is None else before.continued_by(header.producer)
        outcome = OUTCOMES[header.flag, self._relation(header, state, is_new=is_new)]
        if outcome.is_refusal:
            return Step(outcome)
        user, cost = header.producer.user, state.range_count
        if is_new:
            self._add(state)
        if before is not None:
            self._hand_over(before, state)
        self._changed.add(header.producer)
        state.last_seen = now
        effects = self._apply(outcome, state, header, Placed(position, message))
        self._ranges[user] += state.range_count - cost
        return Step(outcome, effects, before is not None)

    def _known_without_user(self, producer: ProducerId) -> ProducerState[Message] | None:
        """What was known of a producer before routers stated its user (SQ-9)."""
        return self._states.get(replace(producer, user="")) if producer.user else None

    def _add(self, state: ProducerState[Message]) -> None:
        self._states[state.producer] = state
        self._counts[state.producer.user] += 1
        self._ranges[state.producer.user] += state.range_count

    def _hand_over(self, before: ProducerState[Message], state: ProducerState[Message]) -> None:
        self._ranges[before.producer.user] -= before.range_count
        before.hand_over()
        self._ranges[before.producer.user] += before.range_count
        self._changed.add(before.producer)
        for position in state.ring:
            self._ring[position] = state  # its place in the order stays

    def _relation(self, header: SequenceHeader, state: ProducerState[Message], *, is_new: bool) -> Relation:
        """Decide; nothing changes here."""
        user = header.producer.user
        if is_new:
            if header.producer.born_ms <= self.horizons.get(user, -1):
                return Relation.PRUNED  # SQ-6
            if self._counts[user] >= self._max_producers:
                return Relation.CROWDED  # SQ-8
        if state.knows(header.sequence):
            return Relation.SEEN  # SQ-1, SQ-4
        relation = self._new_relation(header, state)
        return Relation.TANGLED if self._tangles(relation, header, state) else relation

    def _new_relation(self, header: SequenceHeader, state: ProducerState[Message]) -> Relation:
        """Decide on a message that was not here before, as if there were room for all holes."""
        if header.flag is Flag.ALONE or header.flag is Flag.CONTINUE:
            return Relation.FURTHER if state.pending else Relation.FIRST
        pending = state.pending.count(header.begins, header.sequence)
        if header.flag is Flag.ROLLBACK:
            return Relation.PENDING if pending else Relation.EMPTY
        if state.lacks(header.begins, header.sequence, header.floor):
            return Relation.INCOMPLETE  # SQ-3
        if not pending and header.flag is Flag.ACK:
            return Relation.EMPTY
        return Relation.IN_RING if self._is_in_ring(state, header.begins, header.sequence) else Relation.IN_JOURNAL

    def _tangles(self, relation: Relation, header: SequenceHeader, state: ProducerState[Message]) -> bool:
        """Whether it costs more than there is room for. What ends something or closes a hole always has room."""
        has_room = state.range_count < self._max_ranges and self._ranges[header.producer.user] < self._max_user_ranges
        if has_room or header.floor == header.sequence:
            return False
        if relation in {Relation.IN_RING, Relation.IN_JOURNAL, Relation.PENDING}:
            return False
        if relation is Relation.INCOMPLETE:
            return True
        numbers = state.pending if header.flag is Flag.CONTINUE else state.finished
        return (header.begins or header.sequence) - 1 not in numbers and header.sequence + 1 not in numbers

    def _is_in_ring(self, state: ProducerState[Message], begins: int, sequence: int) -> bool:
        if self.isolation is Isolation.READ_UNCOMMITTED:
            return True  # processed as it came
        held = sum(begins <= number <= sequence for number, _ in state.ring.values())
        return held == state.pending.count(begins, sequence)

    # --- changing what is known ---------------------------------------------------------------------------------------

    def _apply(
        self, outcome: Outcome, state: ProducerState[Message], header: SequenceHeader, placed: Placed[Message]
    ) -> tuple[Batch[Message] | Reread[Message], ...]:
        """Carry the outcome out."""
        effects: list[Batch[Message] | Reread[Message]] = []
        if outcome is Outcome.DELIVERED:
            state.finished.add(header.sequence, header.sequence)
            effects.append(Batch((placed,)))  # SQ-5
        elif outcome is Outcome.BEGAN or outcome is Outcome.EXTENDED:
            self._keep(state, header.sequence, placed)
            if self.isolation is Isolation.READ_UNCOMMITTED:
                effects.append(Batch((placed,)))
        elif outcome is Outcome.ROLLED_BACK or outcome is Outcome.ROLLED_BACK_NOTHING:
            self._end(state, header.begins, header.sequence)
        elif outcome is not Outcome.DUPLICATE:
            # It ends a transaction: complete or not, it waits, and what is complete is committed below.
            state.waiting[header.sequence] = WaitingAck(header.begins, header.sequence)
            if header.flag is Flag.LAST:
                self._keep(state, header.sequence, placed, stays=outcome is Outcome.WAITING)
                if self.isolation is Isolation.READ_UNCOMMITTED:
                    effects.append(Batch((placed,)))
        self._raise_floor(state, header.floor)
        self._commit_complete(state, effects)
        return tuple(effects)

    def _keep(
        self, state: ProducerState[Message], sequence: int, placed: Placed[Message], *, stays: bool = True
    ) -> None:
        """Remember a pending message; if it stays, the oldest in memory makes room."""
        if not state.pending:
            state.first_position = placed.position
        state.pending.add(sequence, sequence)
        if self.isolation is Isolation.READ_UNCOMMITTED or (stays and not self._ring_messages):
            return
        if stays and len(self._ring) >= self._ring_messages:
            oldest = next(iter(self._ring))
            del self._ring.pop(oldest).ring[oldest]
        self._ring[placed.position] = state
        state.ring[placed.position] = (sequence, placed.message)

    def _raise_floor(self, state: ProducerState[Message], floor: int) -> None:
        """Nothing new comes below the floor: close the holes there.

        Pending messages stay pending. An ack that waits below the floor lacks nothing any more and is ended next.
        """
        if floor <= 1:
            return
        pending = list(state.pending.within(1, floor - 1))
        state.finished.add(1, floor - 1)
        for first, last in pending:
            state.finished.remove(first, last)

    def _commit_complete(self, state: ProducerState[Message], effects: list[Batch[Message] | Reread[Message]]) -> None:
        """Commit the acks that lack nothing now, in order of their numbers (SQ-3)."""
        for sequence in sorted(state.waiting):
            ack = state.waiting.get(sequence)
            if ack is None or state.lacks(ack.begins, ack.sequence, floor=0):
                continue
            if self.isolation is Isolation.READ_COMMITTED and state.pending.count(ack.begins, sequence):
                effects.append(self._committed(state, ack))
            self._end(state, ack.begins, sequence)

    def _committed(self, state: ProducerState[Message], ack: WaitingAck) -> Batch[Message] | Reread[Message]:
        if self._is_in_ring(state, ack.begins, ack.sequence):
            return Batch(
                tuple(
                    Placed(position, message)
                    for position, (number, message) in state.ring.items()
                    if ack.begins <= number <= ack.sequence
                )
            )
        missing = SequenceSet(state.pending.within(ack.begins, ack.sequence))
        return Reread(state.producer, missing, state.first_position, self.position)

    def _end(self, state: ProducerState[Message], begins: int, sequence: int) -> None:
        """The numbers from begins to sequence have no further effect (SQ-1, SQ-4)."""
        state.pending.remove(begins, sequence)
        state.finished.add(begins, sequence)
        for number in [number for number in state.waiting if begins <= number <= sequence]:
            del state.waiting[number]
        for position in [place for place, (number, _) in state.ring.items() if begins <= number <= sequence]:
            del state.ring[position]
            del self._ring[position]
        if not state.pending:
            state.first_position = 0

    # --- forgetting and remembering -----------------------------------------------------------------------------------

    @property
    def oldest_needed(self) -> int:
        """The lowest journal position that may have to be read again: the journal keeps everything from there on."""
        return min(
            (state.first_position for state in self._states.values() if state.pending), default=self.position + 1
        )

    @property
    def producers(self) -> tuple[ProducerId, ...]:
        """The producers it remembers."""
        return tuple(self._states)

    def prune(self, now: float) -> tuple[Forgotten, ...]:
        """Forget producers that were silent for longer than ``producer_retention``.

        Call it between messages, at times that depend on the journal alone (say, each thousandth position), and store
        ``changes()`` with the next transaction.

        Returns:
            Who was forgotten. Log those with dropped messages.
        """
        forgotten = []
        for producer, state in list(self._states.items()):
            if now - state.last_seen <= self.producer_retention:
                continue
            dropped = sum(last - first + 1 for first, last in state.pending.ranges())
            forgotten.append(Forgotten(producer, dropped))
            for position in state.ring:
                del self._ring[position]
            del self._states[producer]
            self._counts[producer.user] -= 1
            self._ranges[producer.user] -= state.range_count
            if not self._counts[producer.user]:
                del self._counts[producer.user], self._ranges[producer.user]
            self._changed.add(producer)
            self.horizons[producer.user] = max(self.horizons.get(producer.user, -1), producer.born_ms)
        return tuple(forgotten)

    def changes(self) -> dict[ProducerId, str | None]:
        """Return the states that differ from those last ``saved``: texts to store, None for those to delete.

        Store them with ``position`` and ``horizons`` in the transaction of the effects, then call ``saved``.
        """
        return {
            producer: self._states[producer].encode() if producer in self._states else None
            for producer in sorted(self._changed)
        }

    def saved(self) -> None:
        """The transaction with ``changes()`` has committed."""
        self._changed.clear()

    def restore(self, position: int, horizons: Mapping[str, int], states: Iterable[tuple[ProducerId, str]]) -> None:
        """Take over a checkpoint; the next message to feed is the one behind ``position``.

        Raises:
            StateError: a state cannot be read.
        """
        assert not self._states, "restore into a new sequencer"
        assert self.position == 0, "restore into a new sequencer"
        self.position = position
        self.horizons = dict(horizons)
        for producer, text in states:
            self._add(decode_state(producer, text))
