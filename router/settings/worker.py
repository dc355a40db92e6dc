"""Workers: several router processes behind one port of clients, each a router of the network by itself.

They are linked by Unix sockets in a folder that the parent process makes and nobody else may enter. No path of it is
written to etcd: routers of other machines, of other groups and of older releases see a router like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MOST_WORKERS = 64
"""More than the cores that one network card keeps busy; each is linked to all routers of the network."""


@dataclass(frozen=True, slots=True)
class Worker:
    """Which worker of which group this process is.

    Attributes:
        group: the setting id, by which operators know all of them together.
        number: from 1 on; 1 has the port for HTTP.
        count: of the workers of the group.
        folder: of the sockets between them.
    """

    group: str
    number: int
    count: int
    folder: Path

    @property
    def name(self) -> str:
        """Its id as a router."""
        return name_of(self.group, self.number)

    def number_of(self, router: str, group: str) -> int | None:
        """The number of the worker of our group that has this id and says so; None = it is none."""
        number = router.removeprefix(f"{self.group}-")
        if group != self.group or not number.isdecimal() or name_of(group, int(number)) != router:
            return None
        return int(number) if 1 <= int(number) <= self.count else None

    def links_path(self, number: int) -> str:
        """Where that worker's neighbours of the group connect to it."""
        return str(self.folder / f"{number}.links")

    def http_path(self, number: int) -> str:
        """Where that worker answers what the first one passes on."""
        return str(self.folder / f"{number}.http")


def name_of(group: str, number: int) -> str:
    """The id of a worker."""
    return f"{group}-{number}"
