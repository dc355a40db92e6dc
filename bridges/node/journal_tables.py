"""The file of a subscription: a journal of the edge (`bridges.journal`), and what its one query has decided."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridges.journal import log
from bridges.journal.contents import JOURNALS
from bridges.journal.model import JournalSettings, JournalState
from bridges.node.batch_ends import ENDS_TABLE
from bridges.node.committed_order import WAITING_TABLES
from bridges.node.errors import BadRequest, StorageError
from bridges.node.gaps import GAP_TABLES
from bridges.node.shard_core import Shard
from bridges.node.shards import keep_shard, shard_text
from oncewire.client.isolation import Isolation
from oncewire.store.migrations import Feature
from oncewire.store.store import Transaction

SUBSCRIPTIONS: Final = Feature(
    "spark-subscription",
    (
        (
            # One row. Positions up to `trimmed` are done with; `initial` is where the first batch starts, `query` who
            # reads; `fed` is how many messages a sequencer was given.
            """CREATE TABLE node_subscription (
                trimmed BIGINT NOT NULL, initial BIGINT, query TEXT, isolation TEXT NOT NULL, shard TEXT NOT NULL,
                fed BIGINT NOT NULL, unread_s DOUBLE PRECISION NOT NULL, ended TEXT NOT NULL)""",
            """CREATE TABLE node_numbered (
                owner TEXT NOT NULL, producer TEXT NOT NULL, floor BIGINT NOT NULL, seen TEXT NOT NULL,
                PRIMARY KEY (owner, producer))""",
            "CREATE TABLE node_trims (at /*whole*/ PRIMARY KEY, position BIGINT NOT NULL)",
            "CREATE TABLE node_former_owners (owner TEXT PRIMARY KEY)",
            ENDS_TABLE,
            *GAP_TABLES,
            *WAITING_TABLES,
        ),
        # How far the present query has released messages; `trimmed` may be more, by J-15 or by a former query.
        (
            "ALTER TABLE node_subscription ADD COLUMN released BIGINT NOT NULL DEFAULT 0",
            "UPDATE node_subscription SET released = trimmed",
        ),
    ),
    former="node_journal",
)
FEATURES: Final = (JOURNALS, SUBSCRIPTIONS)
_SETTINGS = JournalSettings(max_bytes=log.ALL)
"""Nothing is ever refused: a journal that is full gives no credit (J-11)."""
_MARKS = "SELECT trimmed, initial, query, released FROM node_subscription"


@dataclass(frozen=True, slots=True)
class JournalMarks:
    """Where a journal stands.

    Attributes:
        uuid: of the journal; another one means other positions.
        last: newest position, 0 = none yet.
        deleted: newest position that is not kept any more; readable is (deleted, last].
        trimmed: positions up to it are done with; not less than `deleted`.
        live_bytes: of what is kept, payloads and a share for each row.
        initial: where the first batch of the reader starts; None = not decided yet.
        owner: the query that reads; None = none yet.
        released: positions up to it were released by that query: it has finished a batch.
    """

    uuid: str
    last: int
    deleted: int
    trimmed: int
    live_bytes: int
    initial: int | None
    owner: str | None
    released: int


def begin(
    do: Transaction, path: Path, subscription: str, isolation: Isolation | None, shard: Shard | None
) -> Isolation:
    """Make the journal of a subscription, or check that it is that one; returns its level.

    With another level it would hold pending messages that nobody decides about (J-12), with another share some keys
    would be kept by two nodes, or by none (J-9).

    Args:
        do: the transaction.
        path: of the file, for errors.
        subscription: its name.
        isolation: as asked for; None = as the journal has it, `read_uncommitted` if it is new.
        shard: which messages it keeps; None = all.

    Raises:
        BadRequest: it is another subscription's, or has another level or share.
    """
    if not log.journals(do):
        log.configure(do, subscription, _SETTINGS)
        level = isolation or Isolation.READ_UNCOMMITTED
        do.execute(
            "INSERT INTO node_subscription VALUES (0, NULL, NULL, ?, ?, 0, 0, '', 0)", (level.value, shard_text(shard))
        )
    found = journal_of(do, path)
    if found.name != subscription:
        raise BadRequest(
            f"the journal {path} cannot be used for subscription {subscription!r}",
            f"it belongs to subscription {found.name!r}",
            "give each subscription a file of its own",
        )
    ((level_text, share),) = do.execute("SELECT isolation, shard FROM node_subscription")
    known = Isolation(level_text)
    if isolation not in {None, known}:
        assert isolation is not None
        raise BadRequest(
            f"subscription {subscription!r} cannot be received with isolation level {isolation.value}",
            f"its journal {path} has the level {known.value}",
            "use that level, or a subscription with another name",
        )
    keep_shard(do, found, path, share, shard)
    return known


def journal_of(do: Transaction, path: Path) -> JournalState:
    """The journal of a file.

    Raises:
        StorageError: nothing has received into it yet.
    """
    found = log.journals(do)
    if not found:
        raise StorageError(
            f"the journal {path} cannot be opened", "it is empty", "subscribe first: the receiver makes it"
        )
    return found[0]


def marks_of(do: Transaction, found: JournalState) -> JournalMarks:
    """Where a journal stands, with what its query has decided."""
    ((trimmed, initial, owner, released),) = do.execute(_MARKS)
    trimmed = max(trimmed, found.trimmed)
    return JournalMarks(found.uuid, found.last, found.trimmed, trimmed, found.kept_bytes, initial, owner, released)
