"""The client at Qpid Broker-J: the column of docs/brokers.md."""

from __future__ import annotations

import pytest

from tests.brokers.claims import LONG, Claims, at, bodies, publishing, subscribed
from tests.support.brokers import Broker, BrokerJ

pytestmark = [pytest.mark.needs("brokers"), pytest.mark.slow]

KIND = BrokerJ


class TestBrokerJ(Claims):
    """What every broker does, and what only this one does."""

    async def test_a_rejected_message_comes_again_until_its_queue_gives_it_up(self, broker: Broker) -> None:
        async with at(broker) as client, client.subscriber("orders", exactly_once=False, timeout=None) as subscriber:
            async with client.publisher("orders", exactly_once=False) as publisher:
                await publisher.send(b"bad", timeout=LONG)
            for _ in range(3):  # maximumDeliveryAttempts
                await (await subscriber.receive(LONG)).reject("cannot be read")
            async with client.subscriber("failed", exactly_once=False, timeout=None) as failed:
                assert await bodies(failed, 1) == [b"bad"]

    async def test_what_nobody_has_subscribed_to_is_accepted_all_the_same(self, broker: Broker) -> None:
        async with at(broker) as client, client.publisher("amq.topic/nobody", exactly_once=False) as publisher:
            assert (await publisher.send(b"x", timeout=LONG)).is_accepted

    async def test_a_selector_selects(self, broker: Broker) -> None:
        async with at(broker) as client, subscribed(client, broker, selector="color = 'red'") as subscriber:
            async with publishing(client, broker) as publisher:
                for color in ("blue", "red"):
                    await publisher.send(color, application_properties={"color": color}, timeout=LONG)
            assert await bodies(subscriber, 1) == ["red"]
