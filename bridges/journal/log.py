"""A journal in a transaction of the edge's store: make it, append, read, trim, delete (J-16, J-17, J-24 to J-27).

Each function is part of the caller's transaction, whose other parts may be anything else of the store: the map of the
subscription that brought the messages (J-16), the tag of a direct sender (J-18), items of a queue. What takes long is
done in portions, one for each transaction, because all who write wait for it.

The row of the journal is locked first and has all that an append needs to know, so an append costs the same for any
length of the journal. A range of positions is a range of rows (schema.py), so reading costs what is read.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from bridges.journal import schema as sql
from bridges.journal.errors import JournalFull, ahead, trimmed, unknown_journal
from bridges.journal.model import (
    MAX_JOURNALS,
    ROW_BYTES,
    Appended,
    AtTime,
    JournalSettings,
    JournalState,
    KeyOf,
    Place,
    Start,
    StoredMessage,
    WhenFull,
)
from oncewire.store.errors import InvalidRequest
from oncewire.store.rules_core import check_name, check_seconds, to_s, to_us
from oncewire.store.store import Row, Transaction

PORTION = 2_000
"""Messages deleted in one transaction: those who write wait for it, so it must be short."""
ALL = 1 << 62
"""Bytes: more than any journal has."""
SUMMED_AT_ONCE = 8_192
"""Sizes that are added in one statement."""


def notice_of(name: str) -> str:
    """What is announced when a journal has changed (W-13); no queue can have this name."""
    return f" journal {name}"


def _state(row: Row) -> JournalState:
    number, name, uuid, last, gone, kept, kept_bytes, arrived, keep_s, most, most_bytes, when_full, compact_by = row
    settings = JournalSettings(
        keep_s, most, most_bytes, WhenFull(when_full), None if compact_by is None else KeyOf(compact_by)
    )
    return JournalState(number, name, uuid, last, gone, kept, kept_bytes, arrived, settings)


def _entry(journal: JournalState, position: int) -> int:
    return (journal.number << sql.POSITION_BITS) + position


# --- journals -----------------------------------------------------------------------------------------------------


def check_settings(settings: JournalSettings) -> None:
    """Check what a journal is to keep.

    Raises:
        InvalidRequest: a limit is negative, or there is room for nothing.
    """
    check_seconds("keep", settings.keep_s)
    if settings.max_messages < 0 or settings.max_bytes <= 0:
        raise InvalidRequest(
            "the journal cannot have these settings",
            f"max_messages is {settings.max_messages} and max_bytes {settings.max_bytes}",
            "give max_messages of 0 (no limit) or more, and max_bytes of 1 or more",
        )


def configure(do: Transaction, name: str, settings: JournalSettings) -> JournalState:
    """Make a journal, or change what it keeps; what is too much is trimmed soon.

    Raises:
        InvalidRequest: name or settings cannot be, there are too many journals, or it is compacted and was not, or the
            other way round.
    """
    check_name("journal", name)
    check_settings(settings)
    known = find(do, name)
    columns = (settings.keep_s, settings.max_messages, settings.max_bytes, settings.when_full.value)
    key = None if settings.compact_by is None else settings.compact_by.value
    if known is None:
        if do.execute(sql.COUNT_JOURNALS)[0][0] >= MAX_JOURNALS:
            why = f"a store has {MAX_JOURNALS} journals at most"
            raise InvalidRequest(f"the journal {name!r} cannot be made", why, "delete one, or use another store")
        do.execute(sql.MAKE, (name, secrets.token_hex(8), *columns, key))
    elif known.settings.compact_by is not settings.compact_by and known.last:
        raise InvalidRequest(
            f"the journal {name!r} cannot be changed",
            "compact_by is decided before its first message",
            "make another journal, and copy what is needed",
        )
    else:
        do.execute(sql.CONFIGURE, (*columns, key, name))
    return state(do, name)


def find(do: Transaction, name: str) -> JournalState | None:
    """Return where a journal stands; None = there is none."""
    rows = do.execute(sql.JOURNAL, (name,))
    return _state(rows[0]) if rows else None


def state(do: Transaction, name: str) -> JournalState:
    """Return where a journal stands.

    Raises:
        UnknownJournal: there is none.
    """
    found = find(do, name)
    if found is None:
        raise unknown_journal(name)
    return found


def journals(do: Transaction) -> list[JournalState]:
    """Return all journals, by name."""
    return [_state(row) for row in do.execute(sql.JOURNALS)]


def note_owner(do: Transaction, name: str, edge: str) -> None:
    """Note for operators which edge receives for a journal; it writes only where another one did.

    Raises:
        UnknownJournal: there is none.
    """
    found = state(do, name)
    if owner(do, found) != edge:
        do.execute(sql.PUT_OWNER, (found.number, edge))


def owner(do: Transaction, found: JournalState) -> str | None:
    """Return the edge that receives for a journal, or received last; None = none has."""
    rows = do.execute(sql.OWNER, (found.number,))
    return str(rows[0][0]) if rows else None


def renew(do: Transaction) -> list[JournalState]:
    """Give each journal of a store that was restored from a backup another identity, and return them (J-17).

    Positions behind the backup were given to messages before, and are given to others from now on.
    """
    found = journals(do)
    for each in found:
        do.execute(sql.RENEW, (secrets.token_hex(8), each.number))
        do.touched.add(notice_of(each.name))
    return [state(do, each.name) for each in found]


def delete(do: Transaction, name: str) -> None:
    """Delete a journal with its cursors (J-27); its messages follow in portions, see `maintain`.

    Raises:
        UnknownJournal: there is none.
    """
    found = _locked(do, name)
    for statement in sql.DELETE_PARTS:
        do.execute(statement, (found.number,))
    do.execute(sql.DELETE, (found.number,))
    do.execute(sql.ADD_REMAINS, (found.number,))
    do.touched.add(notice_of(name))


def _locked(do: Transaction, name: str) -> JournalState:
    rows = do.execute(sql.LOCK_JOURNAL, (name,))
    if not rows:
        raise unknown_journal(name)
    return _state(rows[0])


# --- appending ----------------------------------------------------------------------------------------------------


def append(do: Transaction, name: str, messages: Sequence[Appended], source: str = "") -> range:
    """Append messages in their order, all or none (J-16, J-17).

    Args:
        do: the transaction.
        name: of the journal.
        messages: to append.
        source: the topic or pattern that brought them; empty = a direct sender.

    Returns:
        Their positions.

    Raises:
        UnknownJournal: there is none.
        JournalFull: they have no room, and the journal refuses (J-25).
        StoreFull: the store has none.
    """
    do.check_room()
    found = _locked(do, name)
    size = _size(messages)
    if found.kept_bytes + size > found.settings.max_bytes:
        found = _make_room(do, found, size)
    number = 0 if not source else source_number(do, found, source)
    return append_to(do, found, messages, number)[0]


def append_to(
    do: Transaction, found: JournalState, messages: Sequence[Appended], number: int
) -> tuple[range, JournalState]:
    """Append messages of a source, by its number, to a journal that has room (J-16, J-17).

    Args:
        do: the transaction. It has locked the journal's row, or nobody else ever appends to the journal.
        found: where the journal stands; others may have trimmed it since.
        messages: to append.
        number: of the source.

    Returns:
        Their positions, and the journal as the caller may pass it the next time.
    """
    now_us = max(to_us(do.now), found.last_arrived_us)
    first = found.last + 1
    base = _entry(found, first)
    do.write_many(
        sql.APPEND,
        [
            (base + index, now_us, number, message.message_format, message.payload)
            for index, message in enumerate(messages)
        ],
    )
    positions = range(first, first + len(messages))
    kept, kept_bytes = len(messages), _size(messages)
    if found.settings.compact_by is not None:
        gone, gone_bytes = _replace(do, found, messages, positions)
        kept, kept_bytes = kept - gone, kept_bytes - gone_bytes
    last = positions[-1] if messages else found.last
    do.execute(sql.ADVANCE, (last, kept, kept_bytes, now_us, found.number))
    do.touched.add(notice_of(found.name))
    return positions, replace(found, last=last, last_arrived_us=now_us)


def _size(messages: Sequence[Appended]) -> int:
    return sum(len(message.payload) for message in messages) + ROW_BYTES * len(messages)


def _make_room(do: Transaction, found: JournalState, size: int) -> JournalState:
    """J-25: refuse, or let the oldest go."""
    settings = found.settings
    if settings.when_full is WhenFull.REFUSE or size > settings.max_bytes:
        raise JournalFull(
            f"nothing more was appended to journal {found.name!r}",
            f"it has {found.kept_bytes} of {settings.max_bytes} bytes, and {size} more are too many",
            "trim it, raise its max_bytes, or let it drop the oldest with when_full",
        )
    while found.kept_bytes + size > settings.max_bytes and found.kept:
        found = _trim_to(do, found, _oldest(do, found, size=found.kept_bytes + size - settings.max_bytes))
    return found


def _oldest(do: Transaction, found: JournalState, count: int = PORTION, size: int = ALL) -> int:
    """The position up to which the oldest messages are a portion, at most so many and so large, or one."""
    if size == ALL and found.settings.compact_by is None:  # no position is left out
        return min(found.trimmed + min(count, PORTION), found.last)
    return end_within(do, found, found.trimmed, found.last, min(count, PORTION), size)


def source_number(do: Transaction, found: JournalState, topic: str) -> int:
    """Return the number of what brings messages; one that is new gets one."""
    rows = do.execute(sql.SOURCE, (found.number, topic)) or do.execute(sql.ADD_SOURCE, (found.number, topic))
    return int(rows[0][0])


def _replace(do: Transaction, found: JournalState, messages: Sequence[Appended], positions: range) -> tuple[int, int]:
    """J-26: delete what is replaced; returns how many messages and bytes."""
    gone = gone_bytes = 0
    for message, position in zip(messages, positions, strict=True):
        if message.key is None:
            continue
        for (before,) in do.execute(sql.KEY, (found.number, message.key)):
            ((length,),) = do.execute(sql.SIZE_OF, (_entry(found, before),))
            do.execute(sql.DELETE_ONE, (_entry(found, before),))
            gone, gone_bytes = gone + 1, gone_bytes + length + ROW_BYTES
        do.execute(sql.PUT_KEY, (found.number, message.key, position))
    return gone, gone_bytes


# --- reading ------------------------------------------------------------------------------------------------------


def resolve(do: Transaction, found: JournalState, start: Start) -> int:
    """Return the position behind which a reader starts (J-19).

    Raises:
        PositionTrimmed, PositionAhead: nobody can start there.
    """
    if isinstance(start, AtTime):
        return before_time(do, found, start.us)
    if start is Place.FIRST:
        return found.trimmed
    if start is Place.NEXT:
        return found.last
    if start is Place.LAST:
        return max(found.last - 1, found.trimmed)
    if start <= found.trimmed:
        raise trimmed(found.name, start, found.trimmed + 1, found.last + 1)
    if start > found.last + 1:
        raise ahead(found.name, start, found.last + 1)
    return start - 1


def first_kept(do: Transaction, found: JournalState, after: int) -> int:
    """Return the first position behind another one that has a message, or will have one: a compacted one has holes."""
    rows = do.execute(sql.SIZES, (_entry(found, after), _entry(found, found.last), 1))
    return int(rows[0][0]) & sql.MAX_POSITION if rows else found.last + 1


def before_time(do: Transaction, found: JournalState, us: int) -> int:
    """Return the newest position that is older than a time.

    Times rise with positions (J-17), so each look halves the rest.
    """
    low, high = found.trimmed, found.last
    while low < high:
        middle = (low + high) // 2
        rows = do.execute(sql.SIZES, (_entry(found, middle), _entry(found, high), 1))
        if not rows or rows[0][1] >= us:
            high = middle
        else:
            low = rows[0][0] & sql.MAX_POSITION
    return low


def read(
    do: Transaction, name: str, after: int, count: int, max_bytes: int
) -> tuple[JournalState, list[StoredMessage]]:
    """Return messages behind a position, at most so many, and at least one where there is one.

    Args:
        do: the transaction.
        name: of the journal.
        after: the position before the first one.
        count: messages at most.
        max_bytes: at most, of payloads and `ROW_BYTES` for each; a larger message comes alone.

    Raises:
        UnknownJournal: there is none.
        PositionTrimmed: the first one was trimmed (J-24).
    """
    found = state(do, name)
    if after < found.trimmed:
        raise trimmed(name, after + 1, found.trimmed + 1, found.last + 1)
    sources = topics(do, found)
    end = end_within(do, found, after, found.last, count, max_bytes)
    rows = do.execute(sql.READ, (_entry(found, after), _entry(found, end), count))
    messages = [
        StoredMessage(entry & sql.MAX_POSITION, arrived, sources.get(source, ""), bytes(payload), message_format)
        for entry, arrived, source, payload, message_format in rows
    ]
    return found, messages


def topics(do: Transaction, found: JournalState) -> dict[int, str]:
    """Return what has brought messages, by number."""
    return dict(do.execute(sql.SOURCES, (found.number,)))


def end_within(do: Transaction, found: JournalState, after: int, stop: int, count: int, max_bytes: int) -> int:
    """Return the position up to which the messages behind another one are at most so many, and take at most so much.

    Args:
        do: the transaction.
        found: the journal.
        after: the position before the first one.
        stop: the newest position that may be in it.
        count: messages at most.
        max_bytes: of payloads and `ROW_BYTES` for each; a larger message comes alone.
    """
    end, left = after, max_bytes
    while count > 0 and end < stop:
        most = min(count, SUMMED_AT_ONCE)
        rows, size, newest = _sum(do, found, end, stop, most)
        if not rows:
            break
        if size > left:
            for entry, _, length in do.execute(sql.SIZES, (_entry(found, end), _entry(found, newest), most)):
                left -= length + ROW_BYTES
                if left < 0 and end > after:
                    break
                end = entry & sql.MAX_POSITION
            break
        end, left, count = newest, left - size, count - rows
    return end


def _sum(do: Transaction, found: JournalState, after: int, stop: int, count: int) -> tuple[int, int, int]:
    """Of so many messages behind a position at most: how many there are, what they take, and the newest position."""
    if found.settings.compact_by is None:  # no position is left out
        newest = min(after + count, stop)
        ((size,),) = do.execute(sql.SUM, (_entry(found, after), _entry(found, newest)))
        rows = newest - after
    else:
        ((rows, size, entry),) = do.execute(sql.SUM_OF_SOME, (_entry(found, after), _entry(found, stop), count))
        newest = entry & sql.MAX_POSITION if rows else after
    return rows, int(size) + rows * ROW_BYTES, newest


def columns(do: Transaction, found: JournalState, after: int, end: int) -> list[Row]:
    """Return the messages behind a position up to another one: time of arrival, number of the source, payload."""
    return do.execute(sql.COLUMNS, (_entry(found, after), _entry(found, end)))


# --- retention ----------------------------------------------------------------------------------------------------


def trim(do: Transaction, name: str, position: int) -> JournalState:
    """Trim up to a position, at most a portion (J-24); the reply's `trimmed` says how far.

    Raises:
        UnknownJournal: there is none.
        PositionAhead: there is no such position yet.
    """
    found = _locked(do, name)
    if position > found.last:
        raise ahead(name, position, found.last + 1)
    return _trim_to(do, found, min(position, _oldest(do, found)))


def maintain(do: Transaction, name: str) -> bool:
    """Trim what the settings do not keep (J-24), at most a portion; whether there may be more.

    Raises:
        UnknownJournal: there is none.
    """
    found = _locked(do, name)
    settings = found.settings
    end = found.trimmed
    most = settings.max_messages or found.kept
    if found.kept > most:
        end = _oldest(do, found, found.kept - most)
    if settings.keep_s:
        end = max(end, before_time(do, found, to_us(do.now - settings.keep_s)))
    if end <= found.trimmed:
        return False
    found = _trim_to(do, found, min(end, _oldest(do, found)))
    return found.trimmed < end or found.kept > most


def clear_remains(do: Transaction) -> bool:
    """Delete a portion of the messages of deleted journals (J-27); whether there may be more."""
    rows = do.execute(sql.REMAINS)
    if not rows:
        return False
    low = rows[0][0] << sql.POSITION_BITS
    found = do.execute(sql.SIZES, (low, low + sql.MAX_POSITION, PORTION))
    if found:
        do.execute(sql.DELETE_RANGE, (low, found[-1][0]))
    else:
        do.execute(sql.NO_REMAINS, (rows[0][0],))
    return True


def _trim_to(do: Transaction, found: JournalState, position: int) -> JournalState:
    if position <= found.trimmed:
        return found
    gone, size, _ = _sum(do, found, found.trimmed, position, PORTION)
    do.execute(sql.DELETE_RANGE, (_entry(found, found.trimmed), _entry(found, position)))
    if found.settings.compact_by is not None:
        do.execute(sql.FORGET_KEYS, (found.number, position))
    do.execute(sql.LEAVE, (position, found.kept - gone, found.kept_bytes - size, found.number))
    return state(do, found.name)


def oldest_s(do: Transaction, found: JournalState) -> float | None:
    """Return how old the oldest message is, in seconds; None = it keeps none."""
    rows = do.execute(sql.SIZES, (_entry(found, found.trimmed), _entry(found, found.last), 1))
    return max(0.0, do.now - to_s(rows[0][1])) if rows else None
