"""One delivery, for programs without an event loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from oncewire import client as asynchronous
from oncewire.client.defaults import REJECTED
from oncewire.client.loop_thread import LoopThread

if TYPE_CHECKING:
    import sqlite3
    from datetime import datetime

    from oncewire.wire import Message


class Delivery:
    """A message to process. Finish it with ``accept()``, ``reject()`` or in a ``transaction()``; or ``release()`` it.

    What it holds is described at ``oncewire.client.Delivery``.

    Attributes:
        asynchronous: what it stands for in the event loop.
    """

    def __init__(self, thread: LoopThread, delivery: asynchronous.Delivery) -> None:
        self._thread = thread
        self.asynchronous = delivery
        self.tag = delivery.tag
        self.payload = delivery.payload
        self.attempts = delivery.attempts
        self.is_settled = delivery.is_settled
        self.incarnation = delivery.incarnation
        self.message_format = delivery.message_format

    @property
    def message(self) -> Message:
        """The decoded message. Raises oncewire.wire.DecodeError: the payload is none."""
        return self.asynchronous.message

    @property
    def body(self) -> object:
        """The body: bytes, a string or another value, as it was sent. Errors as `message`."""
        return self.asynchronous.body

    @property
    def value(self) -> Any:
        """What the codec of the subscriber reads from the body. Raises BodyNotDecoded: it cannot."""
        return self.asynchronous.value

    @property
    def dead_letter(self) -> asynchronous.DeadLetter | None:
        """Why it came to a dead-letter topic; None: it is no dead letter."""
        return self.asynchronous.dead_letter

    @property
    def position(self) -> int | None:
        """Of a delivery from a journal its number there, from 1; None: it comes from a topic."""
        return self.asynchronous.position

    @property
    def stored_at(self) -> datetime | None:
        """When the journal stored it, to the millisecond (UTC); None: as `position`, or it has another format."""
        return self.asynchronous.stored_at

    @property
    def topic(self) -> str | None:
        """The topic or pattern that brought it to its journal; None: as `stored_at`, or its sender sent it there."""
        return self.asynchronous.topic

    @property
    def publisher(self) -> str:
        """Who sent it, container-id/link-name; empty if unknown."""
        return self.asynchronous.publisher

    @property
    def user(self) -> str:
        """Who that is, as logged in at its router; empty without a login."""
        return self.asynchronous.user

    @property
    def is_redelivered(self) -> bool:
        """True when it was repeated after a failover; of use to at-least-once subscribers only."""
        return self.asynchronous.is_redelivered

    @property
    def is_in_doubt(self) -> bool:
        """True when its publisher sends it again not knowing what became of the first try (A-5)."""
        return self.asynchronous.is_in_doubt

    def accept(self) -> None:
        """Record that it is processed, then notify the network. Returns when it is recorded. Errors as `finish`."""
        self._thread.call(self.asynchronous.accept)

    def reject(self, description: str = "", condition: str = REJECTED) -> None:
        """It is invalid and must not be delivered again; its publisher may get the reason. Errors as `finish`."""
        self._thread.call(lambda: self.asynchronous.reject(description, condition))

    def release(self) -> None:
        """Put it back: this subscriber gets it again, before all later ones. Raises UsageError: it was finished."""

        async def put_back() -> None:
            self.asynchronous.release()

        self._thread.call(put_back)

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """Process it and accept it in one transaction of the journal; see ``Subscriber.transaction``."""
        return block_of(self._thread, self.asynchronous.transaction())


@contextmanager
def block_of(
    thread: LoopThread, block: AbstractAsyncContextManager[sqlite3.Connection]
) -> Iterator[sqlite3.Connection]:
    """A block of the event loop, whose inside runs here."""
    connection = thread.call(block.__aenter__)
    try:
        yield connection
    except BaseException as error:
        raised = error
        if not thread.call(lambda: block.__aexit__(type(raised), raised, raised.__traceback__)):
            raise
    else:
        thread.call(lambda: block.__aexit__(None, None, None))
