"""From the address of a store to the store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, unquote

from bridges.workqueue.errors import InvalidRequest
from bridges.workqueue.mongodb import PREFIX as MONGODB_PREFIX
from bridges.workqueue.mongodb_operations import MongoStore
from bridges.workqueue.postgres import PostgresStore
from bridges.workqueue.sqlite import MAX_BYTES, SqliteStore
from bridges.workqueue.store import Store
from oncewire.client.put_off import in_thread

SQLITE_PREFIX = "sqlite:///"


async def open_any_store(url: str) -> Store | MongoStore:
    """Open the store at an address: one of open_store, or ``mongodb://HOST/DATABASE``. Cancelled, it leaves none open.

    Raises:
        InvalidRequest: the address means no store.
        QueueError: the store cannot be opened.
    """
    if url.startswith(MONGODB_PREFIX):
        return await MongoStore.open(url)
    return await in_thread(None, lambda: open_store(url), lambda store: store.close())


def open_store(url: str) -> Store:
    """Open the SQL store at an address.

    Args:
        url: ``sqlite:///FILE`` (a fourth slash begins an absolute path; ``?max_bytes=N`` limits the file), or
            ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``.

    Raises:
        InvalidRequest: the address means no store.
        QueueError: the store cannot be opened.
    """
    file = _file_of(url)
    return PostgresStore(url) if file is None else SqliteStore(file[0], max_bytes=file[1])


def check_address(url: str) -> None:
    """Read an address of open_any_store without opening the store.

    Raises:
        InvalidRequest: the address means no store.
    """
    if not url.startswith(MONGODB_PREFIX):
        _file_of(url)


def _file_of(url: str) -> tuple[Path, int] | None:
    """Of a SQLite file its path and limit in bytes, None of a server."""
    if url.startswith(("postgresql://", "postgres://")):
        return None
    if not url.startswith(SQLITE_PREFIX):
        raise _refused(url, "it is neither sqlite:///FILE nor postgresql://... nor mongodb://...")
    path, _, query = url.removeprefix(SQLITE_PREFIX).partition("?")
    options = parse_qs(query, keep_blank_values=True)
    limit = options.pop("max_bytes", [str(MAX_BYTES)])[-1]
    if options or not limit.isdigit() or not int(limit):
        raise _refused(url, "max_bytes with a number of bytes is all that may follow the question mark")
    if not path:
        raise _refused(url, "it names no file")
    return Path(unquote(path)), int(limit)


def _refused(url: str, why: str) -> InvalidRequest:
    # It may have a password, and has no form that we know.
    shown = url if ("@" not in url and "?" not in url) or url.startswith(SQLITE_PREFIX) else "..."
    return InvalidRequest(
        f"the store {shown!r} cannot be opened",
        why,
        "use sqlite:///queue.db, postgresql://user@host/database or mongodb://host/database",
    )
