"""The tables of an outbox."""

from __future__ import annotations

from bridges.node.required_rows import TABLES
from bridges.node.snapshots import SNAPSHOT_TABLE

VERSION = 1

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS node_outbox (
        version INTEGER NOT NULL, uuid TEXT NOT NULL, sink TEXT NOT NULL,
        query TEXT,                   -- that may write; NULL = none has yet
        generation INTEGER NOT NULL,  -- how often the sink was taken over: batch numbers start again
        epoch INTEGER NOT NULL,       -- of the newest run
        next_manifest INTEGER NOT NULL,
        resends_in_doubt INTEGER NOT NULL DEFAULT 1  -- of the newest commit
    )""",
    "CREATE TABLE IF NOT EXISTS node_runs (run TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS node_former_queries (query TEXT PRIMARY KEY) WITHOUT ROWID",
    # manifest NULL = staged only. AUTOINCREMENT: an id is never used again, whatever is deleted.
    """CREATE TABLE IF NOT EXISTS node_parts (
        id INTEGER PRIMARY KEY AUTOINCREMENT, generation INTEGER NOT NULL, batch INTEGER NOT NULL,
        partition INTEGER NOT NULL, attempt TEXT NOT NULL, chunk INTEGER NOT NULL, rows INTEGER NOT NULL,
        bytes INTEGER NOT NULL, manifest INTEGER, UNIQUE (generation, batch, partition, attempt, chunk)
    )""",
    "CREATE INDEX IF NOT EXISTS node_parts_by_manifest ON node_parts (manifest)",
    "CREATE TABLE IF NOT EXISTS node_bodies (part INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    # first = the number of the part's first row in the topic's stream, set by the manifest.
    """CREATE TABLE IF NOT EXISTS node_part_topics (
        part INTEGER NOT NULL, topic INTEGER NOT NULL, rows INTEGER NOT NULL, first INTEGER,
        PRIMARY KEY (part, topic)
    ) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX IF NOT EXISTS node_part_topics_by_number ON node_part_topics (topic, first)",
    """CREATE TABLE IF NOT EXISTS node_manifests (
        number INTEGER PRIMARY KEY, generation INTEGER NOT NULL, batch INTEGER NOT NULL, run TEXT NOT NULL,
        rows INTEGER NOT NULL, is_atomic INTEGER NOT NULL, is_done INTEGER NOT NULL DEFAULT 0,
        not_accepted INTEGER NOT NULL DEFAULT 0,
        UNIQUE (generation, batch)
    )""",
    "CREATE INDEX IF NOT EXISTS node_manifests_waiting ON node_manifests (number) WHERE NOT is_done",
    # The numbers [first, stop) of a topic's stream are a manifest's; kept until it is done.
    """CREATE TABLE IF NOT EXISTS node_spans (
        manifest INTEGER NOT NULL, topic INTEGER NOT NULL, first INTEGER NOT NULL, stop INTEGER NOT NULL,
        PRIMARY KEY (manifest, topic)
    ) WITHOUT ROWID""",
    # A topic's stream and the state of its publisher's link: numbers below `assigned` are decided, below `next_number`
    # handed to the publisher, below `floor` and in `settled` ended. As a producer it lives since `born_ms`, and that
    # life's numbers begin at `base`; `decided_ms` is when its newest rows were decided.
    """CREATE TABLE IF NOT EXISTS node_topics (
        id INTEGER PRIMARY KEY, topic TEXT NOT NULL UNIQUE, assigned INTEGER NOT NULL DEFAULT 0,
        next_number INTEGER NOT NULL DEFAULT 0, exposed_before INTEGER NOT NULL DEFAULT 0,
        session INTEGER NOT NULL DEFAULT 0, floor INTEGER NOT NULL DEFAULT 0, settled BLOB NOT NULL DEFAULT x'',
        doubted BLOB NOT NULL DEFAULT x'', base INTEGER NOT NULL DEFAULT 0, born_ms INTEGER NOT NULL DEFAULT 0,
        decided_ms INTEGER NOT NULL DEFAULT 0
    )""",
    SNAPSHOT_TABLE,
    *TABLES,
)
