"""The publisher as applications see it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from oncewire.client.bodies import Body, check_size, encode_body
from oncewire.client.core_effects import ReportOwing
from oncewire.client.errors import ClientError, NotAccepted, StillOwed, UsageError, WindowFull
from oncewire.client.events import PublisherWaits
from oncewire.client.journal_writer import JournalWriter
from oncewire.client.link import LinkOwner
from oncewire.client.outcomes import Outcome, counted, ending
from oncewire.client.own_loop import require_loop
from oncewire.client.publisher_core import PublisherCore
from oncewire.client.publisher_link import PublisherLink
from oncewire.client.sending import Sending
from oncewire.client.stall_notice import StallNotice
from oncewire.wire import Properties

if TYPE_CHECKING:
    import sqlite3

logger = logging.getLogger("oncewire.client")

SESSION_TIMEOUT_S = 24 * 3600
"""T_pub: how long the network keeps the session of a disconnected publisher; it must outlive outages."""
OWN_SESSION_S = 600
"""The same where no other process can open the link again (K-5d)."""
ASK_S = 2.0
"""How long to wait for the router's reply to "which subscriptions still owe this message"."""


class Publisher(PublisherLink):
    """Sends messages to one topic. Made by ``Client.publisher()``; use it with ``async with``.

    A message counts as accepted when every subscription has processed it. The publisher keeps what is unsettled,
    resumes at any router, sends again in order, and lets ``send``/``submit`` wait while its window is full.

    Attributes:
        topic: where its messages go.
        name: of the link.
        statistics: counts since it was opened.
        guarantee: what it promises at the peer where it was attached last.
        recovered: messages that the journal held when it was opened, in order; they are sent again by themselves.
    """

    def __init__(
        self,
        client: LinkOwner,
        name: str,
        topic: str,
        journal: JournalWriter,
        core: PublisherCore,
        *,
        exactly_once: bool,
        timeout_s: int | None,
        is_named: bool,
    ) -> None:
        if timeout_s is None:
            timeout_s = SESSION_TIMEOUT_S if is_named else OWN_SESSION_S
        super().__init__(
            client, name, topic, journal, core, exactly_once=exactly_once, timeout_s=timeout_s, is_named=is_named
        )
        self._turn = asyncio.Lock()  # submitters wait in the order they came
        self._notice = StallNotice(self._loop, lambda: next(iter(self._sendings), None), self._notify_stall)

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
            properties: of the message, beside bytes or a string.
            application_properties: likewise.

        Returns:
            The outcome, which is accepted.

        Raises:
            NotAccepted: it ended otherwise; the outcome is in the error.
            StillOwed: the time is over; the message stays in flight, the error names the pending subscriptions.
            WindowFull: the time is over and the message was not even taken.
            UsageError: the message cannot be encoded, or is too large.
            ClientError: the publisher failed or was closed.
        """
        payload = self._encode(body, properties, application_properties)
        sending = self._take_at_once(payload)
        try:
            if timeout is None and sending is not None:
                outcome = await sending
            else:
                async with asyncio.timeout(timeout):
                    sending = sending or (await self._submit([payload]))[0]
                    outcome = await sending
        except TimeoutError:
            if sending is None:
                raise WindowFull(timeout or 0.0, self._core.unfinished) from None
            raise await self._owed(sending) from None
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
        payload = self._encode(body, properties, application_properties)
        return self._take_at_once(payload) or (await self._submit([payload]))[0]

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
            NotAccepted: messages ended with another outcome than accepted, and their `Sending` was not awaited.
            TimeoutError: the time is over; nothing is lost.
            ClientError: the publisher failed or was closed.
        """
        require_loop(self._loop)
        async with asyncio.timeout(timeout):
            while self._sendings:
                self._idle = self._idle or self._loop.create_future()
                await self._wait_shared(self._idle)
        self._check_usable()
        unhappy = list(self._unhappy)
        self._unhappy.clear()
        unseen = [sending._result() for sending in unhappy if not sending.was_awaited]
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
    def _unanswered(self) -> list[Sending]:
        """The messages without an outcome, in order."""
        return list(self._sendings.values())

    @property
    def next_number(self) -> int:
        """How many messages were taken since the journal was made."""
        return self._core.next_number

    # --- the end ------------------------------------------------------------------------------------------------------

    async def close(self, timeout: float | None = None) -> None:
        """Wait for all outcomes (`flush`), then end the publisher's session with the network.

        After five seconds of waiting `PublisherWaits` and a warning in the log name the pending subscriptions.

        Raises:
            ClientError: as `flush` does; while messages have no outcome the publisher is suspended instead.
        """
        if self._is_closing:
            await self._finish(closed=True)
            return
        try:
            async with asyncio.timeout(timeout):
                self._notice.leave()
                await self.flush()
        except NotAccepted:
            await self._finish(closed=True)
            raise
        except BaseException:
            await self.suspend()
            raise
        await self._finish(closed=True)

    async def end_released(self) -> bool:
        """Wait for the outcomes of what was sent, then end the session: the rest is held back behind a release (I-3c).

        For journals that keep what is released; whether the session has ended, so that the next one may send it anew.
        """
        while sent := [each.future for number, each in self._sendings.items() if self._core.was_sent(number)]:
            either: list[asyncio.Future[Outcome] | asyncio.Future[None]] = [sent[0], self._over]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            self._check_usable()
        return await self._begin_closing() and await self._end(closed=True)

    def _notify_stall(self, number: int, seconds: float) -> None:
        """Find out what a message waits for, and report it (see `StallNotice`)."""
        effects = self._core.ask(number)
        if not effects:
            self._say_stall(seconds, (), 0, self._unsent)
            return
        answer = self._owing.setdefault(number, self._loop.create_future())
        unanswered = self._loop.call_later(ASK_S, answer.cancel)

        def answered(found: asyncio.Future[ReportOwing]) -> None:
            unanswered.cancel()
            self._owing.pop(number, None)
            if self._failure is not None or number not in self._sendings:
                return
            if found.cancelled():
                self._say_stall(seconds, (), 0, f"{self.client._router_name} did not report which subscriptions owe it")
                return
            report = found.result()
            self._say_stall(seconds, report.names, report.count, _owed_text(report))

        answer.add_done_callback(answered)
        self._perform(effects)

    def _say_stall(self, seconds: float, names: Sequence[str], count: int, why: str) -> None:
        is_leaving = self._notice.is_leaving
        self.client._notify(PublisherWaits(self.name, self.unfinished, seconds, tuple(names), count, why, is_leaving))
        logger.warning(
            "%s%s has waited %.0f s for the outcomes of %s: %s%s",
            "leaving its block, " if is_leaving else "",
            self.name,
            seconds,
            counted(self.unfinished, "message"),
            why,
            f"; {ending(names[0])}" if names else "",
        )

    @property
    def _unsent(self) -> str:
        if self._wire is None:
            return "no router is connected"
        return "the message was not sent yet, or is being recorded"

    def _fail(self, error: ClientError) -> None:
        """See ClientLink."""
        self._notice.stop()
        super()._fail(error)

    async def suspend(self) -> None:
        """Leave without waiting: the network keeps the session, unsettled messages stay in the journal.

        Messages without outcome raise ClientClosed to who waits for them.
        """
        await self._finish(closed=False)

    async def _finish(self, *, closed: bool) -> None:
        """End the link, also when this is cancelled; nothing is taken from now on."""
        if await self._begin_closing():
            await self._end(closed=closed)

    async def _end(self, *, closed: bool) -> bool:
        """Whether the router has answered that it has."""
        try:
            await self._journal.drain(self)
            return self._failure is None and await self._leave(closed=closed) is None
        finally:
            self._fail(self._is_over())

    # --- taking messages ----------------------------------------------------------------------------------------------

    def _encode(
        self, body: Body, properties: Properties | None = None, application_properties: dict[str, object] | None = None
    ) -> bytes:
        payload = encode_body(body, properties, application_properties)
        self._check_size(payload)
        return payload

    def _check_size(self, payload: bytes) -> None:
        if len(payload) > self._max_message_size:  # else the router's name is not looked up for each message
            check_size(payload, self._max_message_size, self.client._router_name)

    async def _submit(
        self,
        payloads: list[bytes],
        *,
        effect: Callable[[sqlite3.Connection], object] | None = None,
        durable: bool = False,
    ) -> list[Sending]:
        self._check_open()
        async with self._turn:
            await self._until_room(payloads)
            if not durable:
                return self._take(payloads)
            return await self._take_durably(payloads, effect)

    async def _submit_stored(self, payloads: list[bytes]) -> list[Sending]:
        """Take encoded messages that the journal holds already, under the next numbers; wait for room, and no commit.

        Raises:
            UsageError: one is too large, or they are more than the window holds.
            ClientError: the publisher failed or was closed.
        """
        self._check_open()
        for payload in payloads:
            self._check_size(payload)
        async with self._turn:
            await self._until_room(payloads)
            first = self._core.next_number
            for number, payload in enumerate(payloads, first):
                self._core.take_stored(number, payload)
            sendings = [self._sending(number) for number in range(first, first + len(payloads))]
        self._taken(len(payloads))
        return sendings

    async def _until_room(self, payloads: list[bytes]) -> None:
        """Wait for room in the window, in one's turn."""
        if len(payloads) > self._core.window:
            raise UsageError(
                f"{len(payloads)} messages cannot be taken in one transaction",
                f"the window holds {self._core.window}",
                "submit fewer at once, or open the publisher with a larger window",
            )
        size = sum(map(len, payloads))
        while not self._core.has_room(size, len(payloads)):
            self._check_held()
            self._room = self._loop.create_future()
            await self._wait(self._room)
        self._check_open()

    def _take_at_once(self, payload: bytes) -> Sending | None:
        """Take a message if nobody waits for room and there is some; None: there is not."""
        self._check_open()
        if self._turn.locked() or not self._core.has_room(len(payload)):
            return None
        sending = self._sending(self._core.submit(payload))
        self._taken(1)
        return sending

    def _check_held(self) -> None:
        if self._core.is_holding:
            raise NotAccepted([self._core.requirement.released()])

    def _check_open(self) -> None:
        """What is taken while it closes might be stored or sent after the last look."""
        self._check_usable()
        if self._is_closing:
            raise self._is_over()
        self._check_held()

    def _take(self, payloads: list[bytes]) -> list[Sending]:
        sendings = [self._sending(self._core.submit(payload)) for payload in payloads]
        self._taken(len(payloads))
        return sendings

    def _taken(self, count: int) -> None:
        self.statistics.messages += count
        self._work_in_turns()
        self._notice.work()

    def _take_stored(self, number: int, payload: bytes) -> Sending:
        """Take an encoded message that the journal holds already, under its number there (ST-7); wait for no room.

        Raises:
            UsageError: it is too large.
            ClientError: the publisher failed or was closed.
        """
        self._check_open()
        self._check_size(payload)
        self._core.take_stored(number, payload)
        sending = self._sending(number)
        self._taken(1)
        return sending

    async def _recorded(self) -> None:
        """Wait until the journal has what is to be written now: what credit allows to be sent is then on its way (P-1).

        Raises:
            JournalError: it did not become durable.
        """
        await self._journal.drain(self)

    async def _take_durably(
        self, payloads: list[bytes], effect: Callable[[sqlite3.Connection], object] | None
    ) -> list[Sending]:
        journal = self._journal.journal
        if journal.connection is None:
            if effect is not None:
                raise UsageError(
                    "the effect cannot be stored with the messages",
                    "the publisher has no SQLite journal",
                    "open it with journal=PATH",
                )
            return self._take(payloads)
        async with self._journal.transaction(self) as add_changes:
            self._check_open()
            if effect is not None:
                effect(journal.connection)
            sendings = [self._sending(self._core.submit(payload)) for payload in payloads]
            self.statistics.messages += len(payloads)
            add_changes()
        self._notice.work()
        return sendings

    async def _owed(self, sending: Sending) -> StillOwed:
        """Ask the router why a message has no outcome yet; the answer is what `send(timeout=)` would raise."""
        require_loop(self._loop)
        effects = self._core.ask(sending.number)
        if not effects:
            return StillOwed((), 0, self._unsent, sending)
        answer = self._owing.setdefault(sending.number, self._loop.create_future())
        self._perform(effects)
        try:
            await asyncio.wait([answer], timeout=ASK_S)
        finally:
            self._owing.pop(sending.number, None)
        if not answer.done() or answer.cancelled():
            return StillOwed((), 0, f"{self.client._router_name} did not report which subscriptions owe it", sending)
        report = answer.result()
        return StillOwed(report.names, report.count, _owed_text(report), sending)


def _owed_text(report: ReportOwing) -> str:
    if not report.count:
        return "it waits for those before it, or for more subscriptions"
    has = "has" if report.count == 1 else "have"
    return f"{counted(report.count, 'subscription')} {has} not processed it: {', '.join(report.names)}"
