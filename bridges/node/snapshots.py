"""Where each attempt of a processor begins and ends, decided once: Cues' snapshots, in the outbox of its sink.

An attempt is known by where it begins. The first one that begins there decides where it ends, and that is on the disk
before the processor's function sees a message; every repeat of it gets the same end, whatever has arrived since. Each
attempt begins where the one before it ended, so that nothing is passed over or taken twice, and a checkpoint that was
restored from an old copy is found out.
"""

from __future__ import annotations

from bridges.node.errors import BadRequest, SnapshotUnknown
from oncewire.store.store import Transaction

KEPT_SNAPSHOTS = 1_000
"""Attempts that are still known. A query repeats its last one, and more only when its checkpoint has lost files."""
MAX_SNAPSHOT_TEXT = 16_384
"""Characters of one end of an attempt: 100 for each of a processor's inputs are enough."""

SNAPSHOT_TABLE = """CREATE TABLE node_snapshots (
    number /*whole*/ PRIMARY KEY, start TEXT NOT NULL UNIQUE, stop TEXT NOT NULL
)"""


def choose_snapshot(do: Transaction, sink: str, start: str, stop: str) -> str:
    """Where the attempt that begins at `start` ends. Call it in a transaction; it is decided when that is committed.

    Args:
        do: the transaction, of the outbox.
        sink: its id, for errors.
        start: where the attempt begins, in whatever form, the same each time.
        stop: where it shall end unless that was decided before.

    Raises:
        BadRequest: there is nothing between the two.
        SnapshotUnknown: the attempt does not begin where the newest one ended, and is none of those that are known.
    """
    known = do.execute("SELECT stop FROM node_snapshots WHERE start = ?", (start,))
    if known:
        return str(known[0][0])
    if start == stop:
        raise BadRequest(
            f"processor {sink} cannot attempt nothing", f"it would begin and end at {start}", "wait for messages"
        )
    newest = do.execute("SELECT number, stop FROM node_snapshots ORDER BY number DESC LIMIT 1")
    if newest and newest[0][1] != start:
        raise SnapshotUnknown(
            f"processor {sink} cannot continue at {start}",
            f"its newest attempt ended at {newest[0][1]}",
            "the checkpoint is not this processor's newest one: restore that, or give the processor another name",
        )
    number = newest[0][0] + 1 if newest else 0
    do.execute("INSERT INTO node_snapshots VALUES (?, ?, ?)", (number, start, stop))
    do.execute("DELETE FROM node_snapshots WHERE number <= ?", (number - KEPT_SNAPSHOTS,))
    return stop
