"""The page docs/codecs.md: its programs run, at a router in this process."""

from __future__ import annotations

import asyncio
import sys
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest

import oncewire
from oncewire.testing import AmqpNetwork
from tests.docs.code_blocks import ROOT, blocks_of

LIMIT_S = 60.0
BLOCKS = [block.text for block in blocks_of(ROOT / "docs/codecs.md") if block.run_by]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page's programs as one module."""
    module = ModuleType("codecs_page")
    monkeypatch.setitem(sys.modules, "codecs_page", module)
    for text in BLOCKS:
        exec(compile(text, "docs/codecs.md", "exec", dont_inherit=True), module.__dict__)
    return module


async def test_the_dataclass_of_the_page_is_read_as_it_was_sent(amqp_network: AmqpNetwork, page: Any) -> None:
    async with asyncio.timeout(LIMIT_S):
        assert await page.order_and_read(amqp_network.urls) == page.Order(7, Decimal("9.90"))


async def test_the_pages_own_codec_passes_rows(amqp_network: AmqpNetwork, page: Any) -> None:
    async with asyncio.timeout(LIMIT_S), oncewire.connect(amqp_network.urls) as client:
        rows = await client.subscriber("rows", codec=page.Rows())
        publisher = await client.publisher("rows", codec=page.Rows())
        _ = await publisher.submit([["a", "1"], ["b", "2"]])
        delivery = await rows.receive()
        assert delivery.value == [["a", "1"], ["b", "2"]]
        await delivery.accept()
