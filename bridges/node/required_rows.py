"""Rows that were sent to nobody, because their topic had fewer subscriptions than required: they wait (O-12).

Such a row was *released*: no subscription was ever sent it, nor what was sent behind it (I-3c of the network). It is
sent again as it is, in a new session of its topic's publisher, where old numbers are new.
"""

from __future__ import annotations

import sqlite3

from bridges.node.range_set_core import RangeSet

TABLES = (
    # As the newest commit wants it.
    """CREATE TABLE IF NOT EXISTS node_required (
        only INTEGER PRIMARY KEY CHECK (only = 1), subscriptions INTEGER NOT NULL
    )""",
    # The rows of a topic that wait, by number.
    "CREATE TABLE IF NOT EXISTS node_released (topic INTEGER PRIMARY KEY, numbers BLOB NOT NULL)",
)


def set_required(database: sqlite3.Connection, subscriptions: int) -> None:
    """Each row needs so many from now on."""
    database.execute("INSERT OR REPLACE INTO node_required VALUES (1, ?)", (subscriptions,))


def required(database: sqlite3.Connection) -> int:
    """How many subscriptions a row needs; 0 = none."""
    row = database.execute("SELECT subscriptions FROM node_required").fetchone()
    return 0 if row is None else int(row[0])


def load_released(database: sqlite3.Connection, topic: int) -> RangeSet:
    """Read the numbers of a topic's rows that wait."""
    row = database.execute("SELECT numbers FROM node_released WHERE topic = ?", (topic,)).fetchone()
    return RangeSet() if row is None else RangeSet.from_bytes(row[0])


def save_released(database: sqlite3.Connection, topic: int, released: RangeSet) -> None:
    """Store them."""
    database.execute("INSERT OR REPLACE INTO node_released VALUES (?, ?)", (topic, released.to_bytes()))
