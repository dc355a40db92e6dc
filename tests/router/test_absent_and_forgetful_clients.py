"""Clients that stay away too long, or come back without their map: what they lose, and that they hear of it (G7)."""

from __future__ import annotations

import pytest

from oncewire.wire import ACCEPTED, DeliveryReceived, Source, Symbol, Target, decode_message, read_annotations
from tests.router.processes import RouterProcess
from tests.router.raw_client import EXACTLY_ONCE, RawClient

REDELIVERED = Symbol("x-opt-topic-redelivered")
AWAY_S = 1


pytestmark = pytest.mark.router(f"--limits-publisher-timeout-s={AWAY_S}")


async def test_a_subscriber_away_beyond_its_time_is_owed_nothing_and_hears_of_it(router: RouterProcess) -> None:
    publisher = await (await RawClient.connect(router.port)).publisher("orders")
    client = await RawClient.connect(router.port, "store")
    subscriber = await client.subscriber("orders", timeout=AWAY_S)
    publisher.send(b"t0", b"m0")
    held = await subscriber.delivery()
    client.cut()
    outcome = await publisher.outcome(b"t0")  # K-5: when its time is over nobody owes the message any more
    assert outcome.state == ACCEPTED
    client = await RawClient.connect(router.port, "store")
    back = await client.subscriber("orders", timeout=AWAY_S, unsettled={held.tag: None})
    assert back.incarnation > subscriber.incarnation
    publisher.send(b"t1", b"m1")
    delivery = await back.delivery()
    assert decode_message(delivery.payload).body == b"m1"
    back.accept(delivery)


async def test_a_publisher_away_beyond_its_time_hears_that_its_outcomes_are_unknown(router: RouterProcess) -> None:
    subscriber = await (await RawClient.connect(router.port)).subscriber("orders")
    client = await RawClient.connect(router.port, "box")
    publisher = await client.publisher("orders")
    publisher.send(b"t0", b"m0")
    delivery = await subscriber.delivery()
    client.cut()
    await subscriber.settled(delivery.tag)  # E-6: the session is gone, the message stays processed or not
    client = await RawClient.connect(router.port, "box")
    link = client.session.attach_sender(
        "pub",
        source=Source(address="pub"),
        target=Target(address="orders"),
        unsettled={b"t0": None},
        desired_capabilities=[EXACTLY_ONCE],
    )
    client.flush()
    refused = await client.detached(link)
    assert refused.error is not None
    assert refused.error.condition == "oncewire:session-expired"
    again = await (await RawClient.connect(router.port, "box")).publisher("orders")
    again.send(b"t0", b"other")
    assert decode_message((await subscriber.delivery()).payload).body == b"other"


async def test_a_subscriber_that_lost_its_map_gets_flagged_repeats_and_misses_nothing(router: RouterProcess) -> None:
    publisher = await (await RawClient.connect(router.port)).publisher("orders")
    client = await RawClient.connect(router.port, "store")
    subscriber = await client.subscriber("orders")
    for number in range(3):
        publisher.send(b"t%d" % number, b"m%d" % number)
    before = [await subscriber.delivery() for _ in range(3)]
    subscriber.accept(before[0])
    await publisher.outcome(b"t0")  # reported, not settled: the network still knows it
    client.cut()
    back = await (await RawClient.connect(router.port, "store")).subscriber("orders")
    publisher.send(b"t3", b"m3")
    got: list[DeliveryReceived] = []
    while not got or decode_message(got[-1].payload).body != b"m3":
        got.append(await back.delivery())
        back.accept(got[-1])
    bodies = [decode_message(delivery.payload).body for delivery in got]
    assert bodies[-3:] == [b"m1", b"m2", b"m3"]
    assert set(bodies[:-3]) <= {b"m0"}, "at most what it had processed and nobody settled"
    flags = {
        decode_message(delivery.payload).body: bool(read_annotations(delivery.payload).get(REDELIVERED))
        for delivery in got
    }
    assert flags == {body: body != b"m3" for body in bodies}
    await publisher.outcome(b"t3")


async def test_a_publisher_that_lost_its_map_starts_anew_and_nothing_of_it_is_swallowed(router: RouterProcess) -> None:
    subscriber = await (await RawClient.connect(router.port)).subscriber("orders")
    client = await RawClient.connect(router.port, "box")
    publisher = await client.publisher("orders")
    publisher.send(b"t0", b"m0")
    first = await subscriber.delivery()
    client.cut()
    publisher = await (await RawClient.connect(router.port, "box")).publisher("orders")
    await subscriber.settled(first.tag)  # nobody is left who could say what became of it
    publisher.send(b"t0", b"new")  # its counter starts again: the session in the tag distinguishes the two (C15)
    second = await subscriber.delivery()
    assert decode_message(second.payload).body == b"new"
    assert second.tag != first.tag
    subscriber.accept(second)
    assert (await publisher.outcome(b"t0")).state == ACCEPTED
