"""The first messages of a network in which nothing fails: none is dropped, and none is flagged as a repeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncewire.wire import Header, SenderSettleMode, Symbol, decode_message, read_annotations
from router.commands.local_network import LocalNetwork
from tests.router.raw_client import RawClient
from tests.router.relay import assert_no_internal_error

MESSAGES = 8
REDELIVERED = Symbol("x-opt-topic-redelivered")


@pytest.mark.parametrize("attempt", range(2))  # each on a network of its own: what fails here fails at some starts
async def test_what_is_sent_settled_right_after_a_confirmation_all_arrives(tmp_path: Path, attempt: int) -> None:
    async with LocalNetwork(2, log_folder=tmp_path, log_level="info") as network:
        far = await RawClient.connect(network.routers["r2"].amqp_port, "far")
        with_map = await far.subscriber("t", "with-map", timeout=3600)
        once = await far.subscriber("t", "once", exactly_once=False, snd_settle_mode=SenderSettleMode.SETTLED)
        late = await far.subscriber("t", "late", exactly_once=False, snd_settle_mode=SenderSettleMode.SETTLED, credit=0)
        near = await RawClient.connect(network.routers["r1"].amqp_port, "near")
        publisher = await near.publisher("t", exactly_once=False)
        for number in range(MESSAGES):
            publisher.send(b"%d" % number, b"%d" % number, settled=True)
        first = [(await with_map.delivery()).payload for _ in range(MESSAGES)]
        late.link.grant(MESSAGES)
        far.flush()
        for subscriber in (once, late):
            assert [(await subscriber.delivery()).payload for _ in range(MESSAGES)] == first
        assert [decode_message(payload).body for payload in first] == [b"%d" % number for number in range(MESSAGES)]
    assert_no_internal_error(tmp_path)


@pytest.mark.parametrize("attempt", range(2))  # as above
async def test_the_first_deliveries_are_not_flagged_as_repeats(tmp_path: Path, attempt: int) -> None:
    async with LocalNetwork(2, log_folder=tmp_path, log_level="info") as network:
        far = await RawClient.connect(network.routers["r2"].amqp_port, "far")
        subscriber = await far.subscriber("t", exactly_once=False)
        near = await RawClient.connect(network.routers["r1"].amqp_port, "near")
        publisher = await near.publisher("t", exactly_once=False)
        for number in range(MESSAGES):
            publisher.send(b"%d" % number, b"%d" % number)
        for _ in range(MESSAGES):
            delivery = await subscriber.delivery()
            assert REDELIVERED not in read_annotations(delivery.payload)
            assert (decode_message(delivery.payload).header or Header()).delivery_count == 0
            subscriber.accept(delivery, settled=True)
    assert_no_internal_error(tmp_path)
