"""The tables that every store has: owners, maps of subscriptions, the outbox, links."""

from __future__ import annotations

from typing import Final

from oncewire.store.migrations import Feature

BASE: Final = Feature(
    "store",
    (
        (  # 1: from topic to topic
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
        (  # 2: tags of pushes over AMQP (W-17), generations of their links (W-18)
            "CREATE TABLE oncewire_links (link TEXT PRIMARY KEY, generation BIGINT NOT NULL, expires BIGINT NOT NULL)",
            "CREATE INDEX oncewire_links_expires ON oncewire_links (expires)",
            """CREATE TABLE oncewire_deliveries (
                link TEXT NOT NULL, tag /*bytes*/ NOT NULL, item BIGINT NOT NULL, PRIMARY KEY (link, tag))""",
        ),
        (  # 3
            # W-26: until when its owner counts as running it; 0 = nobody runs it, -1 = its subscription was ended.
            "ALTER TABLE oncewire_owners ADD COLUMN lease BIGINT NOT NULL DEFAULT 0",
            # W-27: since when a message waits; NULL = an earlier version wrote it.
            "ALTER TABLE oncewire_outbox ADD COLUMN created BIGINT",
        ),
        (  # 4: W-28: 1 = it was sent to nobody, and waits for a subscription
            "ALTER TABLE oncewire_outbox ADD COLUMN released INTEGER NOT NULL DEFAULT 0",
        ),
        (  # 5: a row of a map has many deliveries (feed_map_core.py)
            "ALTER TABLE oncewire_feed_tags ADD COLUMN run BIGINT NOT NULL DEFAULT 1",
            "ALTER TABLE oncewire_feed_tags ADD COLUMN rest TEXT",
        ),
        (  # 6: D-3: ids of messages that a feed is done with, the newest last
            """CREATE TABLE oncewire_feed_ids (
                place /*identity*/, feed TEXT NOT NULL, publisher TEXT NOT NULL, digest /*bytes*/ NOT NULL,
                rejected INTEGER NOT NULL, UNIQUE (feed, publisher, digest))""",
            "CREATE INDEX oncewire_feed_ids_place ON oncewire_feed_ids (feed, place)",
        ),
    ),
)
