"""Consumers and readers over a real router: what they promise besides surviving crashes (test_consumer_crashes.py)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

import oncewire.store.sqlite
from oncewire.client import Message, NotAccepted, Properties, connect
from oncewire.client.errors import ClientError, UsageError
from oncewire.client.transactions import (
    Consumer,
    ProcessFailed,
    Producer,
    ProducerId,
    ReceivedMessage,
    StoreFenced,
    StoreLocked,
    StoreUnusable,
    Transaction,
    read_committed,
    read_uncommitted,
)
from tests.client.store_world import Database
from tests.router.processes import RouterProcess
from tests.support.waiting import eventually

LONG = 60.0
SCHEMA = ("CREATE TABLE IF NOT EXISTS effects (body TEXT NOT NULL)",)


def note(tx: Transaction, message: ReceivedMessage) -> None:
    tx.execute("INSERT INTO effects VALUES (?)", (message.body.decode(),))


def effects(database: Database) -> list[str]:
    return [body for (body,) in database.rows("SELECT body FROM effects")]


def consumer_of(router: RouterProcess, database: Database, **options: Any) -> Consumer:
    given = {"store": database.url, "name": "billing", "topics": ["orders"], "schema": SCHEMA, **options}
    return Consumer(router.url, **given)


async def publish(router: RouterProcess, *messages: bytes | Message, topic: str = "orders") -> None:
    """Returns when every subscription has accepted them."""
    async with asyncio.timeout(LONG), connect(router.url) as client:
        publisher = await client.publisher(topic)
        for message in messages:
            _ = await publisher.send(message)


@asynccontextmanager
async def running(consumer: Consumer, process: Callable[[Transaction, ReceivedMessage], object]) -> AsyncIterator[None]:
    """A consumer that runs for the time of the block and then stops in good order."""
    async with consumer:
        task = asyncio.create_task(consumer.run(process))
        try:
            yield
            consumer.stop()
            async with asyncio.timeout(LONG):
                await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def take(messages: AsyncIterator[ReceivedMessage], count: int) -> list[Any]:
    async with asyncio.timeout(LONG):
        return [(await anext(messages)).body for _ in range(count)]


def numbered(producer: Producer, *bodies: bytes) -> list[Message]:
    """A transaction that commits."""
    messages = [Message(body, annotations=producer.pending().annotations()) for body in bodies]
    return [*messages, Message(b"", annotations=producer.ack().annotations())]


def three_lines(error: ClientError) -> Sequence[str]:
    assert error.what
    assert error.why
    assert error.fix
    return (error.what, error.why, error.fix)


# --- a function that raises -------------------------------------------------------------------------------------------


async def test_a_function_that_keeps_raising_is_rolled_back_and_stops_the_consumer_which_continues_there_later(
    router: RouterProcess, database: Database
) -> None:
    calls = []

    def fail_at_two(tx: Transaction, message: ReceivedMessage) -> None:
        calls.append(message.body)
        note(tx, message)
        if message.body == b"two":
            raise ValueError("two is not paid for")

    async with consumer_of(router, database, attempts=3) as consumer:
        task = asyncio.create_task(consumer.run(fail_at_two))
        publishing = asyncio.create_task(publish(router, b"one", b"two", b"three"))
        with pytest.raises(ProcessFailed) as caught:
            async with asyncio.timeout(LONG):
                await task
    what, why, fix = three_lines(caught.value)
    assert what == "the consumer 'billing' does not get past message 2 of 'orders'"
    assert why == "its function raised ValueError: two is not paid for"
    assert "it continues there" in fix
    assert calls.count(b"two") >= 3
    assert effects(database) == ["one"]  # what precedes it, and nothing of the transaction that failed
    async with running(consumer_of(router, database), note):
        await publishing
        await eventually(lambda: len(effects(database)) == 3)
    assert effects(database) == ["one", "two", "three"]


async def test_a_function_that_raises_once_is_called_again(router: RouterProcess, database: Database) -> None:
    failures = [RuntimeError("try again")]

    def fail_once(tx: Transaction, message: ReceivedMessage) -> None:
        note(tx, message)
        tx.publish("totals", message.body)
        if failures:
            raise failures.pop()

    async with read_committed(router.url, "totals") as totals, running(consumer_of(router, database), fail_once):
        await publish(router, b"one", b"two")
        assert await take(aiter(totals), 2) == [b"one", b"two"]
    assert effects(database) == ["one", "two"]


async def test_what_cannot_be_published_fails_in_the_function_and_not_after_the_commit(
    router: RouterProcess, database: Database
) -> None:
    def publish_to_a_pattern(tx: Transaction, message: ReceivedMessage) -> None:
        note(tx, message)
        tx.publish("totals.*", message.body)

    async with consumer_of(router, database, attempts=1) as consumer:
        task = asyncio.create_task(consumer.run(publish_to_a_pattern))
        await publish(router, b"one")
        with pytest.raises(ProcessFailed, match=r"nothing can be published to 'totals\.\*'"):
            await asyncio.wait_for(task, LONG)
    assert effects(database) == []


# --- owners -----------------------------------------------------------------------------------------------------------


async def test_a_later_process_fences_the_earlier_one_off_at_once_and_it_says_so(
    router: RouterProcess, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer_of(router, database) as earlier:
        zombie = asyncio.create_task(earlier.run(note))
        await publish(router, b"one")
        await eventually(lambda: effects(database) == ["one"])
        async with running(consumer_of(router, database), note):
            with pytest.raises(StoreFenced) as caught:  # without a message that it could fail to commit
                await asyncio.wait_for(zombie, LONG)
            await publish(router, b"two")
            await eventually(lambda: effects(database) == ["one", "two"])
    assert "a later owner has opened it" in three_lines(caught.value)[1]
    assert "a later owner has opened it" in caplog.text


async def test_a_process_that_stands_by_can_be_stopped(tmp_path: Path) -> None:
    class NeverFree:
        """Another process owns every shard for ever."""

        @asynccontextmanager
        async def own(self, shard: str) -> AsyncIterator[asyncio.Event]:
            assert shard == "billing"
            await asyncio.get_running_loop().create_future()
            yield asyncio.Event()

    database = Database("sqlite", str(tmp_path / "store.db"))
    async with Consumer(
        "amqp://127.0.0.1:1", store=database.url, name="billing", topics=["orders"], shards=NeverFree()
    ) as consumer:
        task = asyncio.create_task(consumer.run(note))
        await asyncio.sleep(0)
        consumer.stop()
        await asyncio.wait_for(task, LONG)
    # Nor was the store opened: that would fence the owner off.
    assert not await asyncio.to_thread(Path(database.address).exists)


async def test_a_consumer_that_ends_in_good_order_misses_nothing_until_it_starts_again(
    router: RouterProcess, database: Database
) -> None:
    async with running(consumer_of(router, database), note):
        await publish(router, b"one")
    waiting = asyncio.create_task(publish(router, b"two"))
    async with running(consumer_of(router, database), note):
        await asyncio.wait_for(waiting, LONG)
        await eventually(lambda: effects(database) == ["one", "two"])


async def test_a_consumer_that_unsubscribed_keeps_no_publisher_waiting(
    router: RouterProcess, database: Database
) -> None:
    async with consumer_of(router, database):
        pass
    waiting = asyncio.create_task(publish(router, b"one"))  # the subscription is there, and nobody is connected
    async with consumer_of(router, database) as consumer:
        await consumer.unsubscribe()
    with suppress(NotAccepted):  # released: nobody was there
        await asyncio.wait_for(waiting, LONG)
    assert (await router.state())["subscriptions"] == []


# --- stores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "kind", "why"),
    [
        ("mysql://me:secret@host/shop", UsageError, "use sqlite:///billing.db, or postgresql://"),
        ("sqlite:///", UsageError, "use sqlite:///billing.db, or postgresql://"),
        ("billing.db", UsageError, "use sqlite:///billing.db, or postgresql://"),
        ("sqlite:////nowhere/billing.db", StoreUnusable, "No such file or directory"),
        pytest.param(
            "postgresql://nobody@127.0.0.1:1/shop",
            StoreUnusable,
            "PostgreSQL says",
            marks=pytest.mark.needs("postgresql"),
        ),
    ],
)
async def test_a_wrong_address_of_a_store_is_refused_before_anything_happens(
    url: str, kind: type[ClientError], why: str
) -> None:
    with pytest.raises(kind, match=why) as caught:
        async with Consumer("amqp://127.0.0.1:1", store=url, name="billing", topics=["orders"]):
            pass
    assert "secret" not in "".join(three_lines(caught.value))


async def test_a_store_that_another_program_keeps_locked_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oncewire.store.sqlite, "BUSY_SECONDS", 0.1)
    database = Database("sqlite", str(tmp_path / "store.db"))
    database.open().close()
    with closing(database.connect()) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreLocked) as caught:
            async with Consumer("amqp://127.0.0.1:1", store=database.url, name="billing", topics=["orders"]):
                pass
    assert "end the program that holds a transaction open" in three_lines(caught.value)[2]


@pytest.mark.needs("postgresql")
async def test_a_consumer_whose_connection_to_postgresql_breaks_opens_it_again(
    router: RouterProcess, request: pytest.FixtureRequest
) -> None:
    from tests.client.store_world import new_postgres_database

    database = new_postgres_database(request.getfixturevalue("postgresql"))
    broken = 0

    def break_some(tx: Transaction, message: ReceivedMessage) -> None:
        nonlocal broken
        note(tx, message)
        tx.publish("totals", message.body)
        if message.body in {b"3", b"7"} and broken < 2:  # in the middle of a transaction
            broken += 1
            cut(database)

    async with read_committed(router.url, "totals") as totals, running(consumer_of(router, database), break_some):
        for number in range(10):
            await publish(router, b"%d" % number)
            if number == 5:
                cut(database)  # between two
        assert sorted(await take(aiter(totals), 10)) == [b"%d" % number for number in range(10)]
    assert sorted(effects(database)) == [str(number) for number in range(10)]
    assert broken == 2


def cut(database: Database) -> None:
    """End all connections to this database but our own."""
    database.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


async def test_a_consumer_whose_sqlite_file_is_locked_for_long_goes_on_when_it_is_free(
    router: RouterProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oncewire.store.sqlite, "BUSY_SECONDS", 0.1)
    database = Database("sqlite", str(tmp_path / "store.db"))
    async with running(consumer_of(router, database), note):
        await publish(router, b"one")
        await eventually(lambda: effects(database) == ["one"])
        with closing(database.connect()) as other:
            other.execute("BEGIN EXCLUSIVE")
            waiting = asyncio.create_task(publish(router, b"two"))
            await asyncio.wait([waiting], timeout=1.0)
            assert not waiting.done()
            other.execute("COMMIT")
        await asyncio.wait_for(waiting, LONG)
        await eventually(lambda: effects(database) == ["one", "two"])


# --- transactions -----------------------------------------------------------------------------------------------------


async def test_the_next_transaction_works_while_messages_of_the_last_are_not_accepted(
    router: RouterProcess, database: Database
) -> None:
    def forward(tx: Transaction, message: ReceivedMessage) -> None:
        note(tx, message)
        tx.publish("totals", message.body)

    async with connect(router.url) as client:
        slow = await client.subscriber("totals")
        async with running(consumer_of(router, database), forward):
            for number in range(3):
                await publish(router, b"%d" % number)
                await eventually(lambda: len(effects(database)) == number + 1)  # noqa: B023
            async with asyncio.timeout(LONG):
                for _ in range(3):
                    delivery = await slow.receive()
                    await delivery.accept()
        assert database.rows("SELECT number FROM oncewire_store_intents") == []


async def test_a_function_blocks_a_thread_and_not_the_event_loop(router: RouterProcess, database: Database) -> None:
    entered, leave = threading.Event(), threading.Event()

    def block(tx: Transaction, message: ReceivedMessage) -> None:
        entered.set()
        assert leave.wait(LONG)
        note(tx, message)

    async with running(consumer_of(router, database), block):
        await publish(router, b"one")
        await eventually(entered.is_set)
        leave.set()  # by the loop, which runs
        await eventually(lambda: effects(database) == ["one"])


async def test_what_a_transaction_publishes_to_a_topic_is_read_whole(router: RouterProcess, database: Database) -> None:
    class Doubling(Consumer):
        """A subclass: two messages for each, and one more at the end of the transaction."""

        def process(self, tx: Transaction, message: ReceivedMessage) -> None:
            for _ in range(2):
                tx.publish("totals", message.body)

        def finalize(self, tx: Transaction) -> None:
            tx.publish("totals", "end")

    async with (
        read_committed(router.url, "totals") as totals,
        Doubling(router.url, store=database.url, name="billing", topics=["orders"]) as consumer,
    ):
        task = asyncio.create_task(consumer.run())
        await publish(router, *numbered(Producer(ProducerId("shop", 1)), b"a", b"b", b"c"))
        assert await take(aiter(totals), 7) == [b"a", b"a", b"b", b"b", b"c", b"c", "end"]
        consumer.stop()
        await asyncio.wait_for(task, LONG)


async def test_the_time_of_publishing_is_that_of_the_producers_clock(router: RouterProcess, database: Database) -> None:
    seen: list[float | None] = []

    def look(tx: Transaction, message: ReceivedMessage) -> None:
        seen.append(message.published_at)
        tx.publish("totals", b"", properties=Properties(creation_time=1_000_500))

    async with read_committed(router.url, "totals") as totals, running(consumer_of(router, database), look):
        await publish(router, b"none", Message(b"some", properties=Properties(creation_time=2_500)))
        async with asyncio.timeout(LONG):
            assert (await anext(aiter(totals))).published_at == 1000.5
        await eventually(lambda: len(seen) == 2)
    assert seen == [None, 2.5]


async def test_a_malformed_header_is_rejected_and_does_not_stop_the_consumer(
    router: RouterProcess, database: Database
) -> None:
    header = Producer(ProducerId("shop", 1)).alone().annotations()
    bad = {key: -1 if isinstance(value, int) else value for key, value in header.items()}
    async with running(consumer_of(router, database), note):
        await publish(router, b"one")
        async with connect(router.url) as client:
            publisher = await client.publisher("orders")
            _ = await publisher.submit(Message(b"bad", annotations=bad))
        await publish(router, b"two")
        await eventually(lambda: len(effects(database)) == 2)
    assert effects(database) == ["one", "two"]


async def test_a_message_that_cannot_be_put_into_sequence_is_set_aside_and_the_consumer_goes_on(
    router: RouterProcess, database: Database
) -> None:
    async with running(consumer_of(router, database), note):
        await publish(router, b"one")
        await eventually(lambda: effects(database) == ["one"])
    database.run("INSERT INTO oncewire_store_horizons VALUES ('billing', 'orders', '', 5000)")  # SQ-6
    async with running(consumer_of(router, database), note):
        late = Message(b"late", annotations=Producer(ProducerId("shop", 1)).alone().annotations())
        await publish(router, late, b"two")
        await eventually(lambda: effects(database) == ["one", "two"])
    assert database.rows("SELECT source, owner, why FROM oncewire_store_refused") == [
        ("orders", "", "refused-pruned: producer shop@1")
    ]


@pytest.mark.parametrize(
    ("topics", "process", "why"),
    [
        ("orders", note, "topics is a list"),
        ([], note, "topics is a list"),
        (["orders"], None, "it has no function"),
        (["orders"], "coroutine", "statements of a database block"),
    ],
)
async def test_misuse_is_explained(router: RouterProcess, tmp_path: Path, topics: Any, process: Any, why: str) -> None:
    async def coroutine(tx: Transaction, message: ReceivedMessage) -> None: ...

    database = Database("sqlite", str(tmp_path / "store.db"))

    async def misuse() -> None:
        async with consumer_of(router, database, topics=topics, attempts=1) as consumer:
            publishing = asyncio.create_task(publish(router, b"one"))
            try:
                await asyncio.wait_for(consumer.run(coroutine if process == "coroutine" else process), LONG)
            finally:
                publishing.cancel()

    with pytest.raises((UsageError, ProcessFailed), match=why):
        await misuse()


async def test_a_topic_whose_messages_were_not_processed_cannot_be_left_out(
    router: RouterProcess, database: Database
) -> None:
    def never(tx: Transaction, message: ReceivedMessage) -> None:
        raise RuntimeError

    async with consumer_of(router, database, topics=["orders", "refunds"], attempts=1) as consumer:
        task = asyncio.create_task(consumer.run(never))
        await publish(router, b"one", topic="refunds")
        with pytest.raises(ProcessFailed):
            await asyncio.wait_for(task, LONG)
    with pytest.raises(UsageError, match="it still holds messages of refunds"):
        async with consumer_of(router, database):
            pass


# --- readers ----------------------------------------------------------------------------------------------------------


async def test_a_committed_reader_gets_what_commits_and_an_uncommitted_one_everything_as_it_comes(
    router: RouterProcess,
) -> None:
    shop = Producer(ProducerId("shop", 1))
    rolled_back = [Message(b"never", annotations=shop.pending().annotations())]
    rolled_back.append(Message(b"", annotations=shop.rollback().annotations()))
    committed = numbered(shop, b"a", b"b")
    async with read_committed(router.url, "orders") as sober, read_uncommitted(router.url, "orders") as eager:
        await publish(router, *rolled_back, *committed[:2], *committed[:1], b"plain", committed[2])
        assert await take(aiter(sober), 3) == [b"plain", b"a", b"b"]
        assert await take(aiter(eager), 4) == [b"never", b"a", b"b", b"plain"]


async def test_a_transaction_that_fell_out_of_memory_is_read_from_the_journal_again(
    router: RouterProcess, database: Database
) -> None:
    bodies = [b"%d" % number for number in range(40)]
    async with running(consumer_of(router, database, ring_messages=3, batch=7), note):
        await publish(router, *numbered(Producer(ProducerId("shop", 1)), *bodies))
        await eventually(lambda: len(effects(database)) == 40)
        assert effects(database) == [str(number) for number in range(40)]
        await eventually(lambda: database.rows("SELECT position FROM oncewire_store_inputs") == [])  # and then trimmed


async def test_a_named_reader_goes_on_where_it_stopped(router: RouterProcess, database: Database) -> None:
    async with read_committed(router.url, "orders", store=database.url, name="printer") as reader:
        await publish(router, b"one")
        messages = aiter(reader)
        assert await take(messages, 1) == [b"one"]
        waiting = asyncio.ensure_future(anext(messages))  # asking for the next one states that "one" is done
        await publish(router, b"two")
        assert (await asyncio.wait_for(waiting, LONG)).body == b"two"
    async with read_committed(router.url, "orders", store=database.url, name="printer") as reader:
        await publish(router, b"three")
        assert await take(aiter(reader), 2) == [b"two", b"three"]  # nothing stated that "two" is done


async def test_a_reader_needs_a_store_and_a_name_or_neither(database: Database) -> None:
    with pytest.raises(UsageError, match="not both"):
        read_committed("amqp://127.0.0.1:1", "orders", name="printer")
