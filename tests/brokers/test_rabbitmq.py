"""The client at RabbitMQ 4: the column of docs/brokers.md."""

from __future__ import annotations

import pytest

from oncewire.client import LinkRefused, MessageTooLarge, NotAccepted, OutcomeKind
from tests.brokers.claims import LONG, Claims, at, bodies, both, empty, publishing, subscribed
from tests.support.brokers import Broker, RabbitMQ

pytestmark = [pytest.mark.needs("brokers"), pytest.mark.slow]

KIND = RabbitMQ


class TestRabbitMQ(Claims):
    """What every broker does, and what only this one does."""

    async def test_a_rejected_message_goes_to_the_dead_letter_queue(self, broker: Broker) -> None:
        async with both(broker) as (publisher, subscriber), at(broker) as client:
            await publisher.send(b"bad", timeout=LONG)
            await (await subscriber.receive(LONG)).reject("cannot be read")
            async with client.subscriber("/queues/failed", exactly_once=False, timeout=None) as failed:
                assert await bodies(failed, 1) == [b"bad"]
            await empty(subscriber)

    async def test_what_no_queue_gets_is_released_and_what_is_too_much_is_rejected(self, broker: Broker) -> None:
        async with at(broker) as client:
            ends = {"/exchanges/amq.topic/nobody": OutcomeKind.RELEASED, "/queues/short": OutcomeKind.REJECTED}
            for topic, kind in ends.items():
                async with client.publisher(topic, exactly_once=False) as publisher:
                    await publisher.submit_many([b"x"] * 3)
                    with pytest.raises(NotAccepted) as caught:
                        await publisher.flush(LONG)
                    assert caught.value.outcomes[0].kind is kind

    async def test_a_selector_is_refused_with_what_to_do_because_it_would_be_ignored(self, broker: Broker) -> None:
        async with at(broker) as client:
            with pytest.raises(LinkRefused, match="leave selector out"):
                await subscribed(client, broker, selector="color = 'red'")

    async def test_a_message_larger_than_it_takes_is_refused_before_it_is_sent(self, broker: Broker) -> None:
        async with at(broker) as client, publishing(client, broker) as publisher:
            with pytest.raises(MessageTooLarge):
                await publisher.send(bytes(17 << 20), timeout=LONG)
