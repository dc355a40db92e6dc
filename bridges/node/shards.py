"""Keeps a journal to its share of a sharded subscription: for a journal the share never changes (rule J-9)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from bridges.node.database import transaction
from bridges.node.errors import BadRequest
from bridges.node.shard_core import Shard, ShardBy

_TABLE = "CREATE TABLE IF NOT EXISTS node_shard (number INTEGER NOT NULL, count INTEGER NOT NULL, by TEXT NOT NULL)"
_FIX = (
    "set the shard that it was made with; to change the number of shards make a subscription with another name "
    "(see docs/spark-cluster.md)"
)


def keep_shard(connection: sqlite3.Connection, path: Path, subscription: str, shard: Shard | None) -> None:
    """Give a new journal its share, or refuse another one than it has.

    With another share some keys would be kept by two nodes, or by none.

    Args:
        connection: of the journal, whose tables are there.
        path: of the journal, for errors.
        subscription: its name, for errors.
        shard: as configured; None = all messages.

    Raises:
        BadRequest: the journal has another share.
        StorageError: it cannot be read or written.
    """
    with transaction(connection, path) as database:
        database.execute(_TABLE)
        row = database.execute("SELECT number, count, by FROM node_shard").fetchone()
        known = None if row is None else Shard(row[0], row[1], ShardBy(row[2]))
        if known == shard:
            return
        (last,) = database.execute("SELECT last FROM node_journal").fetchone()
        if known is None and last == 0:
            assert shard is not None
            database.execute("INSERT INTO node_shard VALUES (?, ?, ?)", (shard.number, shard.count, shard.by.value))
            return
    raise BadRequest(
        f"subscription {subscription!r} cannot be received as {_described(shard)}",
        f"its journal {path} is for {_described(known)}",
        _FIX,
    )


def _described(shard: Shard | None) -> str:
    return "all messages" if shard is None else f"shard {shard} by {shard.by.value}"


def refuse_part(subscription: str, shard: Shard) -> BadRequest:
    """The error for a query that would read one shard as if it were all."""
    return BadRequest(
        f"subscription {subscription!r} cannot be read at this node alone",
        f"the node keeps shard {shard} of it",
        f"name all {shard.count} nodes in the option bridge, in the order of their shards; "
        "processors read subscriptions that are not sharded",
    )
