"""The journal of a consumer's links, in the database of its store: its input, and the maps of what it publishes (ST-7).

What the network delivered is written there before it is accepted, in one transaction with the subscription's state.
So a message is in the journal exactly once, and whoever opens the store next continues where this owner stopped: on
another machine, too (CO-1). It stays until it was processed and no open transaction of its producer needs it (CO-2).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oncewire.client.errors import JournalUnusable, StoreError
from oncewire.client.journal import Journal
from oncewire.client.journal_records import PublisherChanges, PublisherState, SubscriberChanges, SubscriberState
from oncewire.client.outcomes import OutcomeKind
from oncewire.client.sqlite_journal import outcome_from_text, outcome_to_text
from oncewire.client.transactions.crash_points import CrashPoint, reach
from oncewire.client.transactions.store import Store


@dataclass(frozen=True, slots=True)
class Recorded:
    """One message of the journal.

    Attributes:
        position: its place among all messages of the store.
        source: the subscription it came in on.
        received_at: when it was recorded, in seconds since 1970.
        payload: the encoded message.
    """

    position: int
    source: str
    received_at: float
    payload: bytes


class InputJournal(Journal):
    """What the subscriptions of one store have received.

    Args:
        store: where it is; open, and used by nobody else.

    Attributes:
        last_position: of the newest message; 0 if there never was one.
        failure: why the last commit failed, if it did.
    """

    is_durable = True
    is_shared = True

    def __init__(self, store: Store[Any]) -> None:
        self.failure: StoreError | None = None
        self._store = store
        self._arrived: dict[tuple[str, bytes], bytes] = {}
        self._writes: list[tuple[str, SubscriberChanges]] = []
        self._outputs: list[tuple[str, PublisherChanges]] = []
        ((newest, read, place),) = store.run(
            "SELECT (SELECT MAX(position) FROM oncewire_store_inputs WHERE store = ?),"
            " (SELECT MAX(position) FROM oncewire_store_sources WHERE store = ?),"
            " (SELECT MAX(place) FROM oncewire_store_deliveries WHERE store = ?)",
            (store.name, store.name, store.name),
        )
        self.last_position = max(newest or 0, read or 0)
        self._place = place or 0

    # --- what comes in ------------------------------------------------------------------------------------------------

    def arrive(self, link: str, tag: bytes, payload: bytes) -> None:
        """Keep a message until the commit that accepts its delivery writes it."""
        self._arrived[link, tag] = payload

    def left_over(self, link: str, tags: Sequence[bytes]) -> list[bytes]:
        """Return the messages that no commit wrote: the network had settled them before they were accepted."""
        found = (self._arrived.pop((link, tag), None) for tag in tags)
        return [payload for payload in found if payload is not None]

    def append(self, source: str, payloads: Sequence[bytes], effect: Callable[[], object] | None = None) -> None:
        """Write messages, and what else belongs to them, in a transaction of their own. Blocks.

        Raises:
            StoreError: they are not written.
        """
        with self._store.guarded():
            self._insert(source, payloads)
            if effect is not None:
                _ = effect()

    def _insert(self, source: str, payloads: Sequence[bytes]) -> None:
        now = time.time()
        first = self.last_position + 1
        self._store.run_many(
            "INSERT INTO oncewire_store_inputs VALUES (?, ?, ?, ?, ?)",
            [(self._store.name, position, source, now, payload) for position, payload in enumerate(payloads, first)],
        )
        self.last_position += len(payloads)

    def check_fence(self) -> None:
        """Check that no later owner has opened the store; errors as ``Store.check_fence``. Blocks."""
        self._store.check_fence()

    # --- what goes out ------------------------------------------------------------------------------------------------

    def read(self, after: int, limit: int) -> list[Recorded]:
        """Return the messages behind a position, at most so many, in order. Blocks."""
        rows = self._store.run(
            "SELECT position, source, received_at, payload FROM oncewire_store_inputs"
            " WHERE store = ? AND position > ? ORDER BY position LIMIT ?",
            (self._store.name, after, limit),
        )
        return [Recorded(position, source, at, bytes(payload)) for position, source, at, payload in rows]

    def read_again(self, source: str, first: int, last: int) -> list[Recorded]:
        """Return a source's messages from one position to another, both inclusive, in order. Blocks."""
        rows = self._store.run(
            "SELECT position, source, received_at, payload FROM oncewire_store_inputs"
            " WHERE store = ? AND position BETWEEN ? AND ? AND source = ? ORDER BY position",
            (self._store.name, first, last, source),
        )
        return [Recorded(position, source, at, bytes(payload)) for position, source, at, payload in rows]

    def sources(self) -> set[str]:
        """Return the subscriptions it holds messages of. Blocks."""
        rows = self._store.run("SELECT DISTINCT source FROM oncewire_store_inputs WHERE store = ?", (self._store.name,))
        return {str(source) for (source,) in rows}

    def trim(self, source: str, before: int) -> None:
        """Delete a source's messages below a position, in the transaction that is open. Blocks."""
        self._store.run(
            "DELETE FROM oncewire_store_inputs WHERE store = ? AND position < ? AND source = ?",
            (self._store.name, before, source),
        )

    # --- the journal of the subscriptions -----------------------------------------------------------------------------

    def bind(self, container_id: str) -> None:
        """Nothing to check: the store's name is the container-id."""
        assert container_id == self._store.name, container_id

    def check_owner(self) -> None:
        """Check that no later owner has opened the store (P-b); see Journal."""
        try:
            newest = self._store.peek_fence()
        except StoreError as error:
            raise self._journal_error(error) from error
        if newest != self._store.fence:
            raise self._journal_error(self._store.fenced(newest))

    def open_publisher(self, link_name: str) -> PublisherState:
        """Return what the store's owner has read or decided (it is in memory: CO-6); see Journal."""
        return self._store.maps.state(link_name)

    def write_publisher(self, link_name: str, changes: PublisherChanges) -> None:
        """Add a publisher's changes; see Journal."""
        self._outputs.append((link_name, changes))

    def open_subscriber(self, link_name: str) -> SubscriberState:
        """Read a subscription's state; see Journal."""
        key = (self._store.name, link_name)
        try:
            with self._store.lock:
                known = self._store.run(
                    "SELECT incarnation FROM oncewire_store_links WHERE store = ? AND link = ?", key
                )
                entries = self._store.run(
                    "SELECT tag, outcome FROM oncewire_store_deliveries WHERE store = ? AND link = ? ORDER BY place",
                    key,
                )
        except StoreError as error:
            raise self._journal_error(error) from error
        return SubscriberState(
            int(known[0][0]) if known else 0,
            tuple((bytes(tag), outcome_from_text(text) if text else None) for tag, text in entries),
        )

    def begin(self) -> None:
        """Start a transaction; see Journal. Everything is written when it commits."""
        self._writes, self._outputs = [], []

    def write_subscriber(self, link_name: str, changes: SubscriberChanges) -> None:
        """Add a subscription's changes; see Journal."""
        self._writes.append((link_name, changes))

    def commit(self) -> None:
        """Make the transaction durable, with the messages it accepts, without the intents that have an outcome."""
        position, place = self.last_position, self._place
        decided = {number: outcome.kind for _, changes in self._outputs for number, outcome in changes.decided}
        released = {number for number, kind in decided.items() if kind is OutcomeKind.RELEASED}
        kept = released if self.keeps_released else set()
        try:
            with self._store.guarded():
                for link, changes in self._writes:
                    self._write(link, changes)
                exposing = [link for link, changes in self._outputs if self._store.maps.write(link, changes, kept)]
                if self._writes:
                    reach(CrashPoint.RECORDING)
                if decided:
                    reach(CrashPoint.ACCEPTED)
        except StoreError as error:
            self.last_position, self._place = position, place
            raise self._journal_error(error) from error
        self._store.forget(decided.keys() - kept)
        if self._writes:
            reach(CrashPoint.RECORDED)
        if exposing:
            reach(CrashPoint.EXPOSED)
        if decided:
            reach(CrashPoint.CONFIRMED)
        if kept:
            reach(CrashPoint.RELEASED)

    def send_released(self, topic: str) -> None:
        """See ``OutputMaps``; a transaction of its own. Blocks.

        Raises:
            StoreError: it is not written.
        """
        reach(CrashPoint.ENDED)
        with self._store.guarded():
            self._store.maps.send_released(topic)

    def _write(self, link: str, changes: SubscriberChanges) -> None:
        name = self._store.name
        self._store.run_many(
            "DELETE FROM oncewire_store_deliveries WHERE store = ? AND link = ? AND tag = ?",
            [(name, link, tag) for tag in changes.forgotten],
        )
        self._store.run_many(
            "INSERT INTO oncewire_store_deliveries VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (store, link, tag) DO UPDATE SET outcome = excluded.outcome",  # its place stays
            [
                (name, link, tag, self._place + number, outcome_to_text(outcome) if outcome else None)
                for number, (tag, outcome) in enumerate(changes.entries, 1)
            ],
        )
        self._place += len(changes.entries)
        self._store.run(
            "INSERT INTO oncewire_store_links VALUES (?, ?, ?)"
            " ON CONFLICT (store, link) DO UPDATE SET incarnation = excluded.incarnation",
            (name, link, changes.incarnation),
        )
        accepted = [tag for tag, outcome in changes.entries if outcome is not None and outcome.is_accepted]
        self._insert(link, self.left_over(link, accepted))

    def rollback(self) -> None:
        """Drop the transaction; see Journal."""
        self._writes, self._outputs = [], []

    def close(self) -> None:
        """Nothing to let go of: the store is closed by its owner."""

    def _journal_error(self, error: StoreError) -> JournalUnusable:
        self.failure = error
        return JournalUnusable(error.what, error.why, error.fix)
