"""Rows that were sent to nobody, because their topic had fewer subscriptions than required: they wait (O-12).

Such a row was *released*: no subscription was ever sent it, nor what was sent behind it (I-3c of the network). It is
sent again as it is, in a new session of its topic's publisher, where old numbers are new.
"""

from __future__ import annotations

from oncewire.client.transactions.sequence_set import SequenceSet
from oncewire.store.store import Transaction

TABLES = (
    # As the newest commit wants it.
    """CREATE TABLE node_required (
        only /*whole*/ PRIMARY KEY CHECK (only = 1), subscriptions BIGINT NOT NULL
    )""",
    # The rows of a topic that wait, by number.
    "CREATE TABLE node_released (topic /*whole*/ PRIMARY KEY, numbers TEXT NOT NULL)",
)
_PUT_REQUIRED = """INSERT INTO node_required VALUES (1, ?)
ON CONFLICT (only) DO UPDATE SET subscriptions = excluded.subscriptions"""
_PUT_RELEASED = """INSERT INTO node_released VALUES (?, ?)
ON CONFLICT (topic) DO UPDATE SET numbers = excluded.numbers"""


def set_required(do: Transaction, subscriptions: int) -> None:
    """Each row needs so many from now on."""
    do.execute(_PUT_REQUIRED, (subscriptions,))


def required(do: Transaction) -> int:
    """How many subscriptions a row needs; 0 = none."""
    return next((int(number) for (number,) in do.execute("SELECT subscriptions FROM node_required")), 0)


def load_released(do: Transaction, topic: int) -> SequenceSet:
    """Read the numbers of a topic's rows that wait."""
    found = do.execute("SELECT numbers FROM node_released WHERE topic = ?", (topic,))
    return SequenceSet.from_text(found[0][0]) if found else SequenceSet()


def save_released(do: Transaction, topic: int, released: SequenceSet) -> None:
    """Store them."""
    do.execute(_PUT_RELEASED, (topic, released.to_text()))
