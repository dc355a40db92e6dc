"""docs/subscriptions.md and docs/filters.md: their snippets run, and their limits are those of the code."""

from __future__ import annotations

import re
from typing import Any

import pytest

from oncewire.client.deduplicating_core import IDS_PER_USER, USERS
from oncewire.client.message_identity import DIGEST_BYTES
from oncewire.filters import limits
from oncewire.filters.evaluation import FIELDS
from oncewire.filters.filter_set import SYMBOLS
from oncewire.wire.vocabulary import FILTER_CODES
from tests.docs.code_blocks import ROOT, blocks_of
from tests.router.processes import running_router

PAGES = [ROOT / "docs" / name for name in ("subscriptions.md", "filters.md")]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


async def test_the_snippet_receives_what_its_selector_chooses() -> None:
    async with running_router("--standalone") as router:
        assert await _functions()["red_orders"](router.url) == b"order 2"


async def test_the_snippet_shares_its_work() -> None:
    async with running_router("--standalone") as router:
        done = await _functions()["share_work"](router.url, 40)
    assert sum(done.values()) == 40
    assert min(done.values()) > 0


async def test_the_snippet_gets_each_customer_in_order() -> None:
    async with running_router("--standalone") as router:
        seen = await _functions()["follow_customers"](router.url, 20)
    assert [step for customer, step in seen if customer == "ann"] == list(range(20))
    assert [step for customer, step in seen if customer == "bob"] == list(range(20))


async def test_the_snippet_processes_a_message_once() -> None:
    async with running_router("--standalone") as router:
        assert await _functions()["once"](router.url) == [b"order 17", b"order 18"]


@pytest.mark.parametrize(
    ("name", "value"), [("IDS_PER_USER", IDS_PER_USER), ("USERS", USERS), ("DIGEST_BYTES", DIGEST_BYTES)]
)
def test_each_bound_of_kept_ids_stands_on_the_page(name: str, value: int) -> None:
    (row,) = [line for line in TEXT.splitlines() if f"| `{name}` |" in line]
    assert re.search(rf"\| {value}( \(a digest\))? \|", row)


def _functions() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for page in PAGES:
        for block in blocks_of(page):
            if block.language == "python":
                exec(compile(block.text, str(page), "exec"), names)
    return names


@pytest.mark.parametrize("symbol", SYMBOLS.values())
def test_each_filter_stands_on_the_page_with_its_code(symbol: str) -> None:
    (code,) = [code for code, of in FILTER_CODES.items() if of == symbol]
    written = f"0x{code:016X}" if code > 0xFFFF or "legacy" in symbol else f"0x{code:x}"
    assert f"| `{symbol}` | {written} |" in TEXT


@pytest.mark.parametrize("name", [name for name in vars(limits) if name.startswith("MAX_")])
def test_each_limit_stands_on_the_page(name: str) -> None:
    value = vars(limits)[name]
    (row,) = [line for line in TEXT.splitlines() if f"`{name}`" in line]
    shown = [int(number) * (1024 if unit else 1) for number, unit in re.findall(r"(\d+)( KiB)?", row)]
    assert value in shown


def test_each_name_of_jms_stands_on_the_page() -> None:
    assert all(f"`{name}`" in TEXT for name in FIELDS if name.startswith("JMS"))
