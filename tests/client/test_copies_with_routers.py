"""D-3 with real routers, logins and processes: what a stock publisher sends again is processed once."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from oncewire.client import Message, Properties, UsageError, connect
from oncewire.client.journal import MemoryJournal
from oncewire.wire import ConnectionLost, DispositionReceived, SaslClient, encode_message
from router.commands.local_network import LocalNetwork
from tests.client.shell_helpers import LONG, until
from tests.client.test_client_cli import finish, start
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient, RawPublisher
from tests.router.relay import assert_no_internal_error

CHILD = Path(__file__).with_name("copies_child.py")
SENT = 100


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[LocalNetwork]:
    async with LocalNetwork(2, log_folder=tmp_path, log_level="info", settings={"etcd.lease_ttl_s": "3"}) as found:
        yield found
    assert_no_internal_error(tmp_path)


async def stock_publisher(port: int, sasl: SaslClient | None = None) -> RawPublisher:
    """As after each reconnect: with another container-id, a null map, and tags that begin anew."""
    return await (await RawClient.connect(port, sasl=sasl)).publisher("orders", exactly_once=False)


def send(publisher: RawPublisher, *bodies: str, first_tag: int = 0) -> None:
    """Each with its body as message-id."""
    for tag, body in enumerate(bodies, first_tag):
        payload = encode_message(Message(body.encode(), properties=Properties(message_id=body)))
        publisher.link.send(b"%d" % tag, payload)
    publisher.client.flush()


async def accepted(publisher: RawPublisher, count: int) -> None:
    while len(publisher.accepted_tags()) < count:
        await publisher.next_outcome()


async def test_what_is_sent_again_after_a_killed_router_is_processed_once(network: LocalNetwork) -> None:
    numbers = [str(number) for number in range(SENT)]
    done: list[object] = []
    async with connect(network.routers["r2"].url) as client:
        subscriber = await client.subscriber("orders", deduplicate=True)
        publisher = await stock_publisher(network.routers["r1"].amqp_port)
        send(publisher, *numbers)
        for _ in range(SENT // 2):
            delivery = await subscriber.receive(LONG)
            done.append(delivery.body)
            await delivery.accept()
        await network.kill("r1")  # the publisher has settled nothing, so it sends all of them again
        await publisher.client.wait_for(ConnectionLost)
        publisher = await stock_publisher(network.routers["r2"].amqp_port)
        send(publisher, *numbers)
        await until(lambda: subscriber.statistics.copies)
        while len(done) < SENT:
            delivery = await subscriber.receive(LONG)
            done.append(delivery.body)
            await delivery.accept()
        await accepted(publisher, SENT)
        send(publisher, "last", first_tag=SENT)
        assert (await subscriber.receive(LONG)).body == b"last"
    assert done == [each.encode() for each in numbers]
    assert SENT // 2 <= subscriber.statistics.copies <= SENT


async def test_a_subscriber_without_it_processes_them_again(router: RouterProcess) -> None:
    async with connect(router.url) as client, client.subscriber("orders") as subscriber:
        for _ in range(2):
            publisher = await stock_publisher(router.port)
            send(publisher, "1")
            delivery = await subscriber.receive(LONG)
            await delivery.accept()
            publisher.client.cut()


@asynccontextmanager
async def child(network: LocalNetwork, journal: Path, hold: str = "0") -> AsyncIterator[asyncio.StreamReader]:
    """What the child prints; killed at the end of the block."""
    urls = network.routers["r2"].url
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(CHILD), urls, str(journal), hold, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        await printed(process.stdout, "subscribed")
        yield process.stdout
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


async def printed(lines: asyncio.StreamReader, wanted: str) -> None:
    async with asyncio.timeout(LONG):
        while (line := await lines.readline()).decode() != wanted + "\n":
            assert line, f"it ended and has not printed {wanted}"


def effects(journal: Path) -> list[str]:
    with closing(sqlite3.connect(journal)) as connection:
        return [body for (body,) in connection.execute("SELECT body FROM effects ORDER BY rowid")]


async def test_a_killed_subscriber_knows_by_its_journal_what_is_done_and_gets_what_is_not(
    network: LocalNetwork, tmp_path: Path
) -> None:
    journal = tmp_path / "store.db"
    async with child(network, journal, hold="1") as lines:
        publisher = await stock_publisher(network.routers["r1"].amqp_port)
        send(publisher, "1", "2", "hold", "3")
        await printed(lines, "held")
        await printed(lines, "3")
    await network.kill("r1")  # between the copies: nobody is left who has "hold" but the publisher
    await publisher.client.wait_for(ConnectionLost)
    async with child(network, journal) as lines:
        publisher = await stock_publisher(network.routers["r2"].amqp_port)
        send(publisher, "1", "2", "hold", "3", "4")
        await printed(lines, "4")
        await accepted(publisher, 5)
    assert effects(journal) == ["1", "2", "3", "hold", "4"]


async def test_the_copy_of_what_the_application_has_waits_for_it(router: RouterProcess) -> None:
    async with connect(router.url) as client, client.subscriber("orders", deduplicate=True) as subscriber:
        publisher = await stock_publisher(router.port)
        send(publisher, "1")
        first = await subscriber.receive(LONG)
        publisher.client.cut()
        again = await stock_publisher(router.port)
        send(again, "1", "2")
        other = await subscriber.receive(LONG)
        assert other.body == b"2"
        await other.accept()
        first.release()
        first = await subscriber.receive(LONG)
        assert first.body == b"1"
        assert not any(isinstance(event, DispositionReceived) for event in again.client.heard)
        await first.accept()
        await accepted(again, 2)
        assert subscriber.statistics.copies == 1


async def test_nobody_suppresses_a_message_of_another_user() -> None:
    flags = ("--standalone", "--listen-allow-anonymous=never", "--users=ann:a,bob:b")
    async with running_router(*flags) as router:
        url = f"amqp://ann:a@127.0.0.1:{router.port}"
        async with connect(url) as client, client.subscriber("orders", deduplicate=True) as subscriber:
            for user, word in (("bob", "b"), ("ann", "a"), ("bob", "b")):
                publisher = await stock_publisher(router.port, SaslClient("PLAIN", user, word))
                send(publisher, "1")
                if subscriber.statistics.messages < 2:
                    delivery = await subscriber.receive(LONG)
                    assert delivery.user == user
                    await delivery.accept()
                await accepted(publisher, 1)
            assert subscriber.statistics.copies == 1


async def test_sub_prints_a_message_once(router: RouterProcess, tmp_path: Path) -> None:
    flags = ("--deduplicate", "--name", "s", "--journal", str(tmp_path / "j.db"), "--url", router.url)
    for bodies, count in ((("1", "2"), 2), (("2", "1", "3"), 1)):
        subscriber = await start("sub", "orders", *flags, "--count", str(count))
        assert subscriber.stderr is not None
        async with asyncio.timeout(LONG):
            while b"subscribed" not in await subscriber.stderr.readline():
                pass
        publisher = await stock_publisher(router.port)
        send(publisher, *bodies)
        code, out, said = await finish(subscriber)
        assert code == 0
        assert out.split() == list(bodies[-count:])
        assert ("copies that were not printed: 2" in said) == (len(bodies) > count)
        publisher.client.cut()


class ForgetfulJournal(MemoryJournal):
    """As an application's own may be that was written for an earlier release."""

    keeps_ids = False


async def test_what_cannot_keep_ids_is_refused(router: RouterProcess) -> None:
    async with connect(router.url, container_id="store") as client:
        with pytest.raises(UsageError, match="cannot drop copies"):
            await client.subscriber("orders", deduplicate=True, settled=True)
        with pytest.raises(UsageError, match="ForgetfulJournal does not keep the ids"):
            await client.subscriber("orders", deduplicate=True, name="s", journal=ForgetfulJournal())
