"""The shell of a reader's link, over engines and a store: who ends a cursor, what a link leaves (J-21 to J-24)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bridges.journal import cursors, log, reader_link
from bridges.journal.contents import JOURNALS
from bridges.journal.model import Cursor, JournalSettings, NewMessage, Place
from bridges.journal.reader_link import ReaderLink, reader_of
from oncewire.client.service import ServiceLink
from oncewire.store.contents import Contents
from oncewire.store.open_store import OpenStore
from oncewire.store.store import Transaction
from oncewire.wire import (
    ACCEPTED,
    Connection,
    DeliveryReceived,
    Described,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    Role,
    SenderLink,
    Source,
    TerminusDurability,
    encode_data_message,
    vocabulary,
)

DEADLINE_S = 60.0
NAME = "orders"
READER = "||reader"


class Edge:
    """A store, and a client whose links are a journal's."""

    def __init__(self, store: OpenStore[Transaction]) -> None:
        self.store = store
        self.client = Connection(Role.CLIENT, container_id="client")
        self.detached: list[LinkDetached] = []
        self.got: list[DeliveryReceived] = []
        self.answers: list[DispositionReceived] = []
        self._server = Connection(Role.SERVER, container_id="edge")
        self.links: dict[object, ReaderLink] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.client.open()
        self.session = self.client.begin()

    def start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def pump(self) -> None:
        """What the engines have to say to each other."""
        moved = True
        while moved:
            moved = False
            for here, there in ((self.client, self._server), (self._server, self.client)):
                if data := here.data_to_send():
                    moved = True
                    there.receive_data(data, 0.0)
            for event in self.client.events():
                if isinstance(event, LinkDetached):
                    self.detached.append(event)
                elif isinstance(event, DeliveryReceived):
                    self.got.append(event)
                elif isinstance(event, DispositionReceived):
                    self.answers.append(event)
            for event in self._server.events():
                self._on_event(event)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, LinkAttached):
            assert isinstance(event.link, SenderLink)
            link = self.links[event.link] = ReaderLink(
                self.start, self.store, ServiceLink(event.link, lambda: None), NAME
            )
            assert reader_of(link.link) == READER
            self.start(link.open())
        elif isinstance(event, LinkFlow) and event.link in self.links:
            self.links[event.link].on_flow(event)
        elif isinstance(event, DispositionReceived) and event.link in self.links:
            self.links[event.link].on_disposition(event)
        elif isinstance(event, LinkDetached):
            is_answered_later = self.links.pop(event.link).on_detached(event)
            if event.needs_answer and not is_answered_later:
                event.link.detach(True)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.pump()
                await asyncio.sleep(0.001)

    def attach(self, session: Any = None) -> Any:
        name = vocabulary.STREAM_OFFSET_SPEC
        source = Source(
            address=f"journal://{NAME}",
            durable=TerminusDurability.UNSETTLED_STATE,
            filter={name: Described(name, "first")},
        )
        return (session or self.session).attach_receiver("reader", source=source, unsettled={})

    async def attached(self, session: Any = None) -> Any:
        link = self.attach(session)
        await self.until(lambda: link.remote_attach is not None)
        return link

    async def idle(self) -> None:
        """Until nothing is left to do."""
        await self.until(lambda: not self._tasks)

    async def cursor(self) -> Cursor | None:
        return await self.store.transact(lambda do: cursors.find_cursor(do, log.state(do, NAME), READER))


@asynccontextmanager
async def edge_with(folder: Path, count: int) -> AsyncIterator[Edge]:
    """A journal with messages."""
    messages = [NewMessage(encode_data_message(b"m"))] * count
    async with OpenStore[Transaction].open(f"sqlite:///{folder}/edge.db", Contents([JOURNALS])) as store:
        await store.transact(lambda do: log.configure(do, NAME, JournalSettings()))
        await store.transact(lambda do: log.append(do, NAME, messages))
        yield Edge(store)


async def test_a_client_that_closes_its_link_ends_the_cursor(tmp_path: Path) -> None:
    async with edge_with(tmp_path, 2) as edge:
        link = await edge.attached()
        assert await edge.cursor() == Cursor(1, 0)
        link.detach(True)
        await edge.until(lambda: bool(edge.detached))
        await edge.idle()
        assert await edge.cursor() is None


async def test_a_close_is_answered_when_the_end_of_the_cursor_is_durable(tmp_path: Path) -> None:
    async with edge_with(tmp_path, 2) as edge:
        link = await edge.attached()
        may_go_on = threading.Event()
        busy = edge.store.start(lambda do: may_go_on.wait(DEADLINE_S))
        link.detach(True)
        for _ in range(20):
            edge.pump()
            await asyncio.sleep(0)
        assert not edge.links
        assert not edge.detached
        may_go_on.set()
        await busy
        await edge.until(lambda: bool(edge.detached))
        assert (edge.detached[0].closed, edge.detached[0].error) == (True, None)
        assert await edge.cursor() is None


async def test_a_store_that_cannot_end_the_cursor_is_the_answer_to_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_link, "RETRY_S", 0.0)
    async with edge_with(tmp_path, 2) as edge:
        link = await edge.attached()
        await edge.store.transact(lambda do: do.execute("ALTER TABLE oncewire_journal_cursors RENAME TO elsewhere"))
        link.detach(True)
        await edge.until(lambda: bool(edge.detached))
        assert edge.detached[0].error is not None
        assert (edge.detached[0].closed, edge.detached[0].error.condition) == (True, "amqp:internal-error")
        await edge.store.transact(lambda do: do.execute("ALTER TABLE elsewhere RENAME TO oncewire_journal_cursors"))
        assert await edge.cursor() == Cursor(1, 0)


async def test_a_client_that_answers_the_theft_of_its_link_leaves_the_cursor_to_the_thief(tmp_path: Path) -> None:
    async with edge_with(tmp_path, 2) as edge:
        await edge.attached()
        await edge.attached(edge.client.begin())
        await edge.until(lambda: bool(edge.detached))
        assert edge.detached[0].error is not None
        assert (edge.detached[0].closed, edge.detached[0].error.condition) == (True, "amqp:link:stolen")
        edge.pump()
        await edge.until(lambda: len(edge.links) == 1)
        assert await edge.cursor() == Cursor(2, 0)


async def test_a_reader_that_learns_of_trimmed_messages_keeps_its_cursor_until_it_is_moved(tmp_path: Path) -> None:
    async with edge_with(tmp_path, 4) as edge:
        link = await edge.attached()
        await edge.store.transact(lambda do: log.trim(do, NAME, 2))
        link.grant(1)
        await edge.until(lambda: len(edge.detached) == 1 and not edge.links)
        edge.attach(edge.client.begin())
        await edge.until(lambda: len(edge.detached) == 2 and not edge.links)
        assert [each.error and each.error.condition for each in edge.detached] == ["amqp:precondition-failed"] * 2
        await edge.idle()
        assert await edge.cursor() == Cursor(1, 0)
        await edge.store.transact(lambda do: cursors.seek(do, NAME, READER, Place.FIRST))
        await edge.attached(edge.client.begin())
        assert await edge.cursor() == Cursor(3, 2)


async def test_a_client_that_closes_late_leaves_the_cursor_of_its_next_link(tmp_path: Path) -> None:
    async with edge_with(tmp_path, 2) as edge:
        link = await edge.attached()
        link.detach(True)
        stolen = edge.store.start(lambda do: cursors.attach_cursor(do, NAME, READER, None))  # at another edge
        await edge.until(lambda: bool(edge.detached))
        await stolen
        await edge.idle()
        assert await edge.cursor() == Cursor(2, 0)


async def test_a_client_that_leaves_before_it_is_answered_leaves_nothing_behind(tmp_path: Path) -> None:
    async with edge_with(tmp_path, 2) as edge:
        edge.attach().detach(False)
        await edge.until(lambda: bool(edge.detached))
        await edge.idle()
        assert not edge.store._waiters


def test_no_two_readers_have_one_name_whatever_stands_in_theirs() -> None:
    names = set()
    for user, container, name in (("a|b", "c", "d"), ("a", "b|c", "d"), ("a\\", "|b", "c"), ("a", "\\|b", "c")):
        link: Any = object.__new__(ServiceLink)
        link.user, link.container_id, link.name = user, container, name
        names.add(reader_of(link))
    assert len(names) == 4


async def test_messages_go_out_at_once_and_their_outcomes_are_answered_together(tmp_path: Path) -> None:
    async with edge_with(tmp_path, 5) as edge:
        link = await edge.attached()
        link.grant(10)
        await edge.until(lambda: len(edge.got) == 5)
        numbers = [each.delivery_id for each in edge.got]
        link.dispose(numbers, ACCEPTED, False)
        await edge.until(lambda: bool(edge.answers))
        assert [(list(each.ids), each.settled) for each in edge.answers] == [(numbers, True)]
        assert await edge.cursor() == Cursor(1, 5)


async def test_a_message_that_cannot_be_annotated_goes_out_as_it_came_and_stops_nobody(tmp_path: Path) -> None:
    async with edge_with(tmp_path, 1) as edge:
        bad = [b"", b"no message", b"\x00\x53\x72\xc1\x05\x02\xa3\xff", b"\x00\x53\x70"]
        await edge.store.transact(lambda do: log.append(do, NAME, [NewMessage(each) for each in bad]))
        await edge.store.transact(lambda do: log.append(do, NAME, [NewMessage(encode_data_message(b"m"))]))
        link = await edge.attached()
        link.grant(10)
        await edge.until(lambda: len(edge.got) == 6)
        assert [each.payload for each in edge.got[1:5]] == bad
