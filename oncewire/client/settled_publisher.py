"""A publisher whose messages are sent at most once: pre-settled transfers, and nothing is kept (I-1c)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from oncewire.client.bodies import Body, check_size, encode_body
from oncewire.client.errors import ClientError
from oncewire.client.guarantee import Guarantee
from oncewire.client.journal_writer import JournalWriter
from oncewire.client.link import ClientLink, LinkOwner
from oncewire.wire import (
    AmqpSession,
    DeliveryReceived,
    DispositionReceived,
    LinkFlow,
    Properties,
    SenderLink,
    SenderSettleMode,
    Source,
    Target,
    TerminusExpiryPolicy,
    ULong,
    vocabulary,
)

SETTLED_SESSION_S = 60
"""How long the router keeps a disconnected link. Nothing in it is unsettled, so no outage has to fit."""

NO_TAG = b""
"""It names nothing: a pre-settled transfer is never referred to (I-1c)."""


class SettledPublisher(ClientLink):
    """Sends messages to one topic, each at most once. Made by ``Client.settled_publisher()``; use ``async with``.

    No message has an outcome. A message is lost when the connection breaks behind it, when a router on its way fails,
    or when a subscriber has no room for it; nothing is sent twice. Messages arrive in the order they were sent.

    Attributes:
        topic: where its messages go.
        name: of the link.
        statistics: counts since it was opened; `accepted` stays 0.
        guarantee: at most once.
    """

    def __init__(self, client: LinkOwner, name: str, topic: str, journal: JournalWriter, *, is_named: bool) -> None:
        super().__init__(client, name, journal, is_named=is_named)
        self.topic = topic
        self.guarantee = Guarantee.AT_MOST_ONCE
        self._turn = asyncio.Lock()  # senders wait in the order they came
        self._room: asyncio.Future[None] | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._max_message_size = 0

    # --- sending ------------------------------------------------------------------------------------------------------

    async def send(
        self,
        body: Body,
        *,
        timeout: float | None = None,
        properties: Properties | None = None,
        application_properties: dict[str, object] | None = None,
    ) -> None:
        """Write a message to the connection; waits while no router is connected or the router grants no credit.

        Returns when the message is handed to the connection. What becomes of it then is not reported.

        Args:
            body: bytes, a string, a ``Message`` or a ``proton.Message``.
            timeout: seconds to wait; None = as long as it takes.
            properties: of the message, beside bytes or a string.
            application_properties: likewise.

        Raises:
            TimeoutError: the time is over; the message was not written, and will not be.
            UsageError: the message cannot be encoded, or is too large.
            ClientError: the publisher failed or was closed; the message was not written.
        """
        self._check_open()
        payload = encode_body(body, properties, application_properties)
        async with asyncio.timeout(timeout), self._turn:
            wire = await self._until_credit()
            check_size(payload, self._max_message_size, self.client._router_name)
            wire.send(NO_TAG, payload, settled=True)
        self.statistics.messages += 1
        self.client._flush()

    async def _until_credit(self) -> SenderLink:
        while True:
            self._check_open()
            wire = self._wire
            if isinstance(wire, SenderLink) and wire.is_attached and wire.credit > 0:
                return wire
            self._room = self._loop.create_future()
            await self._wait(self._room)

    def _check_open(self) -> None:
        self._check_usable()
        if self._is_closing:
            raise self._is_over()

    # --- the end ------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End the link, behind everything that was written. Senders that still wait get ClientClosed."""
        await self._finish(closed=True)

    async def suspend(self) -> None:
        """Leave without waiting for the router. Senders that still wait get ClientClosed."""
        await self._finish(closed=False)

    async def _finish(self, *, closed: bool) -> None:
        if not await self._begin_closing():
            return
        try:
            if self._failure is None:
                await self._leave(closed=closed)
        finally:
            self._fail(self._is_over())

    # --- the link -----------------------------------------------------------------------------------------------------

    async def _opened(self) -> None:
        """Wait until the first router has granted credit.

        Raises:
            ClientError: it was refused.
        """
        await self._wait_shared(self._ready)

    def _attach(self, session: AmqpSession) -> SenderLink:
        return session.attach_sender(
            self.name,
            source=Source(address=self.client.container_id, outcomes=vocabulary.OUTCOMES),
            target=Target(
                address=self.topic,
                expiry_policy=TerminusExpiryPolicy.LINK_DETACH,
                timeout=SETTLED_SESSION_S,
                capabilities=(vocabulary.TOPIC,),
            ),
            snd_settle_mode=SenderSettleMode.SETTLED,
        )

    def _attached(self) -> None:
        assert self._wire is not None
        remote = self._wire.remote_attach
        assert remote is not None
        self._max_message_size = remote.max_message_size or 0

    def _on_flow(self, event: LinkFlow) -> None:
        """Credit, or a proof of life that is asked for (A-4)."""
        wire = self._wire
        if not isinstance(wire, SenderLink) or event.link is not wire or not wire.is_attached:
            return
        echo = vocabulary.number_in(event.properties, vocabulary.ECHO)
        if echo is not None:
            wire.flow({vocabulary.ECHO: ULong(echo)})
        if event.drain:
            wire.drained()
        if wire.credit > 0:
            if self._down_since is not None or not self._ready.done():
                self._became_active(resumed=False, unsettled=0)
            if not self._ready.done():
                self._ready.set_result(None)
            if self._room is not None and not self._room.done():
                self._room.set_result(None)
        self.client._flush()

    def _on_delivery(self, event: DeliveryReceived) -> None:
        """Routers send nothing on a publisher's link."""
        raise AssertionError(event)

    def _on_disposition(self, event: DispositionReceived) -> None:
        """Nothing here is unsettled, so none can come; the engine reports none for settled transfers."""

    def _lost(self) -> None:
        """What was written is out of our hands."""

    def _is_worthless(self) -> bool:
        return True  # nothing is kept for it

    def _expired(self) -> None:
        """There is no session to lose."""

    # --- the journal: nothing is recorded -----------------------------------------------------------------------------

    @property
    def _wants_commit(self) -> bool:
        """Never: no message is recorded."""
        return False

    def _take_commit(self) -> Callable[[], None]:
        """Never called: there is nothing to write."""
        raise AssertionError("a settled publisher has nothing to commit")

    def _commit_done(self) -> None:
        """Never called: there is nothing to write."""
        raise AssertionError("a settled publisher has nothing to commit")

    def _release_all(self, error: ClientError) -> None:
        """Senders wait through `_wait`, which gives them the error."""
