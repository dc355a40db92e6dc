"""From the address of a store to the store, and the one thread in which it is used."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import unquote

from oncewire.client.errors import UsageError
from oncewire.client.put_off import in_thread
from oncewire.client.transactions.store import Store
from oncewire.client.transactions.store_postgres import PostgresStore
from oncewire.client.transactions.store_sqlite import SqliteStore

SQLITE_PREFIX = "sqlite:///"
Result = TypeVar("Result")


def open_store(url: str, name: str) -> Store[Any]:
    """Open a store and raise its fence. Blocks.

    Args:
        url: ``sqlite:///FILE`` (a fourth slash begins an absolute path) or ``postgresql://USER@HOST/DATABASE``.
        name: distinguishes the stores of one database.

    Raises:
        UsageError: the address names no store, or the name cannot be used.
        StoreError: it cannot be opened.
    """
    if url.startswith(("postgresql://", "postgres://")):
        return PostgresStore(url, name)
    path = url.removeprefix(SQLITE_PREFIX)
    if path == url or not path or "?" in path:
        shown = url if "@" not in url and "?" not in url else "..."  # it may have a password, and no form that we know
        raise UsageError(
            f"the store {shown!r} cannot be opened",
            "it is neither sqlite:///FILE nor postgresql://...",
            "use sqlite:///billing.db, or postgresql://user@host/database",
        )
    return SqliteStore(unquote(path), name)


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
