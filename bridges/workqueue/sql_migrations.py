"""Bring a SQL store's tables to this version's."""

from __future__ import annotations

from bridges.workqueue.errors import StoreVersionUnknown
from bridges.workqueue.sql_base import Connection
from bridges.workqueue.sql_schema import MIGRATIONS


def migrate(connection: Connection, name: str) -> None:
    """Run the migrations that the store lacks. The caller's transaction makes it all or nothing, and has the lock.

    Raises:
        StoreVersionUnknown: a later version wrote the store.
    """
    rows = connection.execute("SELECT version FROM oncewire_queue_version")
    version = rows[0][0] if rows else 0
    if version > len(MIGRATIONS):
        raise StoreVersionUnknown(
            f"the store {name} cannot be used",
            f"its tables are of version {version}, and this program knows up to {len(MIGRATIONS)}",
            "use the newer version of Oncewire that wrote it",
        )
    if version == len(MIGRATIONS):
        return
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute("DELETE FROM oncewire_queue_version")
    connection.execute("INSERT INTO oncewire_queue_version (version) VALUES (?)", (len(MIGRATIONS),))
