"""From journals of edges into the journal of a consumer's input (CO-8).

* CO-8 The position in a journal is the consumer's own: it is written in the transaction that takes the messages up to
  it. The edge keeps no cursor of it, and no map of deliveries is needed: positions have no holes and are never used
  again (J-17), so what comes again is known by its position. Whoever opens the store next reads on behind it.
* CO-9 A position belongs to one journal. One that was made again under its name has positions of its own: nothing of
  it is taken under the old one. Nor is a message that was trimmed before it was read: the consumer ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oncewire.client.delivery import Delivery
from oncewire.client.errors import JournalUnreachable, LinkRefused
from oncewire.client.journal_reader import JournalReader
from oncewire.client.source_terms import JOURNAL, Start
from oncewire.client.transactions.crash_points import CrashPoint, reach
from oncewire.client.transactions.inputs import InputJournal
from oncewire.client.transactions.opening import StoreThread
from oncewire.client.transactions.receiving import AT_ONCE, Receiving
from oncewire.client.transactions.running import until_first_ends
from oncewire.client.transactions.sequence_header import HeaderError, read_header
from oncewire.client.transactions.store import Store
from oncewire.wire import NOT_FOUND, RESOURCE_DELETED, WireError

logger = logging.getLogger("oncewire.client")

FENCE_S = 5.0
"""How often an owner that reads journals looks for a later one: it has no link that the later one would take (CO-5)."""


def source_of(journal: str) -> str:
    """What the messages of a journal come in on, beside topics."""
    return JOURNAL + journal


@dataclass(frozen=True, slots=True)
class Place:
    """How far a consumer has taken a journal.

    Attributes:
        incarnation: which journal of that name (J-17).
        position: of the last message that was taken.
    """

    incarnation: int
    position: int


class JournalPositions:
    """The places of one consumer in its journals, in the database of its store. All methods block."""

    def __init__(self, store: Store[Any], inputs: InputJournal) -> None:
        self._store = store
        self._inputs = inputs

    def of(self, journal: str) -> Place | None:
        """Where the consumer is; None: it has never read that journal."""
        rows = self._store.run(
            "SELECT incarnation, position FROM oncewire_store_journal_positions WHERE store = ? AND journal = ?",
            (self._store.name, journal),
        )
        return Place(int(rows[0][0]), int(rows[0][1])) if rows else None

    def begin(self, journal: str, place: Place) -> None:
        """Keep where the first attach began: a word or a time would mean another position later."""
        with self._store.guarded():
            self._write(journal, place)

    def take(self, journal: str, place: Place, payloads: Sequence[bytes]) -> None:
        """CO-8: messages and the position behind them, in one transaction."""

        def write_place() -> None:
            self._write(journal, place)
            reach(CrashPoint.RECORDING)

        self._inputs.append(source_of(journal), payloads, write_place)
        reach(CrashPoint.RECORDED)

    def _write(self, journal: str, place: Place) -> None:
        self._store.run(
            "INSERT INTO oncewire_store_journal_positions VALUES (?, ?, ?, ?) ON CONFLICT (store, journal)"
            " DO UPDATE SET incarnation = excluded.incarnation, position = excluded.position",
            (self._store.name, journal, place.incarnation, place.position),
        )


class JournalReceiving:
    """The readers of one consumer's journals, until they fail.

    Args:
        receiving: of its topics; its client is used.
        positions: where the consumer is.
        journals: where to start in each that it has never read.
        inputs: the journal of its input.
        thread: where the store is used.
    """

    def __init__(
        self,
        receiving: Receiving,
        positions: JournalPositions,
        journals: Mapping[str, Start],
        inputs: InputJournal,
        thread: StoreThread,
    ) -> None:
        self._receiving = receiving
        self._positions = positions
        self._journals = journals
        self._inputs = inputs
        self._thread = thread
        self._readers: dict[str, JournalReader] = {}
        self._places: dict[str, Place] = {}

    async def open(self) -> None:
        """Attach to each journal behind its place, or where the consumer is to start. The client is connected.

        Raises:
            JournalUnreachable: no edge serves the journal now.
            LinkRefused: nobody can read on there.
            ClientError: it cannot be attached, or the store cannot be used.
        """
        for journal, start in self._journals.items():
            place = await self._thread.call(lambda journal=journal: self._positions.of(journal))  # type: ignore[misc]
            await self._open(journal, start, place)

    async def _open(self, journal: str, start: Start, place: Place | None) -> None:
        try:
            reader = await self._receiving.client.journal(
                journal, start=start if place is None else place.position + 1, settled=True
            )
        except LinkRefused as error:
            raise self._explained(journal, place, error) from error
        assert isinstance(reader, JournalReader)
        if place is None:
            place = Place(reader.incarnation, reader.next_position - 1)
            begun = place
            await self._thread.call(lambda: self._positions.begin(journal, begun))
        elif place.incarnation != reader.incarnation:
            why = f"it was deleted and made again, so position {place.position} is of another journal"
            raise self._lost(journal, why, RESOURCE_DELETED)
        self._readers[journal], self._places[journal] = reader, place

    @property
    def has_more(self) -> bool:
        """Whether messages have come that are not recorded."""
        return any(reader.waiting for reader in self._readers.values())

    async def run(self) -> None:
        """Take what comes until something fails.

        Raises:
            StoreFenced: a later owner has opened the store.
            ClientError: a reader, the client or the store failed.
        """
        await until_first_ends(*map(self._receive, self._readers), self._watch_fence())

    async def _receive(self, journal: str) -> None:
        reader = self._readers[journal]
        try:
            while True:
                await self._receiving.until_room()
                deliveries = await reader.receive_many(AT_ONCE)
                reach(CrashPoint.RECEIVED)
                with self._receiving.recording():
                    await self._take(journal, deliveries)
                await reader.finish(deliveries)  # which makes room, and notifies nobody
        except LinkRefused as error:
            raise self._explained(journal, self._places[journal], error) from error

    async def _take(self, journal: str, deliveries: Sequence[Delivery]) -> None:
        before = self._places[journal]
        new = [delivery for delivery in deliveries if (delivery.position or 0) > before.position]
        if not new:
            return
        assert new[-1].position is not None
        place = Place(before.incarnation, new[-1].position)
        payloads = [delivery.payload for delivery in new if _is_usable(journal, delivery)]
        await self._thread.call(lambda: self._positions.take(journal, place, payloads))
        self._places[journal] = place
        self._receiving.wake()

    async def _watch_fence(self) -> None:
        while True:
            await asyncio.sleep(FENCE_S)
            await self._thread.call(self._inputs.check_fence)

    def _explained(self, journal: str, place: Place | None, error: LinkRefused) -> LinkRefused | JournalUnreachable:
        """What a refusal means for a consumer, and what to do."""
        if error.condition == NOT_FOUND:
            what = f"journal {journal!r} cannot be reached"
            return JournalUnreachable(
                what, error.why, "start the edge that keeps it, and the consumer again: it goes on at its position"
            )
        return error if place is None else self._lost(journal, error.why, error.condition)

    def _lost(self, journal: str, why: str, condition: str) -> LinkRefused:
        name = self._receiving.client.container_id
        return LinkRefused(
            f"the consumer {name!r} cannot go on in journal {journal!r}",
            why,
            "nothing was skipped; to go on without what is gone, choose `start=` and delete the consumer's row of"
            f" oncewire_store_journal_positions (store {name!r}, journal {journal!r})",
            condition,
        )


def _is_usable(journal: str, delivery: Delivery) -> bool:
    """Whether it can be put into sequence; what cannot stays in the journal, where its position finds it."""
    try:
        _ = read_header(delivery.message.annotations)
    except (HeaderError, WireError) as error:
        logger.error("message %s of journal %r is not processed: %s", delivery.position, journal, error)
        return False
    return True
