"""A router and frames that the standard allows or forbids: empty tags, settle modes, channel 0, node properties."""

from __future__ import annotations

import pytest

from oncewire.wire import (
    ACCEPTED,
    AmqpSession,
    ConnectionClosed,
    Header,
    ReceiverSettleMode,
    SenderSettleMode,
    SessionBegun,
    Source,
    Symbol,
    Target,
    UInt,
    decode_message,
    encode_data_message,
    read_annotations,
)
from oncewire.wire.frames import encode_frame
from oncewire.wire.performative_codec import encode_performative
from oncewire.wire.performatives import Attach, Open, Performative, Transfer
from tests.router.processes import RouterProcess
from tests.router.raw_client import RawClient, RawPublisher, RawSubscriber

EMPTY = b""


def write(client: RawClient, performative: Performative, payload: bytes = b"", channel: int = 0) -> None:
    """Send one frame past the client's own engine."""
    client.write(encode_frame(channel, encode_performative(performative), payload))


async def next_body(subscriber: RawSubscriber, *, accept: bool = True) -> bytes:
    delivery = await subscriber.delivery()
    if accept and not delivery.settled:
        subscriber.accept(delivery)
    body = decode_message(delivery.payload).body
    assert isinstance(body, bytes)
    return body


@pytest.mark.parametrize("mode", [SenderSettleMode.SETTLED, SenderSettleMode.MIXED])
async def test_every_pre_settled_message_may_have_an_empty_tag(router: RouterProcess, mode: SenderSettleMode) -> None:
    client = await RawClient.connect(router.port)
    subscriber = await client.subscriber("orders")
    publisher = await client.publisher("orders", exactly_once=False, snd_settle_mode=mode)
    bodies = [b"%d" % number for number in range(50)]
    for body in bodies:
        publisher.send(EMPTY, body, settled=True)
    assert [await next_body(subscriber) for _ in bodies] == bodies


async def test_an_empty_tag_is_used_again_as_soon_as_it_is_settled(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port)
    subscriber = await client.subscriber("orders")
    publisher = await client.publisher("orders", exactly_once=False)
    delivery_id = publisher.send(EMPTY, b"0")
    for number in range(1, 20):
        assert await next_body(subscriber) == b"%d" % (number - 1)
        assert (await publisher.outcome(EMPTY)).state == ACCEPTED
        publisher.link.settle([delivery_id])
        delivery_id = publisher.send(EMPTY, b"%d" % number)  # one write with the settlement
    assert await next_body(subscriber) == b"19"


async def test_a_second_empty_tag_is_refused_while_the_first_is_unsettled(router: RouterProcess) -> None:
    publisher = await (await RawClient.connect(router.port)).publisher("orders")
    publisher.send(EMPTY, b"0")
    publisher.send(EMPTY, b"1")
    error = (await publisher.client.detached(publisher.link)).error
    assert error is not None
    assert error.condition == "amqp:not-allowed"


def _transfer(publisher: RawPublisher, **fields: object) -> None:
    transfer = Transfer(publisher.link.handle, 0, b"t", 0, **fields)  # type: ignore[arg-type]
    write(publisher.client, transfer, encode_data_message(b"body"))
    # the engine at this end knows nothing of the transfer, so it is entered by hand
    publisher.link.session.sent_unsettled.add(0, publisher.link, b"t")


@pytest.mark.parametrize(("mode", "settled"), [(ReceiverSettleMode.FIRST, True), (ReceiverSettleMode.SECOND, False)])
async def test_a_transfer_of_mode_first_is_settled_with_its_outcome(
    router: RouterProcess, mode: ReceiverSettleMode, settled: bool
) -> None:
    client = await RawClient.connect(router.port)
    subscriber = await client.subscriber("orders")
    publisher = await client.publisher("orders")
    _transfer(publisher, rcv_settle_mode=mode)
    assert await next_body(subscriber) == b"body"
    outcome = await publisher.outcome(b"t")
    assert (outcome.state, outcome.settled) == (ACCEPTED, settled)


async def test_a_transfer_of_mode_second_on_a_link_of_mode_first_detaches_it(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port)
    publisher = await client.publisher("orders", exactly_once=False, rcv_settle_mode=ReceiverSettleMode.FIRST)
    _transfer(publisher, rcv_settle_mode=ReceiverSettleMode.SECOND)
    error = (await client.detached(publisher.link)).error
    assert error is not None
    assert error.condition == "amqp:invalid-field"


async def test_a_message_format_that_changes_within_a_delivery_detaches_the_link(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port)
    publisher = await client.publisher("orders")
    _transfer(publisher, more=True)
    await client.news()  # the session begins with a window of one frame (C-6); a flow opens it again
    write(client, Transfer(publisher.link.handle, message_format=1), b"rest")
    error = (await client.detached(publisher.link)).error
    assert error is not None
    assert error.condition == "amqp:invalid-field"


async def _closed_with(client: RawClient) -> str:
    closed = await client.wait_for(ConnectionClosed)
    assert closed.error is not None
    return str(closed.error.condition)


async def test_an_open_on_another_channel_than_0_closes_the_connection(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port)
    write(client, Open("again"), channel=1)
    assert await _closed_with(client) == "amqp:connection:framing-error"


async def test_a_lifetime_policy_of_a_wrong_type_is_refused(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port)
    source = Source(dynamic=True, dynamic_node_properties={Symbol("lifetime-policy"): UInt(1)})
    write(client, Attach("l", 7, True, source=source, target=Target()))
    assert await _closed_with(client) == "amqp:decode-error"


@pytest.mark.parametrize("ends", ["link", "session"])
async def test_a_repeat_after_a_closed_link_or_session_counts_as_an_attempt(router: RouterProcess, ends: str) -> None:
    """3.2.1: stock clients derive *redelivered* from the delivery-count; on the same connection, too."""
    client = await RawClient.connect(router.port)
    publisher = await (await RawClient.connect(router.port)).publisher("orders")
    first = await _at_least_once(client)
    publisher.send(b"1", b"one")
    delivery = await first.delivery()
    assert (decode_message(delivery.payload).header or Header()).delivery_count == 0
    if ends == "link":
        first.link.detach(False)
        client.flush()
        await client.detached(first.link)
    else:
        client.session.end()
        client.session = await _another_session(client)
    again = await _at_least_once(client)
    repeat = await again.delivery()
    header = decode_message(repeat.payload).header
    assert header is not None
    assert header.delivery_count == 1
    assert read_annotations(repeat.payload)[Symbol("x-opt-topic-redelivered")] is True
    again.accept(repeat, settled=True)
    assert (await publisher.outcome(b"1")).state == ACCEPTED


async def _at_least_once(client: RawClient) -> RawSubscriber:
    return await client.subscriber("orders", exactly_once=False, rcv_settle_mode=ReceiverSettleMode.FIRST)


async def _another_session(client: RawClient) -> AmqpSession:
    session = client.engine.begin()
    client.flush()
    await client.wait_for(SessionBegun, lambda event: event.session is session)
    return session
