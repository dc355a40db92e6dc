"""What consumers offer beside their rules: codecs, whether they are idle, and how long they wait when they leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oncewire.client import BodyNotDecoded, connect
from oncewire.client.transactions import Consumer, ReceivedMessage, Transaction
from oncewire.testing import AmqpNetwork
from tests.client.output_readers import until

LONG = 60.0


@dataclass
class Order:
    number: int


@dataclass
class Bill:
    order: int
    total: float


@pytest.fixture(scope="module")
def network() -> Iterator[AmqpNetwork]:
    with AmqpNetwork(1) as found:
        yield found


@asynccontextmanager
async def running(
    network: AmqpNetwork, folder: Path, process: Callable[[Transaction, ReceivedMessage], object], **options: Any
) -> AsyncIterator[Consumer]:
    """A consumer with a store and a topic of its own, the folder's name; it stops in good order."""
    name = folder.name
    consumer = Consumer(network.urls, store=f"sqlite:///{folder}/c.db", name=name, topics=[name], **options)
    async with consumer, asyncio.timeout(LONG), asyncio.TaskGroup() as group:
        task = group.create_task(consumer.run(process))
        try:
            yield consumer
        except BaseException:
            task.cancel()
            raise
        consumer.stop()


async def until_idle(consumer: Consumer) -> None:
    await until(lambda: consumer.is_idle, lambda: "the consumer is not idle")


def bill(tx: Transaction, message: ReceivedMessage) -> None:
    order: Order = message.value
    tx.publish("bills", Bill(order.number, 2.5 * order.number))


async def test_a_consumer_with_a_codec_reads_and_publishes_values(network: AmqpNetwork, tmp_path: Path) -> None:
    async with (
        connect(network.urls) as client,
        client.subscriber("bills", codec=Bill) as bills,
        running(network, tmp_path, bill, codec=Order),
    ):
        await (await client.publisher(tmp_path.name, codec=Order)).send(Order(4), timeout=LONG)
        delivery = await bills.receive(LONG)
        assert delivery.value == Bill(4, 10.0)
        await delivery.accept()


async def test_a_body_that_the_codec_cannot_read_goes_the_way_of_each_message_that_fails(
    network: AmqpNetwork, tmp_path: Path
) -> None:
    async with (
        connect(network.urls) as client,
        client.subscriber("dead") as letters,
        running(network, tmp_path, bill, codec=Order, dead_letters="dead", attempts=1) as consumer,
    ):
        await (await client.publisher(tmp_path.name)).send("no order", timeout=LONG)
        letter = await letters.receive(LONG)
        assert letter.dead_letter is not None
        assert letter.dead_letter.error.startswith(f"{BodyNotDecoded.__name__}: the body of a message is not")
        await letter.accept()
        await until_idle(consumer)


async def test_a_consumer_is_idle_when_all_it_has_is_processed_and_what_it_published_is_accepted(
    network: AmqpNetwork, tmp_path: Path
) -> None:
    may_end = asyncio.Event()
    loop = asyncio.get_running_loop()

    def process(tx: Transaction, message: ReceivedMessage) -> None:
        asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result(LONG)
        tx.publish("bills", message.body)

    async with connect(network.urls) as client, client.subscriber("bills") as bills:
        async with running(network, tmp_path, process) as consumer:
            await until_idle(consumer)
            await (await client.publisher(tmp_path.name)).send("1", timeout=LONG)
            assert not consumer.is_idle, "it is being processed"
            may_end.set()
            delivery = await bills.receive(LONG)
            assert not consumer.is_idle, "its output is not accepted"
            await delivery.accept()
            await until_idle(consumer)
        assert not consumer.is_idle, "it is not open"


async def test_a_consumer_that_stops_waits_for_readers_as_long_as_it_was_told_and_the_next_goes_on(
    network: AmqpNetwork, tmp_path: Path
) -> None:
    def process(tx: Transaction, message: ReceivedMessage) -> None:
        tx.publish("bills", message.body)

    async with connect(network.urls) as client, client.subscriber("bills") as bills:
        async with running(network, tmp_path, process, leave_timeout=0.0):
            await (await client.publisher(tmp_path.name)).send("1", timeout=LONG)
            delivery = await bills.receive(LONG)
        await delivery.accept()
        async with running(network, tmp_path, process) as consumer:
            await until_idle(consumer)
