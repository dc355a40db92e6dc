"""Keeps a journal to its share of a sharded subscription: for a journal the share never changes (rule J-9)."""

from __future__ import annotations

from pathlib import Path

from bridges.journal.model import JournalState
from bridges.node.errors import BadRequest
from bridges.node.shard_core import Shard
from oncewire.store.store import Transaction

_FIX = (
    "set the shard that it was made with; to change the number of shards make a subscription with another name "
    "(see docs/spark-cluster.md)"
)


def shard_text(shard: Shard | None) -> str:
    """A share as a journal keeps it, and as errors show it."""
    return "all messages" if shard is None else f"shard {shard} by {shard.by.value}"


def keep_shard(do: Transaction, found: JournalState, path: Path, known: str, shard: Shard | None) -> None:
    """Refuse another share than a journal has; one that has kept all of no messages gets its share.

    Args:
        do: the transaction.
        found: the journal.
        path: of its file, for errors.
        known: its share.
        shard: as configured; None = all messages.

    Raises:
        BadRequest: the journal has another share.
    """
    wanted = shard_text(shard)
    if known == wanted:
        return
    if known != shard_text(None) or found.last:
        raise BadRequest(
            f"subscription {found.name!r} cannot be received as {wanted}", f"its journal {path} is for {known}", _FIX
        )
    do.execute("UPDATE node_subscription SET shard = ?", (wanted,))


def refuse_part(subscription: str, shard: Shard) -> BadRequest:
    """The error for a query that would read one shard as if it were all."""
    return BadRequest(
        f"subscription {subscription!r} cannot be read at this node alone",
        f"the node keeps shard {shard} of it",
        f"name all {shard.count} nodes in the option bridge, in the order of their shards; "
        "processors read subscriptions that are not sharded",
    )
