"""ST-8: what a consumer publishes to a topic without enough subscriptions waits in its store."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import Any

import pytest

from oncewire.client import Subscriber, connect
from oncewire.client.transactions import Consumer, CrashPoint, ReceivedMessage, Transaction
from tests.client.failing_child import SCHEMA
from tests.client.output_readers import until
from tests.client.store_world import Database
from tests.client.test_consumer_failures import LONG, child, consumer_of, effects, publish, running
from tests.router.processes import RouterProcess


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncewire.client.transactions.outputs.RETRY_S", 0.05)


def forward(tx: Transaction, message: ReceivedMessage) -> None:
    """To `totals`, which nobody reads at first, and to `heard`."""
    tx.execute("INSERT INTO effects VALUES (?)", (message.body.decode(),))
    tx.publish("totals", message.body)
    if message.body == b"0":
        tx.publish("heard", message.body)


async def taken(subscriber: Subscriber, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        delivery = await subscriber.receive(LONG)
        await delivery.accept()
        found.append(delivery.body)
    return found


def intents(database: Database) -> int:
    return int(database.rows("SELECT COUNT(*) FROM oncewire_store_intents")[0][0])


async def until_published(database: Database) -> None:
    await until(lambda: intents(database) == 0, lambda: intents(database))


async def test_messages_wait_in_order_until_their_topic_has_a_subscription(
    router: RouterProcess, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = [b"%d" % number for number in range(40)]

    def warned() -> int:
        return sum("the topic 'totals' has fewer than 1 subscription" in line.getMessage() for line in caplog.records)

    with caplog.at_level(logging.WARNING, "oncewire.client"):
        async with connect(router.url, container_id="reader") as client, client.subscriber("heard") as heard:
            async with running(consumer_of(router, database, require=1, batch=7), forward):
                await publish(router, *bodies[:30])
                assert await taken(heard, 1) == [b"0"]  # another topic does not wait
                await until(lambda: warned() == 1 and len(effects(database)) == 30, warned)
                await publish(router, *bodies[30:35])
            # stopped, though messages wait; the next owner has them
            async with running(consumer_of(router, database, require=1), forward):
                await publish(router, *bodies[35:])
                await until(lambda: len(effects(database)) == 40, lambda: effects(database))
                totals = await client.subscriber("totals")
                assert await taken(totals, 40) == bodies
                await until_published(database)
                await totals.unsubscribe()
                seen = warned()
                await publish(router, b"last")
                await until(lambda: warned() > seen, warned)
                totals = await client.subscriber("totals")
                assert await taken(totals, 1) == [b"last"]
                await until_published(database)
                assert (totals.waiting, heard.waiting) == (0, 0)


async def test_what_waits_goes_to_nobody_when_the_next_owner_requires_nobody(
    router: RouterProcess, database: Database
) -> None:
    async with running(consumer_of(router, database, require=1), forward):
        await publish(router, b"1")
        await until(
            lambda: database.rows("SELECT number FROM oncewire_store_released") != [], lambda: "nothing was released"
        )
    assert intents(database) == 1
    async with running(consumer_of(router, database), forward):
        await until_published(database)


async def test_what_waits_for_a_subscription_comes_once_whoever_was_killed_while_it_waited(
    router: RouterProcess, database: Database, tmp_path: Path
) -> None:
    """The dead letters of the consumer; nobody reads them before its last owner runs."""
    points = (CrashPoint.RELEASED, CrashPoint.ENDED)
    async with Consumer(router.url, store=database.url, name="billing", topics=["orders"], schema=SCHEMA):
        pass
    wanted = []
    async with connect(router.url, container_id="reader") as client:
        orders = await client.publisher("orders")
        for point in points:
            wanted.append(b"bad " + point.name.encode())
            _ = await orders.submit(wanted[-1])
            async with child(database, router, point.name, tmp_path / point.name) as process:
                assert await asyncio.wait_for(process.wait(), LONG) == -signal.SIGKILL
        letters = await client.subscriber("dead")
        async with child(database, router, "-", tmp_path / "none"):
            assert await taken(letters, len(points)) == wanted
            await until_published(database)
        assert letters.waiting == 0


async def test_what_may_have_been_sent_to_nobody_waits_for_a_subscription_when_its_owner_was_killed(
    router: RouterProcess, database: Database, tmp_path: Path
) -> None:
    """I-3f: nobody is there yet when the next owner presents it."""
    async with Consumer(router.url, store=database.url, name="billing", topics=["orders"], schema=SCHEMA):
        pass
    point = CrashPoint.EXPOSED.name

    async def windows() -> list[int]:
        publishers = (await router.get("/api/v1/publishers"))[1]["items"]
        return [each["unsettled"] for each in publishers if (each["topic"], each["state"]) == ("dead", "active")]

    async with connect(router.url, container_id="reader") as client:
        orders = await client.publisher("orders")
        _ = await orders.submit(b"bad")
        async with child(database, router, point, tmp_path / point) as process:
            assert await asyncio.wait_for(process.wait(), LONG) == -signal.SIGKILL
        async with child(database, router, "-", tmp_path / "none"):
            async with asyncio.timeout(LONG):
                while await windows() != [1]:  # noqa: ASYNC110  # it has no event
                    await asyncio.sleep(0.02)
            letters = await client.subscriber("dead")
            assert await taken(letters, 1) == [b"bad"]
            await until_published(database)
        assert letters.waiting == 0
