"""Cursors of durable readers in a transaction of the edge's store (J-21 to J-23)."""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

from bridges.journal import schema as sql
from bridges.journal.errors import CursorTaken
from bridges.journal.log import first_kept, resolve, state
from bridges.journal.model import (
    CURSOR_EXPIRY_S,
    MAX_AHEAD,
    MAX_CURSORS,
    MAX_CURSORS_OF_USER,
    Cursor,
    JournalState,
    Place,
    Start,
)
from oncewire.store.errors import LimitReached
from oncewire.store.rules_core import to_us
from oncewire.store.store import Transaction

SEPARATOR = "|"
"""Between user, container-id and link in the name of a cursor; after a backslash it is part of one of them."""
MAX_READER = 255
"""Characters of a cursor's name: an index takes them."""
MAX_USER = MAX_READER - 65
"""Characters of a name that stay when it is longer, before the digest of the whole."""
_USER = re.compile(r"(?:[^|\\]|\\.)*\|", re.DOTALL)


def reader_name(user: str, container_id: str, link: str) -> str:
    """The name of a reader's cursor: no two readers have one name (J-21)."""
    whole = SEPARATOR.join(part.replace("\\", "\\\\").replace("|", "\\|") for part in (user, container_id, link))
    if len(whole) <= MAX_READER:
        return whole
    return f"{whole[:MAX_USER]}|{hashlib.sha256(whole.encode()).hexdigest()}"


def is_read(cursor: Cursor, position: int) -> bool:
    """Whether a reader has read a position."""
    if position <= cursor.low:
        return True
    place = bisect_right(cursor.behind, position) - 1
    return place >= 0 and cursor.behind[place] == position


def moved(cursor: Cursor, positions: Iterable[int]) -> Cursor:
    """Return the cursor when these are read, too (J-21)."""
    behind = sorted({each for each in (*cursor.behind, *positions) if each > cursor.low})
    low, taken = cursor.low, 0
    for position in behind:
        if position != low + 1:
            break
        low, taken = position, taken + 1
    return replace(cursor, low=low, behind=tuple(behind[taken:]))


def _over_replaced(do: Transaction, journal: JournalState, cursor: Cursor) -> Cursor:
    """J-26: what was replaced counts as read; what was trimmed does not (J-24)."""
    while journal.settings.compact_by is not None and cursor.low >= journal.trimmed:
        following = first_kept(do, journal, cursor.low)
        if following == cursor.low + 1:
            break
        cursor = moved(replace(cursor, low=following - 1), ())
    return cursor


def find_cursor(do: Transaction, journal: JournalState, reader: str) -> Cursor | None:
    """Return a reader's cursor; None = it has none."""
    rows = do.execute(sql.CURSOR, (journal.number, reader))
    return Cursor(rows[0][0], rows[0][1], tuple(json.loads(rows[0][2]))) if rows else None


def cursors(do: Transaction, journal: JournalState) -> dict[str, Cursor]:
    """Return all cursors of a journal by reader."""
    rows = do.execute(sql.CURSORS, (journal.number,))
    return {reader: Cursor(generation, low, tuple(json.loads(behind))) for reader, generation, low, behind in rows}


def attach_cursor(
    do: Transaction, name: str, reader: str, start: Start | None, read: Iterable[int] = ()
) -> tuple[JournalState, Cursor]:
    """Begin a new generation of a reader's cursor (J-22, J-23).

    Args:
        do: the transaction.
        name: of the journal.
        reader: whose cursor.
        start: where it starts if it has no cursor; None = at the next message.
        read: positions that its map presents with an outcome.

    Raises:
        UnknownJournal: there is none.
        PositionTrimmed, PositionAhead: it cannot start there, or the next position of its cursor was trimmed.
        LimitReached: the journal has too many cursors, or the user has.
    """
    journal = state(do, name)
    do.execute(sql.EXPIRE_CURSORS, (journal.number, to_us(do.now)))
    found = find_cursor(do, journal, reader)
    if found is None:
        found = _first_of(do, journal, reader, Place.NEXT if start is None else start)
    else:
        newest = min(journal.last, found.low + MAX_AHEAD)  # what it can have: the map is the client's
        found = moved(found, (position for position in read if position <= newest))
        resolve(do, journal, found.low + 1)  # J-24
    return journal, _begin(do, journal, reader, found)


def seek(do: Transaction, name: str, reader: str, start: Start) -> Cursor:
    """Move a cursor, or make one; the link that has it is ended (J-23). Errors as `attach_cursor`."""
    journal = state(do, name)
    found = find_cursor(do, journal, reader) or _first_of(do, journal, reader, start)
    return _begin(do, journal, reader, replace(found, low=resolve(do, journal, start), behind=()))


def _first_of(do: Transaction, journal: JournalState, reader: str, start: Start) -> Cursor:
    user = user_part(reader)
    why = ""
    if do.execute(sql.COUNT_CURSORS, (journal.number,))[0][0] >= MAX_CURSORS:
        why = f"the journal {journal.name!r} has {MAX_CURSORS} readers with a cursor"
    elif user and do.execute(sql.COUNT_CURSORS_OF, (journal.number, len(user), user))[0][0] >= MAX_CURSORS_OF_USER:
        why = f"this user has {MAX_CURSORS_OF_USER} readers with a cursor in the journal {journal.name!r}"
    if why:
        fix = "delete one with `oncewire journal readers --delete`, or read without a durable source"
        raise LimitReached(f"{reader!r} gets no cursor", why, fix)
    return Cursor(0, resolve(do, journal, start))


def user_part(reader: str) -> str:
    """What the cursors of one user begin with; empty = nobody has logged in."""
    found = _USER.match(reader)
    return reader[:MAX_USER] if found is None else "" if found[0] == SEPARATOR else found[0]


def _begin(do: Transaction, journal: JournalState, reader: str, cursor: Cursor) -> Cursor:
    cursor = _over_replaced(do, journal, cursor)
    row = (journal.number, reader, cursor.low, json.dumps(cursor.behind), _expires(do))
    ((generation,),) = do.execute(sql.BEGIN_CURSOR, row)
    do.touched.add(cursor_notice(journal.name, reader))
    return replace(cursor, generation=int(generation))


def mark_read(do: Transaction, name: str, reader: str, generation: int, positions: Sequence[int]) -> Cursor:
    """Store that positions are read (J-21); without positions, only look how far the cursor is.

    Raises:
        UnknownJournal: there is none.
        CursorTaken: another link has it since (J-23).
        PositionTrimmed: nothing is read, and the next position of the cursor was trimmed (J-24).
    """
    journal = state(do, name)
    found = find_cursor(do, journal, reader)
    if found is None or found.generation != generation:
        raise CursorTaken(
            "the outcome was not stored",
            f"the cursor of {reader!r} in journal {name!r} was attached again since, moved or deleted",
            "attach again and present the unsettled deliveries",
        )
    if not positions:
        resolve(do, journal, found.low + 1)
    found = _over_replaced(do, journal, moved(found, positions))
    do.execute(sql.PUT_CURSOR, (found.low, json.dumps(found.behind), _expires(do), journal.number, reader))
    return found


def delete_cursor(do: Transaction, name: str, reader: str, generation: int | None = None) -> bool:
    """Delete a cursor; whether there was one, and of this generation if one is named (J-23).

    Raises:
        UnknownJournal: there is none.
    """
    journal = state(do, name)
    found = find_cursor(do, journal, reader)
    if found is None or generation not in (None, found.generation):
        return False
    do.execute(sql.DELETE_CURSOR, (journal.number, reader))
    do.touched.add(cursor_notice(name, reader))
    return True


def cursor_notice(name: str, reader: str) -> str:
    """What is announced when a cursor was attached, moved or deleted."""
    return f" cursor {len(name)} {name} {reader}"


def _expires(do: Transaction) -> int:
    return to_us(do.now + CURSOR_EXPIRY_S)
