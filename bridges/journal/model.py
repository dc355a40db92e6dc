"""What a journal is made of: settings, messages, where it stands, cursors. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple, Protocol

MAX_BYTES = 8 << 30
"""As a journal may have unless its settings say otherwise: a disk is cheaper than publishers that wait; but it ends."""
MAX_JOURNALS = 4096
"""In one store: each costs a subscription and a row that is locked for each append."""
MAX_CURSORS = 4096
"""Of one journal: receivers make them, and each is a row."""
MAX_CURSORS_OF_USER = 1024
"""Of these: so that a user whose program names each of its links anew leaves room for others."""
MAX_UNDER_WAY = 1024
"""Deliveries of one reader that are not settled; the map of an attach with so many entries fits a frame (C-4)."""
MAX_AHEAD = 4096
"""Positions that a cursor's reader may be ahead of its cursor: what is read out of order is stored with it (J-21)."""
ROW_BYTES = 40
"""What a message costs in the store beside its payload, about; so that empty messages count, too."""
CURSOR_EXPIRY_S = 30 * 86400.0
"""A cursor that no link has used for so long is deleted, as a link's tags are (W-17)."""


class WhenFull(StrEnum):
    """J-25: what a journal does at its `max_bytes`."""

    REFUSE = "refuse"
    DROP = "drop"


class KeyOf(StrEnum):
    """J-26: the part of a message that names what it replaces in a compacted journal."""

    SUBJECT = "subject"
    GROUP_ID = "group-id"


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """How much a journal keeps.

    Attributes:
        keep_s: seconds; older messages are trimmed. 0 = no limit.
        max_messages: more are trimmed. 0 = no limit.
        max_bytes: of payloads, and `ROW_BYTES` for each message.
        when_full: what happens at `max_bytes`.
        compact_by: keep the last message of each key only; None = keep all.
    """

    keep_s: float = 0.0
    max_messages: int = 0
    max_bytes: int = MAX_BYTES
    when_full: WhenFull = WhenFull.REFUSE
    compact_by: KeyOf | None = None


class Appended(Protocol):
    """What can be appended: `NewMessage` has it, and others may."""

    @property
    def payload(self) -> bytes:
        """See NewMessage."""
        ...

    @property
    def message_format(self) -> int:
        """See NewMessage."""
        ...

    @property
    def key(self) -> str | None:
        """See NewMessage."""
        ...


class NewMessage(NamedTuple):
    """A message to append. One is made of each that comes, so it is a tuple, as `StoredMessage` is.

    Attributes:
        payload: the encoded message, with the annotations of its publisher's router.
        message_format: 0 = an AMQP message (AMQP 2.7.5).
        key: in a compacted journal; None = it replaces nothing.
    """

    payload: bytes
    message_format: int = 0
    key: str | None = None


class StoredMessage(NamedTuple):
    """A message of a journal. Readers make many, so it is a tuple: a frozen dataclass takes three times as long.

    Attributes:
        position: its number.
        arrived_us: when it was appended, microseconds since 1970; never earlier than the one before.
        source: the topic or pattern that brought it; empty = a direct sender.
        payload: as `NewMessage`.
        message_format: as `NewMessage`.
    """

    position: int
    arrived_us: int
    source: str
    payload: bytes
    message_format: int


@dataclass(frozen=True, slots=True)
class JournalState:
    """Where a journal stands.

    Attributes:
        number: of the journal in its store.
        name: of the journal.
        uuid: of this journal; one that is made again under the name has another (J-17).
        last: the newest position, 0 = none yet.
        trimmed: positions up to it are trimmed.
        kept: messages that are kept.
        kept_bytes: what these take.
        last_arrived_us: when the newest message came; 0 = none yet.
        settings: how much it keeps.
    """

    number: int
    name: str
    uuid: str
    last: int
    trimmed: int
    kept: int
    kept_bytes: int
    last_arrived_us: int
    settings: JournalSettings

    @property
    def incarnation(self) -> int:
        """The identity as readers' links state it."""
        return int(self.uuid[:12], 16) + 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """What a durable reader has read (J-21).

    Attributes:
        generation: of its newest attach.
        low: everything up to it is read.
        behind: positions behind it that are read, in order.
    """

    generation: int
    low: int
    behind: tuple[int, ...] = ()


class Place(Enum):
    """Places that an attach can name (J-19)."""

    FIRST = "first"
    LAST = "last"
    NEXT = "next"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message that is not older; microseconds since 1970."""

    us: int


Start = Place | AtTime | int
"""Where a reader starts; a number is the position of the first message."""
