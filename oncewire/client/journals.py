"""The journals of one client, each with its writer, and the container-id that is kept in one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from oncewire.client.journal import Journal, MemoryJournal
from oncewire.client.journal_writer import PATIENCE_S, JournalWriter

if TYPE_CHECKING:
    from pathlib import Path

    from oncewire.client.sqlite_journal import SqliteJournal

JournalSource: TypeAlias = "Journal | str | Path"


def random_container_id() -> str:
    """An identity that no other process has, and that this one has for its life only."""
    return f"oncewire-{os.urandom(8).hex()}"


class Journals:
    """See the module.

    Args:
        default: of links with a name that are given none; None = they keep nothing beyond this process.
    """

    def __init__(self, default: JournalSource | None) -> None:
        self.default = default
        self._memory = MemoryJournal()
        self._own: dict[Path, SqliteJournal] = {}
        self._writers: dict[int, JournalWriter] = {}
        self._writing: list[asyncio.Task[None]] = []

    def container_id(self, wanted: str | None) -> str:
        """The identity to connect with: the one wanted, or that of the default journal, which keeps a new one.

        The journal's lock sees to it that no two processes have it at the same time.

        Raises:
            JournalError: the journal cannot be used, or belongs to another identity.
        """
        if self.default is None:
            return wanted or random_container_id()
        journal = self._journal(self.default)
        chosen = wanted or journal.owner() or random_container_id()
        journal.bind(chosen)
        return chosen

    def writer(
        self,
        journal: JournalSource | None,
        container_id: str,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> JournalWriter:
        """The writer of a journal; `start` runs its task.

        Raises:
            JournalError: the journal cannot be used.
        """
        found = self._memory if journal is None else self._journal(journal)
        writer = self._writers.get(id(found))
        if writer is None:
            found.bind(container_id)
            writer = self._writers[id(found)] = JournalWriter(found)
            if found.is_durable:
                self._writing.append(start(writer.run()))
        return writer

    def _journal(self, source: JournalSource) -> Journal:
        if isinstance(source, Journal):
            return source
        from pathlib import Path  # here, because few clients keep a journal, and both are slow to import

        from oncewire.client.sqlite_journal import SqliteJournal

        path = Path(source).resolve()
        if path not in self._own:
            self._own[path] = SqliteJournal(path)
        return self._own[path]

    def hurry(self, patience_s: float = PATIENCE_S) -> None:
        """Wait no longer than that for open transactions."""
        for writer in self._writers.values():
            writer.hurry(patience_s)

    @contextmanager
    def hurried_if_cancelled(self) -> Iterator[None]:
        """Wait for no open transaction any more when this is cancelled, of whichever journal."""
        try:
            yield
        except asyncio.CancelledError:
            self.hurry(0.0)
            raise

    def cancel(self) -> None:
        """End the writers' tasks."""
        for writing in self._writing:
            writing.cancel()

    async def close(self) -> None:
        """Let go of everything, also when this is cancelled; journals that the application opened stay open."""
        async with AsyncExitStack() as closing:
            for journal in self._own.values():
                closing.callback(journal.close)
            for writer in self._writers.values():
                closing.push_async_callback(self._stop, writer)

    async def _stop(self, writer: JournalWriter) -> None:
        with self.hurried_if_cancelled():
            await writer.stop()
