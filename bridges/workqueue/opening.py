"""From the address of a store to the store of queues."""

from __future__ import annotations

from bridges.workqueue.contents import QueueContents
from bridges.workqueue.mongodb import PREFIX as MONGODB_PREFIX
from bridges.workqueue.mongodb_operations import MongoStore
from oncewire.client.put_off import in_thread
from oncewire.store import opening
from oncewire.store.contents import Contents
from oncewire.store.store import Store

FIX = "use sqlite:///queue.db, postgresql://user@host/database or mongodb://host/database"


async def open_any_store(url: str, contents: Contents | None = None) -> Store | MongoStore:
    """Open the store at an address: one of open_store, or ``mongodb://HOST/DATABASE``. Cancelled, it leaves none open.

    Raises:
        InvalidRequest: the address means no store.
        QueueError: the store cannot be opened.
    """
    if url.startswith(MONGODB_PREFIX):
        return await MongoStore.open(url)
    return await in_thread(None, lambda: open_store(url, contents), lambda store: store.close())


def open_store(url: str, contents: Contents | None = None) -> Store:
    """Open the SQL store at an address (see oncewire.store.opening), with queues unless `contents` are others.

    Raises:
        InvalidRequest: the address means no store.
        QueueError: the store cannot be opened.
    """
    check_address(url)
    return opening.open_store(url, contents or QueueContents())


def check_address(url: str) -> None:
    """Read an address of open_any_store without opening the store.

    Raises:
        InvalidRequest: the address means no store.
    """
    if not url.startswith(MONGODB_PREFIX):
        opening.file_of(url, FIX)
