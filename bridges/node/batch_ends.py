"""Where each batch of a subscription's query ends, decided once and before Spark writes it down (rule J-5).

A batch is known by where it begins. Spark keeps begins and ends in its checkpoint, but does not force them to the disk:
when the newest of its files are lost with the power, it asks again where the batch ends, and more has arrived since.
With the end kept here the batch is the same again, and what a sink has decided about it fits.
"""

from __future__ import annotations

from bridges.node.errors import BadRequest, RangeNotThere
from oncewire.store.store import Transaction

KEPT_ENDS = 1_000
"""Batches that are still known; a query repeats its newest ones, as many as its checkpoint has lost."""

ENDS_TABLE = "CREATE TABLE node_ends (start /*whole*/ PRIMARY KEY, stop BIGINT NOT NULL)"
"""A batch is (start, stop]."""


def choose_end(do: Transaction, subscription: str, batch: tuple[int, int], kept: tuple[int, int]) -> int:
    """Where the batch that begins behind a position ends. Call it in a transaction; its commit decides it.

    Args:
        do: the transaction.
        subscription: its name, for errors.
        batch: the newest position before it; its own newest, unless that was decided before.
        kept: the newest position that is deleted; the newest of all.

    Raises:
        BadRequest: there is nothing between the two.
        RangeNotThere: the journal has no such position.
    """
    start, stop = batch
    deleted, last = kept
    known = do.execute("SELECT stop FROM node_ends WHERE start = ?", (start,))
    if known:
        return int(known[0][0])
    if stop <= start:
        raise BadRequest(
            f"a batch of subscription {subscription!r} cannot be empty",
            f"it would be ({start}, {stop}]",
            "wait for messages",
        )
    if stop > last:
        raise RangeNotThere(
            f"a batch of subscription {subscription!r} cannot end at {stop}",
            f"the newest position is {last}",
            "use positions that this journal gave",
        )
    # A batch whose messages are gone is never read again.
    do.execute("DELETE FROM node_ends WHERE start < ?", (deleted,))
    do.execute(
        "DELETE FROM node_ends WHERE start <= (SELECT start FROM node_ends ORDER BY start DESC LIMIT 1 OFFSET ?)",
        (KEPT_ENDS - 1,),
    )
    do.execute("INSERT INTO node_ends VALUES (?, ?)", (start, stop))
    return stop
