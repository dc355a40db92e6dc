"""What a consumer's function works with: the message that came, and the transaction it is processed in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from oncewire.client.codec import Codec, decoded, encoded
from oncewire.client.errors import UsageError
from oncewire.client.source_terms import JOURNAL
from oncewire.client.transactions.sequence_header import user_of
from oncewire.client.transactions.store import Store
from oncewire.store.store import Row
from oncewire.wire import BodyKind, Message, Properties, vocabulary
from oncewire.wire.vocabulary import ANONYMOUS

MAX_TOPIC_BYTES = 255
MAX_TOKENS = 16
"""As routers have them: a topic that they refuse must not be committed, or it could never be published."""


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message to process.

    Attributes:
        topic: the topic or pattern of the subscription that it came in on; `journal://NAME` of a journal.
        position: its place among all messages that this consumer received; it grows.
        message: the whole message.
        producer: who numbered it; empty if it has no sequence header.
        codec: of the consumer, for `value`.
    """

    topic: str
    position: int
    message: Message
    producer: str = ""
    codec: Codec | None = field(default=None, repr=False, compare=False)

    @property
    def value(self) -> Any:
        """What the consumer's codec reads from the body; without a codec the body.

        Raises:
            BodyNotDecoded: it cannot. Let it pass: the message goes the way of each that fails (CO-7).
        """
        return self.body if self.codec is None else decoded(self.codec, self.message)

    @property
    def body(self) -> Any:
        """The body: bytes, a string or another value, as it was published."""
        return self.message.body

    @property
    def journal_position(self) -> int | None:
        """Its position in the journal that it was read from; None: it came in on a topic."""
        stated = self.message.annotations.get(vocabulary.STREAM_OFFSET) if self.topic.startswith(JOURNAL) else None
        return stated if isinstance(stated, int) else None

    @property
    def user(self) -> str:
        """Who has published it, as logged in; see ``Delivery.user``."""
        user = user_of(self.message.annotations)
        return "" if user == ANONYMOUS else user

    @property
    def published_at(self) -> float | None:
        """When it was published, in seconds since 1970 by the clock of its producer; None if that is unknown.

        It is AMQP's ``creation-time``, which ``Transaction.publish`` sets to the millisecond.
        """
        properties = self.message.properties
        if properties is None or properties.creation_time is None:
            return None
        return properties.creation_time / 1000


class Transaction:
    """What a function may do while it processes messages: all of it commits, or none.

    Args:
        store: inside a transaction.
        codec: of the consumer.

    Attributes:
        connection: the driver's own connection, ``sqlite3`` or ``psycopg``. Do not commit or roll back.
    """

    def __init__(self, store: Store[Any], codec: Codec | None = None) -> None:
        self._store = store
        self._codec = codec
        self.connection: Any = store.connection

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement; parameters are ``?`` in both databases.

        Returns:
            The rows of a query, an empty list for other statements.

        Raises:
            The errors of the driver. Let them pass: the transaction is rolled back and tried again.
        """
        return self._store.execute(statement, parameters)

    def publish(
        self,
        topic: str,
        body: object,
        *,
        properties: Properties | None = None,
        application_properties: dict[str, object] | None = None,
    ) -> None:
        """Publish a message when the transaction has committed, and only then.

        Args:
            topic: where to; no pattern.
            body: bytes, a string or a whole ``Message``; with a codec what that encodes.
            properties: of the message, beside bytes or a string.
            application_properties: likewise.

        Raises:
            UsageError: it cannot be published.
        """
        check_topic(topic)
        if self._codec is not None and not isinstance(body, Message):
            body, properties = encoded(self._codec, body, properties)
        if isinstance(body, Message):
            message = body
        elif isinstance(body, (bytes, str)):
            kind = BodyKind.DATA if isinstance(body, bytes) else BodyKind.VALUE
            message = Message(body, kind, properties=properties, application_properties=application_properties or {})
        else:
            raise UsageError(
                f"a {type(body).__name__} cannot be published",
                "a body is bytes, a string or a Message",
                "give the consumer a codec, or encode it, for example as JSON",
            )
        created = message.properties or Properties()
        if created.creation_time is None:
            created = replace(created, creation_time=int(time.time() * 1000))
        self._store.publish(topic, replace(message, properties=created))


def check_topic(topic: str) -> None:
    """Check that routers will take messages for it.

    Raises:
        UsageError: they will not.
    """
    tokens = topic.replace("/", ".").split(".")
    if (
        not topic
        or len(topic.encode()) > MAX_TOPIC_BYTES
        or len(tokens) > MAX_TOKENS
        or not {"*", "#"}.isdisjoint(tokens)
    ):
        raise UsageError(
            f"nothing can be published to {topic[:40]!r}",
            f"a topic has 1 to {MAX_TOPIC_BYTES} bytes, at most {MAX_TOKENS} tokens, and no token * or #",
            "give a topic such as orders or orders.eu",
        )
