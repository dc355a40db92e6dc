"""What an application does message by message in one turn of its loop goes out together, and nothing of it is lost."""

from __future__ import annotations

import asyncio

from oncewire.client import connect
from tests.client.wire_server import Network, WireServer

MESSAGES = 40
TOPIC = "t"


async def test_the_settlement_of_a_message_and_the_next_one_are_one_write() -> None:
    async with WireServer(Network()) as server, connect(server.url, container_id="c") as client:
        publisher = await client.publisher(TOPIC)
        (connection,) = server.connections
        before = connection.reads
        for _ in range(MESSAGES):
            await publisher.send(b"one at a time")
        assert connection.reads - before <= MESSAGES + 2


async def test_messages_that_are_accepted_in_one_turn_are_answered_by_one_range() -> None:
    async with WireServer(Network(window=MESSAGES)) as server, connect(server.url, container_id="c") as client:
        subscriber = await client.subscriber(TOPIC, prefetch=MESSAGES)
        publisher = await client.publisher(TOPIC, window=MESSAGES)
        sent = [await publisher.submit(b"%d" % number) for number in range(MESSAGES)]
        deliveries = [await subscriber.receive()]
        deliveries += await subscriber.receive_many(MESSAGES)
        while len(deliveries) < MESSAGES:
            deliveries += await subscriber.receive_many(MESSAGES)
        for delivery in deliveries:
            await delivery.accept()
        assert {(await sending).is_accepted for sending in sent} == {True}
        assert server.dispositions <= 2  # the first one does not wait


async def test_what_was_put_off_to_the_end_of_a_turn_that_ends_the_connection_is_sent_by_the_next_one() -> None:
    network = Network(window=MESSAGES)
    async with WireServer(network) as server, connect(server.url, container_id="c") as client:
        subscriber = await client.subscriber(TOPIC, name="s", prefetch=MESSAGES)
        publisher = await client.publisher(TOPIC, name="p", window=MESSAGES)
        sent = [await publisher.submit(b"%d" % number) for number in range(MESSAGES)]
        server.drop_connections()
        deliveries = [await subscriber.receive() for _ in range(MESSAGES)]
        assert [delivery.body for delivery in deliveries] == [b"%d" % number for number in range(MESSAGES)]
        for delivery in deliveries[:-1]:
            await delivery.accept()
        server.drop_connections()
        await deliveries[-1].accept()
        assert {(await sending).is_accepted for sending in sent} == {True}


async def test_a_sending_that_one_waiter_gives_up_is_not_lost_for_another() -> None:
    async with WireServer(Network(window=MESSAGES)) as server, connect(server.url, container_id="c") as client:
        subscriber = await client.subscriber(TOPIC)
        publisher = await client.publisher(TOPIC)
        sending = await publisher.submit(b"m")
        delivery = await subscriber.receive()
        for _ in range(2):
            try:
                async with asyncio.timeout(0.01):
                    await sending
            except TimeoutError:
                continue
        seen = sending.future
        await delivery.accept()
        assert (await sending).is_accepted
        assert seen.result() == sending.outcome
