"""Where a reader starts, as the filter of its source says it (J-19). Pure.

`rabbitmq:stream-offset-spec` is what clients of streams send: "first", "last", "next", an offset, a timestamp. Offsets
are positions here, so the first message has offset 1.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from bridges.journal.model import AtTime, Place, Start
from oncewire.store.errors import InvalidRequest
from oncewire.wire import Described, Source, Timestamp, ULong, vocabulary

OFFSET_SPEC = vocabulary.STREAM_OFFSET_SPEC
_FIX = 'give "first", "last", "next", a position of 1 or more, or a timestamp'


def start_of(source: Source) -> Start | None:
    """Return the start that a source asks for; None = it asks for none.

    Raises:
        InvalidRequest: it has another filter, or a start that cannot be.
    """
    filters = dict(source.filter or {})
    found = next((name for name, value in filters.items() if _names(name, value)), None)
    if len(filters) > (found is not None):
        names = ", ".join(sorted(str(name) for name in filters if name != found))
        why = f"it has the filter {names}, and readers of journals have {OFFSET_SPEC} only"
        raise InvalidRequest("the link was refused", why, "leave the others out, and choose messages in the program")
    if found is None:
        return None
    value = filters[found]
    return parse_value(value.value if isinstance(value, Described) else value)


def _names(name: object, value: object) -> bool:
    return name == OFFSET_SPEC or (isinstance(value, Described) and value.descriptor == OFFSET_SPEC)


def starting_at(source: Source, position: int) -> Source:
    """The source as it is answered: its filter names the position where the reader starts (J-19)."""
    return replace(source, filter={OFFSET_SPEC: Described(OFFSET_SPEC, ULong(position))})


def parse_value(value: object) -> Start:
    """Return the start that an AMQP value stands for.

    Raises:
        InvalidRequest: it stands for none.
    """
    if isinstance(value, Timestamp):
        return AtTime(int(value) * 1000)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return int(value)
    if isinstance(value, str):
        try:
            return Place(str(value))
        except ValueError:
            pass
    raise InvalidRequest("the link was refused", f"{OFFSET_SPEC} is {value!r}", _FIX)


def parse_text(text: str) -> Start:
    """Return the start that a person writes: a place, a position, or a time of ISO 8601 (without a zone: UTC).

    Raises:
        InvalidRequest: it is none of these.
    """
    if text in {place.value for place in Place}:
        return Place(text)
    if text.isascii() and text.isdigit() and int(text) >= 1:
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        why = "it is no place, position or time"
        raise InvalidRequest(f"nobody can start at {text[:40]!r}", why, f"{_FIX} such as 2026-01-31T12:00") from None
    return AtTime(round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000_000))
