"""What a node works with, as values: all that those import of it who only talk to a node, as Spark's processes do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bridges.doors.tls import NO_FILES, TlsFiles
from bridges.node.group_commit_core import GROUP_COUNT, GROUP_S
from bridges.node.shard_core import Shard
from oncewire.client.isolation import Isolation

CREDIT = 2048
"""Messages that may come ahead of the journal: some groups, so that the next one arrives while one is written."""
MAX_JOURNAL_BYTES = 8 << 30
"""A disk is cheaper than publishers that wait; but it ends."""
TIMEOUT_S = 24 * 3600
"""T_sub: how long the network keeps the subscription while the node is disconnected. Publishers wait for it."""
MAX_OUTBOX_BYTES = 1 << 30
"""Decided and not yet published; and as much again may be staged: a disk with 2 GiB to spare for each sink."""
INFLIGHT = 1000
"""Rows of a topic without outcome; the routers' window is 1,024 (C-1)."""
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""A subscription's name is a file name."""
SINK_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""A sink's id is a file name, and the container-id it publishes with."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What is received into one journal.

    Attributes:
        name: of the subscription.
        container_id: with each topic as the link's name the identity in the network.
        topics: topics or patterns, each a link.
        credit: messages that may come ahead.
        group_s, group_count: when a group is written, by time and by count.
        max_journal_bytes: when to stop taking messages.
        retention_s: how long messages are kept after a reader is done with them.
        timeout_s: how long the network keeps the subscription while the node is disconnected.
        shard: which messages are kept, and the others accepted at once; None = all are kept.
        isolation: of what is read from the journal; None = as the journal has it, `read_uncommitted` if it is new.
        expire_unread_s: after so many seconds without a reader it is ended (J-14); 0 = never.
        drop_unread_s: messages that no reader has processed for so long are deleted (J-15); 0 = never.
        is_configured: the node's settings have it; else a query made it.
    """

    name: str
    container_id: str
    topics: tuple[str, ...]
    credit: int = CREDIT
    group_s: float = GROUP_S
    group_count: int = GROUP_COUNT
    max_journal_bytes: int = MAX_JOURNAL_BYTES
    retention_s: float = 0.0
    timeout_s: int = TIMEOUT_S
    shard: Shard | None = None
    isolation: Isolation | None = None
    expire_unread_s: float = 0.0
    drop_unread_s: float = 0.0
    is_configured: bool = False


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a node works with.

    Attributes:
        name: part of the container-ids of its subscriptions: another name makes other subscriptions.
        folder: for journals and outboxes, on a local disk.
        routers: URLs, tried in turn.
        subscriptions: received from the start; others are added when a client asks for them.
        defaults: what subscriptions have that are added later; name, container-id and topics are not used.
        max_outbox_bytes: see `Outbox`.
        inflight: see `SinkPublisher`.
        tls: for routers whose URL is amqps or wss.
        token_file: the token of each login, read again each time; None = log in with what the URLs have.
        resumes: resume every subscription and sink of the folder; False = only those a client asks for.
    """

    name: str
    folder: Path
    routers: tuple[str, ...]
    subscriptions: tuple[Subscription, ...] = ()
    defaults: Subscription = Subscription("", "", ())  # frozen
    max_outbox_bytes: int = MAX_OUTBOX_BYTES
    inflight: int = INFLIGHT
    tls: TlsFiles = NO_FILES
    token_file: Path | None = None
    resumes: bool = True


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive messages; the lists are columns of equal length.

    Attributes:
        first: position of the first message.
        topics: what was subscribed to, for each message.
        arrived: microseconds since 1970.
        payloads: the encoded messages.
    """

    first: int
    topics: list[str]
    arrived: list[int]
    payloads: list[bytes]


@dataclass(frozen=True, slots=True)
class Writer:
    """Who stages or commits.

    Attributes:
        query: stays the same for a checkpoint.
        run: new for each start of the query.
        takeover: become the sink's query though another one was.
        repeats: decisions of earlier runs do not count: what this run writes is published, again if need be.
        stands_alone: its batch has no order with others of the sink, and its run ends no other one (O-13).
    """

    query: str
    run: str
    takeover: bool = False
    repeats: bool = False
    stands_alone: bool = False


@dataclass(frozen=True, slots=True)
class Publishing:
    """How rows are published.

    Attributes:
        resends_in_doubt: rows that may have been delivered in a session that the network forgot are sent again (with
            the same identity); False = they are abandoned, and counted as not accepted.
        is_atomic: the rows of a batch and topic are one transaction for readers that use a sequencer.
        require: subscriptions that a row's topic must have; else the row waits (O-12).
    """

    resends_in_doubt: bool = True
    is_atomic: bool = False
    require: int = 0


AS_USUAL = Publishing()


@dataclass(frozen=True, slots=True)
class StagedPart:
    """What one attempt of one task wrote, in chunks.

    Attributes:
        partition: of the batch; the order of partitions is the order of publishing.
        attempt: names the attempt; no two attempts share it.
        chunks: how many bodies it staged, numbered from 0.
        rows: in all of them.
    """

    partition: int
    attempt: str
    chunks: int
    rows: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a batch is, once and for all.

    Attributes:
        number: counts the sink's manifests from 0.
        batch: the query's number of it.
        rows: in it.
        is_first: this commit decided it; False = another did before.
        is_done: every row has been published and has an outcome.
        not_accepted: rows of it that ended otherwise than accepted (rejected, or no subscription matched).
    """

    number: int
    batch: int
    rows: int
    is_first: bool
    is_done: bool
    not_accepted: int
