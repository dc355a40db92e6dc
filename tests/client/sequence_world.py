"""A journal in a list, a reader of it, and a model that decides by looking at everything that ever came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from oncewire.client.transactions.sequence_header import Flag, ProducerId, SequenceHeader
from oncewire.client.transactions.sequencer import Outcome, Sequencer
from oncewire.client.transactions.sequencer_state import Reread

Text = tuple[int, str]
"""What a reader has processed: position and body."""


@dataclass
class Journal:
    """Positions 1, 2, 3, ..."""

    entries: list[tuple[SequenceHeader | None, str, float]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return len(self.entries)

    def append(self, header: SequenceHeader | None, body: str, now: float = 0.0) -> int:
        self.entries.append((header, body, now))
        return self.end

    def at(self, position: int) -> tuple[SequenceHeader | None, str, float]:
        return self.entries[position - 1]


class Reader:
    """Reads a journal through a sequencer; what it processes and its checkpoint are one thing."""

    def __init__(self, journal: Journal, make: Callable[[], Sequencer[str]]) -> None:
        self.journal = journal
        self.make = make
        self.sequencer = make()
        self.processed: list[Text] = []
        self.outcomes: list[Outcome] = []
        self.stored: dict[ProducerId, str] = {}
        self.checkpoint: tuple[int, dict[str, int]] = (0, {})

    def read(self) -> None:
        """Process everything up to the end of the journal."""
        while self.sequencer.position < self.journal.end:
            position = self.sequencer.position + 1
            header, body, now = self.journal.at(position)
            step = self.sequencer.feed(position, header, body, now)
            self.outcomes.append(step.outcome)
            for effect in step.effects:
                if isinstance(effect, Reread):
                    self.processed += self.reread(effect)
                else:
                    self.processed += [(placed.position, placed.message) for placed in effect.messages]
            self.save()

    def reread(self, reread: Reread[str]) -> list[Text]:
        assert reread.first_position > 0
        found = []
        for position in range(reread.first_position, reread.last_position + 1):
            header, body, _ = self.journal.at(position)
            if reread.wants(header):
                found.append((position, body))
        reread.finish()
        return found

    def save(self) -> None:
        for producer, text in self.sequencer.changes().items():
            if text is None:
                self.stored.pop(producer, None)
            else:
                self.stored[producer] = text
        self.checkpoint = (self.sequencer.position, dict(self.sequencer.horizons))
        self.sequencer.saved()

    def restart(self) -> None:
        """Lose all that is in memory and go on from the checkpoint."""
        self.sequencer = self.make()
        self.sequencer.restore(*self.checkpoint, self.stored.items())


@dataclass
class ModelProducer:
    """All that ever came from one producer, as lists and sets of single numbers."""

    seen: set[int] = field(default_factory=set)
    ended: list[tuple[int, int]] = field(default_factory=list)
    floor: int = 0
    pending: list[tuple[int, int, str]] = field(default_factory=list)
    acks: list[tuple[int, int]] = field(default_factory=list)
    last_seen: float = 0.0

    def is_over(self, number: int) -> bool:
        return number in self.seen or number < self.floor or any(first <= number <= last for first, last in self.ended)


class Model:
    """The rules of the sequencer in their most literal form. No ring, no ranges, no checkpoint."""

    def __init__(self, retention: float) -> None:
        self.retention = retention
        self.producers: dict[ProducerId, ModelProducer] = {}
        self.horizons: dict[str, int] = {}
        self.processed: list[Text] = []
        self.refused: list[int] = []

    def feed(self, position: int, header: SequenceHeader | None, body: str, now: float) -> None:
        if header is None:
            self.processed.append((position, body))
            return
        if header.producer not in self.producers and header.producer.born_ms <= self.horizons.get(
            header.producer.user, -1
        ):
            self.refused.append(position)
            return
        state = self.producers.setdefault(header.producer, ModelProducer())
        state.last_seen = now
        if not state.is_over(header.sequence):
            state.seen.add(header.sequence)
            if header.flag is Flag.ALONE:
                self.processed.append((position, body))
            elif header.flag is Flag.CONTINUE:
                state.pending.append((position, header.sequence, body))
            elif header.flag is Flag.ACK or header.flag is Flag.LAST:
                state.acks.append((header.begins, header.sequence))
                if header.flag is Flag.LAST:
                    state.pending.append((position, header.sequence, body))
            else:
                self.end(state, header.begins, header.sequence)
        # True also on what is over, such as the message of a producer that another owner has ended.
        state.floor = max(state.floor, header.floor)
        self.commit(state)

    def commit(self, state: ModelProducer) -> None:
        for begins, sequence in sorted(state.acks, key=lambda ack: ack[1]):
            if all(state.is_over(number) for number in range(begins, sequence)):
                self.processed += [
                    (position, body) for position, number, body in state.pending if begins <= number <= sequence
                ]
                self.end(state, begins, sequence)

    def end(self, state: ModelProducer, begins: int, sequence: int) -> None:
        state.ended.append((begins, sequence))
        state.pending = [entry for entry in state.pending if not begins <= entry[1] <= sequence]
        state.acks = [ack for ack in state.acks if not begins <= ack[1] <= sequence]

    def prune(self, now: float) -> None:
        for producer, state in list(self.producers.items()):
            if now - state.last_seen > self.retention:
                del self.producers[producer]
                user = producer.user
                self.horizons[user] = max(self.horizons.get(user, -1), producer.born_ms)
