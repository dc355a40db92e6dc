"""Messages at which a consumer's function keeps failing: they are counted, then set aside (CO-7).

A dead letter is the message as it came, with annotations ``x-opt-failed-*`` beside its own. Those that only routers set
are dropped: they would name its publisher as that of the letter.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oncewire.client.errors import ProcessFailed, UsageError
from oncewire.client.events import MessageSetAside
from oncewire.client.transactions.messages import ReceivedMessage, check_topic
from oncewire.wire import Symbol, UInt, encode, vocabulary
from oncewire.wire.annotations import replace_annotations

logger = logging.getLogger("oncewire.client")

MAX_ATTEMPTS = "max-attempts"
"""The reason of each letter."""
MAX_ERROR_LENGTH = 256
"""As of the dead letters that routers make: what failed is found in the log of the consumer."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known of a message that is to be set aside.

    Attributes:
        attempts: times the function failed at it.
        error: what it raised last.
    """

    attempts: int
    error: str


class FailedMessages:
    """What one process knows of the messages at which its consumer's function fails, whichever incarnation it is.

    Args:
        name: of the consumer.
        attempts: failures at one message after which it is set aside.
        topic: where its dead letter goes; None: no letter.
        skip: keep it in the store, and go on.

    Raises:
        UsageError: the topic cannot be published to, or both are wanted.
    """

    def __init__(self, name: str, attempts: int, topic: str | None, *, skip: bool) -> None:
        if topic is not None:
            check_topic(topic)
            if skip:
                raise UsageError(
                    f"the consumer {name!r} cannot be made",
                    "it has both dead_letters= and skip=",
                    "keep dead_letters= to publish what fails, or skip= to keep it in the store",
                )
        self.topic = topic
        self._name = name
        self._attempts = attempts
        self._is_enabled = topic is not None or skip
        self._known: dict[int, Failure] = {}

    @property
    def is_enabled(self) -> bool:
        """Whether the consumer sets messages aside."""
        return self._is_enabled

    def note(self, error: ProcessFailed) -> bool:
        """The function has failed; whether the consumer goes on, now or when it has failed often enough."""
        for position in error.positions if self._is_enabled else ():
            before = self._known.get(position)
            cause = f"{type(error.error).__name__}: {error.error}"[:MAX_ERROR_LENGTH]
            self._known[position] = Failure(1 if before is None else before.attempts + 1, cause)
        return self._is_enabled and bool(error.positions)

    def of(self, position: int) -> Failure | None:
        """What to set this message aside for; None: process it."""
        known = self._known.get(position)
        return known if known is not None and known.attempts >= self._attempts else None

    def letter(self, message: ReceivedMessage, payload: bytes, failure: Failure) -> bytes:
        """Return the dead letter of a message, encoded."""
        stated: dict[Symbol, object] = {
            vocabulary.FAILED_REASON: Symbol(MAX_ATTEMPTS),
            vocabulary.FAILED_TOPIC: message.topic,
            vocabulary.FAILED_SUBSCRIPTION: f"{self._name}/{message.topic}",
            vocabulary.FAILED_ATTEMPTS: UInt(failure.attempts),
            vocabulary.FAILED_ERROR: failure.error,
        }
        for key, of_router in (
            (vocabulary.FAILED_PUBLISHER, vocabulary.PUBLISHER),
            (vocabulary.FAILED_USER, vocabulary.USER),
        ):
            if of_router in message.message.annotations:
                stated[key] = message.message.annotations[of_router]
        pairs = b"".join(encode(key) + encode(value) for key, value in stated.items())
        dropped = (vocabulary.TOPIC_PREFIX, vocabulary.DEAD_LETTER_PREFIX, vocabulary.FAILED_PREFIX)
        return replace_annotations(payload, dropped, pairs, len(stated))

    def committed(self, messages: Iterable[ReceivedMessage]) -> Sequence[MessageSetAside]:
        """These are done; returns what of them was set aside, and logs it."""
        if not self._known:
            return ()
        reported = []
        for message in messages:
            failure = self.of(message.position)
            _ = self._known.pop(message.position, None)
            if failure is None:
                continue
            reported.append(
                MessageSetAside(message.topic, message.position, failure.attempts, failure.error, self.topic or "")
            )
            logger.warning(
                "the consumer %r has set message %d of %r aside after %d attempts (%s) and goes on; it is %s",
                *(self._name, message.position, message.topic, failure.attempts, failure.error),
                f"published to {self.topic!r}" if self.topic else "kept in oncewire_store_refused",
            )
        return reported
