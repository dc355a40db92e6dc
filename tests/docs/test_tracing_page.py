"""The page docs/how-to/tracing.md: one trace of an order, a dish and a bill; metrics, which are those of the code."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client import start_http_server
from prometheus_client.parser import text_string_to_metric_families

from oncewire.client import NotAccepted, connect
from oncewire.client.metrics import ClientCollector
from oncewire.client.transactions import Consumer
from oncewire.testing import AmqpNetwork
from tests.docs.code_blocks import ROOT, blocks_of
from topology.etcd.server import free_port

LONG = 60.0
PAGE = ROOT / "docs/how-to/tracing.md"


def program(number: int) -> dict[str, Any]:
    """What one of the page's blocks defines."""
    block = [each for each in blocks_of(PAGE) if each.run_by][number]
    page: dict[str, Any] = {}
    exec(compile(block.text, str(PAGE), "exec", dont_inherit=True), page)
    return page


async def test_the_functions_of_the_page_send_process_and_publish(amqp_network: AmqpNetwork, tmp_path: Path) -> None:
    page = program(0)
    consumer = Consumer(amqp_network.urls, store=f"sqlite:///{tmp_path}/c.db", name="billing", topics=["orders"])
    async with connect(amqp_network.urls) as client, consumer, asyncio.timeout(LONG):
        orders, bills = await client.subscriber("orders"), await client.subscriber("bills")
        cooking, billing = asyncio.create_task(page["cook"](orders)), asyncio.create_task(page["run"](consumer))
        await page["order"](await client.publisher("orders"), "soup")
        bill = await bills.receive()
        assert bill.body == "soup"
        await bill.accept()
        consumer.stop()
        await billing
        cooking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await cooking


async def scraped(url: str) -> dict[tuple[str, str], float]:
    """Values by the metric's name and the link, consumer or container it is of."""
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        families = list(text_string_to_metric_families(await answer.text()))
    ours = [each for family in families for each in family.samples if each.name.startswith("oncewire_client_")]
    return {(each.name, each.labels.get("topic") or each.labels[min(each.labels)]): each.value for each in ours}


async def test_the_metrics_of_the_page_are_served_by_its_program_and_no_others(
    amqp_network: AmqpNetwork, tmp_path: Path
) -> None:
    port = free_port()
    page = program(1)
    servers = []
    page["METRICS_PORT"] = port
    page["start_http_server"] = lambda port: servers.append(start_http_server(port))
    async with connect(amqp_network.urls) as client, asyncio.timeout(LONG):
        bills = await client.subscriber("bills")
        serving = asyncio.create_task(page["serve"](amqp_network.urls, f"sqlite:///{tmp_path}/c.db"))
        order = await client.publisher("orders", require=1)
        while True:
            with contextlib.suppress(NotAccepted):
                await order.send("soup")
                break
        await (await bills.receive()).accept()
        found = await scraped(f"http://127.0.0.1:{port}/metrics")
        while not found["oncewire_client_consumer_idle", "billing"]:
            found = await scraped(f"http://127.0.0.1:{port}/metrics")
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    assert found["oncewire_client_consumer_messages_total", "billing"] == 1
    assert found["oncewire_client_connections_total", "shop"] == 1
    names = {name for name, _ in found}
    described = {each.name + "_total" * (each.type == "counter") for each in ClientCollector(registry=None).describe()}
    on_the_page = set(re.findall(r"^\| `(oncewire_client_\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert on_the_page == described
    assert names <= described
