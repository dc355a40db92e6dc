"""Effects, checkpoint, ack intents and fence in one transaction of the application's database.

``Consumer`` does what follows for an application. By hand, a consumer that writes to a database and publishes further
messages does both exactly once like this:

1. **Open** the store. That raises its fence: whoever had it open before can commit nothing any more (ST-1), and what
   it left pending is now rolled back by an intent (ST-2).
2. **Recover.** Restore each source's sequencer (``restore``), publish every intent in ``unconfirmed``, wait until all
   are accepted, then ``confirm`` them.
3. **Process.** Feed messages to the sequencers. Number what is to be published with ``output(topic).pending()``,
   publish it, and ``settle`` each number when it is accepted. Nobody sees these messages yet.
4. **Commit.** In ``transaction(sources)`` write the effects. When the block ends, positions, producer states and one
   ack intent for each output are written behind them, the fence is checked, and all of it commits or none (ST-3).
5. **Acknowledge.** Publish the new intents, wait until they are accepted, ``confirm`` them; go on with 3.

Instead of 3, give messages to ``publish`` inside the transaction: they are stored with the effects and published
after the commit, so the transaction waits for no subscription (ST-6).

Rules:

* ST-1 Fence. A transaction whose fence is not the store's newest fails.
* ST-2 No loose ends. Before an output's first message is published its producer is in the database; the next owner ends
  it with a rollback of everything behind its last commit, how far it came or still comes does not matter.
* ST-3 One decision. An ack exists if and only if the effects and the checkpoint do.
* ST-4 Acks are repeated. An intent stays in the database until it is confirmed, and each owner publishes what is there.
* ST-5 Acks complete at once. No ack is numbered before all its producer's messages, earlier acks among them, are
  accepted by every subscription; so its floor is its own number and no reader has to wait for what cannot come.
* ST-6 Decided first. A message given to ``publish`` is an intent of its transaction; the last one for a topic commits
  the others, so a reader gets all that a transaction published to a topic, or nothing.
* ST-7 One publisher. Each owner publishes as the same publisher, whose unsettled map is in the store: before the first
  byte of an intent may reach a socket its map has it (P-1), and it leaves the map with its outcome.
* ST-8 Not to nobody. What was released for want of subscriptions waits, and what is behind it; the next session sends
  all of it in order when the one that released has ended.
* ST-9 Not held up. What an earlier owner has not committed when the fence is raised ends with its session, so that its
  rows are free; where a database has no sessions, the next owner waits for it.

A store is used by one thread at a time and blocks it: from asyncio call it in a thread. After any failure inside a
transaction it must be closed and opened again, because sequencers and outputs are ahead of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from oncewire.client.errors import StoreFull, UsageError
from oncewire.client.transactions import checkpoints
from oncewire.client.transactions.checkpoints import damaged
from oncewire.client.transactions.crash_points import CrashPoint, reach
from oncewire.client.transactions.databases import Database
from oncewire.client.transactions.fenced_database import Connection, FencedDatabase
from oncewire.client.transactions.output_maps import OutputMaps
from oncewire.client.transactions.sequence_header import (
    MAX_NAME_BYTES,
    Flag,
    HeaderError,
    Producer,
    ProducerId,
    SequenceHeader,
    final_rollback,
)
from oncewire.client.transactions.sequence_set import SequenceSet
from oncewire.client.transactions.sequencer import PRODUCER_RETENTION_S, Sequencer
from oncewire.client.transactions.store_schema import Intent, encode_with_header
from oncewire.wire import Message

MAX_STORE_NAME_BYTES = MAX_NAME_BYTES - 64
"""Length of a store's name: a producer's name is made of it, the fence and the output's number."""
MAX_UNCONFIRMED = 10_000
"""Intents that wait to be accepted: the next owner must publish them all before it can begin."""
MAX_OUTPUTS = 1_000
"""Topics one owner publishes to: each is a row to read when the next owner opens, and an intent with each commit."""
NUMBERS_OF_AN_OWNER = 1 << 32
"""Numbers of intents that an owner has to give: the next one begins above them, so each number is given once (P-2)."""
RENEW_AFTER_S = PRODUCER_RETENTION_S / 2
"""An output silent for so long begins a new life, well before any reader forgets the old one."""


@dataclass(slots=True)
class _Output:
    """One life of one output, and when it last took part in a commit (seconds since 1970)."""

    topic: str
    producer: Producer
    used_at: float


class Store(FencedDatabase[Connection]):
    """Opens a store in a database, and raises its fence; ``SqliteStore`` and ``PostgresStore`` say which database.

    Args:
        name: distinguishes the stores of one database.
        open_database: opens it.
        renew_after: seconds after which a silent output begins a new life.

    Attributes:
        unconfirmed: intents that are committed and not known to be accepted, in order.
        next_number: of the next intent.
        maps: of the publishers of the intents (ST-7).
    """

    def __init__(self, name: str, open_database: Callable[[], Database], *, renew_after: float) -> None:
        if not name or len(name.encode("utf-8", "replace")) > MAX_STORE_NAME_BYTES:
            raise UsageError(
                "the store cannot be opened",
                f"its name {name[:20]!r} has not 1 to {MAX_STORE_NAME_BYTES} bytes",
                "choose a short name that stays the same in each life of the consumer",
            )
        self.unconfirmed: list[Intent] = []
        self._renew_after = renew_after
        self._outputs: dict[str, _Output] = {}
        self._deciding: dict[str, _Output] = {}  # who numbers what `publish` takes, by topic
        self._decided: dict[str, list[Message | bytes]] = {}  # what `publish` took in the open transaction
        self._producers: dict[ProducerId, Producer] = {}
        self._outputs_made = 0
        self.next_number = 1
        self.maps = OutputMaps(self)
        super().__init__(name, open_database)
        try:
            self._read_former()
        except BaseException:
            self.close()
            raise

    # --- opening ------------------------------------------------------------------------------------------------------

    def _read_former(self) -> None:
        """Read what the owner before left."""
        with self.guarded():
            self._read_intents()
            self.maps.read(MAX_OUTPUTS)
            self._end_predecessors()

    def _read_intents(self) -> None:
        rows = self.run(
            "SELECT number, topic, producer, born_ms, sequence, flag, begins, floor, payload"
            " FROM oncewire_store_intents WHERE store = ? ORDER BY number",
            (self.name,),
        )
        for number, topic, producer, born_ms, sequence, flag, begins, floor, payload in rows:
            try:
                header = SequenceHeader(ProducerId(producer, born_ms), sequence, Flag(flag), begins, floor)
            except ValueError as error:
                raise damaged(self.name, f"intent {number}: {error}") from error
            self.unconfirmed.append(Intent(number, topic, header, bytes(payload or b"")))
            self.next_number = number + 1
        self.next_number = max(self.next_number, self.fence * NUMBERS_OF_AN_OWNER)

    def _end_predecessors(self) -> None:
        """Roll back whatever earlier owners left pending, known or not (ST-2)."""
        rows = self.run(
            "SELECT topic, producer, born_ms, begins FROM oncewire_store_outputs WHERE store = ?"
            " ORDER BY born_ms, producer",
            (self.name,),
        )
        for topic, producer, born_ms, begins in rows:
            try:
                header = final_rollback(ProducerId(producer, born_ms), begins)
            except HeaderError as error:
                raise damaged(self.name, f"output {topic!r}: {error}") from error
            self.unconfirmed.append(self._write_intent(topic, header))
        self.run("DELETE FROM oncewire_store_outputs WHERE store = ?", (self.name,))

    # --- recovering ---------------------------------------------------------------------------------------------------

    def position(self, source: str) -> int:
        """Return the source's position in the last checkpoint: read on behind it. 0 if there is none.

        Raises:
            StoreError: it cannot be read.
        """
        self.check_usable()
        return checkpoints.position_of(self, source) or 0

    def restore(self, source: str, sequencer: Sequencer[Any]) -> None:
        """Put the source's last checkpoint into a new sequencer.

        Args:
            source: names a journal among those of this store.
            sequencer: one that has read nothing.

        Raises:
            StoreCorrupt: what is stored cannot be read.
            StoreError: the database cannot be read.
        """
        self.check_usable()
        checkpoints.restore(self, source, sequencer)

    # --- publishing ---------------------------------------------------------------------------------------------------

    def output(self, topic: str) -> Producer:
        """Return what numbers this owner's messages to a topic. Ask again for each transaction; do not keep it.

        The first time (and after a long silence) it is stored before it is returned (ST-2).

        Returns:
            A producer: publish with ``pending()`` headers and ``settle`` what is accepted. The store acks.

        Raises:
            UsageError: inside a transaction, or for more topics than MAX_OUTPUTS.
            StoreFenced: a later owner has opened the store.
            StoreError: it cannot be stored.
        """
        self.check_usable()
        now = time.time()
        known = self._outputs.get(topic)
        if known is not None and (known.producer.has_pending or now - known.used_at <= self._renew_after):
            return known.producer
        if known is None and len(self._outputs) >= MAX_OUTPUTS:
            raise self._too_many_topics(topic)
        self._check_room()
        producer = self._new_producer(now)
        with self.guarded():
            if known is not None:
                self.run(
                    "DELETE FROM oncewire_store_outputs WHERE store = ? AND producer = ? AND born_ms = ?",
                    (self.name, known.producer.producer.name, known.producer.producer.born_ms),
                )
            self.run(
                "INSERT INTO oncewire_store_outputs VALUES (?, ?, ?, ?, 1)",
                (self.name, topic, producer.name, producer.born_ms),
            )
        self._outputs[topic] = _Output(topic, self._producers[producer], now)
        return self._outputs[topic].producer

    def _new_producer(self, now: float) -> ProducerId:
        self._outputs_made += 1
        producer = ProducerId(f"{self.name}.{self.fence}.{self._outputs_made}", int(now * 1000))
        self._producers[producer] = Producer(producer)
        return producer

    def publish(self, topic: str, message: Message | bytes) -> None:
        """Publish a message (bytes: encoded) if the open transaction commits (ST-6), with a sequence header.

        Raises:
            UsageError: outside a transaction, for more topics than MAX_OUTPUTS, or for a topic of `output`.
        """
        if not self._is_inside:
            raise UsageError(
                f"the store {self.name!r} cannot publish to {topic!r}",
                "no transaction is open",
                "call it inside the block of `transaction()`",
            )
        if topic in self._outputs:
            raise UsageError(
                f"the store {self.name!r} cannot publish to {topic!r} in two ways",
                "this owner numbers messages to it with `output`",
                "use either `output` or `publish` for a topic",
            )
        if topic not in self._decided and len({*self._deciding, *self._decided}) >= MAX_OUTPUTS:
            raise self._too_many_topics(topic)
        self._decided.setdefault(topic, []).append(message)

    def _too_many_topics(self, topic: str) -> UsageError:
        return UsageError(
            f"the store {self.name!r} cannot publish to {topic!r}",
            f"it publishes to {MAX_OUTPUTS} topics already",
            "split the consumer, or put the difference into the messages",
        )

    # --- committing ---------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, sources: Mapping[str, Sequencer[Any]]) -> Iterator[Connection]:
        """Commit effects, checkpoint and ack intents together.

        Args:
            sources: the sequencers whose messages this transaction processes, by the name of their journal.

        Yields:
            The connection: write the effects with it. Do not commit or roll back; leave the block to commit, raise to
            roll back.

        Raises:
            StoreFenced: a later owner has opened the store; nothing was committed. End this process.
            UsageError: a message or an earlier ack of an output is not accepted yet (ST-5), or the block ended the
                transaction itself.
            StoreError: nothing was committed, or (only when the connection broke while it committed) it is not known;
                opening the store again shows it.

        After the block: publish the new intents in ``unconfirmed``. After any exception: close the store, open it
        again and restore from it.
        """
        self.check_usable()
        with self.guarded():
            self._is_inside = True
            self._decided = {}
            try:
                yield self.connection
            finally:
                self._is_inside = False
            if not self._database.is_in_transaction():
                raise UsageError(
                    f"the store {self.name!r} cannot commit the checkpoint",
                    "the transaction was ended inside the block",
                    "do not commit or roll back there; leave the block to commit, raise to roll back",
                )
            for source, sequencer in sources.items():
                checkpoints.write(self, source, sequencer)
            self._check_room()
            acked = [self._ack(output) for output in self._outputs.values() if output.producer.has_pending]
            acked += self._decide()
            reach(CrashPoint.DECIDED)
        with self.lock:  # the maps' commits take intents away
            self.unconfirmed += acked
        for sequencer in sources.values():
            sequencer.saved()

    def confirm(self, intents: Iterable[Intent]) -> None:
        """Forget intents that every subscription has accepted.

        Raises:
            StoreFenced: a later owner has opened the store.
            StoreError: they stay, and are published again after the next opening.
        """
        numbers = {intent.number for intent in intents}
        self.check_usable()
        with self.guarded():
            self.run_many(
                "DELETE FROM oncewire_store_intents WHERE store = ? AND number BETWEEN ? AND ?",
                [(self.name, *ends) for ends in SequenceSet((number, number) for number in numbers).ranges()],
            )
        self.forget(numbers)

    def forget(self, numbers: Set[int]) -> None:
        """Know intents no more that a commit has removed from the database."""
        with self.lock:
            for intent in self.unconfirmed:
                producer = self._producers.get(intent.header.producer)
                if intent.number in numbers and producer is not None:
                    producer.settle(intent.header.sequence)
            self.unconfirmed = [intent for intent in self.unconfirmed if intent.number not in numbers]

    def _ack(self, output: _Output) -> Intent:
        """Decide that the output's pending messages count (ST-3)."""
        producer = output.producer
        if not producer.all_settled:
            raise UsageError(
                f"the store {self.name!r} cannot commit",
                f"message {producer.floor} to {output.topic!r} is not accepted by every subscription",
                "settle each published message, and confirm each intent, once it is accepted; then commit",
            )
        header = producer.ack()
        output.used_at = time.time()
        self.run(
            "UPDATE oncewire_store_outputs SET begins = ? WHERE store = ? AND producer = ? AND born_ms = ?",
            (producer.begins, self.name, header.producer.name, header.producer.born_ms),
        )
        return self._write_intent(output.topic, header)

    def _decide(self) -> list[Intent]:
        """Number what `publish` took and store it; the last message for each topic commits the others (ST-6)."""
        now = time.time()
        intents = []
        for topic, messages in self._decided.items():
            producer = self._decider(topic, now)
            for place, message in enumerate(messages, 1):
                if len(messages) == 1:
                    header = producer.alone()
                else:
                    header = producer.pending() if place < len(messages) else producer.last()
                intents.append(self._intent(topic, header, encode_with_header(topic, message, header)))
        self._store_intents(intents)
        return intents

    def _decider(self, topic: str, now: float) -> Producer:
        known = self._deciding.get(topic)
        if known is None or (now - known.used_at > self._renew_after and known.producer.all_settled):
            known = self._deciding[topic] = _Output(topic, self._producers[self._new_producer(now)], now)
        known.used_at = now
        return known.producer

    def _write_intent(self, topic: str, header: SequenceHeader) -> Intent:
        intent = self._intent(topic, header)
        self._store_intents([intent])
        return intent

    def _intent(self, topic: str, header: SequenceHeader, payload: bytes = b"") -> Intent:
        return Intent(self.new_number(), topic, header, payload)

    def new_number(self) -> int:
        """Return a number that no other intent ever has."""
        self.next_number += 1
        return self.next_number - 1

    def _store_intents(self, intents: Sequence[Intent]) -> None:
        self.maps.give_links({intent.topic for intent in intents})
        self.run_many(
            "INSERT INTO oncewire_store_intents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    *(self.name, intent.number, intent.topic),
                    *(intent.header.producer.name, intent.header.producer.born_ms, intent.header.sequence),
                    *(intent.header.flag.value, intent.header.begins, intent.header.floor, intent.payload or None),
                )
                for intent in intents
            ],
        )

    def _check_room(self) -> None:
        """Refuse to decide more while much is undelivered. Opening is never refused: only it can go on from there."""
        if len(self.unconfirmed) >= MAX_UNCONFIRMED:
            raise StoreFull(
                f"the store {self.name!r} cannot go on",
                f"{len(self.unconfirmed)} intents are not confirmed",
                "publish the intents in `unconfirmed` and confirm them first",
            )
