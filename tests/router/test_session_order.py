"""Attaches of one AMQP session are carried out in the order they came (A-2d), over the wire of a router process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oncewire.wire import ACCEPTED, DeliveryReceived, DispositionReceived, LinkAttached, Source, Target
from router.commands.local_network import LocalNetwork
from tests.router.raw_client import RawClient
from tests.router.test_ends_of_publishers import message


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    async with LocalNetwork(2, log_folder=tmp_path) as network:  # the barrier takes longer than an attach (A-6a)
        yield network.routers["r1"].amqp_port


@pytest.mark.parametrize("address", ["orders", None], ids=["named", "anonymous"])
async def test_a_receiver_and_a_sender_attached_in_one_write_reach_each_other(port: int, address: str | None) -> None:
    for number in range(10):  # as Proton's helloworld.py
        client = await RawClient.connect(port)
        receiver = client.session.attach_receiver("in", source=Source(address="orders"), target=Target())
        receiver.grant(10)
        sender = client.session.attach_sender("out", source=Source(), target=Target(address=address))
        client.flush()
        while not sender.credit:
            await client.news()
        if address is not None:
            assert [event.link for event in client.heard if isinstance(event, LinkAttached)] == [receiver, sender]
        sender.send(b"%d" % number, message(number))
        client.flush()
        delivery = await client.wait_for(DeliveryReceived)
        receiver.dispose([delivery.delivery_id], ACCEPTED, True)
        client.flush()
        assert (await client.wait_for(DispositionReceived)).state == ACCEPTED
        client.cut()
