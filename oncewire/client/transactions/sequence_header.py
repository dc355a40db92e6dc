"""What a producer writes on each message so that a reader can put it into sequence: who, which, and how it ends.

The theory, for readers and writers of this file and of ``sequencer.py``:

* A **producer** is one life of one writer of one topic: a name and the time it was born. It is never used twice.
* It numbers its messages 1, 2, 3, ... without a hole. The number is the producer's clock; (producer, number) is the
  identity of a message. A number is never given to two contents.
* A producer belongs to a **user**: routers state who has published a message, and a reader keeps the producers of each
  user apart (SQ-8). The user survives each restart, each router and each new link of a writer; nothing else does.
* A message either **stands alone** or is **pending**. A pending message counts when an **ack** names it, and never when
  a **rollback** does. Both name the range from ``begins`` up to themselves, so each can be understood alone, whatever
  was repeated or overtaken: an ack that comes again, late, cannot end a transaction that is not its own. Who decides
  before it publishes (a batch whose rows are stored) needs no ack: its **last** message commits the others and itself.
* A rollback whose own number is ``LAST_SEQUENCE`` leaves its producer no number to go on with. This is how the next
  owner of a store ends its predecessor, of which it cannot know how far it came.
* The **floor** is the lowest number that is not yet accepted by every subscription. Below it nothing new can come, so a
  reader need not wait for numbers that a filter or a rejection kept from it. A writer that waits until its pending
  messages are accepted before it acks can promise ``floor`` = the ack's own number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from oncewire.client.errors import UsageError
from oncewire.client.transactions.sequence_set import SequenceSet
from oncewire.wire import Symbol, ULong
from oncewire.wire.vocabulary import FLOOR, PRODUCER, SEQUENCE, TRANSACTION, USER

LAST_SEQUENCE = (1 << 62) - 1
"""The largest number: a signed 64-bit column holds it and the one behind it, and no producer gets there by counting."""
MAX_NAME_BYTES = 256
"""Length of a producer's name: every reader keeps it for as long as it keeps the producer."""
MAX_BORN_MS = (1 << 53) - 1
"""Latest birth: an exact number in JSON as well, and 285,000 years away."""


class HeaderError(ValueError):
    """The annotations of a message are no sequence header: a remote fault. Reject the message with this text."""


class Flag(Enum):
    """How a message relates to its producer's transaction."""

    ALONE = "alone"
    """Counts by itself, at once."""
    CONTINUE = "continue"
    """Pending: belongs to the transaction that a later ack or rollback ends."""
    LAST = "last"
    """Pending as the others, and commits them and itself, from ``begins`` on."""
    ACK = "ack"
    """Commits the pending messages from ``begins`` to just below itself. Carries nothing for the application."""
    ROLLBACK = "rollback"
    """Drops the pending messages from ``begins`` to just below itself, those that are still to come too."""


_FLAGS = {flag.value: flag for flag in Flag}
ENDS = frozenset({Flag.LAST, Flag.ACK, Flag.ROLLBACK})
"""What ends a transaction, and so shows where it begins."""


@dataclass(frozen=True, slots=True, order=True)
class ProducerId:
    """One life of one writer of one topic.

    Attributes:
        name: chosen by the writer; no two writers may use one name with the same birth.
        born_ms: when this life began, in milliseconds since 1970. A reader that forgot a producer after
            ``producer_retention`` refuses unknown ones born at or before it, so a writer that was silent for half of
            that time begins a new life, and a life begins with its first message.
        user: who publishes it, as routers state it (SQ-8); empty where they state nobody, and at its writer.
    """

    name: str
    born_ms: int
    user: str = ""

    def __post_init__(self) -> None:
        if not self.name or len(self.name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
            raise HeaderError(f"a producer's name has 1 to {MAX_NAME_BYTES} bytes, not {len(self.name)} characters")
        if "\0" in self.name:
            raise HeaderError("a producer's name has no character 0: databases cannot keep it")
        if not 0 <= self.born_ms <= MAX_BORN_MS:
            raise HeaderError(f"a producer is born at 0 to {MAX_BORN_MS} milliseconds, not at {self.born_ms}")

    def __str__(self) -> str:
        return f"{self.name}@{self.born_ms}"


@dataclass(frozen=True, slots=True)
class SequenceHeader:
    """What stands on one message.

    Attributes:
        producer: who wrote it.
        sequence: its number, 1 to LAST_SEQUENCE; only a rollback may have LAST_SEQUENCE.
        flag: how it ends, or belongs to, a transaction.
        begins: of what ends a transaction: the first number it decides on; equal to ``sequence`` if there is none
            before it. 0 on other messages.
        floor: the producer's lowest number not yet accepted by every subscription; 0 if it states none.
    """

    producer: ProducerId
    sequence: int
    flag: Flag
    begins: int = 0
    floor: int = 0

    def __post_init__(self) -> None:
        top = LAST_SEQUENCE if self.flag is Flag.ROLLBACK else LAST_SEQUENCE - 1
        if not 1 <= self.sequence <= top:
            raise HeaderError(f"the number of a message ({self.flag.value}) is 1 to {top}, not {self.sequence}")
        if self.flag in ENDS:
            if not 1 <= self.begins <= self.sequence:
                raise HeaderError(
                    f"{self.flag.value} {self.sequence} begins at 1 to its own number, not at {self.begins}"
                )
        elif self.begins:
            raise HeaderError(f"only what ends a transaction begins somewhere, not {self.flag.value} {self.sequence}")
        if not 0 <= self.floor <= self.sequence:
            raise HeaderError(f"the floor of message {self.sequence} is 0 to its own number, not {self.floor}")

    def annotations(self) -> dict[Symbol, object]:
        """Return it as message annotations; add them to those of the message."""
        found: dict[Symbol, object] = {PRODUCER: str(self.producer), SEQUENCE: ULong(self.sequence)}
        if self.floor:
            found[FLOOR] = ULong(self.floor)
        if self.flag is not Flag.ALONE:
            found[TRANSACTION] = f"{self.flag.value} {self.begins}" if self.begins else self.flag.value
        return found


def read_header(annotations: Mapping[Symbol, object]) -> SequenceHeader | None:
    """Read a message's annotations.

    Returns:
        The header, or None where the message has none: it is then delivered at least once. Its producer is the user's
        whom the routers have stated (SQ-8).

    Raises:
        HeaderError: there is one, but it is malformed. Reject the message: its producer must hear of it.
    """
    producer = annotations.get(PRODUCER)
    if producer is None:
        return None
    if not isinstance(producer, str):
        raise HeaderError(f"{PRODUCER} is a string, not {producer!r}")
    flag, begins = _read_transaction(annotations.get(TRANSACTION, Flag.ALONE.value))
    sequence, floor = _number(annotations, SEQUENCE), _number(annotations, FLOOR)
    return SequenceHeader(_read_producer(producer, user_of(annotations)), sequence, flag, begins, floor)


def user_of(annotations: Mapping[Any, object]) -> str:
    """Return who has published, as the routers state it.

    Returns:
        `$anonymous` where the network has logins and the publisher has none; empty where routers state nobody: there
        are no logins.
    """
    user = annotations.get(USER)
    return str(user) if isinstance(user, str) else ""


def _read_producer(text: str, user: str) -> ProducerId:
    name, _, born = text.rpartition("@")
    if name and born.isascii() and born.isdigit() and len(born) <= len(str(MAX_BORN_MS)):
        return ProducerId(name, int(born), user)
    return ProducerId(text, 0, user)


def _read_transaction(value: object) -> tuple[Flag, int]:
    words = value.split(" ") if isinstance(value, str) else []
    begins = words[1] if len(words) == 2 else "0"
    is_number = begins.isascii() and begins.isdigit() and len(begins) <= len(str(LAST_SEQUENCE))
    if not is_number or not 1 <= len(words) <= 2 or words[0] not in _FLAGS:
        raise HeaderError(f"{TRANSACTION} is continue, or last, ack or rollback and a number, not {value!r}")
    return _FLAGS[words[0]], int(begins)


def _number(annotations: Mapping[Symbol, object], key: Symbol) -> int:
    value = annotations.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise HeaderError(f"{key} is a whole number, not {value!r}")
    return int(value)


class Producer:
    """Numbers the messages of one life of one writer of one topic. Pure: what it returns is to be published.

    Args:
        producer: this life.

    Attributes:
        next_sequence: the number of the next message.
        begins: the number at which the open transaction begins; equal to ``next_sequence`` if nothing is pending.
    """

    __slots__ = ("_settled", "begins", "next_sequence", "producer")

    def __init__(self, producer: ProducerId) -> None:
        self.producer = producer
        self.next_sequence = 1
        self.begins = 1
        self._settled = SequenceSet()

    @property
    def has_pending(self) -> bool:
        """Whether messages were numbered that neither an ack nor a rollback has ended."""
        return self.begins < self.next_sequence

    @property
    def floor(self) -> int:
        """The lowest number that not every subscription has accepted."""
        ranges = self._settled.ranges()
        return ranges[0][1] + 1 if ranges and ranges[0][0] == 1 else 1

    @property
    def all_settled(self) -> bool:
        """Whether every message so far is accepted by every subscription: now an ack completes at once."""
        return self.floor == self.next_sequence

    def alone(self) -> SequenceHeader:
        """Number a message that stands alone.

        Raises:
            UsageError: messages are pending; end their transaction first.
        """
        if self.has_pending:
            raise UsageError(
                f"producer {self.producer} cannot publish a message that stands alone",
                f"its messages from {self.begins} on are pending",
                "acknowledge or roll them back first, or publish it as part of them",
            )
        header = self._next(Flag.ALONE)
        self.begins = self.next_sequence
        return header

    def pending(self) -> SequenceHeader:
        """Number a message of the open transaction; the first one opens it."""
        return self._next(Flag.CONTINUE)

    def last(self) -> SequenceHeader:
        """Number the last message of the open transaction, which commits it; for transactions decided before."""
        return self._end(Flag.LAST)

    def ack(self) -> SequenceHeader:
        """Number the ack of the open transaction and close it here. Publish it only after the commit, never before."""
        return self._end(Flag.ACK)

    def rollback(self) -> SequenceHeader:
        """Number the rollback of the open transaction and close it here."""
        return self._end(Flag.ROLLBACK)

    def settle(self, sequence: int) -> None:
        """Note that every subscription has accepted (or finally refused) this number; the floor follows."""
        assert 1 <= sequence < self.next_sequence, sequence
        self._settled.add(sequence, sequence)

    def _end(self, flag: Flag) -> SequenceHeader:
        header = self._next(flag, self.begins)
        self.begins = self.next_sequence
        return header

    def _next(self, flag: Flag, begins: int = 0) -> SequenceHeader:
        header = SequenceHeader(self.producer, self.next_sequence, flag, begins, self.floor)
        self.next_sequence += 1
        return header


def final_rollback(producer: ProducerId, begins: int) -> SequenceHeader:
    """Return the rollback that ends a producer for ever: everything of it from ``begins`` on never counts."""
    return SequenceHeader(producer, LAST_SEQUENCE, Flag.ROLLBACK, begins)
