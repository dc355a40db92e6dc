"""Between topics and queues, with real routers: feeds and the outbox. What crashes do is in test_topic_crashes.py."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from bridges.store.outbox_publisher import NAME as PUBLISHER
from bridges.workqueue import (
    Commit,
    Feed,
    InvalidRequest,
    NeedsTransactions,
    NewMessage,
    Operations,
    OutboxPublisher,
    Queue,
    QueueStore,
    TakenOver,
    Target,
    UnknownEntry,
    new_message,
)
from bridges.workqueue.unpublished import drop_unpublished, list_unpublished, publish_again
from oncewire.client import NotAccepted, OutcomeKind, Subscriber, connect
from oncewire.store import owners
from oncewire.store.owners import take_over
from oncewire.wire import BodyKind, Message
from tests.docs.code_blocks import ROOT, blocks_of
from tests.router.processes import RouterProcess, start_router
from tests.support.commands import run
from tests.workqueue.queue_world import Database, World

LONG = 120.0
pytestmark = [pytest.mark.router("--limits-on-reject=report"), pytest.mark.timeout(300)]


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """A feed or publisher in the background for the time of the block."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, TakenOver):
            await task


async def pop(queue: Queue) -> bytes:
    taken = await queue.pop(wait=LONG)
    assert taken is not None
    return taken.payload


async def bodies(subscriber: Subscriber, count: int) -> list[object]:
    found = []
    for _ in range(count):
        delivery = await subscriber.receive(LONG)
        found.append(delivery.body)
        await delivery.accept()
    return found


async def confirmed(router: RouterProcess, count: int = 1) -> None:
    """Wait until so many subscriptions are there."""
    async with asyncio.timeout(LONG):
        while len((await router.get("/api/v1/subscriptions"))[1]["items"]) < count:  # noqa: ASYNC110  # it has no event
            await asyncio.sleep(0.02)


async def test_every_message_becomes_one_item_in_order_and_counts_as_accepted_when_it_is_durable(
    sql_database: Database, router: RouterProcess
) -> None:
    async with Queue.open(sql_database.url, "in") as queue, running(Feed(queue, "orders", router.url).run()):
        await confirmed(router)
        async with connect(router.url) as client:
            publisher = await client.publisher("orders")
            for number in range(300):
                _ = await publisher.submit(b"%d" % number)
            outcome = await publisher.send("a string", timeout=LONG)
            assert outcome.is_accepted
            # What is accepted is there for everybody.
            assert sql_database.rows("SELECT count(*) FROM oncewire_items") == [(301,)]
            _ = await publisher.send(Message({"a": 1}, BodyKind.VALUE))
            _ = await publisher.send(Message({UUID(int=1): float("nan"), None: [b"x"]}, BodyKind.VALUE))
        taken = await queue.reserve_many(303)
    assert [item.payload for item in taken] == [
        *(b"%d" % n for n in range(300)),
        b"a string",
        b'{"a":1}',
        b'{"00000000-0000-0000-0000-000000000001":"NaN","null":["x"]}',
    ]


async def test_what_cannot_be_an_item_is_rejected_with_the_reason_and_the_next_ones_pass(
    sql_database: Database, router: RouterProcess
) -> None:
    async with (
        Queue.open(sql_database.url, "in", max_payload_bytes=100) as queue,
        running(Feed(queue, "orders", router.url).run()),
        connect(router.url) as client,
    ):
        await confirmed(router)
        publisher = await client.publisher("orders")
        reasons = []
        for body in (b"x" * 101, Message(["x" * 98], BodyKind.VALUE)):
            with pytest.raises(NotAccepted) as caught:
                await publisher.send(body, timeout=LONG)
            reasons.append(caught.value.outcomes[0].kind)
        assert reasons == [OutcomeKind.REJECTED] * 2
        assert (await publisher.send(b"fits", timeout=LONG)).is_accepted
        assert await pop(queue) == b"fits"
        assert await queue.pop() is None


async def test_messages_are_published_by_the_transaction_that_commits_the_item_and_not_by_one_that_fails(
    sql_database: Database, router: RouterProcess
) -> None:
    async with Queue.open(sql_database.url, "in", backoff_s=0.0) as queue, connect(router.url) as client:
        await Queue(queue.store, "next").configure()
        subscriber = await client.subscriber("done")
        await queue.push(1)
        with suppress(ZeroDivisionError):
            async with queue.reserve() as item:
                item.publish("done", b"from an attempt that failed")
                raise ZeroDivisionError
        async with queue.reserve(wait=LONG) as item:
            item.publish("done", {"number": 1})
            await item.move("next")
        async with Queue(queue.store, "next").reserve() as item:
            item.publish("done", Message("a message", BodyKind.VALUE, application_properties={"a": 1}))

        def wrong(do: Operations) -> None:
            do.publish([new_message("done", b"never")])
            raise ZeroDivisionError

        with suppress(ZeroDivisionError):
            await queue.transact(wrong)
        await queue.transact(lambda do: do.publish([new_message("done", b"last")]))
        outbox = OutboxPublisher(queue.store, router.url)
        async with running(outbox.run()):
            assert await bodies(subscriber, 3) == [b'{"number":1}', "a message", b"last"]
            await asyncio.wait_for(outbox.flush(), LONG)
        assert sql_database.rows("SELECT * FROM oncewire_outbox") == []


async def test_a_commit_or_move_that_is_repeated_publishes_nothing_again(sql_world: World) -> None:
    sql_world.push(b"a", b"b")
    sql_world.configure("out")
    message = (new_message("done", b"x"),)
    for _ in range(2):
        if _ == 0:
            first, second = sql_world.take(), sql_world.take()
        sql_world.do(lambda do: do.commit([Commit(first, messages=message)]))  # noqa: B023
        sql_world.do(lambda do: do.move(second, [Target("out")], message))  # noqa: B023
    assert sql_world.database.rows("SELECT number FROM oncewire_outbox ORDER BY number") == [(0,), (1,)]


async def test_each_topic_gets_its_messages_in_the_order_of_the_commits(
    sql_database: Database, router: RouterProcess
) -> None:
    """By many transactions of two stores at once."""
    async with QueueStore.open(sql_database.url) as one, QueueStore.open(sql_database.url) as two:
        await one.transact(lambda do: do.execute("CREATE TABLE commits (number BIGINT)"))

        def job(number: int) -> Callable[[Operations], None]:
            def work(do: Operations) -> None:
                do.publish([new_message(topic, b"%d" % number) for topic in ("b", "a")])

            return work

        await asyncio.gather(*[(one, two)[n % 2].transact(job(n)) for n in range(200)])
        rows = sql_database.rows("SELECT payload FROM oncewire_outbox WHERE topic = 'a' ORDER BY number")
        same = sql_database.rows("SELECT payload FROM oncewire_outbox WHERE topic = 'b' ORDER BY number")
        assert [bytes(row[0]) for row in rows] == [bytes(row[0]) for row in same]
        async with connect(router.url) as client:
            subscriber = await client.subscriber("a")
            async with running(OutboxPublisher(one, router.url).run()):
                received = await bodies(subscriber, 200)
        assert sorted(received) == sorted(b"%d" % n for n in range(200))  # type: ignore[type-var]
        # Within one store, in the order in which the transactions were begun.
        for parity in range(2):
            mine = [int(body) for body in received if int(body) % 2 == parity]  # type: ignore[call-overload]
            assert mine == sorted(mine)


async def test_what_ended_otherwise_than_accepted_stays_until_somebody_decides(
    sql_database: Database, router: RouterProcess
) -> None:
    async with Queue.open(sql_database.url, "in") as queue, connect(router.url) as client:
        subscriber = await client.subscriber("done")
        await queue.transact(lambda do: do.publish([new_message("done", b"%d" % n) for n in range(4)]))
        outbox = OutboxPublisher(queue.store, router.url)
        async with running(outbox.run()):
            for _ in range(4):
                delivery = await subscriber.receive(LONG)
                await (delivery.reject("broken") if delivery.body in {b"1", b"2"} else delivery.accept())
            await asyncio.wait_for(outbox.flush(), LONG)
            found = await queue.transact(list_unpublished)
            assert [(each.number, each.outcome.kind) for each in found] == [
                (1, OutcomeKind.REJECTED),
                (2, OutcomeKind.REJECTED),
            ]
            await queue.transact(lambda do: drop_unpublished(do, "done", 1))
            await queue.transact(lambda do: publish_again(do, "done", 2))
            assert await bodies(subscriber, 1) == [b"2"]
            with pytest.raises(UnknownEntry):
                await queue.transact(lambda do: publish_again(do, "done", 2))
            await asyncio.wait_for(outbox.flush(), LONG)
        assert sql_database.rows("SELECT * FROM oncewire_outbox") == []


async def test_messages_wait_in_order_until_their_topic_has_a_subscription(
    sql_database: Database, router: RouterProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when the publisher ends meanwhile, and when a subscription leaves while it idles."""

    def put(*numbers: int) -> Callable[[Operations], None]:
        return lambda do: do.publish([new_message("done", b"%d" % n) for n in numbers])

    async with Queue.open(sql_database.url, "in") as queue, connect(router.url) as client:
        await queue.transact(put(*range(300)))
        for _ in range(3):
            seen = caplog.text.count("'done' has fewer than 1 subscription")
            async with running(OutboxPublisher(queue.store, router.url, require=1).run()):
                await until_logged(caplog, "'done' has fewer than 1 subscription", seen + 1)
        outbox = OutboxPublisher(queue.store, router.url, require=1)
        async with running(outbox.run()):
            subscriber = await client.subscriber("done")
            assert await bodies(subscriber, 300) == [b"%d" % n for n in range(300)]
            await asyncio.wait_for(outbox.flush(), LONG)
            await subscriber.unsubscribe()
            seen = caplog.text.count("'done' has fewer than 1 subscription")
            await queue.transact(put(300))
            await until_logged(caplog, "'done' has fewer than 1 subscription", seen + 1)
            await queue.transact(put(301))
            subscriber = await client.subscriber("done")
            assert await bodies(subscriber, 2) == [b"300", b"301"]
            await asyncio.wait_for(outbox.flush(), LONG)
            assert subscriber.waiting == 0
        assert await queue.transact(list_unpublished) == []


async def test_what_may_have_been_published_in_a_session_that_is_gone_is_not_published_again(
    sql_database: Database,
) -> None:
    """A standalone router keeps sessions in its memory: its end is theirs."""
    router = await start_router("--standalone")
    try:
        async with Queue.open(sql_database.url, "in") as queue, connect(router.url) as client:
            subscriber = await client.subscriber("done")
            await queue.transact(lambda do: do.publish([new_message("done", b"once")]))
            outbox = OutboxPublisher(queue.store, router.url)
            async with running(outbox.run()):
                delivery = await subscriber.receive(LONG)
                await router.stop(signal.SIGKILL)
                router = await start_router("--standalone", f"--listen-port={router.port}")
                await asyncio.wait_for(outbox.flush(), LONG)
                await delivery.accept()
                (found,) = await queue.transact(list_unpublished)
                assert found.outcome.kind is OutcomeKind.UNKNOWN
                await confirmed(router)
                await queue.transact(lambda do: do.publish([new_message("done", b"the next")]))
                assert await bodies(subscriber, 1) == [b"the next"]
    finally:
        await router.stop(signal.SIGKILL)


async def until_logged(caplog: pytest.LogCaptureFixture, text: str, times: int = 1) -> None:
    async with asyncio.timeout(LONG):
        while caplog.text.count(text) < times:  # noqa: ASYNC110  # it has no event
            await asyncio.sleep(0.02)


async def test_whoever_begins_last_publishes_and_the_one_before_stands_by_until_that_one_ends(
    sql_database: Database, router: RouterProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """In both directions, in the middle of the work: nothing is lost or doubled, and the log says who publishes."""
    async with (
        Queue.open(sql_database.url, "in") as one,
        Queue.open(sql_database.url, "in") as two,
        connect(router.url) as client,
    ):
        subscriber = await client.subscriber("done")
        decided = iter(range(10_000))

        async def decide() -> list[object]:
            bodies = [b"%d" % next(decided) for _ in range(300)]
            await one.transact(lambda do: do.publish([new_message("done", body) for body in bodies]))
            return [*bodies]

        owed = await decide()
        async with running(OutboxPublisher(one.store, router.url).run()):
            for turn in range(1, 3):
                received = await bodies(subscriber, 20)
                async with running(OutboxPublisher(two.store, router.url).run()):
                    await until_logged(caplog, "this process has taken over from one that runs it", turn)
                    await until_logged(caplog, "another process has taken over; this one stands by", turn)
                    owed += await decide()
                    received += await bodies(subscriber, len(owed) - len(received) - 100)
                owed += await decide()
                received += await bodies(subscriber, len(owed) - len(received))
                await until_logged(caplog, "this process has taken over, the one before is gone", turn)
                assert received == owed
                owed = await decide()
            assert await bodies(subscriber, len(owed)) == owed
            await asyncio.wait_for(OutboxPublisher(two.store, router.url).flush(), LONG)


async def test_an_owner_that_is_not_heard_of_is_replaced_when_its_lease_runs_out(
    sql_database: Database, router: RouterProcess, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Queue.open(sql_database.url, "in") as queue, connect(router.url) as client:
        subscriber = await client.subscriber("done")
        async with running(OutboxPublisher(queue.store, router.url).run()):
            await queue.transact(lambda do: do.publish([new_message("done", b"before")]))
            assert await bodies(subscriber, 1) == [b"before"]
            monkeypatch.setattr(owners, "LEASE_S", 0.5)
            # As a process does that is killed right after its beginning.
            gone = await queue.transact(lambda do: take_over(do, PUBLISHER))
            await queue.transact(lambda do: do.publish([new_message("done", b"after")]))
            assert await bodies(subscriber, 1) == [b"after"]
            await until_logged(caplog, "this process has taken over, the one before is gone")
            with pytest.raises(TakenOver):
                await queue.transact(gone.renew)


async def test_of_several_that_stand_by_one_takes_over(sql_database: Database) -> None:
    async with QueueStore.open(sql_database.url) as one, QueueStore.open(sql_database.url) as two:
        owner = await one.transact(lambda do: take_over(do, PUBLISHER))
        links = [OutboxPublisher(store, "amqp://127.0.0.1:1") for store in (one, two, one, two)]
        standing = [asyncio.create_task(link._stand_by()) for link in links]
        await one.transact(owner.give_back)
        done, waiting = await asyncio.wait(standing, timeout=LONG, return_when=asyncio.FIRST_COMPLETED)
        (winner,) = [task.result() for task in done]
        assert winner.epoch == owner.epoch + 1
        assert len(waiting) == 3
        await two.transact(winner.check)
        for task in waiting:
            task.cancel()
        await asyncio.wait(standing)


async def test_whoever_begins_last_runs_a_feed_and_an_end_of_the_subscription_ends_those_who_stand_by(
    sql_database: Database, router: RouterProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async with Queue.open(sql_database.url, "in") as one, Queue.open(sql_database.url, "in") as two:
        async with running(Feed(one, "orders", router.url).run()) as old, connect(router.url) as client:
            await confirmed(router)
            publisher = await client.publisher("orders")
            async with running(Feed(two, "orders", router.url).run()):
                await until_logged(caplog, "this one stands by")
                _ = await publisher.send(b"x", timeout=LONG)
                assert await pop(two) == b"x"
            _ = await publisher.send(b"y", timeout=LONG)
            assert await pop(two) == b"y"
            subscriptions = (await router.get("/api/v1/subscriptions"))[1]["items"]
            assert len(subscriptions) == 1
            await asyncio.wait_for(Feed(two, "orders", router.url).unsubscribe(), LONG)
            with pytest.raises(TakenOver, match="its subscription was ended"):
                await asyncio.wait_for(old, LONG)
            assert "its subscription was ended" in caplog.text
        assert (await router.get("/api/v1/subscriptions"))[1]["items"] == []
        async with running(Feed(one, "orders", router.url).run()):
            await confirmed(router)


async def test_a_shell_ends_the_subscription_of_a_feed_and_says_what_is_not_published(
    sql_database: Database, router: RouterProcess
) -> None:
    async with Queue.open(sql_database.url, "in") as queue:
        feed = Feed(queue, "orders", router.url)
        running = asyncio.create_task(feed.run())
        await asyncio.wait_for(feed.subscribed.wait(), LONG)
        options = ("--store", sql_database.url, "--router", router.url, "--json")
        _, out, err = await run("queue", "unsubscribe", "orders", "in", *options)
        assert json.loads(out) == {"topic": "orders", "queue": "in", "unsubscribed": True}, err
        with pytest.raises(TakenOver, match="subscription was ended"):
            await asyncio.wait_for(running, LONG)
        _, _, err = await run("queue", "unpublished", "done", "0", "--again", "--store", sql_database.url)
        assert "there is no unpublished message 0" in err
    assert (await router.get("/api/v1/subscriptions"))[1]["items"] == []


async def test_the_program_of_the_page_works(router: RouterProcess, tmp_path: Path) -> None:
    blocks = blocks_of(ROOT / "docs" / "workqueue.md")
    (program,) = [block.text for block in blocks if block.run_by == "tests/workqueue/test_topics.py"]
    code, out, err = await run(program=program.replace("amqp://127.0.0.1:5672", router.url), folder=tmp_path)
    assert (code, out) == (0, '{"order":17}\n'), err


@pytest.mark.needs("mongodb")
async def test_a_mongodb_store_refuses_feeds_and_messages(mongo_database: Database) -> None:
    async with Queue.open(mongo_database.url, "work") as queue:
        nowhere = "amqp://127.0.0.1:1"
        for refused in (Feed(queue, "orders", nowhere).run(), OutboxPublisher(queue.store, nowhere).run()):
            with pytest.raises(NeedsTransactions, match="use a SQLite or PostgreSQL store"):
                await asyncio.wait_for(refused, LONG)
        await queue.push(1)
        (item,) = await queue.reserve_many(1)
        item.publish("done", b"x")
        with pytest.raises(NeedsTransactions):
            await item.commit()
        with pytest.raises(NeedsTransactions):
            await item.move("work")
        with pytest.raises(NeedsTransactions):
            await queue.transact(lambda do: do.publish([new_message("done", b"x")]))
        assert (await queue.statistics()).reserved == 1


async def test_bad_topics_and_bodies_are_refused_before_anything_changes(
    sql_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridges.store.outbox.MAX_TOPICS", 2)
    for topic in ("", "a|b", "x" * 256, "a\n"):
        with pytest.raises(InvalidRequest):
            sql_world.do(lambda do: do.publish([NewMessage(topic, b"")]))  # noqa: B023
    with pytest.raises(InvalidRequest):
        new_message("done", object())
    with pytest.raises(InvalidRequest):
        sql_world.do(lambda do: do.publish([new_message(topic, 1) for topic in "abc"]))
    assert sql_world.database.rows("SELECT * FROM oncewire_outbox_topics") == []
    sql_world.store.close()
