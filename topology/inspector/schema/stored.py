"""Entities of an edge's store: its queues and journals. A router with the setting `queue_store` reads them there."""

from __future__ import annotations

from topology.inspector.schema.model import KEY, Attribute, Column, EntityType, Type, Unit, integer, rate, seconds, text

QUEUE = EntityType(
    "queue",
    "A [work queue](workqueue.md) of the store that the setting `queue_store` names. Counts stop at `count_limit` and "
    "then mean *or more*.",
    "its name",
    (
        KEY,
        text("queue", "Its name.", Column("queue", 0)),
        integer("depth", "Ready, waiting and reserved items.", Column("depth", 0)),
        integer("ready", "Items that a worker can reserve now.", Column("ready", 1)),
        integer("waiting", "Items that are delayed.", Column("waiting", 1)),
        integer("reserved", "Items that a worker holds.", Column("reserved", 1)),
        integer("dead", "Items in its history that ended dead.", Column("dead", 1)),
        seconds("oldest_s", "How long the oldest ready item has been ready.", Column("oldest", 1), is_nullable=True),
        seconds("next_s", "Until the first delayed item is ready.", Column("next", 2), is_nullable=True),
        integer("ended_last_minute", "Items that ended in the last minute.", Column("ended/min", 2)),
        integer("count_limit", "Where counts stop."),
    ),
    table="queues",
    is_stored=True,
)

JOURNAL = EntityType(
    "journal",
    "A [journal](journals.md) of the store that the setting `queue_store` names.",
    "its name",
    (
        KEY,
        text("journal", "Its name.", Column("journal", 0)),
        text("id", "Constant; a journal of that name that is made anew has another."),
        integer("first", "Position of the first message that is kept.", Column("first", 2)),
        integer("last", "Position of the last message; 0: there was none.", Column("last", 2)),
        integer("messages", "Messages that are kept.", Column("depth", 0)),
        integer("bytes", "What they take.", Column("bytes", 1, "Size"), Unit.BYTES),
        seconds("oldest_s", "Age of the oldest that is kept.", Column("oldest", 1), is_nullable=True),
        rate(
            "rate",
            "Messages appended in a second, in the last minute, as far as somebody looked; else null.",
            Column("rate", 1),
        ),
        text("owner", "The edge that receives for it, or did last; null: none has.", Column("owner", 1)),
        integer("reader_count", "Readers that keep their place.", Column("readers", 1)),
        integer("late_readers", "Those whose next message was trimmed.", Column("late", 1)),
        integer("reader_lag", "Unread messages of the slowest.", Column("lag", 0)),
        seconds("keep_s", "Older messages are trimmed; 0: none for its age."),
        integer("max_messages", "More are trimmed; 0: none for their number."),
        integer("max_bytes", "What it takes at most.", unit=Unit.BYTES),
        text("when_full", "What happens then: `refuse`, or `drop` the oldest."),
        Attribute(
            "compact_by", Type.TEXT, "`subject` or `group-id`: the last of each is kept; else null.", is_nullable=True
        ),
    ),
    table="journals",
    is_stored=True,
)
