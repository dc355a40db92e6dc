"""Where each batch of a subscription's query ends, decided once and before Spark writes it down (rule J-5).

A batch is known by where it begins. Spark keeps begins and ends in its checkpoint, but does not force them to the disk:
when the newest of its files are lost with the power, it asks again where the batch ends, and more has arrived since.
With the end kept here the batch is the same again, and what a sink has decided about it fits.
"""

from __future__ import annotations

import sqlite3

from bridges.node.errors import BadRequest, RangeNotThere

KEPT_ENDS = 1_000
"""Batches that are still known; a query repeats its newest ones, as many as its checkpoint has lost."""

ENDS_TABLE = """CREATE TABLE IF NOT EXISTS node_ends (
    start INTEGER PRIMARY KEY,  -- the batch is (start, stop]
    stop INTEGER NOT NULL
)"""


def choose_end(database: sqlite3.Connection, subscription: str, start: int, stop: int) -> int:
    """Where the batch that begins behind `start` ends. Call it in a transaction; it is decided when that is committed.

    Args:
        database: of the journal.
        subscription: its name, for errors.
        start: the newest position before the batch.
        stop: its newest position, unless that was decided before.

    Raises:
        BadRequest: there is nothing between the two.
        RangeNotThere: the journal has no such position.
    """
    known = database.execute("SELECT stop FROM node_ends WHERE start = ?", (start,)).fetchone()
    if known is not None:
        return int(known[0])
    if stop <= start:
        raise BadRequest(
            f"a batch of subscription {subscription!r} cannot be empty",
            f"it would be ({start}, {stop}]",
            "wait for messages",
        )
    last, deleted = database.execute("SELECT last, deleted FROM node_journal").fetchone()
    if stop > last:
        raise RangeNotThere(
            f"a batch of subscription {subscription!r} cannot end at {stop}",
            f"the newest position is {last}",
            "use positions that this journal gave",
        )
    # A batch whose messages are gone is never read again.
    database.execute("DELETE FROM node_ends WHERE start < ?", (deleted,))
    database.execute(
        "DELETE FROM node_ends WHERE start IN (SELECT start FROM node_ends ORDER BY start DESC LIMIT -1 OFFSET ?)",
        (KEPT_ENDS - 1,),
    )
    database.execute("INSERT INTO node_ends VALUES (?, ?)", (start, stop))
    return stop
