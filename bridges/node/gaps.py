"""Where messages are missing from a journal because the network had deleted its subscription (rule J-8).

The network keeps what it owes a node that is away for `timeout_s`. A node that is away longer is given a new
subscription when it comes back, with another incarnation; what was sent in between it never gets. The incarnation of
each topic is kept beside its messages, in the transaction that appends them, so that no crash hides a change: the first
message of a new incarnation leaves a mark before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncewire.store.store import Transaction

MAX_GAPS_REPORTED = 16
"""Of one range: the first one is what somebody has to look at."""

GAP_TABLES = (
    "CREATE TABLE node_incarnations (source /*whole*/ PRIMARY KEY, incarnation BIGINT NOT NULL)",
    # Messages are missing behind the position; noted in microseconds since 1970.
    """CREATE TABLE node_gaps (
        position BIGINT NOT NULL, topic TEXT NOT NULL, noted BIGINT NOT NULL, PRIMARY KEY (position, topic))""",
)
_PUT_INCARNATION = """INSERT INTO node_incarnations VALUES (?, ?)
ON CONFLICT (source) DO UPDATE SET incarnation = excluded.incarnation"""
_PUT_GAP = """INSERT INTO node_gaps VALUES (?, ?, ?)
ON CONFLICT (position, topic) DO UPDATE SET noted = excluded.noted"""


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


def note_incarnation(do: Transaction, source: int, topic: str, incarnation: int, place: tuple[int, int]) -> bool:
    """A topic's messages belong to this incarnation from now on. Call it in the transaction that appends them.

    Args:
        do: the transaction.
        source: the topic's number in the journal.
        topic: its name.
        incarnation: of its subscription.
        place: the newest position, before the first message of the incarnation; the time, microseconds since 1970.

    Returns:
        Whether it is another one than before: messages are missing, and that is noted.
    """
    known = do.execute("SELECT incarnation FROM node_incarnations WHERE source = ?", (source,))
    if known == [(incarnation,)]:
        return False
    do.execute(_PUT_INCARNATION, (source, incarnation))
    if known:
        do.execute(_PUT_GAP, (place[0], topic, place[1]))
    return bool(known)


def gaps_within(do: Transaction, low: int, high: int) -> tuple[Gap, ...]:
    """Where messages are missing before a message of (low, high], the oldest first."""
    rows = do.execute(
        "SELECT position, topic, noted FROM node_gaps WHERE position >= ? AND position < ? ORDER BY position LIMIT ?",
        (low, high, MAX_GAPS_REPORTED),
    )
    return tuple(Gap(*row) for row in rows)
