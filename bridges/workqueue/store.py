"""What can be done with queues inside one transaction of a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bridges.store.links import LinkState
from bridges.store.outbox import NewMessage
from bridges.workqueue.items import (
    Commit,
    Handle,
    HistoryEntry,
    NewItem,
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
from oncewire.store.store import Transaction


class Operations(Transaction, Protocol):
    """What can be done inside one transaction of a store of queues; all of it counts, or none (W-1).

    Operations on several items do all or nothing, too. Every one may raise a QueueError.
    """

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
