"""What the inspector needs of a router, and what its readers may see. Nothing is gathered before somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from aiohttp import web

from topology.inspector.rows_core import Head, Row


@dataclass(frozen=True, slots=True)
class Rights:
    """What whoever asks may do beside looking."""

    manage: bool = False
    """Change things."""
    bodies: bool = False
    """See first bytes of messages."""
    queues: bool = False
    """See work queues: the router has a store of them."""

    def as_row(self) -> Row:
        """For `can` of the overview."""
        return {"manage": self.manage, "bodies": self.bodies, "queues": self.queues}


RightsOf: TypeAlias = Callable[[web.Request], Rights]


@dataclass(frozen=True, slots=True)
class OtherRouter:
    """Another router of the network."""

    id: str
    rid: str
    http: str
    """Its HTTP address; empty when it serves none."""


class Observer(Protocol):
    """Hears what changes in the view, between two turns of the loop; it only takes notes."""

    def on_changed(self, table: str, key: str, before: Head | None) -> None:
        """A row has come, changed or gone; `before` is its head until now, None if it is new."""
        ...

    def on_reset(self) -> None:
        """Everything may have changed: another incarnation, or a new snapshot of etcd."""
        ...


class Source(Protocol):
    """One router's knowledge. Every call is cheap: as much work as rows are asked for, heads are cached."""

    def overview(self) -> Row:
        """The router itself, with counts; without `can`."""
        ...

    def applied(self) -> int:
        """The revision of etcd the tables stand for; 0 = there is no incarnation, and they are empty."""
        ...

    def heads(self, table: str) -> Sequence[Head]:
        """All rows of a table, sorted."""
        ...

    def head(self, table: str, key: str) -> Head | None:
        """One row's head, None when there is no such row."""
        ...

    def row(self, table: str, key: str) -> Row | None:
        """One row, None when there is no such row any more."""
        ...

    def rows(self, table: str, heads: Sequence[Head]) -> list[Row]:
        """The rows of these heads; those that have gone are left out."""
        ...

    def deliveries(self, tag: bytes, publisher: str, with_bodies: bool) -> list[Row]:
        """Records of the deliveries of this tag."""
        ...

    def holder(self, tag: bytes, key: str) -> str | None:
        """Where a delivery (network tag) is on its way to the subscription of this key; None: no such subscription."""
        ...

    def others(self) -> list[OtherRouter]:
        """All other live routers."""
        ...

    def observe(self, observer: Observer | None) -> None:
        """Have an observer told of changes; None: nobody any more, and nothing is noted."""
        ...
