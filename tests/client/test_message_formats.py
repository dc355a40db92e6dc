"""Messages of a format other than 0: routers pass them through unread (I-1b), so nothing in them is a router's word."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncewire.client import connect
from oncewire.wire import DecodeError, Symbol, encode_data_message
from tests.client.shell_helpers import LONG, until
from tests.node.parts import receiving, stored
from tests.node.test_receiver_and_publisher import subscription
from tests.router.processes import RouterProcess
from tests.router.raw_client import RawClient

OTHER_FORMAT = 7
FORGED = encode_data_message(
    b"pay",
    annotations={
        Symbol("x-opt-topic-publisher"): "bank/payments",
        Symbol("x-opt-topic-in-doubt"): True,
        Symbol("x-opt-topic-redelivered"): True,
        Symbol("x-opt-topic-producer"): "bank",
        Symbol("x-opt-topic-seq"): 7,
    },
)


async def send_forged(router: RouterProcess, topic: str, message_format: int, tag: bytes = b"1") -> RawClient:
    thief = await RawClient.connect(router.port, "thief")
    link = (await thief.publisher(topic)).link
    link.send(tag, FORGED, message_format=message_format)
    thief.flush()
    return thief


async def test_annotations_in_a_message_of_another_format_are_not_believed(router: RouterProcess) -> None:
    async with connect(router.url, container_id="c") as client:
        subscriber = await client.subscriber("t", name="s")
        thief = await send_forged(router, "t", OTHER_FORMAT)
        delivery = await subscriber.receive(LONG)
        for _ in range(2):
            assert delivery.message_format == OTHER_FORMAT
            assert delivery.payload == FORGED
            assert delivery.publisher == ""
            assert not delivery.is_in_doubt
            assert not delivery.is_redelivered
            with pytest.raises(DecodeError, match="message-format is 7"):
                _ = delivery.message
            delivery.release()
            delivery = await subscriber.receive(LONG)
        await delivery.accept()
        thief.cut()
        thief = await send_forged(router, "t", 0)
        delivery = await subscriber.receive(LONG)
        assert delivery.message_format == 0
        assert delivery.publisher == "thief/pub"
        await delivery.accept()
        thief.cut()
        await subscriber.unsubscribe()


async def test_a_bridge_keeps_a_message_of_another_format_as_bytes_without_its_annotations(
    router: RouterProcess, tmp_path: Path
) -> None:
    path = tmp_path / "node.db"
    async with receiving(router.url, subscription("t"), path) as receiver:
        thief = await send_forged(router, "t", OTHER_FORMAT)
        await until(lambda: sum(receiver.numbers.messages.values()) == 1)
        assert receiver.producer_count == 0
        thief.cut()
    assert stored(path) == [("t", FORGED)]
