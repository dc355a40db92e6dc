"""Checkpoints: how far a store has processed each source, and what the sequencer of that source knows there."""

from __future__ import annotations

from typing import Any

from oncewire.client.errors import StoreCorrupt
from oncewire.client.transactions.fenced_database import FencedDatabase
from oncewire.client.transactions.sequence_header import HeaderError, ProducerId
from oncewire.client.transactions.sequencer import Sequencer
from oncewire.client.transactions.sequencer_state import StateError


def damaged(store: str, why: str) -> StoreCorrupt:
    """What is stored cannot be read."""
    return StoreCorrupt(f"the store {store!r} cannot be read", why, "restore the database from a backup")


def position_of(do: FencedDatabase[Any], source: str) -> int | None:
    """The source's position in the last checkpoint; None: there is none."""
    rows = do.run("SELECT position FROM oncewire_store_sources WHERE store = ? AND source = ?", (do.name, source))
    return int(rows[0][0]) if rows else None


def restore(do: FencedDatabase[Any], source: str, sequencer: Sequencer[Any]) -> None:
    """Put the source's last checkpoint, if there is one, into a new sequencer.

    Raises:
        StoreCorrupt: what is stored cannot be read.
    """
    position = position_of(do, source)
    if position is None:
        return
    key = (do.name, source)
    horizons = do.run("SELECT owner, horizon_ms FROM oncewire_store_horizons WHERE store = ? AND source = ?", key)
    states = do.run(
        "SELECT producer, born_ms, owner, state FROM oncewire_store_sequences WHERE store = ? AND source = ?"
        " ORDER BY producer, born_ms, owner",
        key,
    )
    try:
        known = [(ProducerId(producer, born_ms, user), text) for producer, born_ms, user, text in states]
        sequencer.restore(position, {user: int(horizon_ms) for user, horizon_ms in horizons}, known)
    except (HeaderError, StateError) as error:
        raise damaged(do.name, str(error)) from error


def write(do: FencedDatabase[Any], source: str, sequencer: Sequencer[Any]) -> None:
    """Write where the sequencer is, inside the transaction that processes its messages."""
    do.run(
        "INSERT INTO oncewire_store_sources VALUES (?, ?, ?) ON CONFLICT (store, source)"
        " DO UPDATE SET position = excluded.position",
        (do.name, source, sequencer.position),
    )
    forgotten = set()
    for producer, text in sequencer.changes().items():
        key = (do.name, source, producer.user, producer.name, producer.born_ms)
        if text is None:
            forgotten.add(producer.user)
            do.run(
                "DELETE FROM oncewire_store_sequences"
                " WHERE store = ? AND source = ? AND owner = ? AND producer = ? AND born_ms = ?",
                key,
            )
        else:
            do.run(
                "INSERT INTO oncewire_store_sequences VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (store, source, owner, producer, born_ms) DO UPDATE SET state = excluded.state",
                (*key, text),
            )
    do.run_many(
        "INSERT INTO oncewire_store_horizons VALUES (?, ?, ?, ?)"
        " ON CONFLICT (store, source, owner) DO UPDATE SET horizon_ms = excluded.horizon_ms",
        [(do.name, source, user, sequencer.horizons[user]) for user in sorted(forgotten)],
    )
