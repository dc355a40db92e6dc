"""The page of a network at work: who is where, who holds what, one delivery's life, and changes made from the page."""

from __future__ import annotations

import asyncio
import re
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
    is_too_wide,
    looking_at,
    needs_axe,
    needs_browser,
    picture,
    pictures_are_wanted,
    table_of,
    take_pictures,
    until_live,
    until_text,
)
from tests.inspector.page.scenes import DEADLINE_S, HOSTILE, Scene, accept, busy_network, empty_network
from tests.router.relay import assert_no_internal_error

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(TEST_TIMEOUT_S), needs_browser]

PICTURED_S = 100.0
"""Before pictures are taken: a third of what a picture of rates shows."""
WHOLE = ("network", "delivery")
"""Pictures of these show the whole page, not only what fits on the screen."""
PLACES = ("", "topics", "topics/orders", "waiting", "clients/connections", "clients/subscriptions", "events", "router")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder: Path = tmp_path_factory.mktemp("routers")
    async with busy_network(folder) as found:
        _ = await found.until_waits(2, 1.0)
        yield found
    assert_no_internal_error(folder)


async def test_the_map_and_its_tables_show_routers_links_and_best_paths(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, scene.http()) as page:
        await until_live(page)
        await page.wait_for_selector("[aria-label^='Map of 3 routers and 3 links']")
        drawn = """() => [...document.querySelectorAll(".map-canvas canvas")].some(canvas => {
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return pixels.some((value, index) => index % 4 === 3 && value > 0);
        })"""
        await page.wait_for_function(drawn)
        routers = await columns_of(page, "Routers", "State", "Next hop", "Cost")
        assert routers == {
            "r1 this router": ["serving", "–", "0"],
            "r2": ["serving", "r2", "1"],
            "r3": ["serving", "r2", "3"],
        }
        best = {name for name, (word,) in (await columns_of(page, "Links", "Best")).items() if word == "yes"}
        assert best == {"r1 → r2", "r2 → r3"}


async def test_each_publisher_is_shown_with_the_subscription_it_waits_for(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, f"{scene.http()}/#/waiting") as page:
        await until_text(page, "till-2/sales", "main")
        holders = await table_of(page, "Subscriptions that publishers wait for")
        why = "in doubt its client has it and has not answered"
        assert [row[:5] for row in holders] == [["slow-printer/labels", "orders", why, "r1", "2"]]
        cards = await page.locator("article").all_inner_texts()
        assert len(cards) == 2
        for card in cards:
            assert "slow-printer/labels" in card
            assert re.search(r"client\s+127\.0\.0\.1:\d+", card), card
            assert re.search(r"Window\s*\d+ of [\d\s]+[\d.]+ k?B", card), card
        first = await page.locator("article .for .age").first.inner_text()
        await page.wait_for_function("old => document.querySelector('article .for .age').innerText !== old", arg=first)


async def test_every_page_says_who_waits_in_the_network_and_badge_and_view_agree(scene: Scene, browser: Any) -> None:
    # The subscription that all wait for is at r1; r3 has neither it nor a publisher that waits.
    for router in ("r1", "r3"):
        async with looking_at(browser, scene.http(router)) as page:
            await until_text(page, "2 publishers waited over 10 s.", "ul.notes")
            held = "For 1 subscription of this router deliveries have waited over 10 s"
            if router == "r1":
                await until_text(page, held, "ul.notes")
            else:
                assert held not in await page.inner_text("ul.notes")
            badge = page.locator("#views a[href='#/waiting'] .count")
            await until_text(page, "2", "#views a[href='#/waiting'] .count")
            await go(page, "waiting")
            await until_text(page, "2 publishers wait, for 1 subscription", "main")
            assert await badge.inner_text() == "2"


async def test_a_deliverys_record_has_the_six_fields_and_the_rules(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, f"{scene.http()}/#/waiting") as page:
        await page.locator("article", has_text="till-2/sales").locator("a", has_text=re.compile("^00")).click()
        await page.wait_for_selector("section[aria-label='Record at router r2']")
        answer = await page.inner_text("section[aria-label=Answer]")
        assert "Not accepted yet: 1 of 3 subscriptions has not accepted it." in answer
        assert re.search(r"slow-printer/labels\s+in doubt\s+its client has it and has not answered\s+at r1", answer)
        labels = "[...document.querySelectorAll('main section')].map(each => each.getAttribute('aria-label'))"
        assert (await page.evaluate(labels))[0] == "Answer", "the answer comes first"
        record = await page.inner_text("section[aria-label='Record at router r2']")
        for part in ("SHA-256", "till-2/sales", "Its tag", "Network tag", "store/all", "accepted", "r1", "in doubt"):
            assert part in record, record
        assert '"an o' in record, "the first bytes are shown to an admin"
        rules = await page.inner_text("section[aria-label='Rules applied']")
        assert re.search(r"\+0 ms\s+r2\s+I-1\s+received", rules), rules
        assert re.search(r"r1\s+E-3\s+sent to subscription slow-printer/labels", rules), rules


async def test_a_delivery_that_is_settled_is_reported_by_its_rules(scene: Scene, browser: Any) -> None:
    async with scene.client("writer", "r3") as writer, scene.client("reader", "r1") as reader:
        publisher = await writer.publisher("letters", name="w")
        subscriber = await reader.subscriber("letters", name="r")
        sending = await publisher.submit(b"Dear reader")
        delivery = await subscriber.receive(timeout=DEADLINE_S)
        await delivery.accept()
        await sending
        await subscriber.unsubscribe()
        await publisher.close()
        await scene.until_forgotten(delivery.tag.hex())
    async with looking_at(browser, f"{scene.http()}/#/delivery/{delivery.tag.hex()}") as page:
        await page.wait_for_selector("section[aria-label='Record at router r3']")
        records = await page.locator("section[aria-label^='Record at router']").all_inner_texts()
        assert re.match(r"At router r3\s+the publisher's router; settled, and forgotten", records[0]), records
        assert re.match(r"At router r1\s+a router of its subscriptions; settled, and forgotten", records[1]), records
        assert not any(word in "".join(records) for word in ("body not held", "none", "undefined")), records


async def test_a_test_message_is_published_and_watched_until_it_is_accepted(scene: Scene, browser: Any) -> None:
    async with scene.client("reader", "r3") as reader, looking_at(browser, f"{scene.http()}/#/topics") as page:
        subscriber = await reader.subscriber("trials", name="slow")
        await page.click("text=Publish a test message…")
        await until_text(page, "It goes to all subscriptions of the topic", "dialog")
        await page.fill("input[name=topic]", "trials")
        await page.fill("textarea[name=body]", HOSTILE)
        await picture(page, "dialog-test-message", phone=False, dark=False)
        await page.click("dialog >> text=Publish it")
        await until_text(page, "It was not accepted within a second", "main")
        answer = "section[aria-label=Answer]"
        await until_text(page, "Not accepted yet: 1 of 1 subscriptions has not accepted it.", answer)
        await until_text(page, "reader/slow", answer)
        assert await accessibility_faults(page) == []
        delivery = await subscriber.receive(timeout=DEADLINE_S)
        assert delivery.body == HOSTILE.encode()
        await delivery.accept()
        await until_text(page, "It is settled: no router has a record of it any more.", answer)
        assert await page.locator("main img").count() == 0
        scene.start(accept(subscriber))
        await go(page, "topics/trials")
        await page.click("text=Publish a test message…")
        await page.click("dialog >> text=Publish it")
        await until_text(page, "The test message is published: accepted after", "main")
        await subscriber.unsubscribe()


async def test_a_tag_that_is_none_is_refused_with_what_to_do(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, f"{scene.http()}/#/delivery", expect_errors=True) as page:
        await page.fill("input[name=tag]", "xyz")
        await page.click("text=Look up")
        await until_text(page, "hex", ".problem")


async def test_a_hostile_name_is_shown_and_does_nothing(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, f"{scene.http()}/#/clients/subscriptions") as page:
        await until_text(page, f"billing/{HOSTILE}", "main")
        await go(page, "topics/prices.eur")
        await until_text(page, f"billing/{HOSTILE}", "main")
        await go(page, "events")
        assert await page.locator("img").count() == 0
        assert "owned" not in await page.title()


async def test_a_topic_shows_place_mode_and_lag_of_its_subscriptions_at_all_routers(scene: Scene, browser: Any) -> None:
    rows = {row["name"]: row for row in (await scene.get("subscriptions?topic=orders"))["items"]}
    async with looking_at(browser, f"{scene.http()}/#/topics/orders") as page:
        await until_text(page, "slow-printer/labels", "section[aria-label=Subscriptions]")
        await page.wait_for_function("() => !document.querySelector('main table').innerText.includes('elsewhere')")
        heads = ("State", "Router", "Mode", "Lag", "Client")
        shown = await columns_of(page, "Subscriptions of the topic orders", *heads)
        assert set(shown) == set(rows)
        slow = dict(zip(heads, shown["slow-printer/labels"], strict=True))
        assert (slow["State"], slow["Router"], slow["Mode"]) == ("attached", "r1", "exactly-once")
        assert int(slow["Lag"]) > 0
        assert slow["Client"] == rows["slow-printer/labels"]["peer"]
        assert int(shown["store/all"][heads.index("Lag")]) >= 0, "r2 was asked"


async def test_columns_of_texts_that_no_row_has_are_left_out(scene: Scene, browser: Any) -> None:
    heads = "main thead th:visible"
    async with looking_at(browser, f"{scene.http()}/#/clients/subscriptions") as page:
        await until_text(page, "6 subscriptions", "main")
        shown = await page.locator(heads).all_text_contents()
        assert not {"Filter", "Member of", "User"} & {head.strip() for head in shown}
        async with scene.client("reader", "r2") as reader:
            subscriber = await reader.subscriber("orders", name="red", selector="color = 'red'")
            await until_text(page, "color = 'red'", "main")
            shown = await page.locator(heads).all_text_contents()
            assert "Filter" in {head.strip() for head in shown}
            assert "Member of" not in {head.strip() for head in shown}
            await subscriber.unsubscribe()
        await page.wait_for_function("() => !document.querySelector('main').innerText.includes(\"color = 'red'\")")
        shown = await page.locator(heads).all_text_contents()
        assert "Filter" not in {head.strip() for head in shown}


async def test_one_switch_shows_the_whole_network_or_this_router_in_all_views(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, f"{scene.http()}/#/clients/connections") as page:
        await until_text(page, "7 connections", "main")
        await page.locator("#scope input").uncheck()
        await until_text(page, "3 connections", "main")
        for place, text, others in (
            ("clients/subscriptions", "audit/log", "store/all"),
            ("clients/publishers", "till-1/sales", "till-2/sales"),
            ("topics/orders", "slow-printer/labels", "billing/eu-west-1"),
            ("waiting", "till-1/sales", "till-2/sales"),
            ("events", "Events of this router", "Events of all routers"),
            ("router", "Neighbours", "At"),
            ("", "Wait here over 10\u00a0s", "Links, each way"),
        ):
            await go(page, place)
            await until_text(page, text, "main")
            cells = await page.locator("main th, main td, main h1, main h3").all_inner_texts()
            assert others not in cells, place
        assert await page.locator("main .quiet:text-is('–')").count() == 0, "what is not known is not shown"
        await page.reload()
        await until_live(page)
        assert not await page.locator("#scope input").is_checked(), "the browser keeps it"
        await page.keyboard.press("n")
        await go(page, "clients/subscriptions")
        await until_text(page, "6 subscriptions", "main")
        assert all(state == "attached" for (state,) in (await columns_of(page, "Subscriptions", "State")).values())


async def test_rates_are_shown_with_their_last_five_minutes(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, f"{scene.http()}/#/topics") as page:
        row = "//tr[contains(., 'prices.eur')]"
        await page.wait_for_selector(f"{row}//*[local-name()='svg']")
        shown = await columns_of(page, "Topics", "Published", "Delivered", "Accepted")
        published, delivered, accepted = shown["prices.eur"]
        assert re.fullmatch(r"[\d.]+/s", published)
        assert re.fullmatch(r"[\d.]+/s", delivered)
        assert re.fullmatch(r"[\d.]+ m?s · [\d.]+ m?s", accepted)
        for place, caption in (("", "Routers"), ("", "Links"), ("clients/subscriptions", "Subscriptions")):
            await go(page, place)
            await page.wait_for_function(
                "caption => [...document.querySelectorAll('table')].some(t => t.caption.textContent.startsWith(caption)"
                " && t.querySelector('svg.spark'))",
                arg=caption,
            )


async def test_the_map_and_the_notes_name_where_the_stuck_subscription_is(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, scene.http("r3")) as page:
        await page.wait_for_selector("[aria-label*='1 stuck subscription at r1']")
        await until_text(page, "Subscription slow-printer/labels at r1 is stuck (in doubt)", "ul.notes")
        await page.click("ul.notes a:text('slow-printer/labels')")
        await until_text(page, "Publishers that wait for it", "main")
        await until_text(page, "exactly-once", "main .facts")
        facts = await page.inner_text("main .facts")
        assert re.search(r"Topic\s+orders\s+Router\s+r1\s+Mode\s+exactly-once", facts), facts
        assert await page.locator("main article").count() == 2


async def test_names_lead_to_their_views(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, f"{scene.http()}/#/waiting") as page:
        await page.click("article a:text('till-2/sales')")
        await page.wait_for_selector("h1:has-text('Publishers / till-2/sales')")
        await until_text(page, "What it waits for", "main")
        await until_text(page, "of", "main .window")
        await page.click("main .facts a:has-text('127.0.0.1')")
        await until_text(page, "1 connection", "main")
        assert list(await columns_of(page, "Connections", "Router")) == ["till-2"]
        await page.click("main table a:text-is('r2')")
        await page.wait_for_selector("h2:has-text('Router r2')")
        await go(page, "events")
        await page.click("main .fields a:text-is('orders') >> nth=0")
        await page.wait_for_selector("h1:has-text('Topics / orders')")


@needs_axe
@pytest.mark.parametrize(("phone", "dark"), [(False, False), (True, True)], ids=["desktop-light", "phone-dark"])
async def test_every_view_with_rows_is_accessible(scene: Scene, browser: Any, *, phone: bool, dark: bool) -> None:
    tag = (await scene.until_waits(1, 1.0))[0]["oldest_tag"]
    async with looking_at(browser, scene.http(), phone=phone, dark=dark) as page:
        await until_live(page)
        for place in (*PLACES, f"delivery/{tag}"):
            await go(page, place)
            await page.wait_for_selector("main h1")
            await page.wait_for_function("() => !document.querySelector('main').innerText.includes('Asking')")
            assert await accessibility_faults(page, only_colours=dark) == [], place
            assert not await is_too_wide(page), place


async def test_news_leave_a_button_in_use_where_it_is(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, f"{scene.http()}/#/router") as page:
        await until_text(page, "Drain and stop", "main")
        await page.focus("text=Log level…")
        facts = "() => [...document.querySelectorAll('.facts dd')].at(-1).innerText"
        before = await page.evaluate(facts)
        async with scene.client("visitor", "r1"):
            await page.wait_for_function(f"before => ({facts})() !== before", arg=before)
        assert await page.evaluate("document.activeElement.innerText") == "Log level…"


async def test_news_change_rows_in_place_and_leave_the_focus_alone(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, f"{scene.http()}/#/topics/stock") as page:
        await until_text(page, "store/shelf", "main")
        await page.focus("[aria-label='End the subscription store/shelf']")
        await page.evaluate("() => { document.activeElement.closest('tr').id = 'marked'; }")
        client = scene.clients["audit"]
        subscriber = await client.subscriber("stock", name="counting")
        await until_text(page, "audit/counting", "main")
        assert await page.evaluate("document.activeElement.closest('tr').id") == "marked"
        await subscriber.unsubscribe()
        await page.wait_for_function("() => !document.querySelector('main').innerText.includes('audit/counting')")


@pytest.mark.parametrize(
    ("name", "place", "text"),
    [
        ("network", "", "Who holds what"),
        ("topics", "topics", "prices.eur"),
        ("topic", "topics/orders", "stuck"),
        ("waiting", "waiting", "till-1/sales"),
        ("delivery", "delivery/{tag}", "At router r1"),
        ("subscriptions", "clients/subscriptions", "audit/log"),
        ("subscription", "clients/subscriptions/{key}", "Publishers that wait for it"),
        ("events", "events", "subscriber attached"),
        ("router", "router", "Drain and stop"),
    ],
)
async def test_pictures_of_a_busy_network(scene: Scene, browser: Any, name: str, place: str, text: str) -> None:
    waits = await scene.until_waits(2, PICTURED_S if pictures_are_wanted() else 1.0)
    wait = next(row for row in waits if row["router"] == "r2")
    place = place.format(tag=wait["oldest_tag"], key=wait["waiting_for"][0]["key"])
    await take_pictures(browser, scene.http(), f"busy-{name}", place, text, whole=name in WHOLE)


async def test_a_changed_cost_moves_the_best_path_on_the_page(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, scene.http()) as page:
        await until_live(page)
        await page.click("[aria-label='Change the cost of the link from r1 to r3']")
        await until_text(page, "None is lost, duplicated or reordered", "dialog")
        await picture(page, "dialog-cost", phone=False, dark=False)
        await page.fill("input[name=cost]", "1")
        await page.keyboard.press("Enter")
        await until_text(page, "From r1 to r3 it costs 1 now.", "dialog")
        await page.click("dialog >> text=Close")
        await page.wait_for_function(
            """() => [...document.querySelectorAll("tr")].some(row => row.innerText.includes("r1 → r3")
                && [...row.cells].some(cell => cell.innerText === "yes"))"""
        )


async def test_a_subscription_that_is_ended_lets_its_publishers_go_on(scene: Scene, browser: Any) -> None:
    await scene.clients["slow-printer"].abandon()
    async with looking_at(browser, f"{scene.http()}/#/waiting", dark=True) as page:
        await until_text(page, "detached", "main")
        await page.click("[aria-label='End the subscription slow-printer/labels']")
        await until_text(page, "Publishers that wait for it go on.", "dialog")
        await picture(page, "dialog-end-subscription", phone=False, dark=True)
        await page.click("dialog >> text=End it")
        await until_text(page, "The subscription slow-printer/labels has ended.", "dialog")
        await page.click("dialog >> text=Close")
        await until_text(page, "No publisher has waited for over a second.", "main")


async def test_what_the_router_refuses_is_shown_with_what_to_do(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, f"{scene.http()}/#/topics/stock", expect_errors=True) as page:
        await page.click("[aria-label='End the subscription store/shelf']")
        await until_text(page, "End the subscription store/shelf?", "dialog")
        store = scene.clients["store"]
        await store.abandon()
        async with scene.client("store", "r3") as again:
            _ = await again.subscriber("stock", name="shelf")
            await page.click("dialog >> text=End it")
            await until_text(page, "has changed since epoch", "dialog .problem")


CUT = """() => [
    ...[...document.querySelectorAll(".tile")].filter((tile) => {
      const frame = tile.parentElement.getBoundingClientRect();
      const range = document.createRange();
      range.selectNodeContents(tile);
      const text = range.getBoundingClientRect();
      return text.right > frame.right + 1 || text.bottom > frame.bottom + 1 || tile.scrollWidth > tile.clientWidth + 1;
    }).map((tile) => tile.innerText),
    ...[...document.querySelectorAll(".scroller")].filter((each) => each.scrollWidth > each.clientWidth + 1)
      .map((each) => each.querySelector("caption").textContent),
]"""


@pytest.mark.parametrize(("width", "phone"), [(1280, False), (1024, False), (390, True)])
async def test_no_tile_is_cut_and_no_table_of_the_first_view_scrolls_sideways(
    scene: Scene, browser: Any, width: int, *, phone: bool
) -> None:
    async with looking_at(browser, f"{scene.http()}/#/?router=r3", phone=phone) as page:
        await page.set_viewport_size({"width": width, "height": 800})
        await table_of(page, "Routers")
        times = "[...document.querySelectorAll('.flat .value')].at(-1)?.innerText"
        await page.wait_for_function(f"() => /\\d\\sm?s . \\d/.test({times})")
        assert await page.evaluate(CUT) == []


async def test_a_client_of_another_router_leads_to_the_page_that_can_close_it(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, f"{scene.http()}/#/clients/connections") as page:
        row = page.locator("tr", has_text="till-2")
        link = row.locator("a:has-text('Close at r2')")
        await link.wait_for()
        assert (await link.get_attribute("href") or "").startswith(f"{scene.http('r2')}/#/clients/connections")
        assert await link.get_attribute("title") == "A router closes its own connections only"
        assert await page.locator("tr", has_text="till-1").locator("button", has_text="Close").count() == 1


async def test_a_rate_that_is_zero_now_is_shown_with_that_of_the_last_minute(scene: Scene, browser: Any) -> None:
    async with looking_at(browser, scene.http()) as page:
        shown = """points => import("/inspector/tiles.js").then(
            ({ rateTile }) => rateTile("Published", points.at(-1), points).textContent)"""
        rest = [0] * 40 + [12] * 3 + [0] * 9
        assert await page.evaluate(shown, rest) == "0Published, 3.0/s in the last minute"
        assert await page.evaluate(shown, [*rest, 7]) == "7.0/sPublished"
        assert await page.evaluate(shown, [0] * 60) == "0Published"


async def test_times_of_acceptance_at_rest_are_those_of_the_last_minute(browser: Any) -> None:
    async with empty_network() as quiet, quiet.client("till", "r1") as till, AsyncExitStack() as stack:
        quiet.start(accept(await till.subscriber("orders", name="all")))
        publisher = await till.publisher("orders", name="sales")
        page = await stack.enter_async_context(looking_at(browser, quiet.http()))
        times = "document.querySelector('.flat .tile:last-child')?.innerText"
        async with asyncio.timeout(DEADLINE_S):  # until one is timed
            while not (await quiet.get("rates/routers"))["items"] or "ms" not in str(await page.evaluate(times)):
                await publisher.send(b"an order")
        shown = r"/\d\sms · [\d.]+\sms\s+Accepted p50 · p99, in the last minute/"
        await page.wait_for_function(f"() => {shown}.test({times})")
        for place, label in (("", "Accepted p99, slowest router"), ("topics/orders", "Accepted p99")):
            await go(page, place)
            await page.locator(".tile", has_text=f"{label}, in the last minute").wait_for()
