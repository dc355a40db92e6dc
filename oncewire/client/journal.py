"""Where a client keeps what must outlive it: the publisher's map, the subscriber's processed deliveries.

The cores decide what is written and when (`next_commit()`); a journal only writes it. Calls come from one thread at a
time, in the order begin, write..., commit or rollback.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from oncewire.client.journal_records import (
    DoneId,
    MessageIdentity,
    PublisherChanges,
    PublisherState,
    SubscriberChanges,
    SubscriberState,
)
from oncewire.client.outcomes import Outcome

if TYPE_CHECKING:
    import sqlite3


class Journal(ABC):
    """One process's memory for any number of links of one container-id.

    Attributes:
        is_durable: whether what was committed survives the process; if so commits are made in a thread.
        keeps_released: whether it keeps what was released: its publishers then send nothing behind it (I-3c).
        is_claimed: whether a client uses it now.
        keeps_ids: whether it keeps the ids of messages that a subscriber is done with (D-3).
        connection: to the SQLite database that it writes into; None = it has none that applications could use.
        is_shared: whether another process may take it over while this one runs, without a lock that it holds (P-b).
    """

    is_durable: bool
    keeps_released: bool = False
    is_claimed: bool = False
    keeps_ids: bool = False
    is_shared: bool = False
    connection: sqlite3.Connection | None = None

    @abstractmethod
    def bind(self, container_id: str) -> None:
        """Make the journal this container's.

        Raises:
            JournalOwnerError: it belongs to another container-id.
        """

    def owner(self) -> str | None:
        """The container-id it belongs to; None = to none yet.

        Raises:
            JournalError: it cannot be read.
        """
        return None

    def check_owner(self) -> None:  # noqa: B027  (only a shared one has something to check)
        """Check in any thread, beside a transaction, that no other process has taken it over.

        Raises:
            JournalError: one has, or it cannot be read.
        """

    @abstractmethod
    def open_publisher(self, link_name: str) -> PublisherState:
        """Read a publisher's part; a link that is not known has the empty state.

        Raises:
            JournalError: it cannot be read.
        """

    @abstractmethod
    def open_subscriber(self, link_name: str) -> SubscriberState:
        """Read a subscriber's part; a link that is not known has the empty state.

        Raises:
            JournalError: it cannot be read.
        """

    @abstractmethod
    def begin(self) -> None:
        """Start a transaction.

        Raises:
            JournalError: it cannot be started.
        """

    @abstractmethod
    def write_publisher(self, link_name: str, changes: PublisherChanges) -> None:
        """Add a publisher's changes to the transaction.

        Raises:
            JournalError: they cannot be written; roll back.
        """

    @abstractmethod
    def write_subscriber(self, link_name: str, changes: SubscriberChanges) -> None:
        """Add a subscriber's changes to the transaction.

        Raises:
            JournalError: they cannot be written; roll back.
        """

    @abstractmethod
    def commit(self) -> None:
        """Make the transaction durable.

        Raises:
            JournalError: it is not; it was rolled back.
        """

    @abstractmethod
    def rollback(self) -> None:
        """Drop the transaction."""

    def explain(self, error: BaseException) -> BaseException:
        """Return what an error inside a block of `transaction()` means: itself, or that the journal was closed."""
        return error

    @abstractmethod
    def close(self) -> None:
        """Let go of the file, when what its thread does there has ended; closing twice is harmless.

        What a client asks of it afterwards fails with JournalUnusable, and its links with it: nothing is lost.
        """


class MemoryJournal(Journal):
    """Keeps nothing beyond its process: links survive every router, and subscribers being opened again (S-1)."""

    is_durable = False
    keeps_ids = True

    def __init__(self) -> None:
        self._incarnations: dict[str, int] = {}
        self._entries: dict[str, dict[bytes, Outcome | None]] = {}
        """By link: what is done and not settled, which outlives an unsubscribe (S-1)."""
        self._done_ids: dict[str, dict[MessageIdentity, bool]] = {}
        """By link: ids of what is done (D-3), the newest last, and whether it was rejected."""

    def bind(self, container_id: str) -> None:
        """Serve any container."""

    def open_publisher(self, link_name: str) -> PublisherState:
        """Start with an empty map."""
        return PublisherState()

    def open_subscriber(self, link_name: str) -> SubscriberState:
        """What an earlier subscriber of that name left; see Journal."""
        entries = self._entries.get(link_name, {})
        ids = self._done_ids.get(link_name, {})
        return SubscriberState(
            self._incarnations.get(link_name, 0), tuple(entries.items()), tuple(DoneId(*each) for each in ids.items())
        )

    def begin(self) -> None:
        """Nothing to start."""

    def write_publisher(self, link_name: str, changes: PublisherChanges) -> None:
        """The core's own map is the memory."""

    def write_subscriber(self, link_name: str, changes: SubscriberChanges) -> None:
        """Fold the changes in; see Journal."""
        entries = self._entries.setdefault(link_name, {})
        for tag in changes.forgotten:
            entries.pop(tag, None)
        entries.update(changes.entries)
        self._incarnations[link_name] = changes.incarnation
        if changes.done_ids or changes.forgotten_ids:
            self._write_ids(link_name, changes)
        if not entries and not changes.incarnation:  # unsubscribed, and nothing is left
            del self._entries[link_name], self._incarnations[link_name]

    def _write_ids(self, link_name: str, changes: SubscriberChanges) -> None:
        ids = self._done_ids.setdefault(link_name, {})
        for identity in (*changes.forgotten_ids, *(done.identity for done in changes.done_ids)):
            ids.pop(identity, None)
        ids.update((done.identity, done.is_rejected) for done in changes.done_ids)
        if not ids:
            del self._done_ids[link_name]

    def commit(self) -> None:
        """Nothing to write."""

    def rollback(self) -> None:
        """Nothing to drop."""

    def close(self) -> None:
        """Nothing to let go of."""
