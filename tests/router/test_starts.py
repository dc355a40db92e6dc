"""A subscription that is made anew starts behind what was sent before it, also when its publisher has moved (I-6a)."""

from __future__ import annotations

import asyncio

import pytest

from oncewire.client import Delivery, StillOwed, Subscriber, connect
from oncewire.wire import Source, Symbol, Target, ULong
from router.commands.local_network import LocalNetwork
from tests.router.raw_client import EXACTLY_ONCE, RawClient

SETTINGS = {"etcd.lease_ttl_s": "3"}
LONG = 60.0


pytestmark = pytest.mark.routers(2, settings=SETTINGS)


async def take(subscriber: Subscriber, count: int) -> list[Delivery]:
    """The next deliveries, not accepted yet."""
    return [await subscriber.receive(LONG) for _ in range(count)]


async def test_a_new_incarnation_of_a_subscription_gets_only_what_is_sent_to_it_over_a_killed_router(
    network: LocalNetwork,
) -> None:
    """The subscriber keeps no map, and its router dies, too: only the publisher knows where the new life starts."""
    first, second = network.routers["r1"], network.routers["r2"]
    async with (
        connect([first.url, second.url], container_id="box") as sending,
        connect([first.url, second.url], container_id="store") as receiving,
        connect(second.url, container_id="elsewhere") as staying,
    ):
        slow = await staying.subscriber("t", name="slow")
        former = await receiving.subscriber("t", name="s", exactly_once=False)
        publisher = await sending.publisher("t", name="p")
        unanswered = [await publisher.submit(b"1"), await publisher.submit(b"2")]
        for delivery in await take(former, 2):
            await delivery.accept()
        await former.unsubscribe()
        back = await receiving.subscriber("t", name="s", exactly_once=False)
        with pytest.raises(StillOwed) as asked:  # its answer comes behind what the router says of the start
            await publisher.send(b"3", timeout=0.2)
        await network.kill("r1")
        for delivery in await take(slow, 3):
            await delivery.accept()
        heard: set[object] = set()

        async def hear() -> None:
            async for delivery in back:
                heard.add(delivery.body)
                await delivery.accept()

        hearing = asyncio.create_task(hear())
        async with asyncio.timeout(LONG):
            for message in (*unanswered, asked.value.sending):
                assert (await message).is_accepted
            last = await publisher.submit(b"4")
            await (await slow.receive(LONG)).accept()
            assert (await last).is_accepted
        hearing.cancel()
        assert heard == {b"3", b"4"}, "3 may come twice to a subscriber without a map; 1 and 2 are not its own"


@pytest.mark.parametrize("starts", [b"t0", [b"t0"], [[b"t0", -1]], [["t0", ULong(1)]], [[b"t0", ULong(1)]] * 2])
async def test_starts_that_are_something_else_refuse_the_attach_and_say_what_they_are(
    network: LocalNetwork, starts: object
) -> None:
    client = await RawClient.connect(network.routers["r1"].amqp_port, "box")
    link = client.session.attach_sender(
        "p",
        unsettled={b"t0": None},
        desired_capabilities=[EXACTLY_ONCE],
        source=Source(),
        target=Target(address="t"),
        properties={Symbol("x-opt-topic-starts"): starts},
    )
    client.flush()
    refused = await client.detached(link)
    assert refused.error is not None
    assert refused.error.condition == "amqp:invalid-field"
    assert "x-opt-topic-starts is a list" in (refused.error.description or "")
