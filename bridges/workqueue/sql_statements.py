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

# W-23: whoever takes over raises the epoch; the container-id stays.
TAKE_OVER: Final = """
INSERT INTO oncewire_owners (name, container, epoch, incarnation, lease) VALUES (?, ?, 1, 0, ?)
ON CONFLICT (name) DO UPDATE SET epoch = oncewire_owners.epoch + 1, lease = excluded.lease RETURNING container, epoch"""
OWNER: Final = "SELECT epoch FROM oncewire_owners WHERE name = ? /*lock*/"
LEASE: Final = "SELECT lease FROM oncewire_owners WHERE name = ? /*lock*/"
PUT_LEASE: Final = "UPDATE oncewire_owners SET lease = ? WHERE name = ? AND epoch = ?"
INCARNATION: Final = "SELECT incarnation FROM oncewire_owners WHERE name = ?"
PUT_INCARNATION: Final = "UPDATE oncewire_owners SET incarnation = ? WHERE name = ?"

FEED_TAGS: Final = "SELECT tag, outcome FROM oncewire_feed_tags WHERE feed = ? ORDER BY place"
PUT_TAG: Final = """
INSERT INTO oncewire_feed_tags (feed, tag, outcome) VALUES (?, ?, ?)
ON CONFLICT (feed, tag) DO UPDATE SET outcome = excluded.outcome"""
DELETE_TAGS: Final = "DELETE FROM oncewire_feed_tags WHERE feed = ? AND tag IN (/*ids*/)"

# W-21: the row's lock makes the numbers of a topic follow the order of the commits, without holes.
ASSIGN: Final = """
INSERT INTO oncewire_outbox_topics (topic, assigned) VALUES (?, ?)
ON CONFLICT (topic) DO UPDATE SET assigned = oncewire_outbox_topics.assigned + excluded.assigned RETURNING assigned"""
COUNT_TOPICS: Final = "SELECT count(*) FROM oncewire_outbox_topics"
PUT_ROW: Final = "INSERT INTO oncewire_outbox (topic, number, payload, created) VALUES (?, ?, ?, ?)"
TOPICS_AT_WORK: Final = """
SELECT topic FROM oncewire_outbox_topics WHERE EXISTS (
    SELECT 1 FROM oncewire_outbox WHERE oncewire_outbox.topic = oncewire_outbox_topics.topic AND outcome IS NULL)
ORDER BY topic"""
# W-27: of each topic how many messages wait, since when the first one does, and how many ended unaccepted.
OUTBOX_NUMBERS: Final = """
SELECT topics.topic,
    (SELECT count(*) FROM (SELECT 1 FROM oncewire_outbox AS box
        WHERE box.outcome IS NULL AND box.topic = topics.topic LIMIT ?) AS part),
    (SELECT box.created FROM oncewire_outbox AS box
        WHERE box.outcome IS NULL AND box.created IS NOT NULL AND box.topic = topics.topic ORDER BY box.number LIMIT 1),
    (SELECT count(*) FROM (SELECT 1 FROM oncewire_outbox AS box
        WHERE box.outcome IS NOT NULL AND box.topic = topics.topic LIMIT ?) AS part)
FROM oncewire_outbox_topics AS topics ORDER BY topics.topic"""
LINK: Final = "SELECT next_number, exposed_before, session FROM oncewire_outbox_links WHERE topic = ?"
PUT_LINK: Final = """
INSERT INTO oncewire_outbox_links (topic, next_number, exposed_before, session) VALUES (?, ?, ?, ?)
ON CONFLICT (topic) DO UPDATE SET next_number = excluded.next_number, exposed_before = excluded.exposed_before,
session = excluded.session"""
SENT_ROWS: Final = """
SELECT number, payload FROM oncewire_outbox
WHERE outcome IS NULL AND released = 0 AND topic = ? AND number < ? ORDER BY number"""
# W-28: what was sent to nobody; the next session has sent nothing of it yet.
RELEASE_ROWS: Final = "UPDATE oncewire_outbox SET released = 1 WHERE topic = ? AND number IN (/*ids*/)"
HAS_RELEASED: Final = "SELECT 1 FROM oncewire_outbox WHERE outcome IS NULL AND released = 1 AND topic = ? LIMIT 1"
SEND_RELEASED: Final = "UPDATE oncewire_outbox SET released = 0 WHERE topic = ? AND outcome IS NULL AND released = 1"
BEGIN_ANEW: Final = """
UPDATE oncewire_outbox_links SET session = 0, exposed_before = (
    SELECT min(box.number) FROM oncewire_outbox AS box
    WHERE box.outcome IS NULL AND box.topic = oncewire_outbox_links.topic) WHERE topic = ?"""
NEXT_ROWS: Final = """
SELECT number, payload FROM oncewire_outbox WHERE outcome IS NULL AND topic = ? AND number >= ?
ORDER BY number LIMIT ?"""
DELETE_ROWS: Final = "DELETE FROM oncewire_outbox WHERE topic = ? AND number IN (/*ids*/)"
END_ROW: Final = "UPDATE oncewire_outbox SET outcome = ? WHERE topic = ? AND number = ?"
ENDED_ROWS: Final = """
SELECT topic, number, payload, outcome FROM oncewire_outbox WHERE outcome IS NOT NULL ORDER BY topic, number LIMIT ?"""
DELETE_ENDED: Final = """
DELETE FROM oncewire_outbox WHERE topic = ? AND number = ? AND outcome IS NOT NULL RETURNING payload"""

# AMQP links (W-17, W-18). The row of a link is locked by whoever pushes for it: a new generation waits for the push.
RAISE_LINK: Final = """
INSERT INTO oncewire_links (link, generation, expires) VALUES (?, 1, ?)
ON CONFLICT (link) DO UPDATE SET generation = oncewire_links.generation + 1, expires = excluded.expires
RETURNING generation"""
AMQP_LINK: Final = "SELECT generation, expires FROM oncewire_links WHERE link = ? /*lock*/"
RENEW_LINK: Final = "UPDATE oncewire_links SET expires = ? WHERE link = ?"
PURGE_LINKS: Final = """
DELETE FROM oncewire_links WHERE link IN (
    SELECT link FROM oncewire_links WHERE expires <= ? ORDER BY expires LIMIT ? /*skip locked*/) RETURNING link"""
FORGET_LINK: Final = "DELETE FROM oncewire_deliveries WHERE link = ?"
LINK_TAGS: Final = "SELECT tag FROM oncewire_deliveries WHERE link = ?"
DELIVERY: Final = "SELECT item FROM oncewire_deliveries WHERE link = ? AND tag = ?"
NOTE_DELIVERY: Final = "INSERT INTO oncewire_deliveries (link, tag, item) VALUES (?, ?, ?)"
FORGET_DELIVERY: Final = "DELETE FROM oncewire_deliveries WHERE link = ? AND tag = ?"
