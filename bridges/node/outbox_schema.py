"""The tables of an outbox."""

from __future__ import annotations

from typing import Final

from bridges.node.required_rows import TABLES
from bridges.node.snapshots import SNAPSHOT_TABLE
from oncewire.store.migrations import Feature

_TABLES = (
    """CREATE TABLE node_sink (
        uuid TEXT NOT NULL, sink TEXT NOT NULL,
        query TEXT,                   -- that may write; NULL = none has yet
        generation BIGINT NOT NULL,  -- how often the sink was taken over: batch numbers start again
        epoch BIGINT NOT NULL,       -- of the newest run
        next_manifest BIGINT NOT NULL,
        resends_in_doubt BIGINT NOT NULL DEFAULT 1  -- of the newest commit
    )""",
    "CREATE TABLE node_runs (run TEXT PRIMARY KEY, epoch BIGINT NOT NULL)",
    "CREATE TABLE node_former_queries (query TEXT PRIMARY KEY)",
    # manifest NULL = staged only. An id is never used again, whatever is deleted.
    """CREATE TABLE node_parts (
        id /*identity*/, generation BIGINT NOT NULL, batch BIGINT NOT NULL,
        partition BIGINT NOT NULL, attempt TEXT NOT NULL, chunk BIGINT NOT NULL, rows BIGINT NOT NULL,
        bytes BIGINT NOT NULL, manifest BIGINT, UNIQUE (generation, batch, partition, attempt, chunk)
    )""",
    "CREATE INDEX node_parts_by_manifest ON node_parts (manifest)",
    "CREATE TABLE node_bodies (part /*whole*/ PRIMARY KEY, body /*bytes*/ NOT NULL)",
    # first = the number of the part's first row in the topic's stream, set by the manifest.
    """CREATE TABLE node_part_topics (
        part BIGINT NOT NULL, topic BIGINT NOT NULL, rows BIGINT NOT NULL, first BIGINT,
        PRIMARY KEY (part, topic)
    )""",
    "CREATE UNIQUE INDEX node_part_topics_by_number ON node_part_topics (topic, first)",
    """CREATE TABLE node_manifests (
        number /*whole*/ PRIMARY KEY, generation BIGINT NOT NULL, batch BIGINT NOT NULL, run TEXT NOT NULL,
        rows BIGINT NOT NULL, is_atomic BIGINT NOT NULL, is_done BIGINT NOT NULL DEFAULT 0,
        not_accepted BIGINT NOT NULL DEFAULT 0,
        UNIQUE (generation, batch)
    )""",
    "CREATE INDEX node_manifests_waiting ON node_manifests (number) WHERE is_done = 0",
    # The numbers [first, stop) of a topic's stream are a manifest's; kept until it is done.
    """CREATE TABLE node_spans (
        manifest BIGINT NOT NULL, topic BIGINT NOT NULL, first BIGINT NOT NULL, stop BIGINT NOT NULL,
        PRIMARY KEY (manifest, topic)
    )""",
    # A topic's stream and the state of its publisher's link: numbers below `assigned` are decided, below `next_number`
    # handed to the publisher, below `floor` and in `settled` ended. As a producer it lives since `born_ms`, and that
    # life's numbers begin at `base`; `decided_ms` is when its newest rows were decided.
    """CREATE TABLE node_topics (
        id /*whole*/ PRIMARY KEY, topic TEXT NOT NULL UNIQUE, assigned BIGINT NOT NULL DEFAULT 0,
        next_number BIGINT NOT NULL DEFAULT 0, exposed_before BIGINT NOT NULL DEFAULT 0,
        session BIGINT NOT NULL DEFAULT 0, floor BIGINT NOT NULL DEFAULT 0, settled TEXT NOT NULL DEFAULT '[]',
        doubted TEXT NOT NULL DEFAULT '[]', base BIGINT NOT NULL DEFAULT 0, born_ms BIGINT NOT NULL DEFAULT 0,
        decided_ms BIGINT NOT NULL DEFAULT 0
    )""",
    SNAPSHOT_TABLE,
    *TABLES,
)
# When a part of a write that stands alone was staged; 0 = of another batch (O-13).
_STAGED = ("ALTER TABLE node_parts ADD COLUMN staged_ms BIGINT NOT NULL DEFAULT 0",)
SINKS: Final = Feature("spark-sink", (_TABLES, _STAGED), former="node_outbox")
