"""The client at ActiveMQ Artemis: the column of docs/brokers.md."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from oncewire.client import Client, Guarantee, connect
from tests.brokers.claims import LONG, Claims, at, bodies, publishing, subscribed
from tests.docs.code_blocks import blocks_of
from tests.support.brokers import Artemis, Broker

pytestmark = [pytest.mark.needs("brokers"), pytest.mark.slow]

KIND = Artemis
PAGE = Path(__file__).resolve().parents[2] / "docs/brokers.md"


async def test_the_code_of_the_page_runs(broker: Broker) -> None:
    (block,) = (block for block in blocks_of(PAGE) if block.language == "python")
    code = block.text.replace("amqp://guest:guest@broker:5672", broker.url)
    names: dict[str, Any] = {"connect": connect, "Guarantee": Guarantee}
    exec(f"async def run():\n{indent(code, '    ')}", names)
    await names["run"]()


class TestArtemis(Claims):
    """What every broker does, and what only this one does."""

    not_there_condition = "amqp:illegal-state"

    def not_there(self, client: Client) -> list[Any]:
        """It makes each address; one of a queue is no topic."""
        return [client.subscriber("DLQ", exactly_once=False, timeout=None)]

    async def test_a_rejected_message_goes_to_the_dead_letter_topic(self, broker: Broker) -> None:
        async with at(broker) as client, client.subscriber("failed", exactly_once=False, timeout=None) as failed:
            subscriber, publisher = await subscribed(client, broker), await publishing(client, broker)
            await publisher.send(b"bad", timeout=LONG)
            await (await subscriber.receive(LONG)).reject("cannot be read")
            assert await bodies(failed, 1) == [b"bad"]

    async def test_what_nobody_has_subscribed_to_is_accepted_all_the_same(self, broker: Broker) -> None:
        async with at(broker) as client, client.publisher("nobody", exactly_once=False) as publisher:
            assert (await publisher.send(b"x", timeout=LONG)).is_accepted

    async def test_a_selector_selects(self, broker: Broker) -> None:
        async with at(broker) as client, subscribed(client, broker, selector="color = 'red'") as subscriber:
            async with publishing(client, broker) as publisher:
                for color in ("blue", "red"):
                    await publisher.send(color, application_properties={"color": color}, timeout=LONG)
            assert await bodies(subscriber, 1) == ["red"]
