"""The processes between the two topics."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from chaos.experiments.child_process import ChildProcess


class Kind(Enum):
    """What is killed; the value of all but routers is the role in worker.py."""

    WORKER = "worker"
    FEED = "feed"
    PUBLISHER = "publisher"
    READER = "reader"
    ROUTER = "router"


class RoleProcess(ChildProcess):
    """A process of one role.

    Args:
        kind: the role.
        folder: with the store; its log goes there, too.
        routers: URLs.
        number: of several of the same role.
    """

    def __init__(self, kind: Kind, folder: Path, routers: list[str], number: int = 1) -> None:
        self.kind = kind
        super().__init__(
            kind.value if number == 1 else f"{kind.value} {number}",
            "chaos.experiments.queue_demo.worker",
            [kind.value, str(folder), ",".join(routers)],
            folder / f"{kind.value}-{number}.log",
        )
