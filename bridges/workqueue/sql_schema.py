"""The tables of work queues."""

from __future__ import annotations

from typing import Final

from oncewire.store.migrations import Feature

QUEUES: Final = Feature(
    "queues",
    (
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
                payload /*bytes*/ NOT NULL, priority INTEGER NOT NULL, item BIGINT NOT NULL,
                next_at BIGINT NOT NULL)""",
            "CREATE INDEX oncewire_schedules_queue ON oncewire_schedules (queue, name)",
        ),
    ),
)
