"""Large messages through a network of real routers, while clients and routers are killed in the middle of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from oncewire.client import Client, Publisher, Sending, Subscriber, connect
from oncewire.wire import ReceiverLink, decode_message
from router.commands.local_network import LocalNetwork
from tests.client.shell_helpers import until
from tests.router.large_clients import BODY, MIB, PartPublisher, PartSubscriber
from tests.router.raw_client import RawClient

pytestmark = [pytest.mark.routers(3), pytest.mark.slow]

HUGE = bytes(range(256)) * (48 * MIB // 256)
"""It takes so long that a fault meets it in the middle."""
FAILOVER_S = 60.0
"""A lease, and whatever comes behind it, on a slow machine."""


def port(network: LocalNetwork, name: str) -> int:
    return network.routers[name].amqp_port


def urls(network: LocalNetwork, first: str) -> list[str]:
    """The routers as a client knows them that begins with this one."""
    return [network.routers[name].url for name in (first, *(each for each in network.routers if each != first))]


async def test_the_first_part_reaches_another_router_before_the_last_is_sent(network: LocalNetwork) -> None:
    subscriber = await PartSubscriber.attach(port(network, "r2"))
    publisher = await PartPublisher.attach(port(network, "r1"))
    publisher.begin()
    begun = await subscriber.begun()
    publisher.finish()
    data, is_aborted = await subscriber.rest(begun)
    assert not is_aborted
    assert decode_message(data).body == BODY
    subscriber.accept(begun)
    await publisher.accepted()


async def test_a_publisher_that_is_lost_in_mid_message_is_seen_as_an_abort_and_resumes_at_another_router(
    network: LocalNetwork,
) -> None:
    subscribers = [await PartSubscriber.attach(port(network, name), f"s-{name}") for name in ("r1", "r2")]
    publisher = await PartPublisher.attach(port(network, "r1"))
    publisher.begin()
    begun = [await each.begun() for each in subscribers]
    publisher.client.cut()
    for each, first in zip(subscribers, begun, strict=True):
        assert (await each.rest(first))[1]
    again = await PartPublisher.attach(port(network, "r3"), unsettled={b"1": None})
    again.begin()
    again.finish()
    for each, first in zip(subscribers, begun, strict=True):
        second, data = await each.message()
        assert second.tag == first.tag
        assert decode_message(data).body == BODY
        each.accept(second)
    await again.accepted()


def stop_reading(client: Client) -> asyncio.Transport:
    """Nothing more of what is sent to this client arrives, nor that its connection has ended."""
    assert client._connector is not None
    assert client._connector._transport is not None
    transport = client._connector._transport._transport
    assert transport is not None
    transport.pause_reading()
    return transport


def come(subscriber: Subscriber) -> int:
    """Bytes of a message that has come in part."""
    wire = subscriber._wire
    incoming = wire.incoming if isinstance(wire, ReceiverLink) else None
    return 0 if incoming is None else incoming[1]


async def in_the_middle(subscriber: Subscriber) -> asyncio.Transport:
    """Wait until so much of a message has come that its beginning is in no router, and let no more of it come."""
    await until(lambda: come(subscriber) > 4 * MIB)
    return stop_reading(subscriber.client)  # type: ignore[arg-type]


async def process_once(subscriber: Subscriber, sending: Sending) -> None:
    """The message comes, whole and once."""
    delivery = await subscriber.receive(FAILOVER_S)
    assert delivery.body == HUGE
    await delivery.accept()
    async with asyncio.timeout(FAILOVER_S):
        assert (await sending).is_accepted
    assert subscriber.statistics.messages == 1


@asynccontextmanager
async def ends_at(network: LocalNetwork, ingress: str, egress: str) -> AsyncIterator[tuple[Publisher, Subscriber]]:
    """A publisher and a subscriber that move on when their routers fail."""
    async with (
        connect(urls(network, egress), container_id="s") as reader,
        connect(urls(network, ingress), container_id="p") as writer,
    ):
        subscriber = await reader.subscriber("t", name="s", timeout=None)
        yield await writer.publisher("t", name="p"), subscriber


@pytest.mark.parametrize("killed", ["r1", "r2"])
async def test_a_router_is_killed_in_mid_message_and_the_message_comes_once(network: LocalNetwork, killed: str) -> None:
    """r1 is the ingress, r2 the egress."""
    async with ends_at(network, "r1", "r2") as (publisher, subscriber):
        sending = await publisher.submit(HUGE)
        transport = await in_the_middle(subscriber)
        await network.kill(killed)
        transport.resume_reading()
        await process_once(subscriber, sending)
        assert publisher.statistics.resumed_links == 1


async def test_the_router_of_a_subscriber_is_killed_while_it_processes_a_large_message(network: LocalNetwork) -> None:
    async with ends_at(network, "r1", "r2") as (publisher, subscriber):
        sending = await publisher.submit(HUGE)
        delivery = await subscriber.receive(FAILOVER_S)
        await network.kill("r2")
        await delivery.accept()
        async with asyncio.timeout(FAILOVER_S):
            assert (await sending).is_accepted
        following = await publisher.submit(b"small")
        delivery = await subscriber.receive(FAILOVER_S)
        assert delivery.body == b"small"
        await delivery.accept()
        assert (await following).is_accepted
        assert subscriber.statistics.messages == 2


async def test_a_router_is_drained_in_mid_message(network: LocalNetwork) -> None:
    """K-8a."""
    async with ends_at(network, "r1", "r2") as (publisher, subscriber):
        sending = await publisher.submit(HUGE)
        transport = await in_the_middle(subscriber)
        await asyncio.gather(network.terminate("r2"), _resume_later(transport))
        await process_once(subscriber, sending)


async def _resume_later(transport: asyncio.Transport) -> None:
    transport.resume_reading()


async def test_one_of_four_subscribers_that_does_not_read_holds_up_the_others_for_a_while_only(
    network: LocalNetwork,
) -> None:
    """L-6: after T_large it is left out; it gets the message when it reads again, and the publisher sends it again."""
    names = {"s1": "r1", "s2": "r2", "s3": "r3", "slow": "r2"}
    async with AsyncExitStack() as stack:
        subscribers: dict[str, Subscriber] = {}
        for name, router in names.items():
            # 60 s: the one that does not read must not take its router for lost.
            client = await stack.enter_async_context(
                connect(urls(network, router), container_id=name, idle_time_out=60)
            )
            subscribers[name] = await client.subscriber("t", name=name, timeout=None)
        writer = await stack.enter_async_context(connect(urls(network, "r1"), container_id="p"))
        publisher = await writer.publisher("t", name="p")
        transport = stop_reading(subscribers["slow"].client)  # type: ignore[arg-type]
        sending = await publisher.submit(HUGE)
        for name in ("s1", "s2", "s3"):
            delivery = await subscribers[name].receive(FAILOVER_S)
            assert delivery.body == HUGE
            await delivery.accept()
        assert sending.outcome is None
        transport.resume_reading()
        await process_once(subscribers["slow"], sending)
        assert [subscribers[name].statistics.messages for name in names] == [1, 1, 1, 1]


async def beat(client: RawClient) -> None:
    """A stalled program has a live connection as long as somebody sends heartbeats for it."""
    while True:
        client.engine.handle_timer(time.monotonic())
        client.flush()
        await asyncio.sleep(1)


async def test_a_publisher_that_stalls_in_mid_message_is_detached_and_its_subscribers_see_an_abort(
    network: LocalNetwork,
) -> None:
    """L-5: else nothing could be sent on their links, 2.6.14."""
    subscriber = await PartSubscriber.attach(port(network, "r2"))
    publisher = await PartPublisher.attach(port(network, "r1"))
    other = await PartPublisher.attach(port(network, "r1"), "other")
    publisher.begin()
    begun = await subscriber.begun()
    other.raw.send(b"o", b"waits behind it")
    async with asyncio.TaskGroup() as beats:
        tasks = [beats.create_task(beat(each.client)) for each in (subscriber, publisher, other)]
        detached = await publisher.client.detached(publisher.link)
        for task in tasks:
            task.cancel()
    assert not detached.closed
    assert detached.error is not None
    assert detached.error.condition == "amqp:link:detach-forced"
    assert (await subscriber.rest(begun))[1]
    subscriber.raw.accept(await subscriber.raw.delivery())
    await other.accepted(b"o")
    again = PartPublisher(await publisher.client.publisher("t", unsettled={b"1": None}))
    again.begin()
    again.finish()
    second, data = await subscriber.message()
    assert decode_message(data).body == BODY
    subscriber.accept(second)
    await again.accepted()


def test_routers_hold_next_to_nothing_of_a_message_that_is_larger_than_their_windows() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "large_messages.py"
    done = subprocess.run(
        [sys.executable, str(script), "--size", str(256 * MIB), "--subscribers", "2", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={**os.environ, "PYTHONSAFEPATH": ""},  # it imports what lies beside it
    )
    assert done.returncode == 0, done.stdout + done.stderr
