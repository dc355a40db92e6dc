"""What every store of work queues does: operations, all of one transaction, and the transaction itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from bridges.workqueue.items import (
    Commit,
    Handle,
    HistoryEntry,
    LinkState,
    NewItem,
    NewMessage,
    Page,
    Pushed,
    QueueSettings,
    Rollback,
    Schedule,
    Search,
    Statistics,
    Taken,
    Target,
)

Row: TypeAlias = tuple[Any, ...]


class Operations(Protocol):
    """What can be done inside one transaction of a store; all of it counts, or none (W-1).

    Operations on several items do all or nothing, too. Every one may raise a QueueError.
    """

    now: float
    """Time of the transaction by the store's clock (W-15)."""
    touched: set[str]
    """Queues whose waiters are notified when it has committed (W-13)."""

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement on the application's own tables, in this transaction. Parameters are ``?``."""
        ...

    def configure(self, queue: str, **changes: float) -> QueueSettings:
        """Make the queue if there is none, change the settings that are named, and return all."""
        ...

    def queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        ...

    def push(self, queue: str, items: Sequence[NewItem]) -> list[Pushed]:
        """Add items; one whose key is known is not added again (W-11)."""
        ...

    def resume_link(self, link: str, tags: Sequence[bytes]) -> LinkState:
        """Begin a new generation of an AMQP link that pushes; says which of its deliveries are kept (W-17)."""
        ...

    def push_delivery(self, queue: str, item: NewItem, link: str, generation: int, tag: bytes) -> Pushed:
        """Push a delivery of a link, unless that was done before (W-17).

        Raises:
            LinkStolen: the link has a later generation (W-18).
        """
        ...

    def settle_deliveries(self, link: str, generation: int, tags: Sequence[bytes]) -> None:
        """Forget deliveries that their sender has settled; without effect for an earlier generation."""
        ...

    def reserve(self, queue: str, count: int, timeout: float) -> list[Taken]:
        """Reserve up to `count` ready items for `timeout` seconds (W-3, W-4)."""
        ...

    def pop(self, queue: str, count: int) -> list[Taken]:
        """Take up to `count` ready items for good (W-9)."""
        ...

    def next_due(self, queue: str) -> float | None:
        """Return when the next item becomes ready, or the next reservation runs out; None = there is none (W-13)."""
        ...

    def extend(self, handles: Sequence[Handle], timeout: float) -> float:
        """Make reservations run out `timeout` seconds from now instead; returns that time."""
        ...

    def commit(self, commits: Sequence[Commit]) -> None:
        """End reserved items as done."""
        ...

    def rollback(self, rollbacks: Sequence[Rollback]) -> None:
        """Give reserved items back; those over the limit of retries are dead (W-7, W-8)."""
        ...

    def move(self, handle: Handle, targets: Sequence[Target], messages: Sequence[NewMessage] = ()) -> list[int]:
        """Move a reserved item to another queue, or end it and push one into each of several (W-10).

        Publishes `messages` with it; a move that is repeated publishes nothing again. Returns the ids of the items
        there.
        """
        ...

    def publish(self, messages: Sequence[NewMessage]) -> None:
        """Publish messages to topics if this transaction commits (W-21); `OutboxPublisher` sends them.

        A transaction that may be repeated gives them to `commit` or `move`, which have no second effect (W-5).
        """
        ...

    def history(self, search: Search) -> Page:
        """Return ended items, newest first (W-9)."""
        ...

    def entry(self, number: int) -> HistoryEntry:
        """Return one entry of the history."""
        ...

    def replay(self, entries: Sequence[int], delay: float = 0.0) -> list[int]:
        """Push the payloads of entries again, into the queue of each; returns the new ids (W-16)."""
        ...

    def discard(self, entries: Sequence[int]) -> None:
        """Give up dead letters: from now on they expire like the rest of the history."""
        ...

    def schedule(self, schedule: Schedule) -> Schedule:
        """Add a schedule, or replace the one of that name unless it is the same (W-12)."""
        ...

    def unschedule(self, name: str) -> None:
        """Delete a schedule and its waiting instance."""
        ...

    def schedules(self, queue: str) -> list[Schedule]:
        """Return the schedules of a queue, by name."""
        ...

    def statistics(self, queue: str) -> Statistics:
        """Return a queue in numbers; the cost has a bound however many items there are."""
        ...


Job: TypeAlias = Callable[[Operations], Any]
"""Something to do inside a transaction. It may be run again after a rollback, so it has no effects but in the store."""


class Store(Protocol):
    """A database with work queues. Blocking; one thread at a time uses it."""

    def transact(self, jobs: Sequence[Job]) -> tuple[list[Any], frozenset[str]]:
        """Run the jobs in one transaction that is durable on return.

        Returns the results, and the queues in which items may have become ready earlier than was known.

        Raises:
            QueueError: of a job, or of the store; nothing of any job has happened.
        """
        ...

    def announce(self, queues: frozenset[str]) -> None:
        """Notify waiters in other processes that these queues have changed; the best that can be done, and no error."""
        ...

    def open_notices(self) -> int:
        """Begin to receive notices. Returns a file descriptor that is readable when there are some."""
        ...

    def read_notices(self) -> frozenset[str]:
        """Return the queues that others announced; called when the descriptor is readable.

        Raises:
            StoreError: notices are received no longer; `open_notices` begins anew.
        """
        ...

    def close(self) -> None:
        """Release the store; what was returned is durable."""
        ...
