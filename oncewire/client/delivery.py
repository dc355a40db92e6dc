"""One delivery as the application sees it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from oncewire.client.defaults import REJECTED
from oncewire.client.outcomes import ACCEPTED, Outcome, rejected
from oncewire.wire import DecodeError, Message, Symbol, WireError, decode_message, vocabulary
from oncewire.wire.annotations import data_body
from oncewire.wire.journal_tags import journal_position

if TYPE_CHECKING:
    import sqlite3
    from datetime import datetime

    from oncewire.client.codec import Codec


_STATED_BY_ROUTERS = (
    vocabulary.DEAD_LETTER_REASON,
    vocabulary.DEAD_LETTER_TOPIC,
    vocabulary.DEAD_LETTER_SUBSCRIPTION,
    vocabulary.DEAD_LETTER_ERROR,
    vocabulary.DEAD_LETTER_ATTEMPTS,
)
_STATED_BY_CONSUMERS = (
    vocabulary.FAILED_REASON,
    vocabulary.FAILED_TOPIC,
    vocabulary.FAILED_SUBSCRIPTION,
    vocabulary.FAILED_ERROR,
    vocabulary.FAILED_ATTEMPTS,
)
"""The same of letters that a `Consumer` has published."""


class Receiver(Protocol):
    """What a delivery asks of its subscriber."""

    codec: Codec | None

    async def finish(self, deliveries: Sequence[Delivery], outcome: Outcome) -> None:
        """Record the outcome of deliveries, then report it to the network."""

    def _put_back(self, delivery: Delivery) -> None:
        """See ``Delivery.release``."""

    def transaction(self, *deliveries: Delivery) -> AbstractAsyncContextManager[sqlite3.Connection]:
        """Process deliveries and accept them in one transaction of the journal."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why a message came to a dead-letter topic.

    Its publisher's router states it (I-3e), or the `Consumer` that published the letter (CO-7): ``Delivery.user`` says
    who that is.

    Attributes:
        reason: of the first subscription that failed it: `rejected`, `undeliverable`, `max-attempts` or `expired`.
        topic: it was published to.
        subscription: the first that failed it, container-id/link-name.
        attempts: that subscription made.
        error: it stated, condition and description; empty if none.
        count: subscriptions that failed it.
    """

    reason: str
    topic: str
    subscription: str
    attempts: int
    error: str
    count: int


class Delivery:
    """A message to process. Finish it with ``accept()``, ``reject()`` or in a ``transaction()``; or ``release()`` it.

    Attributes:
        tag: the network tag; the same bytes whenever this message comes again within its publisher's session.
        payload: the encoded message.
        attempts: how often it was released here before.
        is_settled: sent at-most-once: no outcome is expected, and `accept()` only makes room.
        incarnation: of the subscription it came in; messages between two incarnations may be missing.
        message_format: how the payload is to be read (AMQP 2.7.5). 0 = an AMQP message. Routers pass other formats
            through unread, so nothing in such a payload is a router's word (I-1b).
    """

    __slots__ = (
        "_message",
        "_subscriber",
        "attempts",
        "incarnation",
        "is_settled",
        "message_format",
        "payload",
        "serial",
        "tag",
    )

    def __init__(
        self,
        subscriber: Receiver,
        serial: int,
        tag: bytes,
        payload: bytes,
        attempts: int,
        is_settled: bool,
        incarnation: int,
        message_format: int = 0,
    ) -> None:
        self._subscriber = subscriber
        self._message: Message | None = None
        self.serial = serial
        self.tag = tag
        self.payload = payload
        self.attempts = attempts
        self.is_settled = is_settled
        self.incarnation = incarnation
        self.message_format = message_format

    # --- its content --------------------------------------------------------------------------------------------------

    @property
    def message(self) -> Message:
        """The decoded message.

        Raises:
            oncewire.wire.DecodeError: the payload is no AMQP message, or has another format; reject it, or read
                `payload` by your own rules.
        """
        if self.message_format:
            raise DecodeError(f"its message-format is {self.message_format}, not 0")
        if self._message is None:
            self._message = decode_message(self.payload)
        return self._message

    @property
    def body(self) -> object:
        """The body: bytes, a string or another value, as it was sent. Errors as `message`.

        Of a body of bytes the message's other sections are passed over: only `message` finds what is wrong in them.
        """
        if self._message is None and not self.message_format:
            body = data_body(self.payload)  # to decode all of a message takes many times as long
            if body is not None:
                return body
        return self.message.body

    @property
    def value(self) -> Any:
        """What the codec of the subscriber reads from the body; without a codec the body.

        Raises:
            BodyNotDecoded: the codec cannot read it: reject the delivery, or use `body` or `payload`.
        """
        codec = self._subscriber.codec
        if codec is None:
            return self.body
        from oncewire.client.codec import decoded, not_decoded

        try:
            message = self.message
        except WireError as error:
            raise not_decoded(codec, str(error)) from error
        return decoded(codec, message)

    @property
    def publisher(self) -> str:
        """Who sent it, container-id/link-name; empty if unknown, as with each `message_format` other than 0."""
        return str(self._annotation(vocabulary.PUBLISHER) or "")

    @property
    def user(self) -> str:
        """Who that is, as logged in at its router; empty without a login."""
        user = str(self._annotation(vocabulary.USER) or "")
        return "" if user == vocabulary.ANONYMOUS else user

    @property
    def is_redelivered(self) -> bool:
        """True when it was repeated after a failover; of use to at-least-once subscribers only."""
        return self._annotation(vocabulary.REDELIVERED) is True

    @property
    def is_in_doubt(self) -> bool:
        """True when its publisher sends it again not knowing what became of the first try (A-5)."""
        return self._annotation(vocabulary.IN_DOUBT) is True

    @property
    def position(self) -> int | None:
        """Of a delivery from a journal its number there, from 1; None: it comes from a topic."""
        return journal_position(self.tag)

    @property
    def stored_at(self) -> datetime | None:
        """When the journal stored it, to the millisecond (UTC); None: as `position`, or it has another format."""
        stored = self._of_journal(vocabulary.JOURNAL_TIME)
        if not isinstance(stored, int):
            return None
        from datetime import UTC, datetime, timedelta  # here, because only journals' readers ask

        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=stored)

    @property
    def topic(self) -> str | None:
        """The topic or pattern that brought it to its journal; None: as `stored_at`, or its sender sent it there."""
        topic = self._of_journal(vocabulary.JOURNAL_TOPIC)
        return None if topic is None else str(topic)

    def _of_journal(self, key: Symbol) -> object:
        """J-20: what a journal has written; of a message that comes from a topic its publisher would speak."""
        return None if self.position is None else self._annotation(key)

    @property
    def dead_letter(self) -> DeadLetter | None:
        """Why it came to a dead-letter topic; None: it is no dead letter."""
        keys = _STATED_BY_ROUTERS
        if self._annotation(keys[0]) is None:
            keys = _STATED_BY_CONSUMERS
        reason = self._annotation(keys[0])
        if reason is None:
            return None
        topic, subscription, error = (str(self._annotation(key) or "") for key in keys[1:4])
        attempts = self._annotation(keys[4])
        count = self._annotation(vocabulary.DEAD_LETTER_COUNT) if keys is _STATED_BY_ROUTERS else 1
        attempts, count = (int(found) if isinstance(found, int) else 0 for found in (attempts, count))
        return DeadLetter(str(reason), topic, subscription, attempts, error, count)

    def _annotation(self, key: Symbol) -> object:
        """What a router has written; in other formats it writes nothing, so the publisher would speak (I-1b)."""
        return None if self.message_format else self.message.annotations.get(key)

    # --- finishing it -------------------------------------------------------------------------------------------------

    async def accept(self) -> None:
        """Record that it is processed, then notify the network. Returns when it is recorded.

        Raises:
            UsageError: it was finished before.
            ClientError: it could not be recorded; it comes again after the subscriber is opened again.
        """
        await self._subscriber.finish([self], ACCEPTED)

    async def reject(self, description: str = "", condition: str = REJECTED) -> None:
        """It is invalid and must not be delivered again; its publisher may get the reason. Errors as `accept`."""
        await self._subscriber.finish([self], rejected(condition, description))

    def release(self) -> None:
        """Put it back: this subscriber gets it again, before all later ones; the network does not notice.

        Raises:
            UsageError: it was finished before.
        """
        self._subscriber._put_back(self)

    def transaction(self) -> AbstractAsyncContextManager[sqlite3.Connection]:
        """Process it and accept it in one transaction of the journal; see ``Subscriber.transaction``."""
        return self._subscriber.transaction(self)
