"""Every call of the client that waits, cancelled at each of its waits, and once more while it cleans up.

Whatever it was doing: no journal stays locked, no link attached, no subscription without a name behind, no task
running, and the same links can be opened again and work.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from oncewire.client import Client, ClientError, Publisher, SettledPublisher, SqliteJournal, Subscriber, connect
from oncewire.client.transactions import Consumer, Reader, ReceivedMessage, Transaction, read_committed
from tests.client.interruption import LONG_S, Interruption, interrupted_everywhere, open_files
from tests.client.shuffled_loop import InlineExecutor, ShuffledLoop, run_shuffled
from tests.client.wire_server import Network, WireServer

TOPIC = "t"
SEED = 4
SOON_S = 5.0
"""By the loop's virtual clock: a cancelled opening has 3 s to end its subscription, a connection 1 s to close."""


@pytest.fixture(autouse=True)
def _threads_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in ("journal_writer", "transactions.opening"):
        monkeypatch.setattr(f"oncewire.client.{module}.ThreadPoolExecutor", InlineExecutor)
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of files that no crash has to survive: hundreds of databases, in memory where the system has that."""
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(prefix="oncewire-test-", dir=in_memory) as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)


class World:
    """A router, and one call that is cancelled."""

    def __init__(self, folder: Path, interruption: Interruption) -> None:
        self.folder = folder
        self.interruption = interruption
        self.network = Network()
        self.server = WireServer(self.network)

    @property
    def journal(self) -> Path:
        return self.folder / "journal.db"

    @property
    def store(self) -> str:
        return f"sqlite:///{self.folder / 'store.db'}"

    async def interrupt(self, call: Awaitable[Any], enough: asyncio.Event | None = None) -> None:
        """The call that the test is about."""
        await self.interruption.call(call, enough)
        if self.interruption.cancelled_at is not None:
            took_s = asyncio.get_running_loop().time() - self.interruption.cancelled_at
            assert took_s < SOON_S, f"cancelled, it went on for {took_s:.1f} s"

    def client(self, **options: Any) -> Client:
        return connect(self.server.url, container_id="c", idle_time_out=3600.0, **options)

    async def check(self) -> None:
        """What must be true whatever was cancelled."""
        async with asyncio.timeout(LONG_S):
            while self.server.connections or len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not self.server.attachments
        nameless = [
            (name, subscription)
            for name, topic in self.network.topics.items()
            for subscription in topic.incarnations
            if "/sub-" in subscription
        ]
        assert not nameless, f"subscriptions that nobody can open again: {nameless}"
        if self.journal.exists():
            await self.use()

    async def use(self) -> None:
        """The journal is not locked; everything can be opened again, and works."""
        async with asyncio.timeout(LONG_S), self.client(journal=self.journal) as client:
            subscriber = await client.subscriber(TOPIC, name="s")
            publisher = await client.publisher(TOPIC, name="p")
            await exchange(publisher, subscriber)
            await subscriber.unsubscribe()


async def exchange(publisher: Publisher, subscriber: Subscriber) -> None:
    sending = asyncio.create_task(publisher.send(b"last"))  # the window may be full
    async for delivery in subscriber:
        await delivery.accept()
        if delivery.body == b"last":
            break
    await sending


Scenario = Callable[[World], Awaitable[None]]


def run_scenario(scenario: Scenario, folder: Path) -> None:
    runs = 0

    def run(interruption: Interruption) -> None:
        nonlocal runs
        runs += 1
        own = folder / str(runs)
        own.mkdir()

        async def main(loop: ShuffledLoop) -> None:
            world = World(own, interruption)
            async with world.server:
                async with asyncio.timeout(5 * LONG_S):
                    await scenario(world)
                await world.check()

        before = open_files()
        try:
            run_shuffled(main, SEED)
        except BaseException as error:
            error.add_note(f"cancelled at {sorted(interruption.at)}")
            raise
        assert not [*folder.glob("oncewire-reader-*")], f"a folder, cancelled at {sorted(interruption.at)}"
        assert open_files() <= before, f"open files, cancelled at {sorted(interruption.at)}"

    interrupted_everywhere(run)


# --- the client -------------------------------------------------------------------------------------------------------


async def start(world: World) -> None:
    client = world.client(journal=world.journal)
    await world.interrupt(client.start())
    await client.close()


def leaving(leave: Callable[[Client], Awaitable[None]]) -> Scenario:
    """With links of each kind, and a message on its way."""

    async def scenario(world: World) -> None:
        client = await world.client(journal=world.journal)
        subscribers = [await client.subscriber(TOPIC, name="s"), await client.subscriber(TOPIC)]
        publisher = await client.publisher(TOPIC, name="p")
        _ = await publisher.submit(b"1")
        for each in subscribers:
            await (await each.receive()).accept()
        await world.interrupt(leave(client))

    return scenario


def leaving_blocks(leave: Callable[[Client], Awaitable[None]]) -> Scenario:
    """Of `transaction()`, each in a journal of its own, which do not end by themselves."""

    async def scenario(world: World) -> None:
        async with AsyncExitStack() as blocks:
            client = await world.client()
            over = asyncio.Event()
            for name in ("s", "r"):
                journal = blocks.enter_context(closing(SqliteJournal(world.folder / f"{name}.db")))
                link = await client.subscriber(TOPIC, name=name, journal=journal)
                begun = asyncio.Event()
                task = asyncio.create_task(held(link, begun, over))
                await begun.wait()
                blocks.push_async_callback(asyncio.wait, [task])
            blocks.callback(over.set)
            await world.interrupt(leave(client))
        async with world.client() as client:
            for name in ("s", "r"):
                again = await client.subscriber(TOPIC, name=name, journal=world.folder / f"{name}.db")
                await again.unsubscribe()

    return scenario


async def held(link: Subscriber, begun: asyncio.Event, over: asyncio.Event) -> None:
    with suppress(ClientError):
        async with link.transaction():
            begun.set()
            await over.wait()


async def block(world: World) -> None:
    async def whole() -> None:
        async with world.client(journal=world.journal) as client, client.subscriber(TOPIC), client.publisher(TOPIC):
            pass

    await world.interrupt(whole())


# --- links ------------------------------------------------------------------------------------------------------------


def opening(make: Callable[[Client], Awaitable[Any]]) -> Scenario:
    async def scenario(world: World) -> None:
        async with asyncio.timeout(LONG_S), world.client(journal=world.journal) as client:
            await world.interrupt(make(client))

    return scenario


def ending(make: Callable[[Client], Awaitable[Any]], end: Callable[[Any], Awaitable[Any]]) -> Scenario:
    """The link is over, then, and a link of that name can be opened in the same client."""

    async def scenario(world: World) -> None:
        async with asyncio.timeout(LONG_S), world.client(journal=world.journal) as client:
            link = await make(client)
            await world.interrupt(end(link))
            assert link._failure is not None, "it is not over"
            assert link.name not in {name for name, _ in client._links.by_key}
            again = await make(client)
            await again.close()

    return scenario


def using(use: Callable[[Publisher, Subscriber], Awaitable[Any]]) -> Scenario:
    """Publisher and subscriber work after that as before."""

    async def scenario(world: World) -> None:
        async with asyncio.timeout(LONG_S), world.client(journal=world.journal) as client:
            subscriber = await client.subscriber(TOPIC, name="s", prefetch=4)
            publisher = await client.publisher(TOPIC, name="p", window=4)
            _ = await publisher.submit(b"first")
            await world.interrupt(use(publisher, subscriber))
            await exchange(publisher, subscriber)
            assert not publisher.unfinished

    return scenario


def subscriber(client: Client) -> Awaitable[Subscriber]:
    return client.subscriber(TOPIC, name="s")


def nameless_subscriber(client: Client) -> Awaitable[Subscriber]:
    return client.subscriber(TOPIC)


def publisher(client: Client) -> Awaitable[Publisher]:
    return client.publisher(TOPIC, name="p")


def settled_publisher(client: Client) -> Awaitable[Any]:
    return client.settled_publisher(TOPIC, name="p")


async def submitted_many(publisher: Publisher, subscriber: Subscriber) -> None:
    await publisher.submit_many([b"1", b"2"])


async def sent(publisher: Publisher, subscriber: Subscriber) -> None:
    await publisher.send(b"1", timeout=1.0)


async def submitted(publisher: Publisher, subscriber: Subscriber) -> None:
    for body in (b"1", b"2", b"3"):
        _ = await publisher.submit(body)
    with suppress(TimeoutError):  # the window is full
        async with asyncio.timeout(1.0):
            _ = await publisher.submit(b"4")


async def flushed(publisher: Publisher, subscriber: Subscriber) -> None:
    with suppress(TimeoutError):
        await publisher.flush(1.0)


async def recorded(publisher: Publisher, subscriber: Subscriber) -> None:
    _ = await publisher.submit(b"recorded")
    await publisher._recorded()


async def owed(publisher: Publisher, subscriber: Subscriber) -> None:
    assert publisher.oldest is not None
    await publisher._owed(publisher.oldest)


async def received(publisher: Publisher, subscriber: Subscriber) -> None:
    await (await subscriber.receive()).accept()


async def received_many(publisher: Publisher, subscriber: Subscriber) -> None:
    await subscriber.finish(await subscriber.receive_many(9))


async def sent_settled(world: World) -> None:
    async with asyncio.timeout(LONG_S), world.client() as client:
        link = await client.settled_publisher(TOPIC)
        await world.server.kill()
        await world.interrupt(link.send(b"1", timeout=1.0))  # waits for a router
        await world.server.start()
        await link.close()


async def in_a_transaction(publisher: Publisher, subscriber: Subscriber) -> None:
    delivery = await subscriber.receive()
    try:
        async with subscriber.transaction(delivery):
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        with suppress(ClientError):
            delivery.release()
        raise


# --- consumers and readers --------------------------------------------------------------------------------------------


def note(tx: Transaction, message: ReceivedMessage) -> None:
    tx.publish("out", message.body)


def consumer(world: World) -> Consumer:
    return Consumer(world.server.url, store=world.store, name="billing", topics=[TOPIC])


@asynccontextmanager
async def publishing(world: World) -> AsyncIterator[Publisher]:
    """For a consumer; at the end whoever opens the store next has processed all of it, and ended the subscription."""
    async with connect(world.server.url) as client, client.publisher(TOPIC) as publisher:
        yield publisher
        sending = await publisher.submit(b"last")
        async with asyncio.timeout(LONG_S), consumer(world) as again:
            running = asyncio.create_task(again.run(note))
            await sending
            again.stop()
            await running
            await again.unsubscribe()


async def opened_and_left(world: World) -> None:
    async def life() -> None:
        async with consumer(world):
            pass

    async with publishing(world):
        await world.interrupt(life())


async def unsubscribed(world: World) -> None:
    async with publishing(world), consumer(world) as opened:
        await world.interrupt(opened.unsubscribe())


async def left_while_it_runs(world: World) -> None:
    async with publishing(world) as publisher:
        opened = await consumer(world).__aenter__()
        running = asyncio.create_task(opened.run(note))
        await publisher.send(b"first")
        await world.interrupt(opened.__aexit__(None, None, None))
        assert running.done()
        assert running.cancelled() or running.exception() is None, running.exception()


async def run_and_stopped(world: World) -> None:
    async with publishing(world) as publisher, consumer(world) as opened:
        sending = await publisher.submit(b"first")
        sending.future.add_done_callback(lambda _: opened.stop())
        await world.interrupt(opened.run(note))


def reader(world: World, *, is_named: bool) -> Reader:
    store, name = (world.store, "audit") if is_named else (None, None)
    return read_committed(world.server.url, TOPIC, "u", store=store, name=name)


def reading(*, is_named: bool) -> Scenario:
    async def scenario(world: World) -> None:
        async def life() -> None:
            async with reader(world, is_named=is_named):
                pass

        await world.interrupt(life())
        if is_named:
            async with asyncio.timeout(LONG_S), reader(world, is_named=True) as again:
                await again._receiving.close(unsubscribe=True)
        assert not any(topic.incarnations for topic in world.network.topics.values()), "a subscription is left"

    return scenario


async def iterated(world: World) -> None:
    """Whoever iterates next gets what was read from the journal and not yielded."""
    async with reader(world, is_named=False) as opened, connect(world.server.url) as client:
        async with client.publisher(TOPIC) as publisher:
            for body in (b"1", b"2", b"3"):
                await publisher.send(body)
        found: list[object] = []
        enough = asyncio.Event()

        async def iterate() -> None:
            async for message in opened:
                found.append(message.body)
                if len(found) == 3:
                    enough.set()

        await world.interrupt(iterate(), enough)
        messages = aiter(opened)
        while len(found) < 3:
            found.append((await anext(messages)).body)
        assert found == [b"1", b"2", b"3"]


SCENARIOS: dict[str, Scenario] = {
    "Consumer, opened and left": opened_and_left,
    "Consumer.unsubscribe": unsubscribed,
    "Consumer, left while it runs": left_while_it_runs,
    "Consumer.run": run_and_stopped,
    "Reader": reading(is_named=False),
    "Reader with a store": reading(is_named=True),
    "Reader.__aiter__": iterated,
    "Client.start": start,
    "Client.close": leaving(lambda client: client.close()),
    "Client.abandon": leaving(lambda client: client.abandon()),
    "Client.close around blocks": leaving_blocks(lambda client: client.close()),
    "Client.abandon around blocks": leaving_blocks(lambda client: client.abandon()),
    "async with": block,
    "Client.subscriber": opening(subscriber),
    "Client.subscriber without a name": opening(nameless_subscriber),
    "Client.publisher": opening(publisher),
    "Client.settled_publisher": opening(settled_publisher),
    "Subscriber.suspend": ending(subscriber, lambda link: link.suspend()),
    "Subscriber.close": ending(subscriber, lambda link: link.close()),
    "Subscriber.close without a name": ending(nameless_subscriber, lambda link: link.close()),
    "Subscriber.unsubscribe": ending(subscriber, lambda link: link.unsubscribe()),
    "Publisher.suspend": ending(publisher, lambda link: link.suspend()),
    "Publisher.close": ending(publisher, lambda link: link.close()),
    "Publisher.end_released": ending(publisher, lambda link: link.end_released()),
    "SettledPublisher.close": ending(settled_publisher, lambda link: link.close()),
    "SettledPublisher.suspend": ending(settled_publisher, lambda link: link.suspend()),
    "SettledPublisher.send": sent_settled,
    "Publisher.submit": using(submitted),
    "Publisher.flush": using(flushed),
    "Publisher.owed": using(owed),
    "Publisher.recorded": using(recorded),
    "Publisher.submit_many": using(submitted_many),
    "Publisher.send": using(sent),
    "Subscriber.receive": using(received),
    "Subscriber.receive_many and finish": using(received_many),
    "Subscriber.transaction": using(in_a_transaction),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_call_that_is_cancelled_anywhere_leaves_nothing_behind(name: str, folder: Path) -> None:
    run_scenario(SCENARIOS[name], folder)


@pytest.mark.parametrize("kind", [Client, Publisher, Subscriber, SettledPublisher, Consumer, Reader])
def test_no_public_coroutine_is_left_out(kind: type) -> None:
    called = " ".join(SCENARIOS)
    names = [name for name, member in vars(kind).items() if inspect.iscoroutinefunction(member) and name[0] != "_"]
    assert not [name for name in names if not re.search(rf"\b{name}\b", called)]
