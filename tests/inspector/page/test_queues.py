"""Work queues on the page: in numbers, what ended, one item, and its replay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from bridges.workqueue import Queue
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

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(TEST_TIMEOUT_S), needs_browser]
PLACES = ("queues", "queues/mails", "queues/mails/1")


@dataclass
class Shop:
    """A router, and the store whose queues it shows."""

    router: RouterProcess
    url: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    url = f"sqlite:///{tmp_path_factory.mktemp('shop') / 'work.db'}"
    async with Queue.open(url, "mails", max_retries=0) as mails:
        await mails.push({"to": HOSTILE})
        (failed,) = await mails.reserve_many(1)
        await failed.rollback("no such address")
        await mails.push({"to": "ada"})
        await mails.pop()
        await mails.push({"to": "bob"})
    async with running_router("--standalone", f"--queue-store={url}") as router:
        yield Shop(router, url)


async def test_queues_are_shown_in_numbers_and_one_leads_to_what_ended(shop: Shop, browser: Any) -> None:
    async with looking_at(browser, shop.router.http) as page:
        await until_live(page)
        await page.keyboard.press("8")
        await until_text(page, "1 queue", "main")
        shown = await columns_of(page, "Work queues", "Depth", "Ready", "Reserved", "Dead", "Ended in the last minute")
        assert shown["mails"][:4] == ["1", "1", "0", "1"]
        await page.click("main a:has-text('mails')")
        await until_text(page, "no such address", "main")
        assert list(await columns_of(page, "What ended", "Ending")) == ["2", "1"], "newest first"
        await page.click("button:has-text('dead letters')")
        await until_text(page, "1 entry", "main")
        await page.click("main a:has-text('1')")
        await until_text(page, HOSTILE, "main pre")
        assert await page.title() == "Item · " + (await page.inner_text("#router-name")) + " · Oncewire"


async def test_a_dead_letter_is_replayed_from_the_page_once(shop: Shop, browser: Any) -> None:
    async with looking_at(browser, shop.router.http, expect_errors=True) as page:
        await until_live(page)
        await go(page, "queues/mails")
        await page.click("button[aria-label='Replay entry 1']")
        await until_text(page, "with retries from zero", "dialog")
        async with Queue.open(shop.url, "mails") as mails:
            assert (await mails.statistics()).ready == 1, "the dialog alone changes nothing"
            await page.click("dialog button:has-text('Replay it')")
            await until_text(page, "is in the queue mails", "dialog")
            numbers = await mails.statistics()
            assert (numbers.ready, numbers.dead) == (2, 0)
        await page.click("dialog button:has-text('Close')")
        await until_text(page, "replayed", "main table")
        await page.click("button[aria-label='Replay entry 1']")
        await page.click("dialog button:has-text('Replay it')")
        await until_text(page, "was replayed before", "dialog .problem")


async def test_a_viewer_sees_neither_payloads_nor_how_to_replay(shop: Shop, browser: Any) -> None:
    viewer = ("--standalone", f"--queue-store={shop.url}", "--http-loopback-role=viewer")
    async with running_router(*viewer) as router, looking_at(browser, router.http) as page:
        await until_live(page)
        await go(page, "queues/mails")
        await until_text(page, "popped", "main")
        assert not await page.query_selector("main button[aria-label^=Replay]")
        await go(page, "queues/mails/2")
        await until_text(page, "The payload is shown to admins.", "main")
        assert "ada" not in await page.inner_text("main")
        assert not await page.query_selector("main button[aria-label^=Replay]")


async def test_a_router_without_a_store_has_no_such_view(browser: Any) -> None:
    async with running_router("--standalone") as alone, looking_at(browser, alone.http) as page:
        await until_live(page)
        assert await page.is_hidden("#views a[href='#/queues']")
        await page.keyboard.press("8")
        assert await page.evaluate("location.hash") in ("", "#/")
        await go(page, "queues")
        await until_text(page, "This router shows no queues and journals", "main")


@needs_axe
async def test_the_views_are_accessible(shop: Shop, browser: Any) -> None:
    async with looking_at(browser, shop.router.http) as page:
        await until_live(page)
        for place in PLACES:
            await go(page, place)
            await page.wait_for_selector("main .panel")
            assert await accessibility_faults(page) == [], place


async def test_no_view_is_wider_than_a_phone(shop: Shop, browser: Any) -> None:
    async with looking_at(browser, shop.router.http, phone=True) as page:
        await until_live(page)
        for place in PLACES:
            await go(page, place)
            await page.wait_for_selector("main .panel")
            assert not await is_too_wide(page), place
