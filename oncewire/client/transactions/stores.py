"""The store of a consumer in a SQLite file or a PostgreSQL database, where the application keeps its effects."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from oncewire.client.transactions.databases import PostgresDatabase, SqliteFile
from oncewire.client.transactions.store import RENEW_AFTER_S, Store
from oncewire.client.transactions.store_schema import CONSUMERS
from oncewire.store.contents import Contents
from oncewire.store.sqlite import MAX_BYTES


class SqliteStore(Store[sqlite3.Connection]):
    """Opens a store in a file and raises its fence. Other than a journal, the file may be open in two processes.

    Args:
        path: the file; made if it does not exist, readable by its owner only.
        name: distinguishes the stores of one file.
        renew_after: seconds after which a silent output begins a new life.
        max_bytes: the largest the file may become.

    Raises:
        StoreLocked: another program holds a transaction open for longer than BUSY_SECONDS.
        StoreCorrupt: it is no SQLite database, is damaged, or another version wrote it.
        StoreUnusable: it cannot be opened or written.

    Next: ``restore`` the sequencers and publish ``unconfirmed``.
    """

    def __init__(
        self, path: str | Path, name: str, *, renew_after: float = RENEW_AFTER_S, max_bytes: int = MAX_BYTES
    ) -> None:
        super().__init__(
            name, lambda: SqliteFile(path, contents=Contents([CONSUMERS]), max_bytes=max_bytes), renew_after=renew_after
        )


class PostgresStore(Store[Any]):
    """Opens a store in a database and raises its fence. Needs psycopg 3: ``oncewire[postgres]``.

    Args:
        address: a connection string of libpq (``postgresql://user@host/database`` or ``host=... dbname=...``).
        name: distinguishes the stores of one database.
        renew_after: seconds after which a silent output begins a new life.

    Raises:
        UsageError: psycopg is not installed.
        StoreLocked: the owner before holds the fence for longer than LOCK_SECONDS.
        StoreCorrupt: another version wrote it.
        StoreUnusable: the server cannot be reached or refuses.

    Next: ``restore`` the sequencers and publish ``unconfirmed``.
    """

    def __init__(self, address: str, name: str, *, renew_after: float = RENEW_AFTER_S) -> None:
        super().__init__(
            name, lambda: PostgresDatabase(address, contents=Contents([CONSUMERS])), renew_after=renew_after
        )
