"""From the address of a store to the store, and the one thread in which it is used."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from oncewire.client.put_off import in_thread
from oncewire.client.transactions.databases import explained
from oncewire.client.transactions.store import Store
from oncewire.client.transactions.stores import PostgresStore, SqliteStore
from oncewire.store.opening import file_of

Result = TypeVar("Result")


def open_store(url: str, name: str) -> Store[Any]:
    """Open a store and raise its fence. Blocks.

    Args:
        url: ``sqlite:///FILE`` (a fourth slash begins an absolute path; ``?max_bytes=N`` limits the file) or ``postgresql://USER@HOST/DATABASE``.
        name: distinguishes the stores of one database.

    Raises:
        UsageError: the address names no store, or the name cannot be used.
        StoreError: it cannot be opened.
    """
    with explained():
        file = file_of(url, "use sqlite:///billing.db, or postgresql://user@host/database")
    return PostgresStore(url, name) if file is None else SqliteStore(file[0], name, max_bytes=file[1])


class StoreThread:
    """Where a store blocks instead of the event loop."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "oncewire-store")

    async def call(self, work: Callable[[], Result]) -> Result:
        """Run it and return its result. A cancellation meanwhile waits for its end: half a transaction is none."""
        return await in_thread(self._pool, work)

    async def open(self, url: str, name: str) -> Store[Any]:
        """Open a store, as `open_store`; when this is cancelled it is closed again."""
        return await in_thread(self._pool, lambda: open_store(url, name), lambda store: store.close())

    def stop(self) -> None:
        """End the thread; nothing runs in it."""
        self._pool.shutdown(wait=True)
