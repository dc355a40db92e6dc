"""The asyncio client against a real engine behind a real socket: messages, outcomes, back-pressure."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest

from oncewire.client import (
    LinkRefused,
    Message,
    NotAccepted,
    OutcomeKind,
    Properties,
    StillOwed,
    Subscriptions,
    UsageError,
    WindowFull,
    connect,
)
from oncewire.client.connector import MIN_FRAME_SIZE
from tests.client.shell_helpers import LONG, error, until
from tests.client.wire_server import RELEASED, Network, Rejected, WireServer


async def test_a_message_is_accepted_after_the_subscriber_accepted_it(server: WireServer) -> None:
    async with connect(server.url) as client:
        publisher = await client.publisher("orders")
        subscriber = await client.subscriber("orders")
        sending = await publisher.submit(b"one")
        delivery = await subscriber.receive(LONG)
        assert delivery.body == b"one"
        assert sending.outcome is None
        await delivery.accept()
        assert (await sending).is_accepted
        assert publisher.unfinished == 0


async def test_many_messages_arrive_once_and_in_order(server: WireServer) -> None:
    async with connect(server.url) as client:
        publisher = await client.publisher("orders", window=50)
        subscriber = await client.subscriber("orders", prefetch=16)
        received: list[object] = []

        async def receive() -> None:
            async for delivery in subscriber:
                received.append(delivery.body)
                await delivery.accept()
                if len(received) == 500:
                    return

        async with asyncio.timeout(LONG), asyncio.TaskGroup() as group:
            group.create_task(receive())
            for number in range(500):
                _ = await publisher.submit(b"%d" % number)
            await publisher.flush()
        assert received == [b"%d" % number for number in range(500)]
        assert publisher.statistics.accepted == subscriber.statistics.accepted == 500


async def test_bodies_of_every_kind_arrive(server: WireServer) -> None:
    class Foreign:
        """Shaped like proton.Message."""

        def encode(self) -> bytes:
            return b"\x00\x53\x75\xa0\x02hi"

    async with connect(server.url) as client:
        publisher = await client.publisher("t")
        subscriber = await client.subscriber("t")
        _ = await publisher.submit("text")
        _ = await publisher.submit(bytearray(b"bytes"), application_properties={"k": 1})
        _ = await publisher.submit(Message(b"message", properties=Properties(message_id="m1")))
        _ = await publisher.submit(Foreign())
        deliveries = [await subscriber.receive(LONG) for _ in range(4)]
        assert [delivery.body for delivery in deliveries] == ["text", b"bytes", b"message", b"hi"]
        assert deliveries[1].message.application_properties == {"k": 1}
        assert deliveries[2].message.properties == Properties(message_id="m1")
        for delivery in deliveries:
            await delivery.accept()


@pytest.mark.needs("proton")
async def test_a_message_of_proton_arrives(server: WireServer) -> None:
    from proton import Message as ProtonMessage

    async with connect(server.url) as client:
        publisher = await client.publisher("t")
        subscriber = await client.subscriber("t")
        _ = await publisher.submit(ProtonMessage(body="text", id="m1", subject="greeting"))
        delivery = await subscriber.receive(LONG)
        assert delivery.body == "text"
        assert delivery.message.properties == Properties(message_id="m1", subject="greeting")
        await delivery.accept()


@pytest.mark.parametrize("size", [0, 511, 512, 559, MIN_FRAME_SIZE - 1, 1 << 32])
def test_a_frame_size_that_holds_no_map_is_refused_with_the_smallest_that_does(size: int) -> None:
    with pytest.raises(UsageError, match=f"max_frame_size={size} cannot be used.*give at least 4096"):
        _ = connect("amqp://127.0.0.1:1", max_frame_size=size)


def test_a_container_id_that_does_not_fit_the_first_frame_is_refused() -> None:
    with pytest.raises(UsageError, match="256 bytes cannot be used"):
        _ = connect("amqp://127.0.0.1:1", container_id="c" * 256)


@pytest.mark.parametrize("body", [{"a": 1}, 5, None, ["x"], object()])
async def test_a_body_that_is_no_message_is_refused(server: WireServer, body: Any) -> None:
    async with connect(server.url) as client:
        publisher = await client.publisher("t")
        with pytest.raises(UsageError, match="cannot be sent"):
            _ = await publisher.submit(body)


async def test_send_raises_when_the_message_was_not_accepted(server: WireServer, network: Network) -> None:
    network.outcomes = deque([RELEASED, Rejected(error("amqp:not-allowed", "no", subscriptions=["a/b"]))])
    async with connect(server.url) as client:
        publisher = await client.publisher("t")
        with pytest.raises(NotAccepted, match="released") as first:
            await publisher.send(b"x")
        assert first.value.outcomes[0].kind is OutcomeKind.RELEASED
        with pytest.raises(NotAccepted, match="amqp:not-allowed: no") as second:
            await publisher.send(b"x")
        assert second.value.outcomes[0].subscriptions == Subscriptions(1, ("a/b",))
        await publisher.send(b"x")


async def test_flush_notifies_of_bad_outcomes_nobody_looked_at(server: WireServer, network: Network) -> None:
    network.outcomes = deque([RELEASED, RELEASED])
    async with connect(server.url) as client:
        publisher = await client.publisher("t")
        looked_at = await publisher.submit(b"x")
        assert (await looked_at).kind is OutcomeKind.RELEASED
        _ = await publisher.submit(b"y")
        with pytest.raises(NotAccepted, match=r"1 message was not accepted"):
            await publisher.flush()
        await publisher.flush()


async def test_a_rejected_delivery_counts_as_finished(server: WireServer) -> None:
    async with connect(server.url) as client:
        publisher = await client.publisher("t")
        subscriber = await client.subscriber("t")
        sending = await publisher.submit(b"x")
        await (await subscriber.receive(LONG)).reject("not JSON")
        await sending
        assert subscriber.statistics.not_accepted == 1


async def test_a_released_delivery_comes_again_before_later_ones(server: WireServer) -> None:
    async with connect(server.url) as client:
        publisher = await client.publisher("t")
        subscriber = await client.subscriber("t")
        for body in (b"1", b"2"):
            _ = await publisher.submit(body)
        first = await subscriber.receive(LONG)
        await until(lambda: subscriber.waiting)
        first.release()
        again = await subscriber.receive(LONG)
        assert (again.body, again.attempts) == (b"1", 1)
        await again.accept()
        await (await subscriber.receive(LONG)).accept()
        await publisher.flush(LONG)


async def test_finishing_a_delivery_twice_is_an_error(server: WireServer) -> None:
    async with connect(server.url) as client:
        publisher = await client.publisher("t")
        subscriber = await client.subscriber("t")
        _ = await publisher.submit(b"x")
        delivery = await subscriber.receive(LONG)
        await delivery.accept()
        with pytest.raises(UsageError, match="accepted or rejected before"):
            await delivery.accept()
        with pytest.raises(UsageError):
            delivery.release()


async def test_submit_waits_while_the_window_is_full_and_submitters_are_served_in_turn(server: WireServer) -> None:
    async with connect(server.url) as client:
        publisher = await client.publisher("t", window=2)
        subscriber = await client.subscriber("t")
        _ = await publisher.submit(b"a")
        _ = await publisher.submit(b"b")
        waiting = [asyncio.create_task(publisher.submit(body)) for body in (b"c", b"d")]
        deliveries = [await subscriber.receive(LONG) for _ in range(2)]
        assert not any(task.done() for task in waiting)
        for delivery in deliveries:
            await delivery.accept()
        async with asyncio.timeout(LONG):
            sendings = await asyncio.gather(*waiting)
        assert [sending.number for sending in sendings] == [2, 3]
        for _ in range(2):
            await (await subscriber.receive(LONG)).accept()
        await publisher.flush(LONG)


async def test_a_send_that_times_out_names_the_pending_subscriptions_and_the_message_stays_in_flight(
    server: WireServer,
) -> None:
    async with connect(server.url, container_id="shop") as client:
        publisher = await client.publisher("t", name="p")
        subscriber = await client.subscriber("t", name="slow")
        with pytest.raises(StillOwed, match="shop/slow") as caught:
            await publisher.send(b"x", timeout=0.1)
        assert caught.value.subscriptions == ("shop/slow",)
        assert caught.value.count == 1
        await (await subscriber.receive(LONG)).accept()
        assert (await caught.value.sending).is_accepted
        await subscriber.unsubscribe()


async def test_a_send_that_times_out_before_it_was_taken_says_so(server: WireServer) -> None:
    async with connect(server.url) as client:
        publisher = await client.publisher("t", window=1)
        subscriber = await client.subscriber("t")
        _ = await publisher.submit(b"x")
        with pytest.raises(WindowFull):
            await publisher.send(b"y", timeout=0.05)
        assert publisher.next_number == 1
        await (await subscriber.receive(LONG)).accept()


async def test_a_timeout_without_a_connection_is_still_owed_with_that_reason(
    server: WireServer, network: Network
) -> None:
    async with connect(server.url) as client:
        publisher = await client.publisher("t")
        await server.kill()
        await until(lambda: publisher._wire is None)
        with pytest.raises(StillOwed, match="no router is connected"):
            await publisher.send(b"x", timeout=0.05)
        await publisher.suspend()


async def test_receive_times_out(server: WireServer) -> None:
    async with connect(server.url) as client:
        subscriber = await client.subscriber("t")
        with pytest.raises(TimeoutError):
            await subscriber.receive(0.01)


async def test_subscribe_returns_only_when_the_network_has_confirmed(server: WireServer, network: Network) -> None:
    network.confirm = False
    async with connect(server.url, timeout=0.3) as client:
        with pytest.raises(LinkRefused, match="did not open within"):
            await client.subscriber("t")
