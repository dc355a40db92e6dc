"""Tables and statements of journals. A message's row is named by one number: its journal's, and its position.

So appends of a journal go to one end of one tree, and a range of positions is a range of rows, in both databases.
"""

from __future__ import annotations

from typing import Final

POSITION_BITS: Final = 40
"""Positions of one journal: 10 to the 12th, a thousand years of a thousand messages a second."""
MAX_POSITION: Final = (1 << POSITION_BITS) - 1

MIGRATION: Final = (
    # J-17: `last`, `last_arrived` and the counts change under the lock of this row only.
    """CREATE TABLE oncewire_journals (
        id /*identity*/, name TEXT NOT NULL UNIQUE, uuid TEXT NOT NULL, last BIGINT NOT NULL, trimmed BIGINT NOT NULL,
        kept BIGINT NOT NULL, kept_bytes BIGINT NOT NULL, last_arrived BIGINT NOT NULL,
        keep_s DOUBLE PRECISION NOT NULL, max_messages BIGINT NOT NULL, max_bytes BIGINT NOT NULL,
        when_full TEXT NOT NULL, compact_by TEXT)""",
    """CREATE TABLE oncewire_journal_sources (
        id /*identity*/, journal BIGINT NOT NULL, topic TEXT NOT NULL, UNIQUE (journal, topic))""",
    """CREATE TABLE oncewire_journal_messages (
        entry /*whole*/ PRIMARY KEY, arrived BIGINT NOT NULL, source BIGINT NOT NULL, format BIGINT NOT NULL,
        payload /*bytes*/ NOT NULL)""",
    # J-26: where the last message of each key is.
    """CREATE TABLE oncewire_journal_keys (
        journal BIGINT NOT NULL, message_key TEXT NOT NULL, position BIGINT NOT NULL,
        PRIMARY KEY (journal, message_key))""",
    "CREATE INDEX oncewire_journal_keys_position ON oncewire_journal_keys (journal, position)",
    # J-21: `behind` has the positions behind `low` as JSON.
    """CREATE TABLE oncewire_journal_cursors (
        journal BIGINT NOT NULL, reader TEXT NOT NULL, generation BIGINT NOT NULL, low BIGINT NOT NULL,
        behind TEXT NOT NULL, expires BIGINT NOT NULL, PRIMARY KEY (journal, reader))""",
    "CREATE INDEX oncewire_journal_cursors_expires ON oncewire_journal_cursors (journal, expires)",
    # J-27: deleted journals whose messages are still to be deleted.
    "CREATE TABLE oncewire_journal_remains (journal BIGINT PRIMARY KEY)",
)

OWNERS_MIGRATION: Final = (
    # For operators: the edge that receives for a journal, or received last. Who may is in the table of owners (J-28).
    "CREATE TABLE oncewire_journal_owners (journal BIGINT PRIMARY KEY, edge TEXT NOT NULL)",
)

_STATE: Final = """id, name, uuid, last, trimmed, kept, kept_bytes, last_arrived, keep_s, max_messages, max_bytes,
when_full, compact_by"""
JOURNALS: Final = f"SELECT {_STATE} FROM oncewire_journals ORDER BY name"  # noqa: S608  # our own constant
JOURNAL: Final = f"SELECT {_STATE} FROM oncewire_journals WHERE name = ?"  # noqa: S608
LOCK_JOURNAL: Final = f"{JOURNAL} /*lock*/"
COUNT_JOURNALS: Final = "SELECT count(*) FROM oncewire_journals"
MAKE: Final = """
INSERT INTO oncewire_journals (name, uuid, last, trimmed, kept, kept_bytes, last_arrived, keep_s, max_messages,
max_bytes, when_full, compact_by) VALUES (?, ?, 0, 0, 0, 0, 0, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING"""
CONFIGURE: Final = """
UPDATE oncewire_journals SET keep_s = ?, max_messages = ?, max_bytes = ?, when_full = ?, compact_by = ?
WHERE name = ?"""
ADVANCE: Final = """
UPDATE oncewire_journals SET last = ?, kept = kept + ?, kept_bytes = kept_bytes + ?, last_arrived = ? WHERE id = ?"""
LEAVE: Final = "UPDATE oncewire_journals SET trimmed = ?, kept = ?, kept_bytes = ? WHERE id = ?"
RENEW: Final = "UPDATE oncewire_journals SET uuid = ? WHERE id = ?"
DELETE: Final = "DELETE FROM oncewire_journals WHERE id = ?"
ADD_REMAINS: Final = "INSERT INTO oncewire_journal_remains (journal) VALUES (?)"
REMAINS: Final = "SELECT journal FROM oncewire_journal_remains ORDER BY journal LIMIT 1"
NO_REMAINS: Final = "DELETE FROM oncewire_journal_remains WHERE journal = ?"
DELETE_PARTS: Final = (
    "DELETE FROM oncewire_journal_sources WHERE journal = ?",
    "DELETE FROM oncewire_journal_keys WHERE journal = ?",
    "DELETE FROM oncewire_journal_cursors WHERE journal = ?",
    "DELETE FROM oncewire_journal_owners WHERE journal = ?",
)
OWNER: Final = "SELECT edge FROM oncewire_journal_owners WHERE journal = ?"
PUT_OWNER: Final = """
INSERT INTO oncewire_journal_owners (journal, edge) VALUES (?, ?)
ON CONFLICT (journal) DO UPDATE SET edge = excluded.edge"""

SOURCE: Final = "SELECT id FROM oncewire_journal_sources WHERE journal = ? AND topic = ?"
ADD_SOURCE: Final = "INSERT INTO oncewire_journal_sources (journal, topic) VALUES (?, ?) RETURNING id"
SOURCES: Final = "SELECT id, topic FROM oncewire_journal_sources WHERE journal = ?"

APPEND: Final = "INSERT INTO oncewire_journal_messages (entry, arrived, source, format, payload) VALUES (?, ?, ?, ?, ?)"
READ: Final = """
SELECT entry, arrived, source, payload, format FROM oncewire_journal_messages WHERE entry > ? AND entry <= ?
ORDER BY entry LIMIT ?"""
COLUMNS: Final = """
SELECT arrived, source, payload FROM oncewire_journal_messages WHERE entry > ? AND entry <= ? ORDER BY entry"""
SUM: Final = """
SELECT coalesce(sum(length(payload)), 0) FROM oncewire_journal_messages WHERE entry > ? AND entry <= ?"""
SUM_OF_SOME: Final = """
SELECT count(*), coalesce(sum(size), 0), max(entry) FROM (
    SELECT entry, length(payload) AS size FROM oncewire_journal_messages WHERE entry > ? AND entry <= ?
    ORDER BY entry LIMIT ?) AS found"""
SIZES: Final = """
SELECT entry, arrived, length(payload) FROM oncewire_journal_messages WHERE entry > ? AND entry <= ?
ORDER BY entry LIMIT ?"""
DELETE_RANGE: Final = "DELETE FROM oncewire_journal_messages WHERE entry > ? AND entry <= ?"
SIZE_OF: Final = "SELECT length(payload) FROM oncewire_journal_messages WHERE entry = ?"
DELETE_ONE: Final = "DELETE FROM oncewire_journal_messages WHERE entry = ?"

KEY: Final = "SELECT position FROM oncewire_journal_keys WHERE journal = ? AND message_key = ?"
PUT_KEY: Final = """
INSERT INTO oncewire_journal_keys (journal, message_key, position) VALUES (?, ?, ?)
ON CONFLICT (journal, message_key) DO UPDATE SET position = excluded.position"""
FORGET_KEYS: Final = "DELETE FROM oncewire_journal_keys WHERE journal = ? AND position <= ?"

CURSOR: Final = """
SELECT generation, low, behind FROM oncewire_journal_cursors WHERE journal = ? AND reader = ? /*lock*/"""
CURSORS: Final = """
SELECT reader, generation, low, behind FROM oncewire_journal_cursors WHERE journal = ? ORDER BY reader"""
COUNT_CURSORS: Final = "SELECT count(*) FROM oncewire_journal_cursors WHERE journal = ?"
COUNT_CURSORS_OF: Final = """
SELECT count(*) FROM oncewire_journal_cursors WHERE journal = ? AND substr(reader, 1, ?) = ?"""
# J-23: counted by the row, because two attaches may find no cursor at the same time.
BEGIN_CURSOR: Final = """
INSERT INTO oncewire_journal_cursors (journal, reader, generation, low, behind, expires) VALUES (?, ?, 1, ?, ?, ?)
ON CONFLICT (journal, reader) DO UPDATE SET generation = oncewire_journal_cursors.generation + 1, low = excluded.low,
behind = excluded.behind, expires = excluded.expires RETURNING generation"""
PUT_CURSOR: Final = """
UPDATE oncewire_journal_cursors SET low = ?, behind = ?, expires = ? WHERE journal = ? AND reader = ?"""
DELETE_CURSOR: Final = "DELETE FROM oncewire_journal_cursors WHERE journal = ? AND reader = ?"
EXPIRE_CURSORS: Final = "DELETE FROM oncewire_journal_cursors WHERE journal = ? AND expires < ?"
