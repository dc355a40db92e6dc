"""A client that receives from ``journal://NAME``: carries out what `ReaderCore` decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack, suppress
from typing import Any

from bridges.journal import cursors, log
from bridges.journal import reader_core as core
from bridges.journal.messages import readable
from bridges.journal.model import Cursor, JournalState, Place, StoredMessage
from bridges.journal.start_core import start_of, starting_at
from bridges.store.crash_points import CrashPoint, passed
from oncewire.client.service import ServiceLink
from oncewire.store.errors import EdgeError, InvalidRequest, UnknownName
from oncewire.store.open_store import OpenStore, until_set
from oncewire.store.store import Transaction
from oncewire.wire import (
    DeliveryReceived,
    DispositionReceived,
    LinkDetached,
    LinkFlow,
    ReceiverSettleMode,
    SenderSettleMode,
    Source,
    TerminusDurability,
    ULong,
    vocabulary,
)

READ_BYTES = 1 << 20
"""Of one read: a store's transaction, and the memory of one link."""
LONGEST_WAIT_S = 30.0
"""A journal is looked at so often though nothing is announced."""
RETRY_S = 1.0
"""Before a store that failed is asked again."""
FORGET_TRIES = 5
"""How often the end of a cursor is tried while its client waits for the answer to its close."""


def reader_of(link: ServiceLink) -> str:
    """The name of a reader's cursor."""
    return cursors.reader_name(link.user or "", link.container_id, link.name)


class ReaderLink:
    """One link of a reader.

    Args:
        start: runs a piece of work beside the others.
        store: of the journal.
        link: the client's.
        name: of the journal.

    Raises:
        InvalidRequest: the attach asks for what cannot be.
    """

    def __init__(
        self, start: Callable[[Coroutine[Any, Any, None]], object], store: OpenStore[Any], link: ServiceLink, name: str
    ) -> None:
        self.link = link
        self.name = name
        self._work = start
        self._store = store
        attach = link.attach
        source = attach.source
        assert isinstance(source, Source)
        self._source: Source = source
        self._start = start_of(source)
        is_settled = attach.snd_settle_mode == SenderSettleMode.SETTLED
        has_cursor = bool(source.durable) and source.durable != TerminusDurability.NONE and not is_settled
        self._core = core.ReaderCore(is_settled, has_cursor)
        self._reader = reader_of(link)
        self._registered = ExitStack()
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._early: LinkFlow | None = None
        self._is_over = False
        self._is_waiting = False

    @property
    def is_exactly_once(self) -> bool:
        """Whether the reader settles second, so that the journal knows what it has."""
        return self._core.has_cursor and self.link.attach.rcv_settle_mode == ReceiverSettleMode.SECOND

    @property
    def generation(self) -> int:
        """Of its cursor (J-23)."""
        return self._core.generation

    async def open(self) -> None:
        """Answer the attach."""
        try:
            await self._store.listen()
            self._changed = self._registered.enter_context(self._store.waiting(log.notice_of(self.name)))
            journal, after, cursor = await self._store.transact(self._find)
        except EdgeError as error:
            self._registered.close()
            self._core.on_detached()
            self.link.refuse(core.end_of(error))
            return
        if self._is_over:  # the client has left while the store was asked
            self._registered.close()
            return
        attach = self.link.attach
        known = self._core.on_opened(journal, after, cursor, attach.unsettled or ())
        if cursor is not None:
            notice = cursors.cursor_notice(self.name, self._reader)
            self._taken = self._registered.enter_context(self._store.waiting(notice))
            self._work(self._watch())
        offered = [vocabulary.EXACTLY_ONCE] if self.is_exactly_once else []
        self.link.reply(
            source=self._source if self._start is None else starting_at(self._source, after + 1),
            unsettled=None if attach.unsettled is None else known,
            snd_settle_mode=SenderSettleMode.SETTLED if self._core.is_settled else SenderSettleMode.UNSETTLED,
            rcv_settle_mode=attach.rcv_settle_mode,
            offered_capabilities=offered,
            properties={vocabulary.INCARNATION: ULong(journal.incarnation)},
        )
        self.link.state({vocabulary.CONFIRMED: ULong(journal.incarnation)})
        if self._early is not None:
            self.on_flow(self._early)

    def _find(self, do: Transaction) -> tuple[JournalState, int, Cursor | None]:
        if not self._core.has_cursor:
            journal = log.state(do, self.name)
            return journal, log.resolve(do, journal, Place.NEXT if self._start is None else self._start), None
        unsettled = self.link.attach.unsettled
        read = core.presented_as_read(log.state(do, self.name), unsettled)
        journal, cursor = cursors.attach_cursor(do, self.name, self._reader, self._start, read)
        return journal, cursor.low, cursor

    # --- what happens on the link ---------------------------------------------------------------------------------

    def on_delivery(self, event: DeliveryReceived) -> None:
        """A receiver sends nothing."""

    def on_flow(self, event: LinkFlow) -> None:
        """See `LinkEvents`."""
        if self._core.journal is None:
            self._early = event
        elif event.credit_limit is not None:
            self._do(self._core.on_flow(self.link.credit_limit, event.drain))

    def on_disposition(self, event: DispositionReceived) -> None:
        """See `LinkEvents`."""
        self._do(self._core.on_disposition(event))

    def on_detached(self, event: LinkDetached | None) -> bool:
        """See `LinkEvents`; a client that closes its durable source ends the cursor, and one that answers does not."""
        self._is_over = True
        self._core.on_detached()
        self._changed.set()
        self._taken.set()
        self._registered.close()
        ends_cursor = event is not None and event.closed and event.needs_answer and self._core.has_cursor
        if ends_cursor:
            self._work(self._forget())
        return ends_cursor

    async def _forget(self) -> None:
        """J-21: the close is answered when the end of the cursor is durable, or with the error of the store."""
        generation = self.generation
        error: EdgeError | None = None
        for _ in range(FORGET_TRIES):
            try:
                await self._store.transact(lambda do: cursors.delete_cursor(do, self.name, self._reader, generation))
            except UnknownName:  # it has gone with its journal
                error = None
            except EdgeError as failed:
                error = failed
                await asyncio.sleep(RETRY_S)
                continue
            break
        self.link.detach(True, None if error is None else core.end_of(error))

    # --- effects --------------------------------------------------------------------------------------------------

    def _do(self, effects: Iterable[core.ReaderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, core.Send):
                self._send(effect)
            elif isinstance(effect, core.Read):
                self._work(self._read(effect))
            elif isinstance(effect, core.Wait):
                if not self._is_waiting:
                    self._is_waiting = True
                    self._work(self._wait())
            elif isinstance(effect, core.Store):
                self._work(self._write(effect))
            elif isinstance(effect, core.Settle):
                self.link.settle(effect.numbers, effect.state)
            elif isinstance(effect, core.Abandon):
                self.link.send(effect.tag, b"", settled=True, resume=True, aborted=True)
            elif isinstance(effect, core.Drained):
                self.link.drained()
            else:
                self.link.detach(effect.closed, effect.error)

    def _send(self, effect: core.Send) -> None:
        messages = effect.messages
        deliveries = zip(effect.tags, readable(messages), (each.message_format for each in messages), strict=True)
        self._core.sent(messages, self.link.send_many(deliveries, effect.is_settled, resume=effect.resume))

    async def _read(self, asked: core.Read) -> None:
        self._changed.clear()
        found: tuple[JournalState, list[StoredMessage]] | EdgeError
        try:
            found = await self._store.transact(lambda do: log.read(do, self.name, asked.after, asked.count, READ_BYTES))
        except EdgeError as error:
            found = error
            if not isinstance(error, InvalidRequest | LookupError):
                await asyncio.sleep(RETRY_S)
        self._do(self._core.on_read(asked, found))

    async def _wait(self) -> None:
        """J-20: until more is appended."""
        try:
            await self._store.listen()
            await until_set(self._changed, LONGEST_WAIT_S)
        except EdgeError:
            await asyncio.sleep(RETRY_S)
        self._is_waiting = False
        self._do(self._core.on_changed())

    async def _write(self, effect: core.Store) -> None:
        generation = self.generation
        result: Cursor | EdgeError
        try:
            result = await self._store.transact(
                lambda do: cursors.mark_read(do, self.name, self._reader, generation, effect.positions)
            )
            passed(CrashPoint.CURSOR_MOVED)
        except EdgeError as error:
            result = error
        self._do(self._core.on_stored(effect, result))

    async def _watch(self) -> None:
        """J-23: notice at once that another link has the cursor; else the next outcome shows it."""
        await self._taken.wait()
        with suppress(EdgeError):
            cursor = await self._store.transact(self._current)
            if cursor is None or cursor.generation != self.generation:
                self._do(self._core.on_taken())

    def _current(self, do: Transaction) -> Cursor | None:
        journal = log.find(do, self.name)
        return None if journal is None else cursors.find_cursor(do, journal, self._reader)
