"""The fixtures for applications' tests: a network in the process, crashes, idleness, a verdict in the test's words."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest

import oncewire
from oncewire.cli.errors import CliError
from oncewire.client import Publisher, Subscriber
from oncewire.client.sync import connect as connect_sync
from oncewire.testing import AmqpNetwork, NotExactlyOnce, NotIdle, exactly_once_verdict
from oncewire.testing.parts import ServerPackageMissing, server_part

DEADLINE_S = 60.0
KillRouter = Callable[..., Awaitable[str]]
WaitUntilIdle = Callable[..., Awaitable[None]]


@pytest.fixture(scope="module")
def shared() -> Iterator[AmqpNetwork]:
    with AmqpNetwork(1) as network:
        yield network


async def take(subscriber: Subscriber, count: int, into: list[object]) -> None:
    while len(into) < count:
        delivery = await subscriber.receive(DEADLINE_S)
        into.append(delivery.body)
        await delivery.accept()


async def publish(publisher: Publisher, bodies: range) -> None:
    for number in bodies:
        _ = await publisher.submit(str(number))


async def test_messages_are_processed_once_over_the_crash_of_the_router_that_has_the_clients(
    amqp_network: AmqpNetwork, kill_router: KillRouter, wait_until_idle: WaitUntilIdle
) -> None:
    assert amqp_network.running == ["r1", "r2", "r3"]
    found: list[object] = []
    async with oncewire.connect(amqp_network.urls, container_id="shop") as client:
        subscriber = await client.subscriber("orders", name="s")
        publisher = await client.publisher("orders", name="p")
        taking = asyncio.create_task(take(subscriber, 200, found))
        await publish(publisher, range(100))
        assert await kill_router() == "r1"
        await publish(publisher, range(100, 200))
        async with asyncio.timeout(DEADLINE_S):
            await taking
            await publisher.flush()
        await wait_until_idle()
        assert client.statistics.connections == 2
    assert amqp_network.running == ["r2", "r3"]
    assert exactly_once_verdict([str(number) for number in range(200)], found).total("processed") == 200


@pytest.mark.amqp_network(routers=2)
async def test_a_router_is_restarted_at_the_address_it_had(amqp_network: AmqpNetwork, kill_router: KillRouter) -> None:
    first = amqp_network.url("r1")
    await kill_router("r1")
    with pytest.raises(ValueError, match="no router 'r1' runs: these do: r2"):
        await kill_router("r1")
    amqp_network.restart("r1")
    assert amqp_network.urls[0] == first
    with pytest.raises(ValueError, match="kill it before"):
        amqp_network.restart("r1")
    async with oncewire.connect(first) as client:
        await (await client.publisher("orders")).send("x", timeout=DEADLINE_S)


async def test_who_still_holds_a_message_is_named(shared: AmqpNetwork) -> None:
    async with oncewire.connect(shared.urls, container_id="shop") as client:
        subscriber = await client.subscriber("orders", name="s")
        publisher = await client.publisher("orders", name="p")
        _ = await publisher.submit("x")
        delivery = await subscriber.receive(DEADLINE_S)
        with pytest.raises(NotIdle, match="publisher shop/p at r1 wait for shop/s; subscription shop/s at r1 has 1"):
            await asyncio.to_thread(shared.wait_until_idle, 0.05)
        await delivery.accept()
        await publisher.flush(DEADLINE_S)
        await asyncio.to_thread(shared.wait_until_idle)


def test_a_test_without_asyncio_uses_the_network_too(shared: AmqpNetwork) -> None:
    with connect_sync(shared.urls) as client:
        client.publisher("bills").send("x", timeout=DEADLINE_S)
    shared.wait_until_idle()
    assert shared.state("r1")["publishers"] == []


@pytest.mark.amqp_network(routers=1, settings={"limits.window": 7})
def test_settings_are_those_of_the_mark(amqp_network: AmqpNetwork) -> None:
    with connect_sync(amqp_network.urls) as client:
        publisher = client.publisher("orders")
        assert publisher.name
        assert amqp_network.state("r1")["windows"][0]["credit"] == 7


def test_an_unknown_setting_is_refused_by_its_name() -> None:
    before = threading.active_count()
    with (
        pytest.raises(CliError, match=r"unknown setting limits.windw in the settings of amqp_network"),
        AmqpNetwork(1, settings={"limits.windw": 7}),
    ):
        pass
    assert threading.active_count() == before


def test_a_verdict_names_what_was_lost_doubled_reordered_and_never_sent() -> None:
    with pytest.raises(NotExactlyOnce) as caught:
        exactly_once_verdict([1, 2, 3, 4], {"mail": [1, 2, 2, 4], "book": [2, 1, 3, 4, 9]})
    assert str(caught.value).splitlines() == [
        "mail: 1 lost: 3",
        "mail: 1 duplicated: 2",
        "book: 1 reordered: 1",
        "book: 1 unexpected: 9",
    ]
    with pytest.raises(NotExactlyOnce, match=r"reader: 1 lost: 'b' of second"):
        exactly_once_verdict({"first": ["a"], "second": ["b"]}, ["a"])


def test_readers_that_share_may_process_in_any_order() -> None:
    exactly_once_verdict([1, 2, 3], [3, 1, 2], ordered=False)
    with pytest.raises(NotExactlyOnce, match="duplicated"):
        exactly_once_verdict([1, 2, 3], [3, 1, 2, 1], ordered=False)


def test_messages_that_cannot_be_distinguished_are_refused() -> None:
    with pytest.raises(ValueError, match="'a' was sent twice"):
        exactly_once_verdict(["a", "a"], ["a"])


def test_without_the_servers_package_the_error_says_what_to_install() -> None:
    with pytest.raises(ServerPackageMissing, match=r'pip install "oncewire\[router\]"'):
        server_part("oncewire_server_is_not_here")


@pytest.mark.cold
def test_pytest_starts_without_importing_a_router_or_the_client() -> None:
    program = "import oncewire.testing.plugin, sys; print([n for n in sys.modules if n.split('.')[0] in "
    program += "('router', 'chaos', 'aiohttp') or n.startswith('oncewire.client')])"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
