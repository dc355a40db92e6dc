"""A router and frames that the standard allows or forbids: empty tags, settle modes, channel 0, node properties."""

from __future__ import annotations

import pytest

from oncewire.wire import (
    ACCEPTED,
    AmqpSession,
    Header,
    ReceiverSettleMode,
    SessionBegun,
    Symbol,
    decode_message,
    read_annotations,
)
from tests.router.processes import RouterProcess
from tests.router.raw_client import RawClient, RawSubscriber


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
