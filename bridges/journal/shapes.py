"""Journals, messages and cursors in words and numbers: what `oncewire journal` prints, and HTTP answers."""

from __future__ import annotations

from typing import Any

from bridges.journal import log
from bridges.journal.model import Cursor, JournalState, Start, StoredMessage
from bridges.workqueue.cli_shapes import iso, payload_words
from oncewire.store.rules_core import to_s
from oncewire.store.store import Transaction
from oncewire.wire import DecodeError, decode_message
from oncewire.wire.json_values import body_octets


def journal_words(found: JournalState, oldest_s: float | None) -> dict[str, Any]:
    """A journal in numbers."""
    settings = found.settings
    return {
        "journal": found.name,
        "id": found.uuid,
        "first": found.trimmed + 1,
        "last": found.last,
        "messages": found.kept,
        "bytes": found.kept_bytes,
        "oldest_s": oldest_s,
        "keep_s": settings.keep_s,
        "max_messages": settings.max_messages,
        "max_bytes": settings.max_bytes,
        "when_full": settings.when_full.value,
        "compact_by": None if settings.compact_by is None else settings.compact_by.value,
    }


def message_words(message: StoredMessage) -> dict[str, Any]:
    """A message, and where it stands."""
    octets, subject = body_of(message)
    return {
        "position": message.position,
        "stored_at": iso(to_s(message.arrived_us)),
        "topic": message.source,
        "subject": subject,
        **payload_words(octets),
    }


def body_of(message: StoredMessage) -> tuple[bytes, str | None]:
    """The body as bytes, and the subject; of what is no AMQP message all that came."""
    if not message.message_format:
        try:
            decoded = decode_message(message.payload)
            return body_octets(decoded.body), None if decoded.properties is None else decoded.properties.subject
        except DecodeError:
            pass
    return message.payload, None


def reader_words(found: JournalState, reader: str, cursor: Cursor) -> dict[str, Any]:
    """A cursor in numbers."""
    return {
        "reader": reader,
        "next": cursor.low + 1,
        "unread": found.last - max(cursor.low, found.trimmed) - len(cursor.behind),
        "read_ahead": len(cursor.behind),
        "is_late": cursor.low < found.trimmed,
    }


def before(do: Transaction, found: JournalState, start: Start) -> int:
    """The position before a start, which may have been trimmed."""
    return start - 1 if isinstance(start, int) and start <= found.trimmed else log.resolve(do, found, start)
