"""The client against real router processes, for what only they can show; kills under load are in tests/router."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from pathlib import Path

import pytest

from oncewire.client import (
    ClientEvent,
    LinkInterrupted,
    LinkStolen,
    NotAccepted,
    OutcomeKind,
    SessionExpired,
    StillOwed,
    Subscriptions,
    connect,
)
from oncewire.client.connector import MIN_FRAME_SIZE
from tests.client.shell_helpers import LONG, until
from tests.router.processes import RouterProcess, running_router, start_router
from topology.etcd.server import EtcdServer


async def test_a_confirmed_subscription_is_kept_for_all_of_its_timeout(router: RouterProcess) -> None:
    """A-10: confirmed, and disconnected before its first message."""
    async with connect(router.url, container_id="box") as client:
        subscriber = await client.subscriber("orders", name="s", timeout=3600)
        assert subscriber.granted_timeout == 3600
    (row,) = (await router.get("/api/v1/subscriptions"))[1]["items"]
    assert row["timeout_s"] == 3600


async def test_a_timeout_over_the_cap_is_granted_as_the_cap(router: RouterProcess) -> None:
    async with connect(router.url, container_id="box") as client:
        subscriber = await client.subscriber("orders", name="s", timeout=None)
        assert subscriber.granted_timeout == 86_400


async def test_two_thousand_messages_in_order_then_nobody_is_left_to_wait_for(router: RouterProcess) -> None:
    async with connect(router.url, container_id="shop") as client:
        publisher = await client.publisher("orders", name="p")
        subscriber = await client.subscriber("orders", name="s")
        received: list[object] = []

        async def receive() -> None:
            async for delivery in subscriber:
                received.append(delivery.body)
                await delivery.accept()

        receiving = asyncio.create_task(receive())
        async with asyncio.timeout(LONG):
            for number in range(2000):
                _ = await publisher.submit(b"%d" % number)
            await publisher.flush()
        assert received == [b"%d" % number for number in range(2000)]
        receiving.cancel()
        with pytest.raises(StillOwed) as caught:
            await publisher.send(b"waits", timeout=0.2)
        assert caught.value.subscriptions == ("shop/s",)
        await subscriber.unsubscribe()
        assert (await caught.value.sending).is_accepted
        await publisher.close()
        await until_empty(router)


async def test_a_publisher_that_requires_a_subscription_keeps_what_nobody_subscribes_to(router: RouterProcess) -> None:
    async with connect(router.url, container_id="shop") as client:
        publisher = await client.publisher("ordres", require=1)
        with pytest.raises(NotAccepted, match="fewer than 1 subscription") as caught:
            await publisher.send(b"x", timeout=LONG)
        assert caught.value.outcomes[0].kind is OutcomeKind.RELEASED
        subscriber = await client.subscriber("ordres", name="s")
        sending = await publisher.submit(b"y")
        delivery = await subscriber.receive(LONG)
        assert delivery.body == b"y"
        await delivery.accept()
        async with asyncio.timeout(LONG):
            assert (await sending).subscriptions == Subscriptions(1, ("shop/s",))


async def test_of_many_in_flight_none_is_sent_behind_a_released_one_and_later_ones_are(router: RouterProcess) -> None:
    async with connect(router.url, container_id="shop") as client:
        publisher = await client.publisher("orders", require=1)
        for number in range(3000):  # more than the window
            _ = await publisher.submit(b"%d" % number)
        with pytest.raises(NotAccepted):
            await publisher.flush(LONG)
        assert publisher.statistics.not_accepted == 3000
        subscriber = await client.subscriber("orders")
        sending = await publisher.submit(b"last")
        delivery = await subscriber.receive(LONG)
        assert delivery.body == b"last"
        await delivery.accept()
        async with asyncio.timeout(LONG):
            assert (await sending).is_accepted


async def test_a_publisher_that_only_asks_is_reported_that_nobody_processed_its_message(router: RouterProcess) -> None:
    async with connect(router.url) as client:
        asking = await client.publisher("orders", require=0)
        assert (await asking.send(b"x", timeout=LONG)).subscriptions == Subscriptions(0)
        assert asking.statistics.accepted_by_none == 1
        silent = await client.publisher("orders")
        assert (await silent.send(b"x", timeout=LONG)).subscriptions is None


async def until_empty(router: RouterProcess) -> None:
    """The router keeps no record of a link that was closed for good."""
    async with asyncio.timeout(LONG):
        while True:
            state = await router.state()
            if not state["publishers"] and not state["subscriptions"]:
                return
            await asyncio.sleep(0.02)


async def test_a_router_that_forgot_everything_makes_what_was_unsettled_unknown(tmp_path: Path) -> None:
    """A standalone router keeps attachments in its own memory: its end is the end of all sessions."""
    events: list[ClientEvent] = []
    first = await start_router("--standalone")
    port = first.port
    try:
        async with connect(first.url, container_id="shop", on_event=events.append) as client:
            publisher = await client.publisher("orders", name="p", journal=tmp_path / "p.db")
            subscriber = await client.subscriber("orders", name="s", journal=tmp_path / "s.db")
            unsettled = await publisher.submit(b"one")
            delivery = await subscriber.receive(LONG)
            await first.stop(signal.SIGKILL)
            first = await start_router("--standalone", f"--listen-port={port}")
            async with asyncio.timeout(LONG):
                assert (await unsettled).kind is OutcomeKind.UNKNOWN
            await delivery.accept()
            sending = await publisher.submit(b"two")
            second = await subscriber.receive(LONG)
            assert second.body == b"two"
            await second.accept()
            assert (await sending).is_accepted
            await subscriber.unsubscribe()
    finally:
        await first.stop()
    assert [event.messages for event in events if isinstance(event, SessionExpired)] == [1]


async def test_two_processes_of_one_identity_do_not_fight_for_ever(router: RouterProcess) -> None:
    """One of them keeps the link, the other gets the error that there are two."""
    events: list[ClientEvent] = []
    async with (
        connect(router.url, container_id="twin", on_event=events.append) as one,
        connect(router.url, container_id="twin", on_event=events.append) as two,
    ):
        subscribers = [await client.subscriber("t", name="s") for client in (one, two)]
        await until(lambda: any("two live clients" in getattr(event, "description", "") for event in events))
        stolen = [event for event in events if isinstance(event, LinkInterrupted)]
        assert len(stolen) < 20
        await asyncio.gather(*(subscriber.suspend() for subscriber in subscribers))
        assert not any(isinstance(subscriber._failure, LinkStolen) for subscriber in subscribers)


async def test_the_smallest_frames_hold_the_map_beside_the_largest_names(router: RouterProcess) -> None:
    topic, name = "t" * 255, "n" * 255
    async with connect(router.url, container_id="c" * 255, max_frame_size=MIN_FRAME_SIZE) as client:
        subscriber = await client.subscriber(topic, name=name, prefetch=1024)
        publisher = await client.publisher(topic, name=name)
        bound = client._map_bound
        sendings = [await publisher.submit(b"%d" % number) for number in range(2 * bound)]
        await until(lambda: subscriber.waiting == bound)

        def has_resumed(links: int) -> bool:
            return client.statistics.resumed_links == links

        for resumed in (2, 4):  # both links, each time with a full map
            assert client._connector is not None
            assert client._connector._transport is not None
            client._connector._transport.abort()
            await until(partial(has_resumed, resumed))
        for number in range(2 * bound):
            delivery = await subscriber.receive(LONG)
            assert delivery.body == b"%d" % number
            await delivery.accept()
        for sending in sendings:
            assert (await sending).is_accepted
        await subscriber.unsubscribe()


async def test_a_nameless_subscription_whose_opening_is_broken_off_is_gone_when_the_client_is() -> None:
    async with EtcdServer() as etcd, running_router("--etcd-endpoints", etcd.urls[0]) as router:
        for moment in range(24):  # of the opening; which steps it meets differs from machine to machine
            async with connect(router.url) as client:
                opening = asyncio.create_task(client.subscriber("orders"))
                await asyncio.wait([opening], timeout=moment * 0.0005)
                opening.cancel()
                await asyncio.wait([opening])
            assert (await router.get("/api/v1/subscriptions"))[1]["items"] == []
