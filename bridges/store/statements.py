"""The statements of maps, the outbox and links. Each seeks in an index of tables.py."""

from __future__ import annotations

from typing import Final

INCARNATION: Final = "SELECT incarnation FROM oncewire_owners WHERE name = ?"
PUT_INCARNATION: Final = "UPDATE oncewire_owners SET incarnation = ? WHERE name = ?"

FEED_TAGS: Final = "SELECT tag, run, outcome, rest FROM oncewire_feed_tags WHERE feed = ? ORDER BY place"
PUT_TAGS: Final = "INSERT INTO oncewire_feed_tags (feed, tag, run, outcome, rest) VALUES (?, ?, ?, ?, ?)"
CHANGE_TAGS: Final = """
UPDATE oncewire_feed_tags SET tag = ?, run = ?, outcome = ?, rest = ? WHERE feed = ? AND tag = ?"""
DELETE_TAGS: Final = "DELETE FROM oncewire_feed_tags WHERE feed = ? AND tag = ?"

FEED_IDS: Final = "SELECT publisher, digest, rejected FROM oncewire_feed_ids WHERE feed = ? ORDER BY place"
PUT_ID: Final = "INSERT INTO oncewire_feed_ids (feed, publisher, digest, rejected) VALUES (?, ?, ?, ?)"
DELETE_ID: Final = "DELETE FROM oncewire_feed_ids WHERE feed = ? AND publisher = ? AND digest = ?"

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
COUNT_LINKS: Final = "SELECT count(*) FROM (SELECT link FROM oncewire_links LIMIT ?) AS found"
AMQP_LINK: Final = "SELECT generation, expires FROM oncewire_links WHERE link = ? /*lock*/"
RENEW_LINK: Final = "UPDATE oncewire_links SET expires = ? WHERE link = ?"
PURGE_LINKS: Final = """
DELETE FROM oncewire_links WHERE link IN (
    SELECT link FROM oncewire_links WHERE expires <= ? ORDER BY expires LIMIT ? /*skip locked*/) RETURNING link"""
FORGET_TAGS_OF: Final = "DELETE FROM oncewire_deliveries WHERE link = ?"
LINK_TAGS: Final = "SELECT tag FROM oncewire_deliveries WHERE link = ?"
DELIVERIES: Final = "SELECT tag, item FROM oncewire_deliveries WHERE link = ? AND tag IN (/*tags*/)"
NOTE_DELIVERY: Final = "INSERT INTO oncewire_deliveries (link, tag, item) VALUES (?, ?, ?)"
FORGET_DELIVERY: Final = "DELETE FROM oncewire_deliveries WHERE link = ? AND tag = ?"
