"""The page of a router that is alone: everything is there, nothing is wrong, and every way of using it works."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from oncewire.client import connect
from tests.inspector.page.browser import (
    TEST_TIMEOUT_S,
    VIEWS,
    accessibility_faults,
    go,
    is_too_wide,
    looking_at,
    needs_axe,
    needs_browser,
    table_of,
    take_pictures,
    until_live,
    until_text,
)
from tests.inspector.page.scenes import Scene, empty_network
from tests.router.processes import running_router

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(TEST_TIMEOUT_S), needs_browser]

MANY = 230
"""Subscriptions: more than a page of 200."""
WATCH_COUNT = """() => {
    window.disagreed = [];
    const said = document.querySelector("main [role=status]"), rows = document.querySelector("main tbody").rows;
    new MutationObserver(() => {
        if (parseInt(said.textContent) !== rows.length) disagreed.push([said.textContent, rows.length]);
    }).observe(document.querySelector("main"), {subtree: true, childList: true, characterData: true});
}"""
"""Notes each moment at which the count above a table is not that of its rows."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene() -> AsyncIterator[Scene]:
    async with empty_network() as found:
        yield found


async def test_an_empty_network_is_shown_as_one_that_is_well(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, scene.http()) as page:
        await until_live(page)
        await until_text(page, "Nothing needs attention.")
        await until_text(page, "ready", "#router-state")
        assert [row[0] for row in await table_of(page, "Routers")] == ["r1 this router"]
        await until_text(page, "A router that is alone has none.")
        for place, text in (
            ("topics", "Nobody publishes or subscribes."),
            ("waiting", "No publisher has waited for over a second."),
            ("clients", "No client is connected."),
            ("router", "No neighbour."),
            ("events", "router started"),
            ("topics/none", "No subscription: what is published here goes nowhere."),
        ):
            await go(page, place)
            await until_text(page, text, "main")
        assert await page.title() == "Topic · r1 · Oncewire"
    await take_pictures(browser, scene.http(), "empty-network", "", "Nothing needs attention.")


@needs_axe
async def test_every_view_is_accessible(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, scene.http()) as page:
        await until_live(page)
        for place in VIEWS:
            await go(page, place)
            await page.wait_for_selector("#views a[aria-current=page]")
            assert await accessibility_faults(page) == [], place


async def test_no_view_is_wider_than_a_phone(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, scene.http(), phone=True) as page:
        await until_live(page)
        for place in VIEWS:
            await go(page, place)
            assert not await is_too_wide(page), place


async def test_all_of_it_can_be_used_by_keyboard(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, scene.http()) as page:
        await until_live(page)
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.id") == "skip"
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.activeElement.id") == "content"
        for key, heading in (("2", "Topics"), ("6", "Events of all routers"), ("5", "A delivery")):
            await page.keyboard.press(key)
            await page.wait_for_selector(f'h1:has-text("{heading}")')
        await page.keyboard.press("/")
        assert await page.evaluate("document.activeElement.name") == "tag"
        await page.keyboard.type("2")
        await page.keyboard.press("Escape")
        await page.keyboard.press("?")
        await page.wait_for_selector("dialog[open]")
        await page.keyboard.press("Escape")
        await page.wait_for_selector("dialog", state="detached")
        assert await page.input_value("input[name=tag]") == "2"
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        await page.keyboard.press("Tab")
        assert await page.evaluate(outline) == "solid"


async def test_single_keys_can_be_switched_off(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, scene.http()) as page:
        await until_live(page)
        await page.keyboard.press("?")
        await page.get_by_label("Single keys do this").uncheck()
        await page.get_by_role("button", name="Close").click()
        await page.keyboard.press("2")
        await until_text(page, "Nothing needs attention.")
        assert "topics" not in page.url


async def test_a_chosen_theme_stays_and_the_systems_is_used_without_one(scene: Scene, browser: Any) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    async with looking_at(browser, scene.http(), dark=True) as page:
        await until_live(page)
        dark = await page.evaluate(colour)
        await page.click("#theme")
        light = await page.evaluate(colour)
        assert dark != light
        await page.reload()
        assert await page.evaluate(colour) == light
        await page.emulate_media(reduced_motion="reduce")
        assert await page.evaluate("getComputedStyle(document.getElementById('theme')).transitionDuration") == "0s"


async def test_without_the_library_there_are_tables_and_the_command_that_fetches_it(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, "about:blank", expect_errors=True) as page:
        await page.route("**/vendor/*", lambda route: route.fulfill(status=404))
        await page.goto(scene.http())
        await until_text(page, "make inspector-map", "main")
        assert [row[0] for row in await table_of(page, "Routers")] == ["r1 this router"]


async def test_who_may_only_look_is_offered_nothing_to_change(browser: Any) -> None:
    async with (
        running_router("--standalone", "--http-loopback-role=viewer") as router,
        looking_at(browser, f"{router.http}/#/router") as page,
    ):
        await until_text(page, "You may look, not change anything.", "main")
        assert await page.get_by_role("link", name="Log in").count() == 1
        assert await page.get_by_role("button", name="Drain").count() == 0


USERS = ("--users=vera:pw,olga:pw,anna:pw", "--roles=vera=viewer,olga=operator,anna=admin")


@pytest.mark.parametrize(("user", "drains", "reloads"), [("olga", 1, 0), ("anna", 1, 1)])
async def test_who_logs_in_from_the_page_may_do_what_their_role_allows(
    browser: Any, user: str, drains: int, reloads: int
) -> None:
    async with (
        running_router("--standalone", *USERS, "--http-loopback-role=viewer") as router,
        looking_at(browser, f"{router.http}/#/router", login=(user, "pw")) as page,
    ):
        await until_text(page, "You may look, not change anything.", "main")
        await page.get_by_role("link", name="Log in").click()
        await until_text(page, "Drain and stop", "main")
        assert await page.get_by_role("button", name="Drain and stop").count() == drains
        assert await page.get_by_role("button", name="Reload settings").count() == reloads
        # The change goes with the login, too.
        await page.get_by_role("button", name="Log level").click()
        await page.select_option("select[name=level]", "debug")
        await page.get_by_role("button", name="Set it").click()
        await until_text(page, "The log level is debug now.", "dialog")


async def test_a_router_that_shows_nobody_anything_asks_for_a_login(browser: Any) -> None:
    roles = ("--http-loopback-role=none", "--http-anonymous-role=none")
    async with (
        running_router("--standalone", *USERS, *roles) as router,
        looking_at(browser, f"{router.http}/#/router", login=("vera", "pw")) as page,
    ):
        await until_live(page)
        await until_text(page, "You may look, not change anything.", "main")


async def test_what_was_not_reported_is_not_said_to_be_empty(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, scene.http(), expect_errors=True) as page:
        await until_live(page)
        refusal = {"error": "not now", "fix": "wait"}
        await page.route("**/api/v1/*", lambda asked: asked.fulfill(status=503, json=refusal))
        for place in ("waiting", "clients", "clients/subscriptions", "router"):
            await go(page, place)
            await until_text(page, "not now", "main")
            shown = await page.inner_text("main")
            assert not re.search(r"\bNo (publisher|subscription|client|such|neighbour|channel)", shown), shown


async def test_what_does_not_fit_on_a_page_is_fetched_when_asked_for(scene: Scene, browser: Any) -> None:
    async with connect(scene.network.routers["r1"].url, container_id="many") as client:
        for number in range(MANY):
            _ = await client.subscriber("many", name=f"s{number:03}", timeout=1)
        async with looking_at(browser, f"{scene.http()}/#/clients/subscriptions") as page:
            await until_text(page, f"200 of {MANY}")
            await page.evaluate(WATCH_COUNT)
            await page.get_by_role("button", name="Show more").click()
            await until_text(page, f"{MANY} subscriptions")
            assert len(await table_of(page, "Subscriptions")) == MANY
            await page.get_by_label("Filter subscriptions").fill("s12")
            await until_text(page, "10 subscriptions")
            assert len(await table_of(page, "Subscriptions")) == 10
            assert await page.evaluate("disagreed") == []


async def test_a_lost_router_is_reported_and_found_again(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, scene.http(), expect_errors=True) as page:
        await until_live(page)
        await scene.network.kill("r1")
        await until_text(page, "Connection lost.", "#lost")
        await until_text(page, "The last data are", "#lost")
        await until_text(page, "connection lost", "#feed")
        # Nothing that was true before is still said to be.
        assert await page.inner_text("#router-state") == "no answer"
        assert (await page.inner_text("ul.notes")).startswith("The router of this page does not answer.")
        await scene.network.restart("r1")
        await page.wait_for_selector("#lost", state="hidden")
        await until_live(page)
        await until_text(page, "Nothing needs attention.")
        await until_text(page, "ready", "#router-state")
