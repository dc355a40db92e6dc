"""Requests and their answers, over topics: a requester has one answer for each request, or an error that says why.

A request is a message with `reply-to` and `correlation-id`, an answer one with the same `correlation-id`, as stock
clients and brokers have it (AMQP 3.2.4). Both go exactly once, over the crash of any router. A responder accepts a
request when its answer was accepted: one with a name that crashes before answers again when it comes back, and the
requester takes the first answer alone. What the responder does for a request it may then do twice: do it in an
idempotent way, by `delivery_hash` for example.

An inbox is a topic with a name that nobody guesses. It ends with its requester, and later answers go nowhere.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from oncewire.client.connection import Client
from oncewire.client.defaults import PREFETCH
from oncewire.client.delivery import Delivery
from oncewire.client.errors import ClientClosed, ClientError, LinkRefused, NotAccepted, UsageError
from oncewire.client.journals import JournalSource, random_container_id
from oncewire.client.outcomes import Outcome
from oncewire.client.put_off import ended
from oncewire.client.subscriber import Subscriber
from oncewire.wire import NOT_FOUND, Message, Properties, WireError

if TYPE_CHECKING:
    from oncewire.client.codec import CodecSource
    from oncewire.client.codec_publisher import CodecPublisher

KEPT_PUBLISHERS = 100
"""Of one requester or responder; the one that was used longest ago is closed. Each is a key in etcd."""
INBOX = "_answers."
"""Begins the topic of an inbox."""
NO_REPLY_TO = "amqp:precondition-failed"
REFUSED = "oncewire-refused"
"""Application property of an answer that is none: why the responder refuses the request."""


class RequestRefused(ClientError):
    """A responder has refused the request; `why` is what it says."""


class _Publishers:
    """One publisher for each address, as long as it is used."""

    def __init__(self, client: Client, *, require: int | None, codec: CodecSource | None) -> None:
        self._client = client
        self._require = require
        self._codec = codec
        self._opening: dict[str, asyncio.Task[CodecPublisher]] = {}

    async def of(self, address: str) -> CodecPublisher:
        """The publisher to an address; several may ask for it at once.

        Raises:
            LinkRefused, ClientError: it cannot be opened.
        """
        opening = self._opening.pop(address, None)
        if opening is None or not _is_usable(opening):
            opening = asyncio.ensure_future(self._client.publisher(address, require=self._require, codec=self._codec))
        self._opening[address] = opening  # the last that anybody used
        if len(self._opening) > KEPT_PUBLISHERS:
            await self._close_one()
        return await asyncio.shield(opening)

    async def _close_one(self) -> None:
        """Close the first that waits for no outcome; where all of them do, one more is kept."""
        for address, opening in self._opening.items():
            if opening.done() and opening.exception() is None and not opening.result().unfinished:
                del self._opening[address]
                await opening.result().close()
                return

    async def close(self) -> None:
        """Suspend all of them: what has no outcome by now may never have one."""
        openings = list(self._opening.values())
        self._opening.clear()
        for opening in openings:
            opening.cancel()
        await ended(*openings)
        for opening in openings:
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().suspend()


def _is_usable(opening: asyncio.Task[CodecPublisher]) -> bool:
    """Whether it may still become a publisher, or is one that has not ended: its right may have come back since."""
    if not opening.done():
        return True
    try:
        opening.result()._check_usable()
    except (ClientError, asyncio.CancelledError):
        return False
    return True


class Requester:
    """Sends requests and waits for their answers. Use it with ``async with``, as long as its client is connected.

    Any number of requests may be under way at once.

    Args:
        client: connected.
        codec: encodes requests and reads answers, as of a publisher and a subscriber.
    """

    def __init__(self, client: Client, *, codec: CodecSource | None = None) -> None:
        self._client = client
        self._codec = codec
        self._publishers = _Publishers(client, require=1, codec=codec)
        self._waiting: dict[str, asyncio.Future[Delivery]] = {}
        self._inbox: Subscriber | None = None
        self._address = INBOX + random_container_id()
        self._numbers = itertools.count(1)
        self._taking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Open the inbox.

        Raises:
            LinkRefused, ClientError: it cannot be opened.
        """
        self._inbox = await self._client.subscriber(self._address, codec=self._codec)
        self._taking = asyncio.create_task(self._take(self._inbox))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the inbox. Requests that still wait fail with ClientClosed."""
        assert self._inbox is not None, "the block was entered"
        assert self._taking is not None, "the block was entered"
        self._taking.cancel()
        await ended(self._taking)
        self._fail(ClientClosed("the request has no answer", "its requester was closed", "keep the requester open"))
        try:
            await self._publishers.close()
        finally:
            await self._inbox.close()

    async def request(
        self,
        topic: str,
        body: object,
        *,
        timeout: float | None = None,
        application_properties: dict[str, object] | None = None,
    ) -> Delivery:
        """Send a request and wait for its answer.

        Args:
            topic: where responders subscribe.
            body: bytes or a string; with a codec what that encodes.
            timeout: seconds to wait; None = as long as it takes.
            application_properties: of the request.

        Returns:
            The answer, which is accepted already: `body`, `value` and `message` are its content.

        Raises:
            RequestRefused: a responder has refused it, and says why.
            NotAccepted: nobody subscribes to the topic.
            TimeoutError: the time is over. A responder may do what was requested nevertheless; its answer is dropped.
            LinkRefused, ClientError: the topic cannot be published to, or the client has failed or was closed.
        """
        if self._taking is None or self._taking.done():
            raise UsageError(
                "the request was not sent", "its requester is not open", "use `async with Requester(client)`"
            )
        number = str(next(self._numbers))
        properties = Properties(reply_to=self._address, correlation_id=number)
        answer: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with asyncio.timeout(timeout):
                publisher = await self._publishers.of(topic)
                sending = await publisher.submit(
                    body, properties=properties, application_properties=application_properties
                )
                sending.was_awaited = True
                sending.future.add_done_callback(partial(_fail_unless_accepted, answer))
                return _unless_refused(await answer, topic)
        finally:
            del self._waiting[number]
            if answer.done() and not answer.cancelled():
                answer.exception()  # whatever is raised is the reason

    async def _take(self, inbox: Subscriber) -> None:
        """Hand answers to those who wait, and accept all."""
        try:
            while True:
                answers = await inbox.receive_many(PREFETCH)
                for answer in answers:
                    waiting = self._waiting.get(_correlation(answer))
                    if waiting is not None and not waiting.done():
                        waiting.set_result(answer)
                await inbox.finish(answers)
        except ClientError as error:
            self._fail(error)

    def _fail(self, error: ClientError) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)


def _fail_unless_accepted(answer: asyncio.Future[Delivery], outcome: asyncio.Future[Outcome]) -> None:
    """A request that nobody has gets no answer."""
    if answer.done():
        return
    if outcome.cancelled():
        answer.cancel()
    elif (error := outcome.exception()) is not None:
        answer.set_exception(error)
    elif not outcome.result().is_accepted:
        answer.set_exception(NotAccepted([outcome.result()]))


def _unless_refused(answer: Delivery, topic: str) -> Delivery:
    why = answer.message.application_properties.get(REFUSED)
    if why is None:
        return answer
    raise RequestRefused(f"a request to {topic!r} was refused", str(why), "send what the responder takes")


def _correlation(answer: Delivery) -> str:
    """Empty where it has none of ours: anybody may publish to a topic."""
    try:
        properties = answer.message.properties
    except WireError:
        return ""
    return str(properties.correlation_id) if properties is not None else ""


class Request:
    """A request to answer; `answer()`, `refuse()` or `delivery.release()` ends it.

    Attributes:
        delivery: it came in.
        reply_to: where its answer goes.
    """

    __slots__ = ("_publishers", "delivery", "reply_to")

    def __init__(self, publishers: _Publishers, delivery: Delivery, reply_to: str) -> None:
        self._publishers = publishers
        self.delivery = delivery
        self.reply_to = reply_to

    @property
    def body(self) -> object:
        """As it was sent: bytes, a string or another value."""
        return self.delivery.body

    @property
    def value(self) -> Any:
        """What the responder's codec reads from the body. Raises BodyNotDecoded: it cannot: refuse the request."""
        return self.delivery.value

    async def answer(self, body: object, *, application_properties: dict[str, object] | None = None) -> None:
        """Send the answer, and accept the request when it was accepted, or when nobody waits for it any more.

        It waits for whoever asked: answer in tasks of your own where one that is slow, or just gone, must not hold up
        the next. An inbox without its client ends after a minute.

        Args:
            body: bytes or a string; with a codec what that encodes.
            application_properties: of the answer.

        Raises:
            UsageError: the answer cannot be encoded, or the request has ended before.
            LinkRefused, ClientError: it cannot be sent; the request stays unfinished.
        """
        await self._end(body, properties=self._of_answer(), application_properties=application_properties)

    async def refuse(self, why: str) -> None:
        """Answer with an error: whoever asked gets RequestRefused with this text. Errors as `answer`."""
        await self._end(Message(b"", properties=self._of_answer(), application_properties={REFUSED: why}))

    def _of_answer(self) -> Properties:
        properties = self.delivery.message.properties
        correlation = None if properties is None else (properties.correlation_id or properties.message_id)
        return Properties(to=self.reply_to, correlation_id=correlation)

    async def _end(self, body: object, **beside: Any) -> None:
        try:
            publisher = await self._publishers.of(self.reply_to)
            await publisher.send(body, **beside)
        except NotAccepted:
            pass  # whoever asked does not want it
        except LinkRefused as error:
            if error.condition != NOT_FOUND:
                raise
        await self.delivery.accept()


class Responder:
    """Receives requests: ``async with Responder(client, topic) as requests: async for request in requests: ...``.

    What comes without `reply-to` is rejected: nobody waits for an answer. It is open until the block is left.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        name: str | None = None,
        journal: JournalSource | None = None,
        share: str | None = None,
        prefetch: int = PREFETCH,
        codec: CodecSource | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            client: connected.
            topic: of the requests.
            name: of the subscription: it outlives this process, and requests wait for the next one.
            journal: as of a subscriber.
            share: the name of a shared subscription: each request goes to one of its responders.
            prefetch: requests that may come ahead.
            codec: reads requests and encodes answers, as of a subscriber and a publisher.
        """
        self._opening = partial(
            client.subscriber, topic, name=name, journal=journal, share=share, prefetch=prefetch, codec=codec
        )
        self._publishers = _Publishers(client, require=None, codec=codec)
        self._requests: Subscriber | None = None

    async def __aenter__(self) -> Self:
        """Subscribe.

        Raises:
            LinkRefused, ClientError: it was refused.
        """
        self._requests = await self._opening()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the subscription, or suspend it if it has a name."""
        assert self._requests is not None, "the block was entered"
        try:
            await self._publishers.close()
        finally:
            await self._requests.close()

    async def receive(self, timeout: float | None = None) -> Request:
        """The next request; several tasks may ask for one.

        Raises:
            TimeoutError: the time is over.
            ClientError: the subscription or the client has ended.
        """
        assert self._requests is not None, "the block was entered"
        async with asyncio.timeout(timeout):
            while True:
                delivery = await self._requests.receive()
                try:
                    properties = delivery.message.properties
                except WireError:
                    properties = None
                if properties is not None and properties.reply_to:
                    return Request(self._publishers, delivery, properties.reply_to)
                await delivery.reject("a request names in reply-to where its answer goes", NO_REPLY_TO)

    async def __aiter__(self) -> AsyncIterator[Request]:
        while True:
            yield await self.receive()
