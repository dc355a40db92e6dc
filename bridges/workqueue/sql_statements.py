"""The statements of the SQL stores. Each seeks in an index of sql_schema.py; tests/workqueue/test_plans.py looks."""

from __future__ import annotations

from typing import Final

QUEUE: Final = """
SELECT max_retries, backoff_s, backoff_max_s, history_s, max_payload_bytes FROM oncewire_queues WHERE name = ?"""
# PostgreSQL: the server's time and the settings of several queues; one row without a name where none is known.
CLOCK_AND_QUEUES: Final = """
SELECT extract(epoch FROM clock_timestamp()), name, max_retries, backoff_s, backoff_max_s, history_s, max_payload_bytes
FROM (VALUES (1)) AS one LEFT JOIN oncewire_queues ON name = ANY(?)"""
PUT_QUEUE: Final = """
INSERT INTO oncewire_queues (name, max_retries, backoff_s, backoff_max_s, history_s, max_payload_bytes)
VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET max_retries = excluded.max_retries,
backoff_s = excluded.backoff_s, backoff_max_s = excluded.backoff_max_s, history_s = excluded.history_s,
max_payload_bytes = excluded.max_payload_bytes"""
QUEUES: Final = "SELECT name FROM oncewire_queues ORDER BY name"

ITEM_ROW: Final = "(?, ?, ?, ?, ?, ?, ?)"
INSERT_ITEM: Final = f"""
INSERT INTO oncewire_items (queue, priority, due, created, payload, item_key, schedule)
VALUES {ITEM_ROW} RETURNING id"""  # noqa: S608  # our own constant
# W-11: a new key, or one whose time has passed; no row = the key is known.
CLAIM_KEY: Final = """
INSERT INTO oncewire_keys (queue, item_key, item, expires) VALUES (?, ?, 0, NULL)
ON CONFLICT (queue, item_key) DO UPDATE SET item = 0, expires = NULL WHERE oncewire_keys.expires <= ?
RETURNING item"""
NAME_KEY: Final = "UPDATE oncewire_keys SET item = ?, expires = NULL WHERE queue = ? AND item_key = ?"
KEY: Final = "SELECT item FROM oncewire_keys WHERE queue = ? AND item_key = ?"
EXPIRE_KEYS: Final = "UPDATE oncewire_keys SET expires = ? WHERE item IN (/*ids*/)"

# The priorities in use, highest first: one seek each, whatever the number of items (W-2, W-3).
LEVEL: Final = """level (p) AS (
    SELECT (SELECT priority FROM oncewire_items WHERE queue = ? ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT priority FROM oncewire_items WHERE queue = ? AND priority < level.p ORDER BY priority DESC LIMIT 1)
    FROM level WHERE level.p IS NOT NULL
)"""
LEVELS: Final = f"WITH RECURSIVE {LEVEL} SELECT p FROM level WHERE p IS NOT NULL"  # noqa: S608
ITEM_COLUMNS: Final = (
    "id, queue, priority, due, reserved, reservation, retries, created, payload, item_key, schedule, reason"
)
READY: Final = f"""
SELECT {ITEM_COLUMNS} FROM oncewire_items WHERE queue = ? AND priority = ? AND due <= ?
ORDER BY due, id LIMIT ? /*skip locked*/"""  # noqa: S608  # our own constant
RESERVE: Final = """
UPDATE oncewire_items SET retries = retries + reserved, reserved = 1, reservation = reservation + 1, due = ?,
schedule = NULL WHERE id IN (/*ids*/)"""
# PostgreSQL: the time that is given, or that of the statement.
CLOCK: Final = """clock (now) AS (
    SELECT coalesce(CAST(? AS BIGINT), CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS BIGINT))
)"""
# PostgreSQL: both in one, over all priorities. The levels come in their order, and the outer limit ends the search.
# Returns the rows as they were, and the new due time. An array of ids: with a join the server may read the whole table.
RESERVE_AHEAD: Final = f"""
WITH RECURSIVE {LEVEL}, {CLOCK}, ready AS (
    SELECT part.* FROM level CROSS JOIN LATERAL (
        SELECT {ITEM_COLUMNS} FROM oncewire_items
        WHERE queue = ? AND priority = level.p AND due <= (SELECT now FROM clock)
        ORDER BY due, id LIMIT (SELECT CAST(? AS BIGINT)) /*skip locked*/) AS part
    WHERE level.p IS NOT NULL LIMIT (SELECT CAST(? AS BIGINT))
), reserved AS (
    {RESERVE.replace("?", "(SELECT now FROM clock) + ?").replace("IN (/*ids*/)", "= ANY(ARRAY(SELECT id FROM ready))")}
    RETURNING due
) SELECT ready.*, (SELECT max(due) FROM reserved) FROM ready"""  # noqa: S608
NEXT_OF_LEVEL: Final = "SELECT min(due) FROM oncewire_items WHERE queue = ? AND priority = ?"
ITEMS: Final = f"SELECT {ITEM_COLUMNS} FROM oncewire_items WHERE id IN (/*ids*/) ORDER BY id /*lock*/"  # noqa: S608
EXTEND: Final = "UPDATE oncewire_items SET due = ? WHERE id IN (/*ids*/)"
GIVE_BACK: Final = "UPDATE oncewire_items SET due = ?, reserved = 0, retries = ?, reason = ? WHERE id = ?"
MOVE: Final = """
UPDATE oncewire_items SET queue = ?, due = ?, priority = ?, payload = ?, retries = 0, reserved = 0, reason = ''
WHERE id = ?"""
DELETE_ITEMS: Final = "DELETE FROM oncewire_items WHERE id IN (/*ids*/)"

INSERT_HISTORY: Final = """
INSERT INTO oncewire_history (item, queue, ending, created, ended, expires, retries, reservation, priority, payload,
result, reason, targets, item_key) VALUES """
# PostgreSQL: commits items whose handles hold them (W-5), with results and new payloads of some. The payloads of the
# others stay on the server.
COMMIT_AHEAD: Final = f"""
WITH {CLOCK}, gone AS (
    DELETE FROM oncewire_items WHERE id = ANY(CAST(? AS BIGINT[])) AND reserved = 1
    AND reservation = (CAST(? AS BIGINT[]))[array_position(CAST(? AS BIGINT[]), id)] RETURNING {ITEM_COLUMNS}
), noted AS (
    {INSERT_HISTORY.replace("VALUES", "")}
    SELECT id, queue, 'done', created, now, now + CAST(history_s * 1000000 AS BIGINT), retries, reservation, priority,
    coalesce(changed.payload, gone.payload), result, reason, '[]', item_key
    FROM clock CROSS JOIN gone JOIN oncewire_queues ON name = queue
    LEFT JOIN unnest(CAST(? AS BIGINT[]), CAST(? AS BYTEA[]), CAST(? AS BYTEA[])) AS changed (item, result, payload)
    ON item = id WHERE history_s > 0
) SELECT {ITEM_COLUMNS.replace("payload", "CAST('' AS BYTEA)")} FROM gone"""  # noqa: S608
HISTORY_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
ENTRY_COLUMNS: Final = (
    "entry, item, queue, ending, created, ended, retries, reservation, priority, payload, result, reason, targets"
)
# "dead" stands in the statement, so that the index of dead letters is used.
HISTORY: Final = f"""
SELECT {ENTRY_COLUMNS} FROM oncewire_history WHERE queue = ? AND ended >= ? AND (ended, entry) < (?, ?)
AND (expires IS NULL OR expires > ?) ORDER BY ended DESC, entry DESC LIMIT ?"""  # noqa: S608
DEAD: Final = HISTORY.replace("WHERE queue", "WHERE ending = 'dead' AND queue")
ENTRY: Final = f"""
SELECT {ENTRY_COLUMNS}, item_key FROM oncewire_history WHERE entry IN (/*ids*/)
AND (expires IS NULL OR expires > ?) ORDER BY entry /*lock*/"""  # noqa: S608
ENDINGS: Final = "SELECT ending FROM oncewire_history WHERE item = ? AND reservation = ?"
MOVED_TO: Final = "SELECT targets FROM oncewire_history WHERE item = ? AND reservation = ? AND ending = 'moved'"
NO_LONGER_DEAD: Final = "UPDATE oncewire_history SET ending = ?, expires = ? WHERE entry IN (/*ids*/)"
PURGE_HISTORY: Final = """
DELETE FROM oncewire_history WHERE entry IN (
    SELECT entry FROM oncewire_history WHERE expires <= ? ORDER BY expires LIMIT ? /*skip locked*/)"""
PURGE_KEYS: Final = """
DELETE FROM oncewire_keys WHERE (queue, item_key) IN (
    SELECT queue, item_key FROM oncewire_keys WHERE expires <= ? ORDER BY expires LIMIT ? /*skip locked*/)"""

SCHEDULE_COLUMNS: Final = "name, queue, cron, timezone, payload, priority, next_at"
SCHEDULE: Final = f"SELECT {SCHEDULE_COLUMNS}, item FROM oncewire_schedules WHERE name = ? /*lock*/"  # noqa: S608
SCHEDULES: Final = f"SELECT {SCHEDULE_COLUMNS} FROM oncewire_schedules WHERE queue = ? ORDER BY name"  # noqa: S608
PUT_SCHEDULE: Final = """
INSERT INTO oncewire_schedules (name, queue, cron, timezone, payload, priority, item, next_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, cron = excluded.cron,
timezone = excluded.timezone, payload = excluded.payload, priority = excluded.priority, item = excluded.item,
next_at = excluded.next_at"""
DELETE_SCHEDULE: Final = "DELETE FROM oncewire_schedules WHERE name = ?"
# W-12: an instance that was taken meanwhile belongs to its worker.
DELETE_INSTANCE: Final = "DELETE FROM oncewire_items WHERE id = ? AND schedule = ?"

# Counting stops at a limit: its cost does not grow with the queue.
COUNT_READY: Final = """
SELECT count(*) FROM (SELECT 1 FROM oncewire_items WHERE queue = ? AND priority = ? AND due <= ? LIMIT ?) AS part"""
COUNT_LATER: Final = """
SELECT count(*) FROM (SELECT 1 FROM oncewire_items WHERE queue = ? AND priority = ? AND due > ? LIMIT ?) AS part"""
COUNT_RESERVED: Final = """
SELECT count(*) FROM (SELECT 1 FROM oncewire_items WHERE reserved = 1 AND queue = ? AND due > ? LIMIT ?) AS part"""
COUNT_ENDED: Final = """
SELECT count(*) FROM (SELECT 1 FROM oncewire_history WHERE queue = ? AND ended >= ? LIMIT ?) AS part"""
COUNT_DEAD: Final = """
SELECT count(*) FROM (SELECT 1 FROM oncewire_history WHERE ending = 'dead' AND queue = ? LIMIT ?) AS part"""
NEXT_AFTER: Final = "SELECT min(due) FROM oncewire_items WHERE queue = ? AND priority = ? AND due > ?"
