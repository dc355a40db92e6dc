"""Effects, checkpoint, ack intents and fence in one transaction of the application's database.

A consumer that writes to a database and publishes further messages does both exactly once like this:

1. **Open** the store. That raises its fence: whoever had it open before can commit nothing any more (ST-1), and what
   it left pending is now rolled back by an intent (ST-2).
2. **Recover.** Restore each source's sequencer (``restore``), publish every intent in ``unconfirmed``, wait until all
   are accepted, then ``confirm`` them.
3. **Process.** Feed messages to the sequencers. Number what is to be published with ``output(topic).pending()``,
   publish it, and ``settle`` each number when it is accepted. Nobody sees these messages yet.
4. **Commit.** In ``transaction(sources)`` write the effects. When the block ends, positions, producer states and one
   ack intent for each output are written behind them, the fence is checked, and all of it commits or none (ST-3).
5. **Acknowledge.** Publish the new intents, wait until they are accepted, ``confirm`` them; go on with 3.

Rules:

* ST-1 Fence. A transaction whose fence is not the store's newest fails.
* ST-2 No loose ends. Before an output's first message is published its producer is in the database; the next owner ends
  it with a rollback of everything behind its last commit, how far it came or still comes does not matter.
* ST-3 One decision. An ack exists if and only if the effects and the checkpoint do.
* ST-4 Acks are repeated. An intent stays in the database until it is confirmed, and each owner publishes what is there.
* ST-5 Acks complete at once. No ack is numbered before all its producer's messages, earlier acks among them, are
  accepted by every subscription; so its floor is its own number and no reader has to wait for what cannot come.

A store is used by one thread at a time and blocks it: from asyncio call it in a thread. After any failure inside a
transaction it must be closed and opened again, because sequencers and outputs are ahead of it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from oncewire.client.errors import StoreCorrupt, StoreFenced, StoreFull, StoreUnusable, UsageError
from oncewire.client.transactions.sequence_header import (
    MAX_NAME_BYTES,
    Flag,
    HeaderError,
    Producer,
    ProducerId,
    SequenceHeader,
    final_rollback,
)
from oncewire.client.transactions.sequencer import PRODUCER_RETENTION_S, Sequencer
from oncewire.client.transactions.sequencer_state import StateError
from oncewire.wire import Message

VERSION = 1
MAX_STORE_NAME_BYTES = MAX_NAME_BYTES - 64
"""Length of a store's name: a producer's name is made of it, the fence and the output's number."""
MAX_UNCONFIRMED = 10_000
"""Intents that wait to be accepted: the next owner must publish them all before it can begin."""
MAX_OUTPUTS = 1_000
"""Topics one owner publishes to: each is a row to read when the next owner opens, and an intent with each commit."""
RENEW_AFTER_S = PRODUCER_RETENTION_S / 2
"""An output silent for so long begins a new life, well before any reader forgets the old one."""

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS oncewire_store_fences (
        store TEXT PRIMARY KEY, version INTEGER NOT NULL, fence BIGINT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS oncewire_store_sources (
        store TEXT NOT NULL, source TEXT NOT NULL, position BIGINT NOT NULL, horizon_ms BIGINT NOT NULL,
        PRIMARY KEY (store, source))""",
    """CREATE TABLE IF NOT EXISTS oncewire_store_producers (
        store TEXT NOT NULL, source TEXT NOT NULL, producer TEXT NOT NULL, born_ms BIGINT NOT NULL,
        state TEXT NOT NULL, PRIMARY KEY (store, source, producer, born_ms))""",
    """CREATE TABLE IF NOT EXISTS oncewire_store_outputs (
        store TEXT NOT NULL, topic TEXT NOT NULL, producer TEXT NOT NULL, born_ms BIGINT NOT NULL,
        begins BIGINT NOT NULL, PRIMARY KEY (store, producer, born_ms))""",
    """CREATE TABLE IF NOT EXISTS oncewire_store_intents (
        store TEXT NOT NULL, number BIGINT NOT NULL, topic TEXT NOT NULL, producer TEXT NOT NULL,
        born_ms BIGINT NOT NULL, sequence BIGINT NOT NULL, flag TEXT NOT NULL, begins BIGINT NOT NULL,
        floor BIGINT NOT NULL, PRIMARY KEY (store, number))""",
)

Connection = TypeVar("Connection")
Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Intent:
    """An ack or rollback that must reach its topic because the store has decided it.

    Attributes:
        number: its place among the store's intents; publish them in this order.
        topic: where to.
        header: what it says.
    """

    number: int
    topic: str
    header: SequenceHeader

    def message(self) -> Message:
        """Return it as a message to publish."""
        return Message(b"", annotations=self.header.annotations())


@dataclass(slots=True)
class _Output:
    """One life of one output, and when it last took part in a commit (seconds since 1970)."""

    topic: str
    producer: Producer
    used_at: float


class Store(ABC, Generic[Connection]):
    """What all stores do; ``SqliteStore`` and ``PostgresStore`` add how their database is spoken to.

    Args:
        name: tells the stores of one database apart.
        renew_after: seconds after which a silent output begins a new life.

    Attributes:
        name: as given.
        fence: the number this owner raised the fence to.
        connection: the database connection; use it inside ``transaction()``.
        unconfirmed: intents that are committed and not known to be accepted, in order.
    """

    connection: Connection

    def __init__(self, name: str, *, renew_after: float) -> None:
        if not name or len(name.encode("utf-8", "replace")) > MAX_STORE_NAME_BYTES:
            raise UsageError(
                "the store cannot be opened",
                f"its name {name[:20]!r} has not 1 to {MAX_STORE_NAME_BYTES} bytes",
                "choose a short name that stays the same in each life of the consumer",
            )
        self.name = name
        self.fence = 0
        self.unconfirmed: list[Intent] = []
        self._renew_after = renew_after
        self._outputs: dict[str, _Output] = {}
        self._outputs_made = 0
        self._next_intent = 1
        self._failed = False
        self._is_inside = False

    # --- the database -------------------------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self) -> None:
        """Start a transaction."""

    @abstractmethod
    def _commit(self) -> None:
        """Make it durable."""

    @abstractmethod
    def _rollback(self) -> None:
        """Drop it; raises nothing."""

    @abstractmethod
    def _is_in_transaction(self) -> bool:
        """Whether the transaction that was begun is still open."""

    @abstractmethod
    def _run(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run one statement (parameters are ?) and return its rows; database errors become ours."""

    @abstractmethod
    def _newest_fence(self) -> int:
        """Read the fence in a way that no later owner can raise it before this transaction ends."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the database. Closing twice is harmless."""

    # --- opening ------------------------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Raise the fence and read what the owner before left; one transaction."""
        with self._guarded():
            self._run(
                "INSERT INTO oncewire_store_fences VALUES (?, ?, 0) ON CONFLICT (store) DO NOTHING",
                (self.name, VERSION),
            )
            self._run("UPDATE oncewire_store_fences SET fence = fence + 1 WHERE store = ?", (self.name,))
            ((version, self.fence),) = self._run(
                "SELECT version, fence FROM oncewire_store_fences WHERE store = ?", (self.name,)
            )
            if version != VERSION:
                raise StoreCorrupt(
                    f"the store {self.name!r} cannot be opened",
                    f"it has version {version}, this program knows version {VERSION}",
                    "use the version of Oncewire that wrote it, or another name",
                )
            self._read_intents()
            self._end_predecessors()

    def _read_intents(self) -> None:
        rows = self._run(
            "SELECT number, topic, producer, born_ms, sequence, flag, begins, floor FROM oncewire_store_intents"
            " WHERE store = ? ORDER BY number",
            (self.name,),
        )
        for number, topic, producer, born_ms, sequence, flag, begins, floor in rows:
            try:
                header = SequenceHeader(ProducerId(producer, born_ms), sequence, Flag(flag), begins, floor)
            except ValueError as error:
                raise self._damaged(f"intent {number}: {error}") from error
            self.unconfirmed.append(Intent(number, topic, header))
            self._next_intent = number + 1

    def _end_predecessors(self) -> None:
        """Roll back whatever earlier owners left pending, known or not (ST-2)."""
        rows = self._run(
            "SELECT topic, producer, born_ms, begins FROM oncewire_store_outputs WHERE store = ?"
            " ORDER BY born_ms, producer",
            (self.name,),
        )
        for topic, producer, born_ms, begins in rows:
            try:
                header = final_rollback(ProducerId(producer, born_ms), begins)
            except HeaderError as error:
                raise self._damaged(f"output {topic!r}: {error}") from error
            self.unconfirmed.append(self._write_intent(topic, header))
        self._run("DELETE FROM oncewire_store_outputs WHERE store = ?", (self.name,))

    def _damaged(self, why: str) -> StoreCorrupt:
        return StoreCorrupt(f"the store {self.name!r} cannot be read", why, "restore the database from a backup")

    # --- recovering ---------------------------------------------------------------------------------------------------

    def position(self, source: str) -> int:
        """Return the source's position in the last checkpoint: read on behind it. 0 if there is none.

        Raises:
            StoreError: it cannot be read.
        """
        rows = self._read(
            "SELECT position FROM oncewire_store_sources WHERE store = ? AND source = ?", (self.name, source)
        )
        return int(rows[0][0]) if rows else 0

    def restore(self, source: str, sequencer: Sequencer[Any]) -> None:
        """Put the source's last checkpoint into a new sequencer.

        Args:
            source: names a journal among those of this store.
            sequencer: one that has read nothing.

        Raises:
            StoreCorrupt: what is stored cannot be read.
            StoreError: the database cannot be read.
        """
        rows = self._read(
            "SELECT position, horizon_ms FROM oncewire_store_sources WHERE store = ? AND source = ?",
            (self.name, source),
        )
        if not rows:
            return
        states = self._read(
            "SELECT producer, born_ms, state FROM oncewire_store_producers WHERE store = ? AND source = ?"
            " ORDER BY producer, born_ms",
            (self.name, source),
        )
        try:
            known = [(ProducerId(producer, born_ms), text) for producer, born_ms, text in states]
            sequencer.restore(int(rows[0][0]), int(rows[0][1]), known)
        except (HeaderError, StateError) as error:
            raise self._damaged(str(error)) from error

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
        self._check_usable()
        now = time.time()
        known = self._outputs.get(topic)
        if known is not None and (known.producer.has_pending or now - known.used_at <= self._renew_after):
            return known.producer
        if known is None and len(self._outputs) >= MAX_OUTPUTS:
            raise UsageError(
                f"the store {self.name!r} cannot publish to {topic!r}",
                f"it publishes to {MAX_OUTPUTS} topics already",
                "split the consumer, or put the difference into the messages",
            )
        self._check_room()
        self._outputs_made += 1
        producer = ProducerId(f"{self.name}.{self.fence}.{self._outputs_made}", int(now * 1000))
        with self._guarded():
            if known is not None:
                self._run(
                    "DELETE FROM oncewire_store_outputs WHERE store = ? AND producer = ? AND born_ms = ?",
                    (self.name, known.producer.producer.name, known.producer.producer.born_ms),
                )
            self._run(
                "INSERT INTO oncewire_store_outputs VALUES (?, ?, ?, ?, 1)",
                (self.name, topic, producer.name, producer.born_ms),
            )
        self._outputs[topic] = _Output(topic, Producer(producer), now)
        return self._outputs[topic].producer

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
                opening the store again tells.

        After the block: publish the new intents in ``unconfirmed``. After any exception: close the store, open it
        again and restore from it.
        """
        self._check_usable()
        with self._guarded():
            self._is_inside = True
            try:
                yield self.connection
            finally:
                self._is_inside = False
            if not self._is_in_transaction():
                raise UsageError(
                    f"the store {self.name!r} cannot commit the checkpoint",
                    "the transaction was ended inside the block",
                    "do not commit or roll back there; leave the block to commit, raise to roll back",
                )
            for source, sequencer in sources.items():
                self._write_source(source, sequencer)
            self._check_room()
            acked = [self._ack(output) for output in self._outputs.values() if output.producer.has_pending]
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
        self._check_usable()
        with self._guarded():
            for number in sorted(numbers):
                self._run(
                    "DELETE FROM oncewire_store_intents WHERE store = ? AND number = ?", (self.name, number)
                )
        for intent in self.unconfirmed:
            output = self._outputs.get(intent.topic)
            if intent.number in numbers and output is not None and output.producer.producer == intent.header.producer:
                output.producer.settle(intent.header.sequence)
        self.unconfirmed = [intent for intent in self.unconfirmed if intent.number not in numbers]

    def _write_source(self, source: str, sequencer: Sequencer[Any]) -> None:
        self._run(
            "INSERT INTO oncewire_store_sources VALUES (?, ?, ?, ?) ON CONFLICT (store, source)"
            " DO UPDATE SET position = excluded.position, horizon_ms = excluded.horizon_ms",
            (self.name, source, sequencer.position, sequencer.horizon_ms),
        )
        for producer, text in sequencer.changes().items():
            key = (self.name, source, producer.name, producer.born_ms)
            if text is None:
                self._run(
                    "DELETE FROM oncewire_store_producers"
                    " WHERE store = ? AND source = ? AND producer = ? AND born_ms = ?",
                    key,
                )
            else:
                self._run(
                    "INSERT INTO oncewire_store_producers VALUES (?, ?, ?, ?, ?)"
                    " ON CONFLICT (store, source, producer, born_ms) DO UPDATE SET state = excluded.state",
                    (*key, text),
                )

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
        self._run(
            "UPDATE oncewire_store_outputs SET begins = ? WHERE store = ? AND producer = ? AND born_ms = ?",
            (producer.begins, self.name, header.producer.name, header.producer.born_ms),
        )
        return self._write_intent(output.topic, header)

    def _write_intent(self, topic: str, header: SequenceHeader) -> Intent:
        intent = Intent(self._next_intent, topic, header)
        who = header.producer
        self._run(
            "INSERT INTO oncewire_store_intents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(self.name, intent.number, topic, who.name, who.born_ms),
                *(header.sequence, header.flag.value, header.begins, header.floor),
            ),
        )
        self._next_intent += 1
        return intent

    def _check_room(self) -> None:
        """Refuse to decide more while much is undelivered. Opening is never refused: only it can go on from there."""
        if len(self.unconfirmed) >= MAX_UNCONFIRMED:
            raise StoreFull(
                f"the store {self.name!r} cannot go on",
                f"{len(self.unconfirmed)} intents are not confirmed",
                "publish the intents in `unconfirmed` and confirm them first",
            )

    # --- every transaction --------------------------------------------------------------------------------------------

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """A transaction that commits only under our own fence (ST-1); whatever fails ends this owner's use."""
        self._begin()
        try:
            yield
            newest = self._newest_fence()
            if newest != self.fence:
                raise StoreFenced(
                    f"the store {self.name!r} commits nothing more from here",
                    f"a later owner has opened it (fence {newest}, ours is {self.fence})",
                    "end this process; the later owner goes on from the last commit",
                )
            self._commit()
        except BaseException:
            self._failed = True
            self._rollback()
            raise

    def _read(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        self._check_usable()
        return self._run(statement, parameters)

    def _check_usable(self) -> None:
        if self._is_inside:
            raise UsageError(
                f"the store {self.name!r} cannot do this now",
                "a transaction is open",
                "leave the transaction's block first; ask for outputs before it",
            )
        if self._failed:
            raise StoreUnusable(
                f"the store {self.name!r} cannot be used",
                "it was closed, or a transaction failed, so that what is in memory is ahead of it",
                "close it, open it again and restore from it",
            )
