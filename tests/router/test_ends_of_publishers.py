"""A publisher that ends right behind its transfers: what was read goes on (A-9a, X-1), over the wire of a router."""

from __future__ import annotations

import pytest

from oncewire.wire import (
    ConnectionClosed,
    Event,
    LinkDetached,
    LinkFlow,
    Message,
    Properties,
    SenderLink,
    SessionEnded,
    Source,
    Target,
    decode_message,
    encode_message,
)
from tests.router.processes import RouterProcess
from tests.router.raw_client import RawClient, RawSubscriber

ENDS = ["detach", "close the link", "end", "close", "hang up"]
MESSAGES = 8
ROUNDS = 3


async def sender(client: RawClient, address: str | None, name: str = "sender") -> SenderLink:
    """A stock publisher, with credit."""
    link = client.session.attach_sender(name, source=Source(), target=Target(address=address))
    client.flush()
    await client.attached(link)
    while link.credit < MESSAGES:
        await client.wait_for(LinkFlow, lambda flow: flow.link is link)
    return link


def message(number: int) -> bytes:
    """One that an anonymous link can send, too."""
    return encode_message(Message(b"%d" % number, properties=Properties(to="orders")))


def end(client: RawClient, link: SenderLink, how: str) -> None:
    """End a link without waiting, in one write with what was sent before."""
    if how == "detach":
        link.detach(False)
    elif how == "close the link":
        link.detach(True)
    elif how == "end":
        client.session.end()
    elif how == "close":
        client.engine.close()
    client.flush()
    if how == "hang up":
        client.hang_up()


async def answered(client: RawClient, how: str) -> None:
    """Wait for the router's answer, if there is one."""
    if how != "hang up":
        kinds: dict[str, type[Event]] = {"end": SessionEnded, "close": ConnectionClosed}
        found = await client.wait_for(kinds.get(how, LinkDetached))
        assert getattr(found, "error", None) is None


async def bodies(subscriber: RawSubscriber, count: int) -> list[bytes]:
    """Take and accept so many messages."""
    found: list[bytes] = []
    for _ in range(count):
        delivery = await subscriber.delivery()
        body = decode_message(delivery.payload).body
        assert isinstance(body, bytes)
        found.append(body)
        if not delivery.settled:
            subscriber.accept(delivery)
        subscriber.link.grant(subscriber.link.credit + 1)
        subscriber.client.flush()
    return found


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("address", ["orders", None], ids=["named", "anonymous"])
async def test_what_a_slow_subscriber_has_no_credit_for_arrives_and_is_reported_before_the_answer(
    router: RouterProcess, address: str | None, how: str
) -> None:
    reader = await RawClient.connect(router.port, "reader")
    orders = await reader.subscriber("orders", credit=3)
    for _ in range(ROUNDS):
        client = await RawClient.connect(router.port)
        link = await sender(client, address)
        for number in range(MESSAGES):
            link.send(b"%d" % number, message(number))
        end(client, link, how)
        if how == "hang up":
            await client.closed()
        assert await bodies(orders, MESSAGES) == [b"%d" % number for number in range(MESSAGES)]
        await answered(client, how)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])
@pytest.mark.parametrize("address", ["orders", None], ids=["named", "anonymous"])
async def test_what_comes_right_before_the_end_arrives(
    router: RouterProcess, address: str | None, settled: bool, how: str
) -> None:
    reader = await RawClient.connect(router.port, "reader")
    orders = await reader.subscriber("orders", credit=100)
    for _ in range(ROUNDS):
        client = await RawClient.connect(router.port)
        link = await sender(client, address)
        for number in range(MESSAGES):
            link.send(b"%d" % number, message(number), settled=settled)
        end(client, link, how)
        assert await bodies(orders, MESSAGES) == [b"%d" % number for number in range(MESSAGES)]
        await answered(client, how)
