"""What a client hears that does something wrong: condition, reason and what to do, held by golden files."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from oncewire.wire import AmqpError, ConnectionClosed, Described, Source, Symbol, Target, ULong
from oncewire.wire.frames import encode_frame
from tests.router.processes import RouterProcess
from tests.router.raw_client import EXACTLY_ONCE, RawClient
from tests.support.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"


pytestmark = pytest.mark.router("--limits-max-message-size=2048", "--limits-max-frame-size=4096")


async def a_third_theft_within_ten_seconds(port: int) -> AmqpError | None:
    clients = [await RawClient.connect(port, "till") for _ in range(4)]
    for client in clients[:3]:
        await client.subscriber("orders", "all")
    link = clients[3].session.attach_receiver(
        "all", source=Source(address="orders"), target=Target(), unsettled={}, desired_capabilities=[EXACTLY_ONCE]
    )
    clients[3].flush()
    return (await clients[3].detached(link)).error


async def a_stolen_link(port: int) -> AmqpError | None:
    first, second = [await RawClient.connect(port, "shop") for _ in range(2)]
    link = (await first.subscriber("orders", "all")).link
    await second.subscriber("orders", "all")
    return (await first.detached(link)).error


async def a_message_that_is_too_large(port: int) -> AmqpError | None:
    client = await RawClient.connect(port)
    publisher = await client.publisher("orders")
    publisher.reply.max_message_size = None
    publisher.send(b"t", bytes(3000))
    return (await client.detached(publisher.link)).error


async def a_tag_that_is_in_use(port: int) -> AmqpError | None:
    client = await RawClient.connect(port)
    await client.subscriber("orders")
    publisher = await client.publisher("orders")
    publisher.send(b"t", b"one")
    publisher.send(b"t", b"two")
    return (await client.detached(publisher.link)).error


async def resumed_transfers(port: int) -> AmqpError | None:
    client = await RawClient.connect(port)
    publisher = await client.publisher("orders")
    for number in range(3):
        publisher.send(b"%d" % number, b"x", resume=True)
    return (await client.detached(publisher.link)).error


async def an_unreadable_message(port: int) -> AmqpError | None:
    client = await RawClient.connect(port)
    publisher = await client.publisher("orders")
    publisher.link.send(b"t", b"\x00\x53\x99")
    client.flush()
    state = (await publisher.outcome(b"t")).state
    return getattr(state, "error", None)


async def a_map_of_an_expired_session(port: int) -> AmqpError | None:
    client = await RawClient.connect(port)
    link = client.session.attach_sender(
        "p",
        source=Source(),
        target=Target(address="orders"),
        unsettled={b"t": None},
        desired_capabilities=[EXACTLY_ONCE],
    )
    client.flush()
    return (await client.detached(link)).error


async def a_queue(port: int) -> AmqpError | None:
    return await _refused(port, Source(address="orders", capabilities=(Symbol("queue"),)))


async def a_topic_that_is_too_long(port: int) -> AmqpError | None:
    return await _refused(port, Source(address="o" * 300))


async def _refused(port: int, source: Source) -> AmqpError | None:
    client = await RawClient.connect(port)
    link = client.session.attach_receiver("s", source=source, target=Target())
    client.flush()
    return (await client.detached(link)).error


async def a_transaction(port: int) -> AmqpError | None:
    client = await RawClient.connect(port)
    link = client.session.attach_sender("p", source=Source(), target=Described(ULong(0x30), []))
    client.flush()
    return (await client.detached(link)).error


async def a_frame_that_is_too_large(port: int) -> AmqpError | None:
    client = await RawClient.connect(port)
    return await _after_bytes(client, encode_frame(0, bytes(5000)))


async def a_frame_that_is_no_performative(port: int) -> AmqpError | None:
    client = await RawClient.connect(port)
    return await _after_bytes(client, encode_frame(0, b"\x00\x53\x01\x45"))


async def _after_bytes(client: RawClient, data: bytes) -> AmqpError | None:
    client.write(data)
    return (await client.wait_for(ConnectionClosed)).error


CASES: dict[str, Callable[[int], Awaitable[AmqpError | None]]] = {
    case.__name__: case
    for case in (
        a_stolen_link,
        a_third_theft_within_ten_seconds,
        a_message_that_is_too_large,
        a_tag_that_is_in_use,
        resumed_transfers,
        an_unreadable_message,
        a_map_of_an_expired_session,
        a_queue,
        a_topic_that_is_too_long,
        a_transaction,
        a_frame_that_is_too_large,
        a_frame_that_is_no_performative,
    )
}


async def test_a_client_that_does_something_wrong_hears_what_and_why(router: RouterProcess) -> None:
    heard = []
    for name, case in CASES.items():
        error = await case(router.port)
        assert error is not None, name
        heard.append(f"{name.replace('_', ' ')}\n  {error.condition}\n  {error.description}\n")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", "\n".join(heard))
    assert_golden(GOLDEN / "bad_input.txt", text)
    assert (await router.state())["incarnations"] == 1
    client = await RawClient.connect(router.port)
    await client.publisher("orders")
