"""At-most-once through the client, against real routers: nothing is kept, resumed or sent twice (protocol c.3)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncewire.client import ClientClosed, Disconnected, LinkActive, MessageTooLarge, Subscriber, UsageError, connect
from router.commands.local_network import LocalNetwork
from tests.client.shell_helpers import LONG, until
from tests.client.test_client_cli import finish, start
from tests.router.processes import RouterProcess, running_router
from tests.router.relay import assert_no_internal_error

PREFETCH = 1000


async def take(subscriber: Subscriber, last: bytes) -> list[object]:
    """Accept what comes up to this body."""
    bodies: list[object] = []
    async with asyncio.timeout(LONG):
        while not bodies or bodies[-1] != last:
            delivery = await subscriber.receive()
            bodies.append(delivery.body)
            await delivery.accept()
    return bodies


async def test_a_settled_message_reaches_exactly_once_and_settled_subscribers_without_an_outcome(
    router: RouterProcess,
) -> None:
    async with connect(router.url) as client:
        exact = await client.subscriber("t", prefetch=PREFETCH)
        settled = await client.subscriber("t", prefetch=PREFETCH, settled=True)
        async with await client.settled_publisher("t") as publisher:
            for number in range(300):
                await publisher.send(b"%d" % number)
            for subscriber in (exact, settled):
                delivery = await subscriber.receive(LONG)
                assert delivery.is_settled
                await delivery.accept()
                assert await take(subscriber, b"299") == [b"%d" % number for number in range(1, 300)]
            assert publisher.statistics.messages == 300
            (row,) = (await router.get("/api/v1/publishers"))[1]["items"]
            assert row["unsettled"] == 0


async def test_no_publisher_waits_for_a_subscriber_that_receives_settled(router: RouterProcess) -> None:
    async with connect(router.url) as client:
        subscriber = await client.subscriber("t", settled=True)
        publisher = await client.publisher("t")
        assert (await publisher.send(b"1", timeout=LONG)).is_accepted  # and nobody has taken it
        assert (await subscriber.receive(LONG)).is_settled


async def test_a_prefetch_that_is_full_loses_messages_and_accept_makes_room_again(router: RouterProcess) -> None:
    async with connect(router.url) as client:
        subscriber = await client.subscriber("t", prefetch=2, settled=True)
        publisher = await client.publisher("t")
        for number in range(300):  # more than the 64 that a router holds for it
            await publisher.send(b"%d" % number, timeout=LONG)
        taken = [await subscriber.receive(LONG), await subscriber.receive(LONG)]
        for delivery in taken:
            await delivery.accept()
        after = await take_and_send(subscriber, publisher.send)
        assert [delivery.body for delivery in taken] == [b"0", b"1"]
        assert len(after) < 298
        assert after == sorted(set(after)), "nothing twice, nothing out of order"


async def take_and_send(subscriber: Subscriber, send: object) -> list[int]:
    """Take what was held, until a message that is sent now arrives."""
    assert callable(send)
    numbers: list[int] = []
    sent = 1000
    async with asyncio.timeout(LONG):
        while not numbers or numbers[-1] < 1000:
            await send(b"%d" % sent, timeout=LONG)
            sent += 1
            delivery = await subscriber.receive()
            assert isinstance(delivery.body, bytes)
            numbers.append(int(delivery.body))
            await delivery.accept()
    return numbers


async def test_what_is_sent_while_no_router_is_connected_waits_and_is_written_once(tmp_path: Path) -> None:
    """A killed router takes what it had; a send that found no connection goes to the next router."""
    async with LocalNetwork(2, log_folder=tmp_path, settings={"etcd.lease_ttl_s": "3"}) as network:
        urls = {name: f"amqp://127.0.0.1:{router.amqp_port}" for name, router in network.routers.items()}
        events: list[object] = []
        async with (
            connect(urls["r2"]) as receiving,
            connect([urls["r1"], urls["r2"]], on_event=events.append) as sending,
        ):
            subscriber = await receiving.subscriber("t", prefetch=PREFETCH)
            publisher = await sending.settled_publisher("t")
            await publisher.send(b"first")  # may be lost: the routers are opening their channel
            await network.kill("r1")
            await until(lambda: any(isinstance(event, Disconnected) for event in events))
            await publisher.send(b"after", timeout=LONG)
            bodies = await take(subscriber, b"after")
            assert bodies in ([b"after"], [b"first", b"after"])
            assert sum(isinstance(event, LinkActive) for event in events) == 2
    assert_no_internal_error(tmp_path)


async def test_a_send_that_times_out_without_a_connection_is_never_written(tmp_path: Path) -> None:
    # One router, so that the client has no other to go to.
    async with LocalNetwork(1, log_folder=tmp_path, settings={"etcd.lease_ttl_s": "3"}) as network:
        urls = {name: f"amqp://127.0.0.1:{router.amqp_port}" for name, router in network.routers.items()}
        events: list[object] = []
        async with connect(urls["r1"], on_event=events.append) as client:
            publisher = await client.settled_publisher("t")
            await network.kill("r1")
            await until(lambda: any(isinstance(event, Disconnected) for event in events))
            with pytest.raises(TimeoutError):
                await publisher.send(b"never", timeout=0.05)
            assert publisher.statistics.messages == 0
            waiting = asyncio.create_task(publisher.send(b"waits"))
            await asyncio.sleep(0)
            await publisher.close()
            with pytest.raises(ClientClosed):
                await waiting


async def test_a_closed_settled_publisher_leaves_no_record_and_its_last_message_arrives(router: RouterProcess) -> None:
    async with connect(router.url) as client:
        subscriber = await client.subscriber("t", prefetch=PREFETCH, settled=True)
        publisher = await client.settled_publisher("t")
        await publisher.send(b"last")
        await publisher.close()
        assert await take(subscriber, b"last") == [b"last"]
        with pytest.raises(ClientClosed):
            await publisher.send(b"too late")
        async with asyncio.timeout(LONG):
            while (await router.state())["publishers"]:  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.02)


async def test_a_message_over_the_routers_limit_is_refused_before_it_is_written() -> None:
    limit = "--limits-max-message-size=100000"
    async with running_router("--standalone", limit) as router, connect(router.url) as client:
        publisher = await client.settled_publisher("t")
        with pytest.raises(MessageTooLarge, match="takes 100000 bytes"):
            await publisher.send(b"x" * 100_001)
        await publisher.send(b"x")


async def test_what_settled_links_cannot_have_is_a_usage_error(router: RouterProcess, tmp_path: Path) -> None:
    async with connect(router.url, container_id="box") as client:
        with pytest.raises(UsageError, match="receives settled"):
            await client.subscriber("t", name="s", journal=tmp_path / "journal.db", settled=True)
        await client.settled_publisher("t", name="p")
        with pytest.raises(UsageError, match="open already"):
            await client.publisher("t", name="p")
        await client.subscriber("t", name="p", settled=True)


async def test_pub_and_sub_work_settled_and_refuse_a_journal(router: RouterProcess, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("one\ntwo\n")
    subscriber = await start("sub", "news", "--count", "2", "--settled", "--url", router.url)
    async with asyncio.timeout(LONG):
        assert subscriber.stderr is not None
        assert await subscriber.stderr.readline() == b"subscribed to news\n"
    publisher = await start("pub", "news", "--file", str(file), "--settled", "--url", router.url)
    assert (await finish(publisher))[:2] == (0, "published 2, settled\n")
    assert (await finish(subscriber))[:2] == (0, "one\ntwo\n")
    for command in ("pub", "sub"):
        refused = await start(
            command, "news", "--settled", "--name", "x", "--journal", str(tmp_path / "j.db"), "--url", router.url
        )
        code, _, err = await finish(refused)
        assert code == 2
        assert "leave out --journal or --settled" in err
