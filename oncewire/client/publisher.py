"""The publisher as applications see it: the asyncio shell of `publisher_core`."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from oncewire.client import wire_words
from oncewire.client.bodies import Body, encode_body
from oncewire.client.core_effects import (
    AnswerDrain,
    AnswerEcho,
    AskOwing,
    PublisherEffect,
    RefuseLink,
    ReportActive,
    ReportExpired,
    ReportOutcome,
    ReportOwing,
    SendTransfer,
    SettleDeliveries,
)
from oncewire.client.errors import (
    ClientError,
    LinkRefused,
    MessageTooLarge,
    NotAccepted,
    StillOwed,
    UsageError,
    WindowFull,
)
from oncewire.client.events import SessionExpired
from oncewire.client.journal_writer import JournalWriter
from oncewire.client.link import ClientLink
from oncewire.client.outcomes import Outcome
from oncewire.client.publisher_core import PublisherCore
from oncewire.client.sending import Sending
from oncewire.client.sqlite_journal import SqliteJournal
from oncewire.wire import (
    AmqpSession,
    DeliveryReceived,
    DispositionReceived,
    LimitError,
    LinkFlow,
    Properties,
    SenderLink,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
    ULong,
)

if TYPE_CHECKING:
    from oncewire.client.connection import Client

SESSION_TIMEOUT_S = 24 * 3600
"""T_pub: how long the network remembers the session of a publisher that is away; it must outlive outages."""
ASK_S = 2.0
"""How long to wait for the router's answer to "who still owes this message"."""


class Publisher(ClientLink):
    """Sends messages to one topic. Made by ``Client.publisher()``; use it with ``async with``.

    A message counts as accepted when every subscription has processed it. The publisher keeps what is unsettled,
    resumes at any router, sends again in order, and lets ``send``/``submit`` wait while its window is full.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        topic: str,
        journal: JournalWriter,
        core: PublisherCore,
        *,
        exactly_once: bool,
        timeout_s: int,
        is_named: bool,
    ) -> None:
        super().__init__(client, name, journal, is_named=is_named)
        self.topic = topic
        self._core = core
        self._exactly_once = exactly_once
        self._timeout_s = timeout_s
        self._sendings: dict[int, Sending] = {}
        self._unhappy: list[Sending] = []  # ended otherwise than accepted, and perhaps nobody looked
        self._owing: dict[int, asyncio.Future[ReportOwing]] = {}
        self._turn = asyncio.Lock()  # submitters wait in the order they came
        self._room: asyncio.Future[None] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._max_message_size = 0
        self._closed = False
        self.recovered = tuple(self._sending(number) for number in core.recovered_messages())
        """Messages that the journal held when the publisher was opened; they go on by themselves."""
        for report in core.recovered_outcomes():
            self._sendings[report.number] = sending = Sending(report.number)
            self.recovered += (sending,)
            self._report(report)

    # --- sending ------------------------------------------------------------------------------------------------------

    async def send(
        self,
        body: Body,
        *,
        timeout: float | None = None,
        properties: Properties | None = None,
        application_properties: dict[str, object] | None = None,
    ) -> Outcome:
        """Send a message and wait until every subscription has processed it.

        Args:
            body: bytes, a string, a ``Message`` or a ``proton.Message``.
            timeout: seconds to wait; None = as long as it takes.
            properties, application_properties: of the message, beside bytes or a string.

        Returns:
            The outcome, which is accepted.

        Raises:
            NotAccepted: it ended otherwise; the outcome is in the error.
            StillOwed: the time is over; the message stays in flight, the error says who owes an outcome.
            WindowFull: the time is over and the message was not even taken.
            UsageError: the message cannot be encoded, or is too large.
            ClientError: the publisher failed or was closed.
        """
        payload = self._encode(body, properties, application_properties)
        sending: Sending | None = None
        try:
            async with asyncio.timeout(timeout):
                sending = (await self._submit([payload]))[0]
                outcome = await sending
        except TimeoutError:
            if sending is None:
                raise WindowFull(timeout or 0.0, self._core.unfinished) from None
            raise await self.owed(sending) from None
        if not outcome.is_accepted:
            raise NotAccepted([outcome])
        return outcome

    async def submit(
        self,
        body: Body,
        *,
        properties: Properties | None = None,
        application_properties: dict[str, object] | None = None,
    ) -> Sending:
        """Take a message; returns as soon as the window has room for it. ``await`` the result for the outcome.

        With a durable journal it survives this process from its commit on, which its outcome implies.

        Raises:
            UsageError: the message cannot be encoded, or is too large.
            ClientError: the publisher failed or was closed.
        """
        return (await self._submit([self._encode(body, properties, application_properties)]))[0]

    async def submit_many(
        self, bodies: Sequence[Body], *, effect: Callable[[sqlite3.Connection], object] | None = None
    ) -> list[Sending]:
        """Take several messages, with a change of the application's own tables, in one transaction of the journal.

        Either all of it becomes durable or nothing: a source that keeps its place in the same file is read exactly
        once, whenever this process is killed. Returns when it is durable.

        Args:
            bodies: at most as many as the window holds.
            effect: called with the journal's SQLite connection inside the transaction; it must not commit.

        Raises:
            UsageError: `effect` without a SQLite journal, too many messages, or one that cannot be encoded.
            JournalError: nothing was taken; the publisher has failed.
            ClientError: the publisher failed or was closed.
        """
        return await self._submit([self._encode(body) for body in bodies], effect=effect, durable=True)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every message taken so far has its outcome.

        Raises:
            NotAccepted: messages ended otherwise than accepted, and nobody has awaited them.
            TimeoutError: the time is over; nothing is lost.
            ClientError: the publisher failed or was closed.
        """
        async with asyncio.timeout(timeout):
            while self._sendings:
                self._idle = self._idle or self._loop.create_future()
                await self._wait(asyncio.shield(self._idle))
        self._check_usable()
        unhappy, self._unhappy = self._unhappy, []
        unseen = [sending.future.result() for sending in unhappy if not sending.was_awaited]
        if unseen:
            raise NotAccepted(unseen)

    @property
    def unfinished(self) -> int:
        """Messages without an outcome."""
        return len(self._sendings)

    @property
    def oldest(self) -> Sending | None:
        """The first message without an outcome; later ones wait for it."""
        return next(iter(self._sendings.values()), None)

    @property
    def next_number(self) -> int:
        """How many messages were taken since the journal was made."""
        return self._core.next_number

    # --- the end ------------------------------------------------------------------------------------------------------

    async def close(self, timeout: float | None = None) -> None:
        """Wait for all outcomes (`flush`), then end the publisher's session with the network.

        Raises:
            As `flush`; while messages have no outcome the publisher is suspended instead.
        """
        if self._closed:
            return
        try:
            await self.flush(timeout)
        except NotAccepted:
            await self._finish(closed=True)
            raise
        except BaseException:
            await self.suspend()
            raise
        await self._finish(closed=True)

    async def suspend(self) -> None:
        """Leave without waiting: the network keeps the session, unsettled messages stay in the journal.

        Messages without outcome raise ClientClosed to who waits for them.
        """
        if not self._closed:
            await self._finish(closed=False)

    async def _finish(self, *, closed: bool) -> None:
        self._closed = True
        if self._failure is None:
            await self._journal.drain(self)
            await self._leave(closed=closed)
            self.fail(self._is_over())

    async def __aenter__(self) -> Publisher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.close() if kind is None else self.suspend())

    # --- taking messages ----------------------------------------------------------------------------------------------

    def _encode(
        self,
        body: Body,
        properties: Properties | None = None,
        application_properties: dict[str, object] | None = None,
    ) -> bytes:
        payload = encode_body(body, properties, application_properties)
        if self._max_message_size and len(payload) > self._max_message_size:
            raise MessageTooLarge(
                f"a message of {len(payload)} bytes cannot be sent",
                f"{self.client.router_name} takes {self._max_message_size} bytes at most",
                "send less at once, or raise max_message_size of the routers",
            )
        return payload

    async def _submit(
        self,
        payloads: list[bytes],
        *,
        effect: Callable[[sqlite3.Connection], object] | None = None,
        durable: bool = False,
    ) -> list[Sending]:
        self._check_usable()
        size = sum(map(len, payloads))
        if not durable and not self._turn.locked() and self._core.has_room(size, len(payloads)):
            return self._take(payloads)
        if len(payloads) > self._core.window:
            raise UsageError(
                f"{len(payloads)} messages cannot be taken in one transaction",
                f"the window holds {self._core.window}",
                "submit fewer at once, or open the publisher with a larger window",
            )
        async with self._turn:
            while not self._core.has_room(size, len(payloads)):
                self._room = self._loop.create_future()
                await self._wait(self._room)
            self._check_usable()
            if not durable:
                return self._take(payloads)
            return await self._take_durably(payloads, effect)

    def _take(self, payloads: list[bytes]) -> list[Sending]:
        sendings = [self._sending(self._core.submit(payload)) for payload in payloads]
        self.statistics.messages += len(payloads)
        self._journal.work(self)
        return sendings

    async def _take_durably(
        self, payloads: list[bytes], effect: Callable[[sqlite3.Connection], object] | None
    ) -> list[Sending]:
        journal = self._journal.journal
        if not isinstance(journal, SqliteJournal):
            if effect is not None:
                raise UsageError(
                    "the effect cannot be stored with the messages",
                    "the publisher has no SQLite journal",
                    "open it with journal=PATH",
                )
            return self._take(payloads)
        async with self._journal.transaction(self) as add_changes:
            if effect is not None:
                effect(journal.connection)
            sendings = [self._sending(self._core.submit(payload)) for payload in payloads]
            self.statistics.messages += len(payloads)
            add_changes()
        return sendings

    def _sending(self, number: int) -> Sending:
        self._sendings[number] = sending = Sending(number)
        return sending

    async def owed(self, sending: Sending) -> StillOwed:
        """Ask the router why a message has no outcome yet; the answer is what `send(timeout=)` would raise."""
        effects = self._core.ask(sending.number)
        if not effects:
            why = (
                "no router is connected"
                if self._wire is None
                else "the message was not sent yet, or is being recorded"
            )
            return StillOwed((), 0, why, sending)
        answer = self._owing.setdefault(sending.number, self._loop.create_future())
        self._perform(effects)
        await asyncio.wait([answer], timeout=ASK_S)
        self._owing.pop(sending.number, None)
        if not answer.done():
            return StillOwed((), 0, f"{self.client.router_name} did not say who owes it", sending)
        report = answer.result()
        why = f"{report.count} subscription(s) have not processed it: {', '.join(report.names)}"
        return StillOwed(report.names, report.count, why, sending)

    # --- the link -----------------------------------------------------------------------------------------------------

    async def opened(self) -> None:
        """Wait until the first router has granted the link.

        Raises:
            ClientError: it was refused.
        """
        await self._wait(asyncio.shield(self._ready))

    def _attach(self, session: AmqpSession) -> SenderLink | None:
        if not self._core.may_attach:
            return None
        bound = self.client.map_bound
        if not self._core.fits(bound):
            self.fail(
                LinkRefused(
                    f"the publisher {self.name!r} cannot be resumed",
                    f"{self.client.router_name} takes frames that hold {bound} unsettled deliveries, there are more",
                    "raise max_frame_size of the routers, or use a smaller window",
                )
            )
            return None
        presented = self._core.begin_attach(bound)
        expiry = TerminusExpiryPolicy.LINK_DETACH
        return session.attach_sender(
            self.name,
            source=Source(address=self.client.container_id, outcomes=wire_words.OUTCOMES),
            target=Target(
                address=self.topic,
                durable=TerminusDurability.UNSETTLED_STATE,
                expiry_policy=expiry,
                timeout=self._timeout_s,
                capabilities=(wire_words.TOPIC,),
            ),
            unsettled=None if presented is None else dict(presented),
            desired_capabilities=(wire_words.EXACTLY_ONCE,) if self._exactly_once else (),
        )

    def _is_granted(self) -> bool:
        remote = None if self._wire is None else self._wire.remote_attach
        return remote is not None and remote.target is not None

    def _attached(self) -> None:
        assert self._wire is not None
        remote = self._wire.remote_attach
        assert remote is not None
        self._max_message_size = remote.max_message_size or 0
        resume = (remote.properties or {}).get(wire_words.RESUME)
        capable = wire_words.EXACTLY_ONCE in remote.offered_capabilities
        self._perform(self._core.attached(capable=capable, resume=resume if isinstance(resume, str) else ""))

    def on_flow(self, event: LinkFlow) -> None:
        """Credit, a proof of life that is asked for, or an answer to `ask`."""
        wire = self._wire
        if wire is None or event.link is not wire or event.credit_limit is None:
            return
        properties = event.properties
        asked = None if properties is None else properties.get(wire_words.ASKED)
        if properties is not None and isinstance(asked, bytes):
            named = properties.get(wire_words.OWING)
            names = [str(name) for name in named] if isinstance(named, (list, tuple)) else []
            count = wire_words.number_in(properties, wire_words.OWING_COUNT)
            self._perform(self._core.asked(asked, names, len(names) if count is None else count))
        # A later flow of the same read may have lowered the credit already.
        moved = wire.delivery_count - (
            wire.local_attach.initial_delivery_count or 0 if wire.local_attach else 0
        )
        limit = min(event.credit_limit, (moved & wire_words.SERIAL_MASK) + wire.credit)
        self._perform(
            self._core.flow(
                limit,
                drain=event.drain,
                echo=wire_words.number_in(properties, wire_words.ECHO),
                session=wire_words.number_in(properties, wire_words.SESSION),
            )
        )
        self._journal.work(self)

    def on_delivery(self, event: DeliveryReceived) -> None:
        """Routers send nothing on a publisher's link."""
        raise AssertionError(event)

    def on_disposition(self, event: DispositionReceived) -> None:
        """Outcomes."""
        outcome = wire_words.outcome_of(event.state)
        self._perform(self._core.disposition(event.deliveries, outcome, event.settled))
        self._journal.work(self)

    def _lost(self) -> None:
        self._core.lost()

    def _is_worthless(self) -> bool:
        return not self._is_named and not self._sendings

    def _expired(self) -> None:
        self._perform(self._core.expire())
        self._journal.work(self)

    # --- the journal --------------------------------------------------------------------------------------------------

    @property
    def wants_commit(self) -> bool:
        """Whether the core has something to write."""
        return self._core.wants_commit

    def take_commit(self) -> Callable[[], None]:
        """Take the core's changes; see JournalUser."""
        changes = self._core.next_commit()
        return lambda: self._journal.journal.write_publisher(self.name, changes)

    def commit_done(self) -> None:
        """The changes are durable."""
        self._perform(self._core.committed())
        if self._core.may_attach and self._wire is None:
            self._attach_after_commit()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._journal.work(self)

    def _attach_after_commit(self) -> None:
        """An expired session is recorded: the fresh attach that waited for it (A-5)."""
        if self._retry is None:
            self.attach_soon()

    # --- effects ------------------------------------------------------------------------------------------------------

    def _perform(self, effects: Sequence[PublisherEffect]) -> None:
        wire = self._wire
        is_attached = isinstance(wire, SenderLink) and wire.is_attached
        for effect in effects:
            if isinstance(effect, SendTransfer):
                if is_attached:
                    self._transfer(effect)
            elif isinstance(effect, ReportOutcome):
                self._report(effect)
            elif isinstance(effect, SettleDeliveries):
                if is_attached:
                    assert isinstance(wire, SenderLink)
                    wire.settle(effect.delivery_ids)
            else:
                self._perform_rare(effect, is_attached=is_attached)
        if is_attached:
            self.client.flush()

    def _perform_rare(self, effect: PublisherEffect, *, is_attached: bool) -> None:
        wire = self._wire
        if isinstance(effect, ReportActive):
            if not self._ready.done():
                self._ready.set_result(None)
            self._became_active(resumed=effect.resumed > 0, unsettled=effect.resumed)
        elif isinstance(effect, ReportExpired):
            self.client.tell(SessionExpired(self.name, len(effect.numbers), effect.sent_again))
        elif isinstance(effect, ReportOwing):
            answer = self._owing.get(effect.number)
            if answer is not None and not answer.done():
                answer.set_result(effect)
        elif isinstance(effect, RefuseLink):
            self.fail(
                LinkRefused(
                    f"the publisher {self.name!r} cannot work with {self.client.router_name}",
                    effect.reason,
                    "connect to an Oncewire router, or open the publisher with exactly_once=False",
                )
            )
        elif is_attached:
            assert isinstance(wire, SenderLink)
            if isinstance(effect, AnswerEcho):
                wire.flow({wire_words.ECHO: ULong(effect.value)})
            elif isinstance(effect, AskOwing):
                wire.flow({wire_words.ASK: effect.tag})
            elif isinstance(effect, AnswerDrain):
                wire.drained()

    def _transfer(self, effect: SendTransfer) -> None:
        assert isinstance(self._wire, SenderLink)
        payload = wire_words.mark_in_doubt(effect.payload) if effect.in_doubt else effect.payload
        try:
            self._wire.send(effect.tag, payload)
        except LimitError as error:  # taken while another router, or none, was connected
            self.fail(
                MessageTooLarge(
                    f"message {effect.number} cannot be sent",
                    str(error),
                    "raise max_message_size of the routers and open the publisher again",
                )
            )

    def _report(self, report: ReportOutcome) -> None:
        sending = self._sendings.pop(report.number, None)
        if report.outcome.is_accepted:
            self.statistics.accepted += 1
        else:
            self.statistics.not_accepted += 1
            self._core.told(report.number)
            if sending is not None:
                self._unhappy.append(sending)
        if sending is not None and not sending.future.done():
            sending.future.set_result(report.outcome)
        if not self._sendings and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _release_all(self, error: ClientError) -> None:
        sendings, self._sendings = self._sendings, {}
        for sending in sendings.values():
            if not sending.future.done():
                sending.future.set_exception(error)
                sending.future.exception()  # whoever does not wait for it needs no warning
        for waiter in (self._ready, self._idle, self._room):
            if waiter is not None and not waiter.done():
                waiter.cancel()
