"""What a client may make a router hold beside bodies is bounded, for each connection and for all of them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from oncewire.wire import Attach, Begin, Connection, Open, Performative, Source, Target, Transfer
from oncewire.wire.frames import encode_frame
from oncewire.wire.performative_codec import encode_performative
from router.clients.excess import parts_of
from router.clients.excess_core import PART_GROWTH, PART_TIME_S, SESSIONS, SMALL_BYTES, Parts, too_much
from tests.router.abusers import AMQP_HEADER, stranger
from tests.router.honest_pair import others_lose_nothing
from tests.router.processes import running_router
from tests.router.raw_client import RawClient, until
from tests.support.engines import RawPeer

MIB = 1 << 20


def test_who_holds_most_is_closed_until_the_rest_fits() -> None:
    assert too_much({"a": 3 * MIB, "b": 5 * MIB, "c": MIB}, 5 * MIB) == ["b"]
    assert too_much({"a": 3 * MIB, "b": 5 * MIB, "c": MIB}, 3 * MIB) == ["b", "a"]
    assert too_much({"a": 3 * MIB}, 3 * MIB) == []


def test_who_holds_little_is_never_closed_for_others() -> None:
    assert too_much(dict.fromkeys(range(1000), SMALL_BYTES - 1), 1) == []


def test_a_part_that_does_not_grow_is_stuck_and_one_that_grows_is_not() -> None:
    still, growing = Parts(), Parts()
    assert not still.is_stuck({1: 10}, True, 0.0)
    assert not growing.is_stuck({1: 10}, True, 0.0)
    assert not still.is_stuck({1: 11}, True, PART_TIME_S - 1)
    assert not growing.is_stuck({1: 10 + PART_GROWTH}, True, PART_TIME_S - 1)
    assert still.is_stuck({1: 12}, True, PART_TIME_S)
    assert not growing.is_stuck({1: 10 + PART_GROWTH}, True, PART_TIME_S)


def test_who_may_not_send_is_not_late_and_another_message_begins_anew() -> None:
    waiting, busy = Parts(), Parts()
    for second in range(int(3 * PART_TIME_S)):
        assert not waiting.is_stuck({1: 10}, False, second)
        assert not busy.is_stuck({second: 10}, True, second)
    assert not waiting.is_stuck({1: 10}, True, 3 * PART_TIME_S)
    assert waiting.is_stuck({1: 10}, True, 4 * PART_TIME_S)


def frame(performative: Performative) -> bytes:
    return encode_frame(0, encode_performative(performative))


async def test_frames_that_never_end_are_bounded_for_all_connections_together() -> None:
    """A MiB of a frame from each of twelve, where a quarter of 16 MiB may be held."""
    part = MIB.to_bytes(4, "big") + b"\x02\x00\x00\x00" + b"x" * (MIB - 100)
    async with running_router("--standalone", "--limits-router-bytes=16777216") as router:
        clients = [await RawClient.connect(router.port) for _ in range(12)]

        async def gone() -> int:
            return sum(client.is_gone for client in clients)

        async with others_lose_nothing(router.port):
            for client in clients:
                client.write(part)
            await until(gone, lambda count: count >= 8)


async def test_links_that_are_refused_and_never_detached_are_bounded() -> None:
    async with running_router("--standalone", "--limits-max-links=10") as router, others_lose_nothing(router.port):
        connection = await stranger(router.port)
        said = AMQP_HEADER + frame(Open("mute")) + frame(Begin(None, 0, 1, 1))
        for handle in range(40):
            attach = Attach(f"p{handle}", handle, False, source=Source(), target=Target(address="orders"))
            said += frame(attach)
        connection.transport.write(said)
        await connection.closed()
        assert b"or wait for the client's detach" in connection.heard


async def test_sessions_of_a_connection_are_bounded() -> None:
    async with running_router("--standalone") as router, others_lose_nothing(router.port):
        connection = await stranger(router.port)
        begins = [encode_frame(channel, encode_performative(Begin(None, 0, 1, 1))) for channel in range(SESSIONS + 1)]
        connection.transport.write(AMQP_HEADER + frame(Open("many")) + b"".join(begins))
        await connection.closed()
        assert b"a connection may have 256 sessions" in connection.heard


@dataclass
class Held:
    """A connection, as the watch sees it."""

    engine: Connection
    bytes_in: int = 0


@pytest.mark.parametrize("above", [None, 10])
def test_a_message_that_is_passed_on_as_it_comes_must_grow_as_one_that_is_stored(above: int | None) -> None:
    """L-3: its subscribers get nothing else before its end."""
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_sender(1)
    link.stream_above = above
    peer.send(Transfer(0, 7, b"t", more=True), b"x" * 20)
    peer.send(Transfer(0, more=True), b"x" * 5)
    assert parts_of(Held(peer.engine)) == {(link.session.channel, link.handle, 7): 25}  # type: ignore[arg-type]
    peer.send(Transfer(0), b"end")
    assert parts_of(Held(peer.engine)) == {}  # type: ignore[arg-type]
