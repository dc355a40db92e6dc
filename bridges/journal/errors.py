"""Errors of journals. Each says what could not be done, why, and what to do about it; it has changed nothing."""

from __future__ import annotations

from oncewire.store.errors import InvalidRequest, LinkStolen, StoreFull, UnknownName


class UnknownJournal(UnknownName):
    """There is no journal of that name in the store."""


class UnknownCursor(UnknownName):
    """A reader has no cursor in the journal."""


class JournalFull(StoreFull):
    """The journal has reached its `max_bytes` and refuses more (J-25)."""


class PositionTrimmed(InvalidRequest):
    """The position was trimmed (J-24)."""


class PositionAhead(InvalidRequest):
    """The position lies behind the one that comes next (J-19)."""


class CursorTaken(LinkStolen):
    """The cursor was attached again since: nothing is stored for its earlier link (J-23)."""


def unknown_journal(name: str) -> UnknownJournal:
    """The error of a journal that is not there."""
    return UnknownJournal(
        f"there is no journal {name!r}", "nobody has made it, or it was deleted", "see `oncewire journal list`"
    )


def unknown_cursor(name: str, reader: str) -> UnknownCursor:
    """The error of a reader without a cursor."""
    return UnknownCursor(
        f"{reader!r} has no cursor in journal {name!r}",
        "it never had one, or it has ended",
        f"see `oncewire journal readers {name}`",
    )


def trimmed(name: str, position: int, oldest: int, following: int) -> PositionTrimmed:
    """J-24: the error of a reader that is too late."""
    kept = f"it keeps {oldest} to {following - 1}" if oldest < following else f"it keeps nothing before {following}"
    return PositionTrimmed(
        f"journal {name!r} cannot be read from position {position}",
        f"that position was trimmed; {kept}",
        'start at "first", or at one of these positions',
    )


def ahead(name: str, position: int, following: int) -> PositionAhead:
    """J-19: the error of a position that no message has yet."""
    return PositionAhead(
        f"journal {name!r} cannot be read from position {position}",
        f"its next message gets position {following}",
        'start at "next", or at an earlier position',
    )
