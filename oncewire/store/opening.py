"""From the address of a store to the store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, unquote

from oncewire.store.contents import Contents
from oncewire.store.errors import InvalidRequest
from oncewire.store.postgres import PostgresStore
from oncewire.store.sqlite import MAX_BYTES, SqliteStore
from oncewire.store.store import Store

SQLITE_PREFIX = "sqlite:///"
FIX = "use sqlite:///store.db or postgresql://user@host/database"


def open_store(url: str, contents: Contents | None = None) -> Store:
    """Open the store at an address.

    Args:
        url: ``sqlite:///FILE`` (a fourth slash begins an absolute path; ``?max_bytes=N`` limits the file), or
            ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``.
        contents: of the store; None = what all have.

    Raises:
        InvalidRequest: the address means no store.
        StoreError: the store cannot be opened.
    """
    file = file_of(url)
    if file is None:
        return PostgresStore(url, contents=contents)
    return SqliteStore(file[0], contents=contents, max_bytes=file[1])


def file_of(url: str, fix: str = FIX) -> tuple[Path, int] | None:
    """Of a SQLite file its path and limit in bytes, None of a server.

    Args:
        url: the address.
        fix: what the error says to do.

    Raises:
        InvalidRequest: the address means no store.
    """
    if url.startswith(("postgresql://", "postgres://")):
        return None
    if not url.startswith(SQLITE_PREFIX):
        raise _refused(url, "it is of none of these kinds", fix)
    path, _, query = url.removeprefix(SQLITE_PREFIX).partition("?")
    options = parse_qs(query, keep_blank_values=True)
    limit = options.pop("max_bytes", [str(MAX_BYTES)])[-1]
    if options or not limit.isdigit() or not int(limit):
        raise _refused(url, "max_bytes with a number of bytes is all that may follow the question mark", fix)
    if not path:
        raise _refused(url, "it names no file", fix)
    return Path(unquote(path)), int(limit)


def _refused(url: str, why: str, fix: str) -> InvalidRequest:
    # It may have a password, and has no form that we know.
    shown = url if ("@" not in url and "?" not in url) or url.startswith(SQLITE_PREFIX) else "..."
    return InvalidRequest(f"the store {shown!r} cannot be opened", why, fix)
