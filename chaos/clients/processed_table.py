"""The effects of a subscriber with a durable journal: rows in the journal's own file, one per processed message.

They are written in the transaction that also records the acceptance, so a kill leaves both or neither. The checker
reads them as `Processed` events: a line in a text journal could not be in that transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from chaos.clients.events import Processed

_CREATE = """
create table if not exists processed (
    place integer primary key, t real not null, publisher text not null, seq integer not null, digest text not null
)"""
_INSERT = "insert into processed (t, publisher, seq, digest) values (?, ?, ?, ?)"
_CREATE_PAYLOADS = "create table if not exists payloads (place integer primary key, payload blob not null)"
_SELECT = "select t, publisher, seq, digest from processed order by place"


def write_processed(connection: sqlite3.Connection, events: Sequence[Processed]) -> None:
    """Write the events in the transaction that is open on the connection."""
    connection.execute(_CREATE)
    connection.executemany(_INSERT, [(event.t, event.publisher, event.seq, event.digest) for event in events])


def write_payloads(connection: sqlite3.Connection, payloads: Sequence[bytes]) -> None:
    """Keep the encoded messages, in the transaction that is open on the connection."""
    connection.execute(_CREATE_PAYLOADS)
    connection.executemany("insert into payloads (payload) values (?)", [(payload,) for payload in payloads])


def read_payloads(path: Path) -> list[bytes]:
    """Read the encoded messages in the order of processing; none where nothing was kept yet."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute("select 1 from sqlite_master where name = 'payloads'").fetchone():
            return []
        return [row[0] for row in connection.execute("select payload from payloads order by place")]


def read_processed(path: Path) -> list[Processed]:
    """Read the events in the order of processing; none where nothing was processed yet."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute("select 1 from sqlite_master where name = 'processed'").fetchone():
            return []
        return [Processed(*row) for row in connection.execute(_SELECT)]
