"""The tables of the SQL stores, as numbered migrations. A published migration is never changed; a new one follows it.

`/*NAME*/` stands for what the two databases spell differently (Dialect).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one database spells what differs."""

    identity: str
    bytes: str
    skip_locked: str
    lock: str

    def spell(self, statement: str) -> str:
        """Return a statement of ours in this database's words."""
        return (
            statement.replace("/*identity*/", self.identity)
            .replace("/*bytes*/", self.bytes)
            .replace("/*skip locked*/", self.skip_locked)
            .replace("/*lock*/", self.lock)
        )


SQLITE = Dialect("INTEGER PRIMARY KEY AUTOINCREMENT", "BLOB", "", "")
POSTGRES = Dialect("BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "BYTEA", "FOR UPDATE SKIP LOCKED", "FOR UPDATE")

VERSION_TABLE: Final = "CREATE TABLE IF NOT EXISTS oncewire_queue_version (version INTEGER NOT NULL)"

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (  # 1
        """CREATE TABLE oncewire_queues (
            name TEXT PRIMARY KEY, max_retries BIGINT NOT NULL, backoff_s DOUBLE PRECISION NOT NULL,
            backoff_max_s DOUBLE PRECISION NOT NULL, history_s DOUBLE PRECISION NOT NULL,
            max_payload_bytes BIGINT NOT NULL)""",
        # W-2: `due` is when an item may be taken; of a reserved item it is when the reservation runs out.
        """CREATE TABLE oncewire_items (
            id /*identity*/, queue TEXT NOT NULL, priority INTEGER NOT NULL, due BIGINT NOT NULL,
            reserved INTEGER NOT NULL DEFAULT 0, reservation BIGINT NOT NULL DEFAULT 0,
            retries BIGINT NOT NULL DEFAULT 0, created BIGINT NOT NULL, payload /*bytes*/ NOT NULL,
            item_key TEXT, schedule TEXT, reason TEXT NOT NULL DEFAULT '')""",
        "CREATE INDEX oncewire_items_ready ON oncewire_items (queue, priority DESC, due, id)",
        "CREATE INDEX oncewire_items_reserved ON oncewire_items (queue, due) WHERE reserved = 1",
        """CREATE TABLE oncewire_history (
            entry /*identity*/, item BIGINT NOT NULL, queue TEXT NOT NULL, ending TEXT NOT NULL,
            created BIGINT NOT NULL, ended BIGINT NOT NULL, expires BIGINT, retries BIGINT NOT NULL,
            reservation BIGINT NOT NULL, priority INTEGER NOT NULL, payload /*bytes*/ NOT NULL, result /*bytes*/,
            reason TEXT NOT NULL, targets TEXT NOT NULL, item_key TEXT)""",
        "CREATE INDEX oncewire_history_ended ON oncewire_history (queue, ended, entry)",
        "CREATE INDEX oncewire_history_dead ON oncewire_history (queue, ended, entry) WHERE ending = 'dead'",
        "CREATE INDEX oncewire_history_item ON oncewire_history (item, reservation)",
        "CREATE INDEX oncewire_history_expires ON oncewire_history (expires) WHERE expires IS NOT NULL",
        """CREATE TABLE oncewire_keys (
            queue TEXT NOT NULL, item_key TEXT NOT NULL, item BIGINT NOT NULL, expires BIGINT,
            PRIMARY KEY (queue, item_key))""",
        "CREATE INDEX oncewire_keys_item ON oncewire_keys (item)",
        "CREATE INDEX oncewire_keys_expires ON oncewire_keys (expires) WHERE expires IS NOT NULL",
        """CREATE TABLE oncewire_schedules (
            name TEXT PRIMARY KEY, queue TEXT NOT NULL, cron TEXT NOT NULL, timezone TEXT NOT NULL,
            payload /*bytes*/ NOT NULL, priority INTEGER NOT NULL, item BIGINT NOT NULL, next_at BIGINT NOT NULL)""",
        "CREATE INDEX oncewire_schedules_queue ON oncewire_schedules (queue, name)",
    ),
    (  # 2: from topic to topic
        # W-23: who runs a feed, or the publisher of the outbox.
        """CREATE TABLE oncewire_owners (
            name TEXT PRIMARY KEY, container TEXT NOT NULL, epoch BIGINT NOT NULL, incarnation BIGINT NOT NULL)""",
        # W-19: deliveries that the network has not settled, in order of arrival.
        """CREATE TABLE oncewire_feed_tags (
            place /*identity*/, feed TEXT NOT NULL, tag /*bytes*/ NOT NULL, outcome TEXT, UNIQUE (feed, tag))""",
        "CREATE INDEX oncewire_feed_tags_place ON oncewire_feed_tags (feed, place)",
        # W-21: how many messages each topic has got; W-22: how far its publisher is.
        "CREATE TABLE oncewire_outbox_topics (topic TEXT PRIMARY KEY, assigned BIGINT NOT NULL)",
        """CREATE TABLE oncewire_outbox_links (
            topic TEXT PRIMARY KEY, next_number BIGINT NOT NULL, exposed_before BIGINT NOT NULL,
            session BIGINT NOT NULL)""",
        """CREATE TABLE oncewire_outbox (
            topic TEXT NOT NULL, number BIGINT NOT NULL, payload /*bytes*/ NOT NULL, outcome TEXT,
            PRIMARY KEY (topic, number))""",
        "CREATE INDEX oncewire_outbox_open ON oncewire_outbox (topic, number) WHERE outcome IS NULL",
        "CREATE INDEX oncewire_outbox_ended ON oncewire_outbox (topic, number) WHERE outcome IS NOT NULL",
    ),
    (  # 3: tags of pushes over AMQP (W-17), generations of their links (W-18)
        "CREATE TABLE oncewire_links (link TEXT PRIMARY KEY, generation BIGINT NOT NULL, expires BIGINT NOT NULL)",
        "CREATE INDEX oncewire_links_expires ON oncewire_links (expires)",
        """CREATE TABLE oncewire_deliveries (
            link TEXT NOT NULL, tag /*bytes*/ NOT NULL, item BIGINT NOT NULL, PRIMARY KEY (link, tag))""",
    ),
    (  # 4
        # W-26: until when its owner counts as running it; 0 = nobody runs it, -1 = its subscription was ended.
        "ALTER TABLE oncewire_owners ADD COLUMN lease BIGINT NOT NULL DEFAULT 0",
        # W-27: since when a message waits; NULL = an earlier version wrote it.
        "ALTER TABLE oncewire_outbox ADD COLUMN created BIGINT",
    ),
    (  # 5: W-28: 1 = it was sent to nobody, and waits for a subscription
        "ALTER TABLE oncewire_outbox ADD COLUMN released INTEGER NOT NULL DEFAULT 0",
    ),
)
