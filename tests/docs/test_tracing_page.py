"""The page docs/how-to/tracing.md: its functions make one trace of an order, a dish and a bill."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from oncewire.client import connect
from oncewire.client.transactions import Consumer
from oncewire.testing import AmqpNetwork
from tests.docs.code_blocks import ROOT, blocks_of

LONG = 60.0


async def test_the_functions_of_the_page_send_process_and_publish(amqp_network: AmqpNetwork, tmp_path: Path) -> None:
    (block,) = [each for each in blocks_of(ROOT / "docs/how-to/tracing.md") if each.run_by]
    page: dict[str, Any] = {}
    exec(compile(block.text, "docs/how-to/tracing.md", "exec", dont_inherit=True), page)
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
