"""Metrics of applications: what clients and consumers count, as Prometheus reads it."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from oncewire.client import NotAccepted, connect, sync
from oncewire.client.metrics import ClientCollector
from oncewire.client.transactions import Consumer, ReceivedMessage, Transaction
from oncewire.testing import AmqpNetwork
from tests.support.waiting import eventually

LONG = 60.0


@pytest.fixture(scope="module")
def network() -> Iterator[AmqpNetwork]:
    with AmqpNetwork(2) as found:
        yield found


class Scraped:
    """What a registry serves, read as Prometheus does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = generate_latest(registry).decode()
        self.samples = [each for family in text_string_to_metric_families(text) for each in family.samples]

    def value(self, name: str, **labels: str) -> float:
        (found,) = self.values(name, **labels)
        return found

    def values(self, name: str, **labels: str) -> list[float]:
        named = [each for each in self.samples if each.name == f"oncewire_client_{name}"]
        return [each.value for each in named if labels.items() <= each.labels.items()]


async def test_links_show_what_they_took_what_became_of_it_and_what_waits(network: AmqpNetwork) -> None:
    now, registry = [100.0], CollectorRegistry()
    collector = ClientCollector(registry, clock=lambda: now[0])
    async with connect(network.urls, container_id="shop") as shop, connect(network.urls, container_id="mail") as mail:
        collector.watch(shop, mail)
        orders = await mail.subscriber("orders", name="orders")
        publisher = await shop.publisher("orders", name="out")
        sendings = [await publisher.submit(b"x") for _ in range(4)]
        first, second, third, fourth = [await orders.receive(LONG) for _ in range(4)]
        await first.accept()
        await second.reject("not this one")
        await asyncio.gather(*sendings[:2])

        assert Scraped(registry).value("link_oldest_seconds", link="out") == 0.0
        now[0] += 7.0
        scraped = Scraped(registry)
        sent = {"container": "shop", "link": "out", "topic": "orders", "role": "publisher"}
        assert scraped.value("link_messages_total", **sent) == 4
        assert scraped.value("link_accepted_total", **sent) == 2, "a rejection is an answer, too"
        assert scraped.value("link_not_accepted_total", **sent) == 0
        assert scraped.value("link_unfinished", **sent) == 2
        assert scraped.value("link_oldest_seconds", **sent) == 7.0
        received = {"container": "mail", "link": "orders", "topic": "orders", "role": "subscriber"}
        assert scraped.value("link_messages_total", **received) == 4
        assert scraped.value("link_unfinished", **received) == 2
        assert scraped.value("link_accepted_total", **received) == 1
        assert scraped.value("link_not_accepted_total", **received) == 1
        assert scraped.value("link_copies_total", **received) == 0
        assert scraped.values("link_oldest_seconds", **received) == []
        assert scraped.value("connections_total", container="shop") == 1

        await third.accept()
        await sendings[2]
        assert Scraped(registry).value("link_oldest_seconds", **sent) == 0.0, "another message is the oldest now"
        await fourth.accept()
        await sendings[3]
        assert Scraped(registry).value("link_unfinished", **sent) == 0


async def test_a_message_that_nobody_gets_is_not_accepted(network: AmqpNetwork) -> None:
    registry = CollectorRegistry()
    async with connect(network.urls, container_id="shop") as shop, shop.publisher("nobody", require=1) as publisher:
        ClientCollector(registry).watch(shop)
        with pytest.raises(NotAccepted):
            _ = await publisher.send(b"x", timeout=LONG)
        assert Scraped(registry).value("link_not_accepted_total", topic="nobody") == 1


async def test_a_killed_router_shows_as_a_connection_a_resumed_link_and_a_gap(amqp_network: AmqpNetwork) -> None:
    registry = CollectorRegistry()
    async with connect(amqp_network.urls, container_id="shop") as shop:
        ClientCollector(registry).watch(shop)
        orders = await shop.subscriber("orders", name="in")
        publisher = await shop.publisher("orders", name="out")
        sending = await publisher.submit(b"x")
        delivery = await orders.receive(LONG)
        await asyncio.to_thread(amqp_network.kill)
        await delivery.accept()
        await sending
        scraped = Scraped(registry)
    assert scraped.value("connections_total", container="shop") == 2
    assert scraped.value("link_resumed_total", link="out") == 1
    assert scraped.value("link_longest_gap_seconds", link="out") > 0


async def test_a_consumer_shows_what_it_committed_and_what_it_set_aside(network: AmqpNetwork, tmp_path: Path) -> None:
    def process(tx: Transaction, message: ReceivedMessage) -> None:
        if message.body == "bad":
            raise ValueError

    registry = CollectorRegistry()
    store = f"sqlite:///{tmp_path}/c.db"
    consumer = Consumer(network.urls, store=store, name="billing", topics=["paid"], attempts=1, skip=True)
    ClientCollector(registry).watch(consumer)
    assert Scraped(registry).value("consumer_idle", consumer="billing") == 0, "it is not open"
    async with connect(network.urls) as client, consumer:
        running = asyncio.create_task(consumer.run(process))
        publisher = await client.publisher("paid")
        for body in ("good", "bad", "good"):
            _ = await publisher.send(body, timeout=LONG)
        await eventually(lambda: consumer.statistics.messages == 2 and consumer.is_idle, "all is processed")
        scraped = Scraped(registry)
        consumer.stop()
        await running
    assert scraped.value("consumer_messages_total", consumer="billing") == 2
    assert scraped.value("consumer_skipped_total", consumer="billing") == 1
    assert scraped.value("consumer_dead_letters_total", consumer="billing") == 0
    assert scraped.value("consumer_transactions_total", consumer="billing") >= 2
    assert scraped.value("consumer_idle", consumer="billing") == 1


def test_a_client_without_an_event_loop_is_watched_from_this_thread(network: AmqpNetwork) -> None:
    registry = CollectorRegistry()
    with sync.connect(network.urls, container_id="script") as client:
        ClientCollector(registry).watch(client)
        client.publisher("alone", name="out").send("x", timeout=LONG)
        assert Scraped(registry).value("link_accepted_total", container="script", link="out") == 1


async def test_a_client_opened_again_replaces_the_former_and_a_dropped_one_is_forgotten(network: AmqpNetwork) -> None:
    registry = CollectorRegistry()
    collector = ClientCollector(registry)
    former = connect(network.urls, container_id="shop")
    async with former, connect(network.urls, container_id="other") as other:
        collector.watch(former, other)
    async with connect(network.urls, container_id="shop") as client:
        collector.watch(client)
        assert Scraped(registry).values("connections_total", container="shop") == [1]
    del former, client, other
    gc.collect()
    assert Scraped(registry).samples == []


@pytest.mark.cold
def test_the_client_loads_no_prometheus_and_without_it_the_error_says_what_to_install() -> None:
    program = (
        "import sys, oncewire.client as c; c.connect('h'); assert not [n for n in sys.modules if n[:4] == 'prom']\n"
    )
    program += "sys.modules['prometheus_client'] = None\n"
    program += "try: import oncewire.client.metrics\n"
    program += "except c.UsageError as error: print(error.fix)\n"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "run pip install prometheus-client\n"
