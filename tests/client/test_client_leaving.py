"""The asyncio client: closing, suspending, unsubscribing, and whose link it is."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

import pytest

from oncewire.client import Client, ClientClosed, RandomContainerWarning, Sending, SqliteJournal, UsageError, connect
from tests.client.shell_helpers import LONG, error, until
from tests.client.wire_server import Network, WireServer


async def test_a_named_subscription_survives_its_close_and_gets_what_it_missed(server: WireServer) -> None:
    async with connect(server.url, container_id="c") as client:
        publisher = await client.publisher("t", name="p")
        subscriber = await client.subscriber("t", name="s")
        await subscriber.close()
        sending = await publisher.submit(b"missed")
        again = await client.subscriber("t", name="s")
        delivery = await again.receive(LONG)
        assert delivery.body == b"missed"
        await delivery.accept()
        assert (await sending).is_accepted


async def test_a_nameless_subscription_ends_with_its_close(server: WireServer, network: Network) -> None:
    async with connect(server.url) as client:
        subscriber = await client.subscriber("t")
        await subscriber.close()
        assert network.topic("t").subscriptions == []
        publisher = await client.publisher("t")
        await publisher.send(b"x", timeout=LONG)


async def test_unsubscribe_looks_the_subscription_up_again_when_its_close_failed(
    server: WireServer, network: Network
) -> None:
    server.close_errors.extend([error("amqp:link:stolen"), error("amqp:link:stolen")])
    async with connect(server.url, container_id="c") as client:
        subscriber = await client.subscriber("t", name="s")
        await subscriber.unsubscribe()
        assert network.topic("t").subscriptions == []


async def test_unsubscribe_is_done_when_the_look_up_finds_nothing(server: WireServer, network: Network) -> None:
    async with connect(server.url, container_id="c") as client:
        subscriber = await client.subscriber("t", name="s")
        network.topic("t").unsubscribe("c/s")
        server.close_errors.append(error("amqp:link:stolen"))
        await subscriber.unsubscribe()


async def test_unsubscribe_says_so_when_a_suspended_subscription_still_exists(
    server: WireServer, network: Network
) -> None:
    async with connect(server.url, container_id="c") as client:
        subscriber = await client.subscriber("t", name="s")
        await subscriber.suspend()
        with pytest.raises(ClientClosed, match="open it again"):
            await subscriber.unsubscribe()
        assert network.topic("t").subscriptions != []
        again = await client.subscriber("t", name="s")
        await again.unsubscribe()
        await again.unsubscribe()
        assert network.topic("t").subscriptions == []


async def test_unsubscribe_works_across_a_router_restart(network: Network) -> None:
    async with WireServer(network) as server, connect(server.url, container_id="c") as client:
        subscriber = await client.subscriber("t", name="s")
        await server.kill()
        await until(lambda: subscriber._wire is None)
        ending = asyncio.create_task(subscriber.unsubscribe())
        await server.start()
        async with asyncio.timeout(LONG):
            await ending
        assert network.topic("t").subscriptions == []


async def test_iteration_ends_when_the_subscriber_is_closed(server: WireServer) -> None:
    async with connect(server.url) as client:
        subscriber = await client.subscriber("t")

        async def receive() -> int:
            return len([delivery async for delivery in subscriber])

        receiving = asyncio.create_task(receive())
        await asyncio.sleep(0)
        await subscriber.close()
        async with asyncio.timeout(LONG):
            assert await receiving == 0


async def test_closing_a_publisher_waits_for_its_outcomes(server: WireServer) -> None:
    async with connect(server.url) as client:
        publisher = await client.publisher("t")
        subscriber = await client.subscriber("t")
        sending = await publisher.submit(b"x")
        closing = asyncio.create_task(publisher.close())
        delivery = await subscriber.receive(LONG)
        assert not closing.done()
        await delivery.accept()
        async with asyncio.timeout(LONG):
            await closing
        assert sending.outcome is not None
        with pytest.raises(ClientClosed):
            _ = await publisher.submit(b"y")


async def test_leaving_by_an_exception_waits_for_nothing_and_leaves_no_task(server: WireServer) -> None:
    before = asyncio.all_tasks()
    sendings: list[Sending] = []

    async def fail() -> None:
        async with connect(server.url) as client:
            publisher = await client.publisher("t")
            await client.subscriber("t")
            sendings.append(await publisher.submit(b"x"))
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        await fail()
    assert asyncio.all_tasks() == before
    with pytest.raises(ClientClosed):
        await sendings[0]
    await until(lambda: not server.connections)


async def test_closing_leaves_no_task_and_no_connection(server: WireServer, tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with connect(server.url, container_id="c") as client:
        publisher = await client.publisher("t", name="p", journal=tmp_path / "j.db")
        await publisher.send(b"x", timeout=LONG)
    assert asyncio.all_tasks() == before
    await until(lambda: not server.connections)
    SqliteJournal(tmp_path / "j.db").close()  # the lock is free


async def test_a_client_can_be_awaited_and_closed_twice(server: WireServer) -> None:
    client = await connect(server.url)
    assert isinstance(client, Client)
    await client.close()
    await client.close()
    with pytest.raises(ClientClosed):
        await client.publisher("t")


async def test_a_name_with_a_random_container_id_is_warned_about_at_the_line_that_gives_it(server: WireServer) -> None:
    async with connect(server.url) as client:
        with pytest.warns(RandomContainerWarning, match="pass container_id") as warned:
            subscriber = await client.subscriber("t", name="s")
        assert [warning.filename for warning in warned] == [__file__]
        await subscriber.unsubscribe()


async def test_no_warning_without_a_reason(server: WireServer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with connect(server.url) as client:
            await client.subscriber("t")
        async with connect(server.url, container_id="c") as client:
            await (await client.subscriber("t", name="s")).unsubscribe()


async def test_two_links_of_one_name_in_one_client_are_refused(server: WireServer) -> None:
    async with connect(server.url, container_id="c") as client:
        await client.publisher("t", name="x")
        await (await client.subscriber("t", name="x")).unsubscribe()  # the other direction is another link
        with pytest.raises(UsageError, match="has it open already"):
            await client.publisher("t", name="x")


@pytest.mark.parametrize("name", ["", "a|b", "x" * 300])
async def test_a_name_that_cannot_be_is_refused(server: WireServer, name: str) -> None:
    async with connect(server.url, container_id="c") as client:
        with pytest.raises(UsageError, match="no name for a link"):
            await client.publisher("t", name=name)


async def test_a_journal_needs_a_name_and_a_container_id(server: WireServer, tmp_path: Path) -> None:
    async with connect(server.url) as client:
        with pytest.raises(UsageError, match="random"):
            await client.publisher("t", name="p", journal=tmp_path / "a.db")
        with pytest.raises(UsageError, match="without a name"):
            await client.subscriber("t", journal=tmp_path / "b.db")


@pytest.mark.cold
def test_connect_is_found_in_the_package_itself_and_imported_only_then() -> None:
    import subprocess
    import sys

    code = (
        "import sys, oncewire\n"
        "assert 'oncewire.client' not in sys.modules\n"
        "import oncewire.client\n"
        "assert oncewire.connect is oncewire.client.connect\n"
        "try:\n    oncewire.nothing\nexcept AttributeError:\n    pass\nelse:\n    raise SystemExit(1)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
