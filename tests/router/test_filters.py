"""Subscriptions with filters at router processes: what is sent, what the reply states, what is refused (E-9)."""

from __future__ import annotations

from typing import Any

import pytest

from oncewire.client import LinkRefused, connect
from oncewire.wire import ACCEPTED, Described, Source, Symbol, Target, ULong, decode_message
from oncewire.wire.message import Message, encode_message
from tests.router.processes import RouterProcess
from tests.router.raw_client import RawClient, RawPublisher, RawSubscriber

SELECTOR = ULong(0x0000_468C_0000_0004)
NO_LOCAL = ULong(0x0000_468C_0000_0003)


def painted(color: str, number: int) -> bytes:
    return encode_message(Message(b"%d" % number, application_properties={"color": color, "number": number}))


def send(publisher: RawPublisher, tag: bytes, message: bytes) -> None:
    publisher.link.send(tag, message)
    publisher.client.flush()


async def with_filter(client: RawClient, name: str, **filters: object) -> RawSubscriber:
    source = Source(address="orders", filter={Symbol(key.replace("_", "-")): value for key, value in filters.items()})
    link = client.session.attach_receiver(name, source=source, target=Target())
    client.flush()
    subscriber = RawSubscriber(client, link, await client.attached(link))
    link.grant(100)
    client.flush()
    return subscriber


async def body_of_next(subscriber: RawSubscriber) -> Any:
    delivery = await subscriber.delivery()
    subscriber.accept(delivery)
    return decode_message(delivery.payload).body


async def test_a_subscription_gets_what_its_selector_chooses_and_the_publisher_is_reported_of_all(
    router: RouterProcess,
) -> None:
    client = await RawClient.connect(router.port)
    red = await with_filter(client, "red", jms_selector=Described(SELECTOR, "color = 'red' AND number > 1"))
    everything = await with_filter(client, "everything")
    publisher = await (await RawClient.connect(router.port)).publisher("orders")
    for number, color in enumerate(("red", "blue", "red", "blue", "red")):
        send(publisher, b"%d" % number, painted(color, number))
    assert [await body_of_next(red) for _ in range(2)] == [b"2", b"4"]
    assert [await body_of_next(everything) for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    accepted: set[bytes] = set()
    while len(accepted) < 5:
        outcome = await publisher.next_outcome()
        assert outcome.state == ACCEPTED
        accepted |= set(outcome.tags)


ECHOED: dict[str, dict[str, object]] = {
    "selector": {"jms_selector": Described(SELECTOR, "color='red'")},
    "no-local": {"no_local": Described(NO_LOCAL, "NoLocalFilter{}")},
    "both": {"a": Described(SELECTOR, "a = 1"), "b": Described(Symbol("apache.org:no-local-filter:list"), [])},
    "properties": {"p": Described(Symbol("amqp:properties-filter"), {Symbol("subject"): "&p:news"})},
}


@pytest.mark.parametrize("kind", ECHOED)
async def test_the_reply_states_the_filters_as_the_client_wrote_them(router: RouterProcess, kind: str) -> None:
    client = await RawClient.connect(router.port)
    subscriber = await with_filter(client, "sub", **ECHOED[kind])
    stated = subscriber.reply.source
    assert stated is not None
    assert stated.filter == {Symbol(name.replace("_", "-")): value for name, value in ECHOED[kind].items()}


async def test_a_look_up_states_the_filter_that_is_kept(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port, "box")
    source = Source(
        address="orders",
        durable=ULong(2),
        timeout=60,
        expiry_policy=Symbol("never"),
        filter={Symbol("mine"): Described(SELECTOR, "color='red'")},
    )
    link = client.session.attach_receiver("sub", source=source, target=Target())
    client.flush()
    await client.attached(link)
    link.detach(closed=False)
    client.flush()
    await client.detached(link)
    found = await client.subscriber(None, "sub", exactly_once=False)
    stated = found.reply.source
    assert stated is not None
    name = Symbol("apache.org:selector-filter:string")
    assert stated.filter == {name: Described(name, "color = 'red'")}


REFUSED = {
    "wrong selector": (Described(SELECTOR, "color = "), "amqp:invalid-field", "character 9 is the end; expected"),
    "unsteady": (Described(SELECTOR, "JMSRedelivered"), "amqp:invalid-field", "differs between the first"),
    "unknown": (Described(Symbol("example:filter"), "x"), "amqp:not-implemented", "filter f (example:filter) is not"),
    "not described": ("color = 'red'", "amqp:not-implemented", "filter f is not offered"),
    "too long": (Described(SELECTOR, "a = 1 OR " * 1000), "amqp:invalid-field", "more than 4096"),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_a_filter_that_cannot_be_applied_is_refused_and_says_why(router: RouterProcess, kind: str) -> None:
    wanted, condition, said = REFUSED[kind]
    client = await RawClient.connect(router.port)
    link = client.session.attach_receiver("sub", source=Source("orders", filter={Symbol("f"): wanted}), target=Target())
    client.flush()
    detached = await client.detached(link)
    assert detached.closed
    assert detached.error is not None
    assert detached.error.condition == condition
    assert said in (detached.error.description or "")


async def test_our_client_is_reported_what_is_wrong_with_a_selector(router: RouterProcess) -> None:
    async with connect(f"amqp://127.0.0.1:{router.port}") as client:
        with pytest.raises(LinkRefused, match="character 8 is the end; expected"):
            await client.subscriber("orders", selector="color =")
