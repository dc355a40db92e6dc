"""S-2: what a link that has ended writes, and what the next link of its name reads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from oncewire.client import (
    ClientClosed,
    ClientError,
    JournalLocked,
    JournalOwnerError,
    JournalUnusable,
    LinkRefused,
    SqliteJournal,
    Subscriber,
    UsageError,
    connect,
)
from tests.client.shell_helpers import LONG, error, until
from tests.client.wire_server import WireServer

Effects = Callable[[], list[str]]


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal(tmp_path / "j.db")
    journal.connection.execute("CREATE TABLE effects (body TEXT)")
    yield journal
    journal.close()


class Unreachable(SqliteJournal):
    """Its next commit waits, and then fails, as that of a database that is cut off."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.waits, self.may_fail = threading.Event(), threading.Event()

    def commit(self) -> None:
        self.waits.set()
        assert self.may_fail.wait(LONG)
        raise JournalUnusable("nothing was stored", "the database does not answer", "do it again")


def effects(journal: SqliteJournal) -> list[str]:
    return [body for (body,) in journal.connection.execute("SELECT body FROM effects ORDER BY body")]


async def process_next(subscriber: Subscriber) -> None:
    delivery = await subscriber.receive(LONG)
    async with delivery.transaction() as database:
        database.execute("INSERT INTO effects VALUES (?)", (delivery.message.body,))


def end_from_the_router(server: WireServer, name: str) -> None:
    """Refuse the link for good."""
    attachment = next(found for found in server.attachments if found.link.name == name)
    attachment.link.detach(True, error("amqp:unauthorized-access"))
    server.gone(attachment)
    attachment.connection.flush()


async def test_a_transaction_that_waits_while_its_subscription_is_suspended_and_opened_again_writes_nothing(
    server: WireServer, journal: SqliteJournal
) -> None:
    async with connect(server.url, container_id="c") as client:
        publisher = await client.publisher("t", name="p")
        subscriber = await client.subscriber("t", name="s", journal=journal)
        sending = await publisher.submit("1")
        delivery = await subscriber.receive(LONG)
        is_held, may_go_on = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with subscriber.transaction():
                is_held.set()
                await may_go_on.wait()

        async def process() -> None:
            async with delivery.transaction() as database:
                database.execute("INSERT INTO effects VALUES ('1')")

        holding = asyncio.create_task(hold())
        await is_held.wait()
        suspending = asyncio.create_task(subscriber.suspend())
        await asyncio.sleep(0)  # it waits for the journal before the other task does
        processing = asyncio.create_task(process())
        await asyncio.sleep(0)
        may_go_on.set()
        await suspending
        again = await client.subscriber("t", name="s", journal=journal)
        await asyncio.wait([holding, processing])
        assert holding.exception() is None
        assert isinstance(processing.exception(), ClientClosed)
        await process_next(again)
        assert (await sending).is_accepted
    assert effects(journal) == ["1"]


async def test_a_link_that_fails_inside_a_transaction_writes_nothing_and_opening_it_waits_for_the_end_of_the_block(
    server: WireServer, journal: SqliteJournal
) -> None:
    async with connect(server.url, container_id="c") as client:
        publisher = await client.publisher("t", name="p")
        subscriber = await client.subscriber("t", name="s", journal=journal)
        sending = await publisher.submit("1")
        delivery = await subscriber.receive(LONG)
        opening: asyncio.Task[Subscriber] | None = None

        async def process() -> None:
            nonlocal opening
            async with delivery.transaction() as database:
                database.execute("INSERT INTO effects VALUES ('1')")
                end_from_the_router(server, "s")
                await until(lambda: subscriber._failure is not None)
                opening = asyncio.create_task(client.subscriber("t", name="s", journal=journal))
                await asyncio.sleep(0)
                with pytest.raises(UsageError, match="open already"):  # it is being opened
                    await client.subscriber("t", name="s", journal=journal)
                assert not opening.done()

        with pytest.raises(LinkRefused):
            await process()
        assert opening is not None
        again = await opening
        await process_next(again)
        assert (await sending).is_accepted
    assert effects(journal) == ["1"]


async def test_numbers_of_messages_that_are_being_stored_are_not_given_out_again(
    server: WireServer, journal: SqliteJournal
) -> None:
    async with connect(server.url, container_id="c") as client:
        subscriber = await client.subscriber("t", name="s")
        publisher = await client.publisher("t", name="p", journal=journal)
        submitting = asyncio.create_task(publisher.submit_many(["1", "2"]))
        await until(lambda: publisher.next_number == 2)  # the commit is under way
        end_from_the_router(server, "p")
        await until(lambda: publisher._failure is not None)
        again = await client.publisher("t", name="p", journal=journal)
        assert [sending.number for sending in await submitting] == [0, 1]
        assert [sending.number for sending in again.recovered] == [0, 1]
        (third,) = await again.submit_many(["3"])
        assert third.number == 2
        assert [(await subscriber.receive(LONG)).body for _ in range(3)] == ["1", "2", "3"]
        await again.suspend()


async def test_a_publisher_that_closes_takes_nothing_any_more(server: WireServer, journal: SqliteJournal) -> None:
    async with connect(server.url, container_id="c") as client:
        subscriber = await client.subscriber("t", name="s", journal=journal)
        publisher = await client.publisher("t", name="p", journal=journal)
        async with subscriber.transaction():  # holds the journal
            waiting = asyncio.create_task(publisher.submit_many(["1"]))
            await asyncio.sleep(0)
            closing = asyncio.create_task(publisher.close())
            await until(lambda: publisher._is_closing)
            with pytest.raises(ClientClosed):
                _ = await publisher.submit("2")
            with pytest.raises(ClientClosed):
                await publisher.submit_many(["3"])
        await closing
        with pytest.raises(ClientClosed):
            await waiting
        again = await client.publisher("t", name="p", journal=journal)
        assert (again.next_number, again.recovered) == (0, ())


async def test_opening_a_link_inside_a_transaction_of_its_journal_fails_with_the_reason(
    server: WireServer, journal: SqliteJournal
) -> None:
    async with connect(server.url, container_id="c", timeout=0.2) as client:
        subscriber = await client.subscriber("t", name="s", journal=journal)
        async with subscriber.transaction():
            with pytest.raises(JournalLocked, match="leave the block of"):
                await client.subscriber("t", name="other", journal=journal)
        await (await client.subscriber("t", name="other", journal=journal)).unsubscribe()


async def test_a_suspend_that_is_cancelled_ends_the_link(server: WireServer, journal: SqliteJournal) -> None:
    async with connect(server.url, container_id="c") as client:
        subscriber = await client.subscriber("t", name="s", journal=journal)
        async with subscriber.transaction():
            suspending = asyncio.create_task(subscriber.suspend())
            await asyncio.sleep(0)
            suspending.cancel()
            await asyncio.wait([suspending])
            with pytest.raises(ClientClosed):
                await subscriber.receive(LONG)
            subscriber._check_usable = lambda: None  # type: ignore[method-assign]  # this block is not the point
        await (await client.subscriber("t", name="s", journal=journal)).unsubscribe()


async def test_a_client_that_is_closed_again_leaves_its_former_journal_to_its_new_owner(
    server: WireServer, journal: SqliteJournal
) -> None:
    first = await connect(server.url, container_id="c")
    await first.publisher("t", name="p", journal=journal)
    await first.close()
    async with connect(server.url, container_id="c") as second, connect(server.url, container_id="c") as third:
        await second.publisher("t", name="p", journal=journal)
        await first.close()
        with pytest.raises(JournalOwnerError, match="another client"):
            await third.publisher("t", name="q", journal=journal)
        with pytest.raises(ClientError):
            await first.publisher("t", name="r", journal=journal)


async def test_closing_a_client_that_is_cancelled_does_not_wait_for_a_block_that_writes_nothing_any_more(
    server: WireServer, journal: SqliteJournal
) -> None:
    client = await connect(server.url, container_id="c")
    sender = await connect(server.url, container_id="p")
    publisher = await sender.publisher("t")
    subscriber = await client.subscriber("t", name="s", journal=journal)
    sending = await publisher.submit("1")
    delivery = await subscriber.receive(LONG)
    is_held, may_go_on = asyncio.Event(), asyncio.Event()

    async def process() -> None:
        async with delivery.transaction() as database:
            database.execute("INSERT INTO effects VALUES ('early')")
            is_held.set()
            await may_go_on.wait()
            database.execute("INSERT INTO effects VALUES ('late')")

    processing = asyncio.create_task(process())
    await is_held.wait()
    closing = asyncio.create_task(client.close())
    await until(lambda: subscriber._is_closing)
    closing.cancel()
    await asyncio.wait([closing], timeout=LONG)
    assert closing.cancelled()
    assert not processing.done(), "the block is still open"
    async with connect(server.url, container_id="c") as second:
        with pytest.raises(JournalOwnerError):  # it is in use as long as the block is
            await second.subscriber("t", name="s", journal=journal)
        may_go_on.set()
        await asyncio.wait([processing])
        assert isinstance(processing.exception(), ClientClosed)
        assert effects(journal) == []
        again = await second.subscriber("t", name="s", journal=journal)
        await process_next(again)
        assert (await sending).is_accepted
    await sender.close()
    assert effects(journal) == ["1"]


async def test_a_client_that_is_abandoned_during_a_commit_ends_when_that_has_failed(
    server: WireServer, tmp_path: Path
) -> None:
    """The end of its writer must not be lost with the error: the client would wait for that one for ever."""
    journal = Unreachable(tmp_path / "j.db")
    async with connect(server.url, container_id="p") as sender, sender.publisher("t") as publisher:
        client = await connect(server.url, container_id="c")
        subscriber = await client.subscriber("t", name="s", journal=journal)
        sending = await publisher.submit("1")
        accepting = asyncio.create_task((await subscriber.receive(LONG)).accept())
        await until(journal.waits.is_set)
        abandoning = asyncio.create_task(client.abandon())
        await until(lambda: subscriber._is_closing)
        abandoning.cancel()
        await until(lambda: all(writing.cancelling() for writing in client._journals._writing))
        journal.may_fail.set()
        done, _ = await asyncio.wait([abandoning], timeout=LONG)
        assert done == {abandoning}, "it goes on waiting"
        with pytest.raises(ClientError):
            await accepting
        async with connect(server.url, container_id="c") as again:
            await (await again.subscriber("t", name="s")).unsubscribe()
        assert (await sending).is_accepted
    journal.close()


@pytest.mark.slow
async def test_closing_a_client_whose_block_does_not_end_fails_and_frees_its_own_journal(
    server: WireServer, tmp_path: Path
) -> None:
    path = tmp_path / "own.db"
    client = await connect(server.url, container_id="c")
    subscriber = await client.subscriber("t", name="s", journal=path)
    is_held, may_go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with subscriber.transaction() as database:
            database.execute("CREATE TABLE effects (body TEXT)")
            is_held.set()
            await may_go_on.wait()
            database.execute("INSERT INTO effects VALUES ('late')")

    holding = asyncio.create_task(hold())
    await is_held.wait()
    subscriber._journal.hurry(0.1)
    with pytest.raises(JournalLocked, match="leave the block of"):
        await client.close()
    journal = SqliteJournal(path)  # another process could have it now
    may_go_on.set()
    await asyncio.wait([holding])
    assert isinstance(holding.exception(), JournalUnusable)  # the journal was closed
    assert journal.connection.execute("SELECT name FROM sqlite_master WHERE name = 'effects'").fetchall() == []
    journal.close()


async def test_a_link_that_has_failed_is_not_attached_again_when_the_router_answers_its_detach(
    server: WireServer, journal: SqliteJournal
) -> None:
    async with connect(server.url, container_id="c") as client:
        subscriber = await client.subscriber("t", name="s", journal=journal)
        subscriber._commit_failed(JournalUnusable("nothing was stored", "the database does not answer", "do it again"))
        await client.publisher("t", name="p")  # the router's answers come in order: that to the detach is here, too
        assert subscriber._retry is None
        with pytest.raises(JournalUnusable):
            await subscriber.receive(LONG)
