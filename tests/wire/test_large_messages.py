"""Large messages in memory: how often the engine has one, and what it cuts off at one time."""

from __future__ import annotations

import array
import tracemalloc

import pytest

from oncewire.wire import DeliveryReceived, Flow, Transfer, encode_data_message
from tests.support.engines import RawPeer, one

MEGABYTE = 1_000_000


def test_a_message_that_is_put_together_is_held_once() -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(1, max_message_size=1 << 40)
    tracemalloc.start()
    try:
        for _ in range(49):
            peer.send(Transfer(0, 0, b"t", more=True), bytes(1_000_000))
        peer.send(Transfer(0), bytes(1_000_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(one(peer.heard, DeliveryReceived).payload) == 50_000_000
    assert peak < 65_000_000  # the buffer grows ahead; and a frame of the test, on its way


def test_a_message_that_is_sent_is_copied_no_further_than_the_session_window_goes() -> None:
    peer = RawPeer(max_frame_size=1 << 20)
    peer.begin()
    link = peer.attach_as_receiver(1)
    peer.send(Flow(0, 4, 0, 1 << 20))
    body = bytes(50_000_000)
    tracemalloc.start()
    try:
        link.send(b"t", body)
        sent = len(peer.engine.data_to_send())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sent < peak < 10_000_000


def test_an_owner_may_take_a_message_little_by_little() -> None:
    peer = RawPeer(max_frame_size=1 << 20)
    peer.begin()
    link = peer.attach_as_receiver(10)
    body = bytes(50_000_000)
    engine = peer.engine
    tracemalloc.start()
    try:
        engine.limit_output(1 << 20)
        link.send(b"t", body)
        link.send(b"u", b"behind it")
        sizes, behind = [], b""
        while data := engine.data_to_send():
            sizes.append(len(data))
            behind = data[len(data) - 9 :]
            engine.limit_output(1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(sizes) > len(body)
    assert max(sizes) < 3_000_000
    assert peak < 10_000_000
    assert behind == b"behind it"


def test_what_waits_for_its_owner_waits_for_the_session_window_too() -> None:
    peer = RawPeer(max_frame_size=512)
    peer.begin()
    link = peer.attach_as_receiver(10)
    peer.engine.limit_output(600)
    link.send(b"t", b"a" * 5000)
    assert len(peer.read()) == 2
    peer.send(Flow(2, 0, 0, 1 << 20))  # the window is closed: none more may follow
    assert not peer.engine.limit_output(600)
    assert peer.send(Flow(2, 100, 0, 1 << 20)) == [Transfer(0, more=True)] * 2
    assert peer.send(Flow(4, 100, 0, 1 << 20)) == []
    assert peer.engine.limit_output(1 << 20)
    assert [each.more for each in peer.read() if isinstance(each, Transfer)][-1] is False


@pytest.mark.parametrize("properties", [False, True])
def test_a_body_is_copied_once_to_be_encoded(properties: bool) -> None:
    body = bytes(50 * MEGABYTE)
    tracemalloc.start()
    try:
        message = encode_data_message(body, application_properties={"a": 1} if properties else None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(body) < len(message) < peak < 51 * MEGABYTE


@pytest.mark.parametrize(
    "body",
    [bytearray(b"abcd"), memoryview(b"abcd"), memoryview(b"a.b.c.d.")[::2], memoryview(array.array("H", [1, 2]))],
)
def test_whatever_holds_the_bytes_of_a_body_is_encoded_as_they_are(body: bytearray | memoryview) -> None:
    assert encode_data_message(body) == encode_data_message(bytes(body))
