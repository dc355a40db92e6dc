"""Journals of an edge on the page of a router: in numbers, whose they are, and how far each reader is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from bridges.journal import cursors, log
from bridges.journal.contents import JOURNALS
from bridges.journal.model import Place
from oncewire.client import connect
from oncewire.store.contents import Contents
from oncewire.store.open_store import OpenStore
from oncewire.store.store import Transaction
from tests.edge.edge_process import EdgeProcess, running_edge, settings
from tests.inspector.page.browser import (
    TEST_TIMEOUT_S,
    accessibility_faults,
    columns_of,
    go,
    is_too_wide,
    looking_at,
    needs_axe,
    needs_browser,
    until_live,
    until_text,
)
from tests.inspector.page.scenes import HOSTILE
from tests.router.processes import RouterProcess, running_router
from tests.support.waiting import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(TEST_TIMEOUT_S)]
JOURNAL = '[[journal]]\nname = "orders"\ntopics = ["orders.#"]\nmax_bytes = "1MiB"\n[[journal]]\nname = "empty"\n'
MESSAGES = 5
READERS = (("|late|one", Place.FIRST), ("|far|behind", 3), (f"|{HOSTILE}|x", Place.NEXT))
PLACES = (("journals", "2 journals"), ("journals/orders", "late"))


@dataclass
class Shop:
    """A router that shows the store of an edge."""

    router: RouterProcess
    edge: EdgeProcess


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    folder: Path = tmp_path_factory.mktemp("shop")
    store = f"sqlite:///{folder}/edge.db"
    async with running_router("--standalone", f"--queue-store={store}") as router:
        text = settings(store, [router.url], JOURNAL, "edge-1")
        async with running_edge(folder / "edge.toml", text) as edge, connect(router.url) as client:
            async with client.publisher("orders.new") as publisher:
                for number in range(MESSAGES):
                    assert (await publisher.send(f"order {number}")).is_accepted
            async with OpenStore[Transaction].open(store, Contents([JOURNALS])) as opened:
                for reader, start in READERS:
                    await opened.transact(lambda do, r=reader, s=start: cursors.seek(do, "orders", r, s))  # type: ignore[misc]
                await opened.transact(lambda do: log.trim(do, "orders", 1))
            yield Shop(router, edge)


async def ask(shop: Shop, path: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"{shop.router.http}/api/v1/journals{path}") as answer:
        return answer.status, await answer.json()


async def test_a_router_shows_the_journals_of_its_store_and_which_edge_receives(shop: Shop) -> None:
    await until_owned(shop)
    status, answer = await ask(shop, "")
    empty, orders = answer["items"]
    assert (status, answer["total"], empty["journal"], empty["owner"]) == (200, 2, "empty", None)
    assert (orders["owner"], orders["messages"], orders["first"], orders["last"]) == ("edge-1", 4, 2, 5)
    assert (orders["reader_count"], orders["late_readers"], orders["reader_lag"]) == (3, 1, 4)
    assert orders["rate"] >= 0.0
    status, answer = await ask(shop, "/orders")
    assert [(each["reader"], each["unread"], each["is_late"]) for each in answer["readers"]] == [
        ("|late|one", 4, True),
        ("|far|behind", 3, False),
        (f"|{HOSTILE}|x", 0, False),
    ]
    status, answer = await ask(shop, "/nobody")
    assert (status, "there is no journal" in answer["error"]) == (404, True)


async def until_owned(shop: Shop) -> None:
    async def is_owned() -> bool:
        return (await ask(shop, ""))[1]["items"][1]["owner"] is not None

    await eventually(is_owned, "the edge has noted that it receives")


@needs_browser
async def test_journals_are_shown_in_numbers_and_one_leads_to_its_readers(shop: Shop, browser: Any) -> None:
    await until_owned(shop)
    async with looking_at(browser, shop.router.http) as page:
        await until_live(page)
        await page.keyboard.press("9")
        await until_text(page, "2 journals", "main")
        shown = await columns_of(page, "Journals", "Depth", "Owner", "Readers", "Lag")
        assert [" ".join(cell.split()) for cell in shown["orders"]] == ["4", "edge-1", "3", "4 1 late"]
        assert shown["empty"][:3] == ["0", "–", "0"]
        await page.click("main a:has-text('orders')")
        await until_text(page, "4 messages, positions 2 to 5", "main")
        readers = await columns_of(page, "Readers of orders", "Next", "Unread", "State")
        assert readers["|late|one"] == ["1", "4", "late: its next message was trimmed"]
        assert next(iter(readers)) == "|late|one", "the one with most to read first"
        assert await page.title() == "Journal · " + (await page.inner_text("#router-name")) + " · Oncewire"


@needs_browser
async def test_a_journal_that_is_not_there_is_one_clear_error(shop: Shop, browser: Any) -> None:
    async with looking_at(browser, shop.router.http, expect_errors=True) as page:
        await until_live(page)
        await go(page, "journals/nobody")
        await until_text(page, "there is no journal 'nobody'", ".problem")


@needs_axe
@pytest.mark.parametrize("is_dark", [False, True])
async def test_the_views_of_journals_are_accessible(shop: Shop, browser: Any, is_dark: bool) -> None:
    async with looking_at(browser, shop.router.http, dark=is_dark) as page:
        await until_live(page)
        for place, text in PLACES:
            await go(page, place)
            await until_text(page, text, "main")
            assert await accessibility_faults(page) == [], place


@needs_browser
async def test_no_view_of_journals_is_wider_than_a_phone(shop: Shop, browser: Any) -> None:
    async with looking_at(browser, shop.router.http, phone=True) as page:
        await until_live(page)
        for place, text in PLACES:
            await go(page, place)
            await until_text(page, text, "main")
            assert not await is_too_wide(page), place
