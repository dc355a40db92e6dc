"""At-most-once and at-least-once links across killed routers (section c.3): never twice, or never missing."""

from __future__ import annotations

import pytest

from oncewire.wire import (
    ConnectionLost,
    DeliveryReceived,
    DispositionReceived,
    Header,
    ReceiverSettleMode,
    SenderSettleMode,
    Symbol,
    decode_message,
    read_annotations,
)
from router.commands.local_network import LocalNetwork
from tests.router.raw_client import RawClient, RawPublisher, RawSubscriber

SETTINGS = {"etcd.lease_ttl_s": "3"}
REDELIVERED = Symbol("x-opt-topic-redelivered")
SENT = 200


pytestmark = pytest.mark.routers(3, settings=SETTINGS)


async def client_at(network: LocalNetwork, router: str, container_id: str) -> RawClient:
    return await RawClient.connect(network.routers[router].amqp_port, container_id)


async def at_most_once(client: RawClient) -> RawSubscriber:
    return await client.subscriber("t", exactly_once=False, snd_settle_mode=SenderSettleMode.SETTLED, credit=1000)


def number_of(delivery: DeliveryReceived) -> int:
    body = decode_message(delivery.payload).body
    assert isinstance(body, bytes)
    return int(body)


def header_of(delivery: DeliveryReceived) -> Header:
    return decode_message(delivery.payload).header or Header()


async def hear_until(subscriber: RawSubscriber, number: int, heard: list[int]) -> None:
    """Take messages in order until this one has come."""
    while not heard or heard[-1] < number:
        heard.append(number_of(await subscriber.delivery()))


def fire(publisher: RawPublisher, numbers: range) -> None:
    """Send and forget."""
    for number in numbers:
        publisher.send(b"%d" % number, b"%d" % number, settled=True)


@pytest.mark.slow
async def test_at_most_once_links_lose_with_a_killed_router_and_never_repeat(network: LocalNetwork) -> None:
    heard_kept: list[int] = []
    heard_before: list[int] = []
    heard_after: list[int] = []
    kept = await (await client_at(network, "r3", "kept")).subscriber("t", credit=1000)
    witness = await (await client_at(network, "r2", "witness")).subscriber("t")
    moving = await at_most_once(await client_at(network, "r2", "moving"))
    publisher = await (await client_at(network, "r1", "box")).publisher("t")
    publisher.send(b"0", b"0")
    await witness.delivery()
    await hear_until(kept, 0, heard_kept)
    fire(publisher, range(1, SENT))
    await hear_until(moving, SENT // 2, heard_before)
    await network.kill("r2")
    await moving.client.wait_for(ConnectionLost)
    moved = await at_most_once(await client_at(network, "r3", "moving"))
    await network.kill("r1")
    await publisher.client.wait_for(ConnectionLost)
    publisher = await (await client_at(network, "r3", "box")).publisher("t")
    fire(publisher, range(SENT, 2 * SENT))
    await hear_until(moved, 2 * SENT - 1, heard_after)
    await hear_until(kept, 2 * SENT - 1, heard_kept)
    for heard in (heard_before + heard_after, heard_kept):
        assert heard == sorted(set(heard)), "nothing comes twice, and nothing out of order"


async def test_an_at_least_once_publisher_and_subscriber_miss_nothing_when_their_routers_are_killed(
    network: LocalNetwork,
) -> None:
    receiving = await client_at(network, "r2", "store")
    subscriber = await receiving.subscriber(
        "t", exactly_once=False, rcv_settle_mode=ReceiverSettleMode.FIRST, credit=1000
    )
    publisher = await _settling_first(await client_at(network, "r1", "box"))
    for number in range(SENT):
        publisher.send(b"%d" % number, b"%d" % number)
    done: list[int] = []
    unanswered: list[int] = []
    for _ in range(SENT):
        delivery = await subscriber.delivery()
        if number_of(delivery) % 2:
            unanswered.append(number_of(delivery))
        else:
            done.append(number_of(delivery))
            subscriber.accept(delivery, settled=True)
    await publisher.outcome(b"0")
    await network.kill("r2")
    await receiving.wait_for(ConnectionLost)
    subscriber = await (await client_at(network, "r3", "store")).subscriber(
        "t", exactly_once=False, rcv_settle_mode=ReceiverSettleMode.FIRST, credit=1000
    )
    while not set(done) >= set(range(SENT)):
        delivery = await subscriber.delivery()
        assert read_annotations(delivery.payload)[REDELIVERED] is True
        assert header_of(delivery).delivery_count == 1  # 3.2.1: what JMSRedelivered is read from
        done.append(number_of(delivery))
        subscriber.accept(delivery, settled=True)
    assert set(unanswered) <= set(done)
    reported: set[bytes] = {b"0"}
    while len(reported) < SENT:
        event = await publisher.client.wait_for(DispositionReceived, lambda e: e.link is publisher.link)
        assert event.settled
        reported |= {tag for _, tag in event.deliveries}
    await network.kill("r1")
    await publisher.client.wait_for(ConnectionLost)
    publisher = await _settling_first(await client_at(network, "r3", "box"))
    publisher.send(b"after", b"%d" % SENT)
    delivery = await subscriber.delivery()
    assert number_of(delivery) == SENT
    subscriber.accept(delivery, settled=True)
    assert (await publisher.outcome(b"after")).settled


async def _settling_first(client: RawClient) -> RawPublisher:
    return await client.publisher("t", exactly_once=False, rcv_settle_mode=ReceiverSettleMode.FIRST)
