"""The page of a network that breaks: a router is killed, the way to another is cut with it, and this one drains."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.inspector.page.browser import (
    TEST_TIMEOUT_S,
    accessibility_faults,
    go,
    looking_at,
    needs_axe,
    needs_browser,
    picture,
    table_of,
    until_live,
    until_text,
)
from tests.inspector.page.scenes import Scene, assert_no_internal_error, broken_network

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(TEST_TIMEOUT_S), needs_browser]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder: Path = tmp_path_factory.mktemp("routers")
    async with broken_network(folder) as found:
        yield found
    assert_no_internal_error(folder)


@needs_axe
async def test_a_killed_router_and_a_cut_are_seen_as_they_happen(scene: Scene, browser: Any) -> None:
    """All four ways of looking at once, because they were there when it happened."""
    async with (
        looking_at(browser, scene.http()) as page,
        looking_at(browser, scene.http(), dark=True) as dark,
        looking_at(browser, scene.http(), phone=True) as phone,
        looking_at(browser, scene.http(), phone=True, dark=True) as dark_phone,
    ):
        pages = (page, dark, phone, dark_phone)
        for each in pages:
            await each.wait_for_selector("[aria-label^='Map of 4 routers and 3 links']")
        await scene.network.kill("r3")
        await until_text(page, "Router r4 cannot be reached from here: no path leads there.")
        for each in pages:
            await until_text(each, "Router r3 is gone; its key in etcd ended.")
        states = {row[0]: row[1].split("\n")[0].split(" ")[0] for row in await table_of(page, "Routers")}
        assert states == {"r1 this router": "serving", "r2": "serving", "r3": "gone", "r4": "unreachable"}
        links = {row[0]: row[1].split("\n")[0].split(" ")[0] for row in await table_of(page, "Links")}
        assert (links["r1 → r2"], links["r2 → r3"]) == ("up", "gone")
        assert await accessibility_faults(page) == []
        assert await accessibility_faults(dark, only_colours=True) == []
        for each, is_phone, is_dark in zip(pages, (False, False, True, True), (False, True, False, True), strict=True):
            await picture(each, "broken-network", phone=is_phone, dark=is_dark)


async def test_who_waits_names_routers_that_cannot_be_asked(scene: Scene, browser: Any) -> None:
    _ = await scene.until_waits(1, 1.0)
    async with looking_at(browser, f"{scene.http()}/#/waiting") as page:
        await until_text(page, "branch/all", "main")
        await until_live(page)
        for is_phone in (False, True):
            async with looking_at(browser, f"{scene.http()}/#/waiting", phone=is_phone) as other:
                await until_text(other, "branch/all", "main")
                await until_live(other)
                await picture(other, "broken-waiting", phone=is_phone, dark=False)


async def test_a_router_that_drains_says_so(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, scene.http(), expect_errors=True) as page:
        await until_live(page)
        await go(page, "router")
        await page.click("text=Drain and stop…")
        await until_text(page, "Send its clients to other routers, then stop", "dialog")
        await page.locator("dialog button[type=submit]").click()
        await until_text(page, "Router r1 drains, for", "dialog")
        await until_text(page, "draining", "#router-state")
