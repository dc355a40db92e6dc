"""Exactly-once transactions over topics: start with ``Consumer``, ``read_committed`` and docs/gazette.md."""

from oncewire.client.errors import (
    ProcessFailed,
    StoreCorrupt,
    StoreError,
    StoreFenced,
    StoreFull,
    StoreLocked,
    StoreUnusable,
)
from oncewire.client.isolation import Isolation
from oncewire.client.transactions.consumer import Consumer
from oncewire.client.transactions.crash_points import CrashPoint
from oncewire.client.transactions.messages import ReceivedMessage, Transaction
from oncewire.client.transactions.opening import open_store
from oncewire.client.transactions.reader import Reader, read_committed, read_uncommitted
from oncewire.client.transactions.sequence_header import (
    Flag,
    HeaderError,
    Producer,
    ProducerId,
    SequenceHeader,
    read_header,
)
from oncewire.client.transactions.sequencer import Batch, Outcome, Sequencer, Step
from oncewire.client.transactions.sequencer_state import JournalHole, Placed, Reread
from oncewire.client.transactions.shards import Shards
from oncewire.client.transactions.store import Store
from oncewire.client.transactions.store_schema import Intent
from oncewire.client.transactions.store_shards import StoreShards
from oncewire.client.transactions.stores import PostgresStore, SqliteStore

__all__ = [
    "Batch",
    "Consumer",
    "CrashPoint",
    "Flag",
    "HeaderError",
    "Intent",
    "Isolation",
    "JournalHole",
    "Outcome",
    "Placed",
    "PostgresStore",
    "ProcessFailed",
    "Producer",
    "ProducerId",
    "Reader",
    "ReceivedMessage",
    "Reread",
    "SequenceHeader",
    "Sequencer",
    "Shards",
    "SqliteStore",
    "Step",
    "Store",
    "StoreCorrupt",
    "StoreError",
    "StoreFenced",
    "StoreFull",
    "StoreLocked",
    "StoreShards",
    "StoreUnusable",
    "Transaction",
    "open_store",
    "read_committed",
    "read_header",
    "read_uncommitted",
]
