"""What goes into a work queue and what comes out: plain values. Times are Unix time in seconds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from bridges.store.outbox import NewMessage
from oncewire.store.errors import InvalidRequest
from oncewire.store.rules_core import MAX_MESSAGE_BYTES

Json: TypeAlias = Any
"""A value of JSON."""

DEFAULT_PRIORITY = 4
"""AMQP's default (header, `priority`)."""
MAX_PRIORITY = 255
"""AMQP's largest: a priority is one octet there."""
MAX_PAYLOAD_BYTES = MAX_MESSAGE_BYTES
"""The largest payload a queue can be configured for, the routers' limit of a message."""


HANDLE = re.compile(r"[0-9]{1,18}\.[0-9]{1,18}")
"""Any number of 18 digits fits a database's integer."""


class Ending(StrEnum):
    """How a passage of an item through a queue ended."""

    DONE = "done"  # committed
    POPPED = "popped"
    MOVED = "moved"  # to another queue, or to several
    DEAD = "dead"  # over the limit of retries
    REPLAYED = "replayed"  # was dead, and is an item again
    DISCARDED = "discarded"  # was dead, and nobody wants it


@dataclass(frozen=True, slots=True)
class Handle:
    """The right to settle one item: it holds until another worker reserves the item (W-4).

    Attributes:
        item: id of the item.
        reservation: number of the reservation; each reservation of an item has a higher one.
    """

    item: int
    reservation: int

    def __str__(self) -> str:
        return f"{self.item}.{self.reservation}"

    @classmethod
    def parse(cls, text: str) -> Handle:
        """Return the handle that `str` has written.

        Raises:
            InvalidRequest: it is none.
        """
        if not HANDLE.fullmatch(text):
            raise InvalidRequest(
                f"{text!r} is no handle",
                "a handle is an item's id, a dot and the reservation's number",
                "use the `handle` that `reserve` returned",
            )
        item, _, reservation = text.partition(".")
        return cls(int(item), int(reservation))


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """How one queue behaves; kept in the store.

    Attributes:
        max_retries: retries after the first try; one failure more makes the item dead (W-8).
        backoff_s: delay after the first failure; it doubles with each further one (W-7).
        backoff_max_s: the longest delay of the back-off.
        history_s: how long ended items are kept (W-9); 0 = not at all.
        max_payload_bytes: the largest payload or result.
    """

    max_retries: int = 10
    backoff_s: float = 1.0
    backoff_max_s: float = 3600.0
    history_s: float = 7 * 86400.0
    max_payload_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to be pushed.

    Attributes:
        payload: the bytes.
        delay: seconds from now until it is ready.
        when: time at which it is ready, in place of `delay`; past times are allowed.
        priority: 0 to 255; a higher one is taken first.
        key: while the queue knows this key, a push with it adds nothing (W-11).
    """

    payload: bytes
    delay: float = 0.0
    when: float | None = None
    priority: int = DEFAULT_PRIORITY
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did.

    Attributes:
        item: the item's id.
        is_new: False = the key was known; `item` is the one that it was pushed as.
    """

    item: int
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class Taken:
    """An item that was reserved or popped.

    Attributes:
        handle: what settles it (not after a pop).
        queue: where it was.
        payload: the bytes.
        retries: how often it failed before.
        priority: as pushed.
        created: when it was pushed.
        due: when it became ready.
        until: when the reservation runs out; for a pop, when it was taken.
        key: the unique key, if it has one.
    """

    handle: Handle
    queue: str
    payload: bytes
    retries: int
    priority: int
    created: float
    due: float
    until: float
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """A reserved item is done.

    Attributes:
        handle: the reservation.
        result: noted in the history, unless None.
        payload: replaces the item's payload, unless None.
        messages: published by the same transaction (W-21); a commit that is repeated publishes nothing again (W-5).
    """

    handle: Handle
    result: bytes | None = None
    payload: bytes | None = None
    messages: tuple[NewMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class Rollback:
    """A reserved item is to be taken again.

    Attributes:
        handle: the reservation.
        delay: seconds until it is ready; None = exponential back-off with jitter.
        reason: why; kept with the item.
        is_failure: False = it is given back untried, and its retries stay.
        is_final: it is dead at once, with the reason (W-8).
    """

    handle: Handle
    delay: float | None = None
    reason: str = ""
    is_failure: bool = True
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """Where a moved item goes. `payload` and `priority` stay as they are where they are None."""

    queue: str
    payload: bytes | None = None
    delay: float = 0.0
    when: float | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One passage of an item through a queue that has ended.

    Attributes:
        entry: number of the entry.
        item: id of the item.
        queue: the queue it passed.
        ending: how it ended.
        created: when the item was pushed.
        ended: when it ended.
        retries: failures before.
        reservation: number of the reservation that ended it.
        priority: of the item.
        payload: as it was at the end.
        result: what the commit noted.
        reason: why it is dead, or of the last rollback.
        targets: where it was moved.
    """

    entry: int
    item: int
    queue: str
    ending: Ending
    created: float
    ended: float
    retries: int
    reservation: int
    priority: int
    payload: bytes
    result: bytes | None
    reason: str
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """Which entries of a queue's history are wanted; newest first.

    Attributes:
        queue: of this queue.
        ending: only those that ended so.
        since: ended at this time or later.
        until: ended before this time.
        fields: dotted path into the JSON payload -> value that must be there.
        limit: at most so many.
        before: the `following` of the page before.
    """

    queue: str
    ending: Ending | None = None
    since: float | None = None
    until: float | None = None
    fields: Mapping[str, Json] = field(default_factory=dict)
    limit: int = 100
    before: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A part of what a search found. `following` continues it; None = that was all."""

    entries: tuple[HistoryEntry, ...]
    following: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A recurring push (W-12).

    Attributes:
        name: unique in the store.
        queue: where instances go.
        cron: five fields (minute, hour, day of month, month, day of week), or six with seconds last.
        timezone: a name of the IANA database that the fields are meant in. See W-25 for its changes of clocks.
        payload: of each instance.
        priority: of each instance.
        next_at: when the next instance is ready; filled in by the store.
    """

    name: str
    queue: str
    cron: str
    timezone: str = "UTC"
    payload: bytes = b"null"
    priority: int = DEFAULT_PRIORITY
    next_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Statistics:
    """A queue in numbers. A count never exceeds `count_limit`: it then means "so many or more".

    Attributes:
        queue: its name.
        ready: items that may be taken now.
        waiting: items whose time has not come.
        reserved: items whose reservation has not run out.
        dead: dead letters.
        oldest_s: how long the oldest ready item has been ready; None = none is.
        next_s: seconds until the next item becomes ready or the next reservation runs out; None = there is none.
        ended_last_minute: items that ended in the last 60 s.
        count_limit: where counting stops.
    """

    queue: str
    ready: int
    waiting: int
    reserved: int
    dead: int
    oldest_s: float | None
    next_s: float | None
    ended_last_minute: int
    count_limit: int


def encode(payload: bytes | Json) -> bytes:
    """Return bytes as they are, and any other value as JSON.

    Raises:
        InvalidRequest: the value cannot be written as JSON.
    """
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    try:
        return json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidRequest(
            "the payload cannot be stored", f"it is no JSON: {error}", "give bytes, or a value of JSON"
        ) from error


def decode(payload: bytes) -> Json:
    """Return the JSON value of a payload.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return json.loads(payload.decode(), parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_constant(name: str) -> None:
    """NaN and Infinity are Python's, not JSON's."""
    raise ValueError(name)
