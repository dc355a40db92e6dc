"""The anonymous terminus (X-1) and addresses that routers make (X-2), over the wire of a router process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    ConnectionOpened,
    DispositionReceived,
    Message,
    Properties,
    ReceiverSettleMode,
    Rejected,
    SenderLink,
    Source,
    Target,
    decode_message,
    encode_message,
)
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient


@pytest.fixture
async def router() -> AsyncIterator[RouterProcess]:
    async with running_router("--standalone") as found:
        yield found
        log = await found.stop()
    assert "internal_error" not in log


async def anonymous(client: RawClient, name: str = "relay", **options: object) -> SenderLink:
    """A sender without an address, with credit."""
    link = client.session.attach_sender(name, source=Source(), target=Target(), **options)  # type: ignore[arg-type]
    client.flush()
    reply = await client.attached(link)
    assert isinstance(reply.target, Target)
    assert reply.target.address is None
    return link


async def credited(client: RawClient, link: SenderLink) -> None:
    while not link.credit:
        await client.news()


def to(address: str | None, body: bytes = b"x", **fields: object) -> bytes:
    return encode_message(Message(body, properties=Properties(to=address, **fields)))  # type: ignore[arg-type]


async def outcome(client: RawClient, link: SenderLink, tag: bytes) -> DispositionReceived:
    return await client.wait_for(
        DispositionReceived, lambda event: event.link is link and any(found == tag for _, found in event.deliveries)
    )


async def send(client: RawClient, link: SenderLink, tag: bytes, message: bytes, **options: bool) -> None:
    await credited(client, link)
    link.send(tag, message, **options)
    client.flush()


async def test_messages_go_to_the_topics_they_name_and_their_outcomes_come_back(router: RouterProcess) -> None:
    reader = await RawClient.connect(router.port, "reader")
    eu, us = await reader.subscriber("orders.eu"), await reader.subscriber("orders.us")
    client = await RawClient.connect(router.port, "sender")
    opened = await client.wait_for(ConnectionOpened) if False else client.engine.remote_open
    assert opened is not None
    assert "ANONYMOUS-RELAY" in opened.offered_capabilities
    link = await anonymous(client, rcv_settle_mode=ReceiverSettleMode.SECOND)
    await send(client, link, b"1", to("orders.eu", b"eu"))
    await send(client, link, b"2", to("topic://orders.us", b"us"))
    await send(client, link, b"3", to("nobody.reads.this"))
    first, second = await eu.delivery(), await us.delivery()
    assert decode_message(first.payload).body == b"eu"
    assert decode_message(second.payload).body == b"us"
    assert (await outcome(client, link, b"3")).state == RELEASED
    us.accept(second)
    told = await outcome(client, link, b"2")
    assert (told.state, told.settled) == (ACCEPTED, False)
    eu.accept(first)
    assert (await outcome(client, link, b"1")).state == ACCEPTED
    link.settle([number for number, _ in told.deliveries])
    client.flush()
    await us.settled(second.tag)  # the inner delivery is settled when the outer one is


REFUSED = {
    "no to": (to(None), "amqp:precondition-failed"),
    "no properties": (encode_message(Message(b"x")), "amqp:precondition-failed"),
    "empty": (to(""), "amqp:invalid-field"),
    "wildcard": (to("orders.#"), "amqp:invalid-field"),
    "too long": (to("a" * 300), "amqp:invalid-field"),
    "another virtual host": (to("acme\x1forders"), "amqp:invalid-field"),
    "an inner name": (to("$reply\x1f_reply/1"), "amqp:invalid-field"),
    "management": (to("$management"), "amqp:not-found"),
    "no such reply address": (to("_reply/" + "0" * 32), "amqp:not-found"),
    "pattern of reply addresses": (to("_reply/#"), "amqp:not-found"),
    "malformed": (b"\x00\x53\x73\xc0\xff\xff\xff", "amqp:decode-error"),
    "to is no string": (b"\x00\x53\x73\xc0\x05\x03\x40\x40\x52\x01\x00\x53\x75\xa0\x01x", "amqp:decode-error"),
    "no section": (b"nonsense", "amqp:decode-error"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refused_message_is_rejected_and_the_link_stays(router: RouterProcess, case: str) -> None:
    message, condition = REFUSED[case]
    reader = await RawClient.connect(router.port, "reader")
    orders = await reader.subscriber("orders")
    client = await RawClient.connect(router.port, "sender")
    link = await anonymous(client)
    await send(client, link, b"bad", message)
    told = await outcome(client, link, b"bad")
    assert isinstance(told.state, Rejected)
    assert told.state.error is not None
    assert told.state.error.condition == condition
    assert told.settled
    await send(client, link, b"good", to("orders"))
    orders.accept(await orders.delivery())
    assert (await outcome(client, link, b"good")).state == ACCEPTED
