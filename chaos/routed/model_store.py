"""A store of one queue in memory, with the rules of work queues that routed links lean on (W-4 to W-6, W-17, W-18)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bridges.store.links import LinkState
from bridges.workqueue.errors import AlreadyReassigned
from bridges.workqueue.items import Commit, Handle, NewItem, Pushed, Rollback, Taken
from oncewire.store.errors import LinkStolen, StoreFull

TIMEOUT = 400.0
"""Steps that a reservation holds."""


@dataclass(slots=True)
class Row:
    """One item."""

    item: int
    payload: bytes
    reservation: int = 0
    until: float = 0.0
    is_reserved: bool = False
    is_done: bool = False


class ModelStore:
    """What all bridges of a run share; `now` is the step of the run."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rows: dict[int, Row] = {}
        self.pushes: Counter[bytes] = Counter()
        self.done: dict[int, int] = {}
        self.is_full = False
        self._links: dict[str, int] = {}
        self._deliveries: dict[tuple[str, bytes], int] = {}

    def push(self, item: NewItem) -> Pushed:
        """Add an item."""
        if self.is_full:
            raise StoreFull("the item was not stored", "the store is full", "make room")
        number = len(self.rows) + 1
        self.rows[number] = Row(number, item.payload)
        self.pushes[item.payload] += 1
        return Pushed(number)

    def resume_link(self, link: str, tags: Sequence[bytes]) -> LinkState:
        """Begin a generation."""
        generation = self._links[link] = self._links.get(link, 0) + 1
        kept = frozenset(tag for found, tag in self._deliveries if found == link)
        return LinkState(generation, kept & set(tags), kept - set(tags))

    def push_delivery(self, item: NewItem, link: str, generation: int, tag: bytes) -> Pushed:
        """Add a delivery's item once."""
        if self._links.get(link) != generation:
            raise LinkStolen("the delivery was not pushed", "the link was attached again", "attach again")
        known = self._deliveries.get((link, tag))
        if known is not None:
            return Pushed(known, is_new=False)
        pushed = self.push(item)
        self._deliveries[link, tag] = pushed.item
        return pushed

    def settle_deliveries(self, link: str, generation: int, tags: Collection[bytes]) -> None:
        """Forget what its sender has settled."""
        if self._links.get(link) == generation:
            for tag in tags:
                self._deliveries.pop((link, tag), None)

    def reserve(self, count: int) -> list[Taken]:
        """Reserve ready items."""
        found: list[Taken] = []
        for row in self.rows.values():
            if len(found) == count:
                break
            if row.is_done or (row.is_reserved and row.until > self.now):
                continue
            row.is_reserved, row.until = True, self.now + TIMEOUT
            row.reservation += 1
            handle = Handle(row.item, row.reservation)
            found.append(Taken(handle, "work", row.payload, 0, 4, 0.0, 0.0, row.until))
        return found

    def apply(self, operation: Commit | Rollback) -> None:
        """Commit or roll back."""
        handle = operation.handle
        row = self.rows[handle.item]
        if self.done.get(handle.item) == handle.reservation and isinstance(operation, Commit):
            return
        if row.is_done or row.reservation != handle.reservation or not row.is_reserved:
            raise AlreadyReassigned(f"the handle {handle} is past", "it was settled or reserved again", "drop the work")
        if isinstance(operation, Commit):
            row.is_done = True
            self.done[handle.item] = handle.reservation
        else:
            row.is_reserved = False
