"""The page of a network that breaks: a router is killed, the way to another is cut with it, and this one drains."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.inspector.page.browser import (
    TEST_TIMEOUT_S,
    accessibility_faults,
    columns_of,
    go,
    looking_at,
    needs_axe,
    needs_browser,
    picture,
    pictures_are_wanted,
    take_pictures,
    until_live,
    until_text,
)
from tests.inspector.page.scenes import Scene, broken_network
from tests.router.raw_client import RawClient
from tests.router.relay import assert_no_internal_error

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(TEST_TIMEOUT_S), needs_browser]

PICTURES = ((False, False), (True, True), (False, True), (True, False))
"""Phone or not, dark or not."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder: Path = tmp_path_factory.mktemp("routers")
    async with broken_network(folder) as found:
        yield found
    assert_no_internal_error(folder)


@needs_axe
async def test_a_killed_router_and_a_cut_are_seen_as_they_happen(scene: Scene, browser: Any) -> None:
    async with AsyncExitStack() as stack:
        # All at once, because they were there when it happened.
        ways = PICTURES if pictures_are_wanted() else PICTURES[:2]
        pages = [
            await stack.enter_async_context(looking_at(browser, scene.http(), phone=phone, dark=dark))
            for phone, dark in ways
        ]
        for each in pages:
            await each.wait_for_selector("[aria-label^='Map of 4 routers and 3 links']")
        await scene.network.kill("r3")
        for each in pages:
            await until_text(each, "Router r4 cannot be reached from here: no path leads there.")
            await until_text(each, "Router r3 stopped, or lost its way to etcd.")
        states = first_words(await columns_of(pages[0], "Routers", "State"))
        assert states == {"r1 this router": "serving", "r2": "serving", "r3": "stopped", "r4": "unreachable"}
        links = first_words(await columns_of(pages[0], "Links", "State"))
        assert (links["r1 → r2"], links["r2 → r3"]) == ("up", "down")
        assert await accessibility_faults(pages[0]) == []
        assert await accessibility_faults(pages[1], only_colours=True) == []
        for each, (phone, dark) in zip(pages, ways, strict=True):
            await picture(each, "broken-network", phone=phone, dark=dark)


def first_words(rows: dict[str, list[str]]) -> dict[str, str]:
    """The state in each row, without how long it has been so."""
    return {name: state.split()[0] for name, (state,) in rows.items()}


async def test_the_subscription_that_cannot_be_reached_is_named(scene: Scene, browser: Any) -> None:
    wait = (await scene.until_waits(1, 1.0))[0]
    (holder,) = wait["waiting_for"]
    assert (holder["subscription"], holder["state"]) == ("branch/all", "unreachable"), "its client is not to blame"
    # A number the publisher has not come to: of that r4 has heard nothing, and its client has credit.
    later = wait["oldest_tag"][:22] + "f" * 16
    asked = await scene.get(f"holders?of={later}.{holder['key']}", "r4")
    assert asked == {"holders": {f"{later}.{holder['key']}": "underway"}}
    async with looking_at(browser, f"{scene.http()}/#/waiting") as page:
        await until_text(page, "branch/all", "main")
        await until_text(page, "no path leads to its router", "main")
    await take_pictures(browser, scene.http(), "broken-waiting", "waiting", "branch/all")


async def test_a_router_that_drains_says_so(scene: Scene, browser: Any) -> None:
    await unanswered(scene)
    async with looking_at(browser, scene.http(), expect_errors=True) as page:
        await until_live(page)
        await go(page, "router")
        await page.click("text=Drain and stop…")
        await until_text(page, "Redirect its clients to other routers, then stop", "dialog")
        await page.locator("dialog button[type=submit]").click()
        await until_text(page, "Router r1 drains, for", "dialog")
        await until_text(page, "draining", "#router-state")


async def unanswered(scene: Scene) -> None:
    """A client without a map has a delivery and says nothing of it: a drain waits for that, and can be looked at."""
    client = await RawClient.connect(scene.network.routers["r1"].amqp_port)
    subscriber = await client.subscriber("held", exactly_once=False)
    publisher = await client.publisher("held", exactly_once=False)
    publisher.send(b"1", b"1")
    _ = await subscriber.delivery()
