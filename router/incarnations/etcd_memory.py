"""Keeps what this router has seen of etcd in a file, so that a restart does not forget it (K-9)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from oncewire.cli.errors import CliError
from oncewire.client.put_off import in_thread
from router.process.logs import EventLog, RouterEvent
from router.settings.config import RouterConfig
from topology.members.history_core import MalformedMemory, SeenHistory

KEEP_S = 1.0
"""Between two writes, at least. What a crash takes with it is newer than any backup."""


class EtcdMemory:
    """The file of one router; without the setting `etcd.memory_folder` there is none."""

    def __init__(self, config: RouterConfig, log: EventLog) -> None:
        """Nothing is read yet."""
        self.seen = SeenHistory()
        self._log = log
        self._path: Path | None = None
        if config.etcd_memory_folder and not config.standalone:
            self._path = Path(config.etcd_memory_folder) / f"{config.node_id}.json"
        self._kept = 0
        self._has_failed = False

    def load(self) -> None:
        """Read what an earlier process kept.

        Raises:
            CliError: it cannot be read.
        """
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self.seen.load(self._path.read_text("utf-8"))
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError, MalformedMemory) as error:
            raise CliError(
                f"what this router remembers of etcd cannot be read from {self._path}",
                str(error),
                "correct etcd.memory_folder, or the rights to it; where the file is damaged, make sure with `oncewire "
                "cluster show` that etcd has its data, and remove the file",
            ) from None

    async def keep(self) -> None:
        """Write what is new, until cancelled."""
        while self._path is not None:
            await self.save()
            await asyncio.sleep(KEEP_S)

    async def save(self) -> None:
        """Write what is new."""
        if self._path is None or self._kept == self.seen.changes:
            return
        changes, text, path = self.seen.changes, self.seen.as_text(), self._path
        try:
            # Also where this is cancelled: a write that ended behind a later one would put older memory in its place.
            await in_thread(None, lambda: _replace(path, text))
        except OSError as error:
            if not self._has_failed:
                self._log.event(RouterEvent.ETCD_MEMORY_FAILED, file=str(path), why=str(error))
            self._has_failed = True
        else:
            self._kept, self._has_failed = changes, False


def _replace(path: Path, text: str) -> None:
    """The whole of it or nothing, also when the machine stops."""
    new = path.with_suffix(".new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
