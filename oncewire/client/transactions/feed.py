"""From the journal of the input to the messages to process: the blocking part that consumers and readers share."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from oncewire.client.errors import StoreCorrupt, UsageError
from oncewire.client.isolation import Isolation
from oncewire.client.transactions.inputs import InputJournal, Recorded
from oncewire.client.transactions.messages import ReceivedMessage
from oncewire.client.transactions.refused import without_sequence
from oncewire.client.transactions.sequence_header import ProducerId, SequenceHeader, read_header, user_of
from oncewire.client.transactions.sequencer import RING_MESSAGES, Batch, Outcome, Sequencer
from oncewire.client.transactions.sequencer_state import JournalHole, Placed, Reread
from oncewire.client.transactions.store import Store
from oncewire.wire import Message, decode_message

logger = logging.getLogger("oncewire.client")

READ_AT_ONCE = 100
"""Rows that one query returns: bounds the memory that large messages need."""
PRUNE_EVERY = 1000
"""Positions between two looks for silent producers; it depends on the journal alone (SQ-7)."""

MAX_REFUSED = 1000
"""Refused messages of one user that are kept for an operator: who breaks the rules for ever must not fill the disk."""

Item = tuple[Message, SequenceHeader | None]


class Feed:
    """The sequencers of one store's topics, and the journal they read. All methods block.

    Args:
        store: open.
        inputs: its journal.
        topics: the subscriptions, and the journals that are read.
        isolation: what is seen of transactions.
        ring_messages: pending messages in memory, for each topic; what falls out is read from the journal again.

    Raises:
        UsageError: the journal holds messages of another topic.
        StoreError: the checkpoint cannot be read.

    Attributes:
        position: of the last message that was read.
    """

    def __init__(
        self,
        store: Store[Any],
        inputs: InputJournal,
        topics: Sequence[str],
        isolation: Isolation,
        ring_messages: int = RING_MESSAGES,
    ) -> None:
        self._inputs = inputs
        self._store = store
        unknown = inputs.sources() - set(topics)
        if unknown:
            raise UsageError(
                f"the store {store.name!r} cannot be opened for {', '.join(topics)}",
                f"it still holds messages of {', '.join(sorted(unknown))}",
                "keep these in `topics=` and `journals=`, or use another name",
            )
        self._refused: list[tuple[Recorded, str, str]] = []
        self._refused_counts: dict[str, int] = {
            str(user): int(count)
            for user, count in store.run(
                "SELECT owner, COUNT(*) FROM oncewire_store_refused WHERE store = ? GROUP BY owner", (store.name,)
            )
        }
        self._sequencers: dict[str, Sequencer[Item]] = {}
        for topic in topics:
            sequencer = Sequencer[Item](isolation, ring_messages=ring_messages)
            store.restore(topic, sequencer)
            self._sequencers[topic] = sequencer
        self.position = max(sequencer.position for sequencer in self._sequencers.values())

    @property
    def sequencers(self) -> Mapping[str, Sequencer[Any]]:
        """By topic; for the transaction."""
        return self._sequencers

    @property
    def has_more(self) -> bool:
        """Whether messages are recorded that were not read."""
        return self._inputs.last_position > self.position

    def messages(self, limit: int) -> Iterator[ReceivedMessage]:
        """Read at most so many positions; yields what is to be processed now.

        Raises:
            StoreCorrupt: a transaction commits, and the journal lacks messages of it.
            StoreError: the journal cannot be read.
        """
        while limit > 0:
            rows = self._inputs.read(self.position, min(limit, READ_AT_ONCE))
            for row in rows:
                yield from self._feed(row)
            if len(rows) < min(limit, READ_AT_ONCE):
                return
            limit -= len(rows)

    def _feed(self, row: Recorded) -> Iterator[ReceivedMessage]:
        sequencer = self._sequencers.get(row.source)
        self.position = row.position
        assert sequencer is not None, row.source  # checked when it was opened
        message = decode_message(row.payload)
        header = read_header(message.annotations)
        step = sequencer.feed(row.position, header, (message, header), row.received_at)
        if step.outcome.is_refusal:
            assert header is not None
            self._set_aside(row, header.producer, step.outcome)
        for effect in step.effects:
            placed = effect.messages if isinstance(effect, Batch) else self._read_again(row.source, effect)
            for each in placed:
                content, its_header = each.message
                producer = str(its_header.producer) if its_header is not None else ""
                yield ReceivedMessage(row.source, each.position, content, producer)
        if row.position % PRUNE_EVERY == 0:
            self._prune(sequencer, row.received_at)

    def payload_of(self, message: ReceivedMessage) -> bytes:
        """Return what is in the journal of a message that is being processed."""
        (row,) = self._inputs.read_again(message.topic, message.position, message.position)
        return row.payload

    def keep(self, message: ReceivedMessage, why: str) -> None:
        """Keep a message that the function cannot process, for an operator (CO-7)."""
        (row,) = self._inputs.read_again(message.topic, message.position, message.position)
        if self._keep(row, user_of(message.message.annotations), why) > MAX_REFUSED:
            logger.error(
                "the store %r keeps %d refused messages of this user and does not keep message %d of %r (%s)",
                *(self._store.name, MAX_REFUSED, row.position, row.source, why),
            )

    @property
    def keeps_any(self) -> bool:
        """Whether messages are kept for an operator."""
        return any(self._refused_counts.values())

    def take_back(self) -> int:
        """CO-12: move what an operator wants retried to the end of the input; returns how many messages that are.

        Raises:
            StoreError: the database fails; each message is in one of the two places.
        """
        rows = self._store.run(
            "SELECT position, source, owner, payload FROM oncewire_store_refused WHERE store = ? AND retry = 1"
            " ORDER BY position",
            (self._store.name,),
        )
        taken = [row for row in rows if row[1] in self._sequencers]
        for position, source, user, payload in taken:
            self._inputs.append(
                str(source),
                [without_sequence(bytes(payload))],
                partial(
                    self._store.run,
                    "DELETE FROM oncewire_store_refused WHERE store = ? AND position = ?",
                    (self._store.name, position),
                ),
            )
            self._refused_counts[str(user)] -= 1
            logger.info("the store %r processes message %d of %r once more", self._store.name, position, source)
        return len(taken)

    def _keep(self, row: Recorded, user: str, why: str) -> int:
        """Returns how many there are of this user with it."""
        count = self._refused_counts[user] = self._refused_counts.get(user, 0) + 1
        if count <= MAX_REFUSED:
            self._refused.append((row, user, why))
        return count

    def _set_aside(self, row: Recorded, producer: ProducerId, outcome: Outcome) -> None:
        """Keep a message that cannot be put into sequence, and go on: it is its user's fault alone (SQ-10)."""
        count = self._keep(row, producer.user, f"{outcome.value}: producer {producer}")
        if count > MAX_REFUSED + 1:
            return  # said once
        logger.error(
            "the store %r does not process message %d of %r by user %r (%s: producer %s) and %s; its writer must start "
            "a new incarnation",
            *(self._store.name, row.position, row.source, producer.user, outcome.value, producer),
            "keeps it in oncewire_store_refused" if count <= MAX_REFUSED else "keeps no further ones of this user",
        )

    def _read_again(self, source: str, effect: Reread[Item]) -> list[Placed[Item]]:
        found = []
        for row in self._inputs.read_again(source, effect.first_position, effect.last_position):
            message = decode_message(row.payload)
            header = read_header(message.annotations)
            if effect.wants(header):
                found.append(Placed(row.position, (message, header)))
        try:
            effect.finish()
        except JournalHole as error:
            raise StoreCorrupt(
                f"the store {self._store.name!r} cannot go on", str(error), "restore the database from a backup"
            ) from error
        return found

    def _prune(self, sequencer: Sequencer[Item], now: float) -> None:
        for forgotten in sequencer.prune(now):
            if forgotten.dropped:
                logger.warning(
                    "producer %s left %d messages pending and is forgotten", forgotten.producer, forgotten.dropped
                )

    def trim(self) -> None:
        """Delete what nothing needs any more, in the transaction that is open; what was refused stays in a table."""
        self._store.run_many(
            "INSERT INTO oncewire_store_refused VALUES (?, ?, ?, ?, ?, ?, 0)",
            [(self._store.name, row.position, row.source, user, why, row.payload) for row, user, why in self._refused],
        )
        self._refused = []
        for topic, sequencer in self._sequencers.items():
            if sequencer.position:
                self._inputs.trim(topic, sequencer.oldest_needed)
