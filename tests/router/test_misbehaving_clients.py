"""While some clients do what is forbidden, the router lives on and others lose nothing."""

from __future__ import annotations

import pytest

from oncewire.wire import ACCEPTED, ConnectionClosed, Source, Target, encode_data_message
from oncewire.wire.frames import encode_frame
from oncewire.wire.performative_codec import encode_performative
from oncewire.wire.performatives import Transfer
from tests.router.honest_pair import others_lose_nothing
from tests.router.processes import RouterProcess
from tests.router.raw_client import EXACTLY_ONCE, RawClient, RawPublisher

MAX_MESSAGE = 2048
MAX_FRAME = 4096


pytestmark = pytest.mark.router(f"--limits-max-message-size={MAX_MESSAGE}", f"--limits-max-frame-size={MAX_FRAME}")


async def _misbehaving(port: int) -> RawPublisher:
    client = await RawClient.connect(port)
    return await client.publisher("orders")


async def _ended_with(publisher: RawPublisher) -> tuple[str, str]:
    """Condition and description the router ended the link, the session or the connection with."""
    client = publisher.client
    closed = await client.wait_for(ConnectionClosed)
    await client.closed()
    assert closed.error is not None
    return closed.error.condition, closed.error.description or ""


async def test_a_tag_over_32_bytes_is_refused_and_nobody_else_is_harmed(router: RouterProcess) -> None:
    async with others_lose_nothing(router.port):
        for size in (33, 200):
            publisher = await _misbehaving(router.port)
            transfer = Transfer(0, 0, b"t" * size, 0)
            publisher.client.write(encode_frame(0, encode_performative(transfer) + encode_data_message(b"x")))
            detached = await publisher.client.detached(publisher.link)
            assert detached.error is not None
            assert detached.error.condition == "amqp:invalid-field"
            assert "a tag of at most 32 bytes" in (detached.error.description or "")


async def test_a_frame_over_the_agreed_size_is_refused_and_nobody_else_is_harmed(router: RouterProcess) -> None:
    async with others_lose_nothing(router.port):
        whole = await _misbehaving(router.port)
        whole.client.write(encode_frame(0, bytes(MAX_FRAME + 1)))
        # Only announced: the router must not wait for 4 GiB, or make room for them.
        announced = await _misbehaving(router.port)
        announced.client.write(b"\xff\xff\xff\xff\x02\x00\x00\x00")
        for publisher in (whole, announced):
            condition, description = await _ended_with(publisher)
            assert condition == "amqp:connection:framing-error"
            assert f"is not between 8 and {MAX_FRAME} bytes" in description


@pytest.mark.parametrize("size", [MAX_MESSAGE + 1, 10 * MAX_FRAME])
async def test_a_message_over_the_limit_is_refused_and_nobody_else_is_harmed(router: RouterProcess, size: int) -> None:
    async with others_lose_nothing(router.port):
        publisher = await _misbehaving(router.port)
        publisher.reply.max_message_size = None  # our own engine would refuse to send it
        publisher.send(b"t", bytes(size))
        detached = await publisher.client.detached(publisher.link)
        assert detached.error is not None
        assert detached.error.condition == "amqp:link:message-size-exceeded"
        assert f"{MAX_MESSAGE} bytes" in (detached.error.description or "")
        # The connection is sound: another link of it works.
        again = await publisher.client.publisher("invoices", "again")
        assert again.link.credit > 0


async def test_the_third_steal_names_both_clients_and_the_one_that_has_the_link_goes_on(router: RouterProcess) -> None:
    async with others_lose_nothing(router.port):
        clients = [await RawClient.connect(router.port, "till") for _ in range(4)]
        addresses = [client.address for client in clients]
        for client in clients[:2]:
            await client.subscriber("invoices", "all")
        survivor = await clients[2].subscriber("invoices", "all")
        for attempt in range(2):
            refused = clients[3].session.attach_receiver(
                "all",
                source=Source(address="invoices"),
                target=Target(),
                unsettled={},
                desired_capabilities=[EXACTLY_ONCE],
            )
            clients[3].flush()
            detached = await clients[3].detached(refused)
            assert detached.closed
            assert detached.error is not None
            assert detached.error.condition == "amqp:resource-locked"
            description = detached.error.description or ""
            assert addresses[1] in description
            assert addresses[2] in description
            assert attempt or "refused for 30 s" in description
        publisher = await _other_publisher(router.port)
        for number in range(20):
            publisher.send(b"%d" % number, b"invoice")
            survivor.accept(await survivor.delivery())
            assert (await publisher.outcome(b"%d" % number)).state == ACCEPTED


async def _other_publisher(port: int) -> RawPublisher:
    return await (await RawClient.connect(port)).publisher("invoices")
