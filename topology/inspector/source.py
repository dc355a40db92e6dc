"""The inspector's interface to a router. Nothing is collected before a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from aiohttp import web

from topology.inspector.rows_core import Head, Row


@dataclass(frozen=True, slots=True)
class Rights:
    """What a caller may do besides reading."""

    manage: bool = False
    """Change things."""
    bodies: bool = False
    """See first bytes of messages."""
    queues: bool = False
    """See work queues: the router has a store of them."""
    caller: str = ""
    """Whose they are: a user, or the address of somebody without login."""

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
    """Gets the changes of the view between two turns of the loop; it only notes them."""

    def on_changed(self, table: str, key: str, before: Head | None) -> None:
        """A row was added, changed or removed; `before` is its previous head, None for a new row."""
        ...

    def on_reset(self) -> None:
        """Everything may have changed: another incarnation, or a new snapshot of etcd."""
        ...


class Source(Protocol):
    """The data of one router. Each call is cheap: its work grows with the rows requested; heads are cached."""

    def overview(self) -> Row:
        """The router itself, with counts; without `can`."""
        ...

    def applied(self) -> int:
        """The revision of etcd that the tables show; 0 = there is no incarnation, and they are empty."""
        ...

    def heads(self, table: str) -> Sequence[Head]:
        """All rows of a table, sorted."""
        ...

    def head(self, table: str, key: str) -> Head | None:
        """The head of one row; None if there is none."""
        ...

    def row(self, table: str, key: str) -> Row | None:
        """One row; None if there is none."""
        ...

    def rows(self, table: str, heads: Sequence[Head]) -> list[Row]:
        """The rows of these heads, without removed ones."""
        ...

    def rid(self) -> str:
        """Its incarnation; empty without one."""
        ...

    def measured(self, table: str) -> set[str]:
        """Keys of the rows in which something moved in the last five minutes."""
        ...

    def history(self, table: str, key: str, points: int) -> Row:
        """The last points of one of those rows, by attribute."""
        ...

    def measured_s(self) -> float:
        """How long ago the last points were taken."""
        ...

    def deliveries(self, tag: bytes, publisher: str, with_bodies: bool) -> list[Row]:
        """Records of the deliveries of this tag."""
        ...

    def holder(self, tag: bytes, key: str) -> str | None:
        """State of a delivery (network tag) for the subscription with this key; None: no such subscription."""
        ...

    def others(self) -> list[OtherRouter]:
        """All other live routers."""
        ...

    def observe(self, observer: Observer | None) -> None:
        """Sets the observer of changes; None: no observer, and nothing is noted."""
        ...
