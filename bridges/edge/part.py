"""One part of an edge: what it is to the process that runs it, and what parts stand on."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bridges.doors.routers import RouterLogin
from bridges.store import serving
from bridges.store.serving import AddressService
from bridges.store.topic_link import Tenure
from bridges.workqueue import QueueStore
from oncewire.client.put_off import ended
from oncewire.settings.schema import Setting
from oncewire.store.migrations import Feature


@dataclass(frozen=True, slots=True)
class Row:
    """What operators see of a part at this moment; None = it has no such number.

    Attributes:
        depth: what waits in it.
        oldest_s: for how long the oldest of that has waited.
        rate: how many it has done each second of the last minute; None = the edge takes it from `Part.done`.
        gauges: further numbers, by names of `bridges.edge.metrics.GAUGES`.
    """

    depth: int | None = None
    oldest_s: float | None = None
    rate: float | None = None
    gauges: Mapping[str, float] = field(default_factory=dict)


class PartEnded(Exception):
    """A part has ended for good: it is not started again while its settings stay as they are."""


class Part(ABC):
    """What an edge runs beside others, by one table of its settings.

    Args:
        name: of it among those of its kind.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def trouble(self) -> str:
        """Why it neither does its work just now nor stands by; empty = it does."""
        return ""

    @property
    def is_owner(self) -> bool:
        """Whether this process does its work; False = it stands by for another edge."""
        return True

    @property
    def tenures(self) -> int:
        """How often this process has become its owner; 0 = it does not count that."""
        return 0

    @property
    def done(self) -> int | None:
        """How many messages this process has taken or published for it; None = it does not count them."""
        return None

    @abstractmethod
    async def run(self) -> None:
        """Run until cancelled, then give back what it owns.

        Raises:
            PartEnded: it is over.
            Exception: it is started again after a while.
        """

    async def rows(self) -> Row:
        """The numbers of this moment.

        Raises:
            EdgeError: the store does not answer.
        """
        return Row()


class SharedDoor:
    """Addresses of the network that are served as long as a part needs it."""

    def __init__(self, make: Callable[[], AddressService]) -> None:
        """Nobody needs it."""
        self._make = make
        self._door: AddressService | None = None
        self._running: asyncio.Task[None] | None = None
        self._holders = 0

    @property
    def trouble(self) -> str:
        """Why nobody can come in; empty = somebody can."""
        return "" if self._door is not None and self._door.service.connected else "no router is connected"

    @property
    def is_open(self) -> bool:
        """Whether a part needs it, and it has not failed."""
        return self._running is not None and not self._running.done()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[asyncio.Task[None]]:
        """Keep the door open for the block; yields what fails if it does."""
        self._holders += 1
        try:
            if not self.is_open:
                self._door = self._make()
                self._running = asyncio.create_task(self._door.run())
            assert self._running is not None
            yield self._running
        finally:
            self._holders -= 1
            if not self._holders and self._running is not None:
                running, self._running, self._door = self._running, None, None
                running.cancel()
                await ended(running)


@dataclass(slots=True)
class Ground:
    """What the parts of one edge stand on.

    Attributes:
        edge: the name of this process.
        store: what it remembers.
        routers: URLs, tried in turn.
        login: at the routers.
        tenure: how it comes to run what one process runs at a time.
        doors: by the kind of the parts that share one.
    """

    edge: str
    store: QueueStore
    routers: tuple[str, ...]
    login: RouterLogin
    tenure: Tenure
    doors: dict[str, SharedDoor] = field(default_factory=dict)

    def door(self, kind: str, addresses: Mapping[str, serving.Kind]) -> SharedDoor:
        """The door of a kind of parts, which all of them share.

        Args:
            kind: the name of their table.
            addresses: what serves the addresses that begin so.
        """

        def make() -> AddressService:
            within = self.tenure.lease_s if self.tenure.stands_by else None
            name = f"{self.edge}.{kind}"
            return AddressService(self.store, self.routers, addresses, name, answers_within=within, **self.login)

        return self.doors.setdefault(kind, SharedDoor(make))


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of part: a table of the settings.

    Attributes:
        table: its name, as in ``[[queue]]``.
        settings: of one such table, by their names in it.
        name_of: the name of the part that a table describes.
        make: makes it.
        has_owner: one edge at a time runs it, and the others stand by.
        is_single: there is at most one in a store.
        features: tables that it needs in the store beside those of queues.
    """

    table: str
    settings: Mapping[str, Setting]
    name_of: Callable[[Mapping[str, Any]], str]
    make: Callable[[Ground, str, Mapping[str, Any]], Part]
    has_owner: bool = True
    is_single: bool = False
    features: tuple[Feature, ...] = ()


@dataclass(frozen=True, slots=True)
class PartSettings:
    """A table of the settings as it was read: equal ones need no new part."""

    kind: str
    name: str
    values: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        """What no other part of the edge has."""
        return self.kind, self.name
