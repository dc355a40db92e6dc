"""Where messages are missing from a journal because the network had deleted its subscription (rule J-8).

The network keeps what it owes a node that is away for `timeout_s`. A node that is away longer is given a new
subscription when it comes back, with another incarnation; what was sent in between it never gets. The incarnation of
each topic is kept beside its messages, in the transaction that appends them, so that no crash hides a change: the first
message of a new incarnation leaves a mark before it.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

MAX_GAPS_REPORTED = 16
"""Of one range: the first one is what somebody has to look at."""

GAP_TABLES = (
    "CREATE TABLE IF NOT EXISTS node_incarnations (source INTEGER PRIMARY KEY, incarnation INTEGER NOT NULL)",
    """CREATE TABLE IF NOT EXISTS node_gaps (
        position INTEGER NOT NULL,  -- messages are missing behind it
        topic TEXT NOT NULL,
        noted INTEGER NOT NULL,     -- microseconds since 1970
        PRIMARY KEY (position, topic)
    ) WITHOUT ROWID""",
)


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages are missing.

    Attributes:
        position: between this one and the next.
        topic: what was subscribed to.
        noted_us: when the node reconnected, microseconds since 1970.
    """

    position: int
    topic: str
    noted_us: int


def note_incarnation(database: sqlite3.Connection, source: int, incarnation: int, position: int, now_us: int) -> bool:
    """A topic's messages belong to this incarnation from now on. Call it in the transaction that appends them.

    Args:
        database: of the journal.
        source: the topic's number in it.
        incarnation: of its subscription.
        position: the newest one, before the first message of the incarnation.
        now_us: microseconds since 1970.

    Returns:
        Whether it is another one than before: messages are missing, and that is noted.
    """
    known = database.execute("SELECT incarnation FROM node_incarnations WHERE source = ?", (source,)).fetchone()
    if known is not None and known[0] == incarnation:
        return False
    database.execute("INSERT OR REPLACE INTO node_incarnations VALUES (?, ?)", (source, incarnation))
    if known is None:
        return False
    database.execute(
        "INSERT OR REPLACE INTO node_gaps SELECT ?, topic, ? FROM node_sources WHERE id = ?", (position, now_us, source)
    )
    return True


def gaps_within(database: sqlite3.Connection, low: int, high: int) -> tuple[Gap, ...]:
    """Where messages are missing before a message of (low, high], the oldest first."""
    rows = database.execute(
        "SELECT position, topic, noted FROM node_gaps WHERE position >= ? AND position < ? ORDER BY position LIMIT ?",
        (low, high, MAX_GAPS_REPORTED),
    ).fetchall()
    return tuple(Gap(*row) for row in rows)
