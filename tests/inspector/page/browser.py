"""A real chromium that looks at the page, and notices what no user would see: errors, violations, other sites."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pytest

from tests.support.requirements import TOOLS

needs_browser = pytest.mark.needs("chromium", "playwright", "map-library")
needs_axe = pytest.mark.needs("chromium", "playwright", "map-library", "axe")

AXE = TOOLS / "node_modules/axe-core/axe.min.js"
SCREENSHOTS_VARIABLE = "ONCEWIRE_SCREENSHOTS"
"""A folder for pictures; `make screenshots` sets it."""
TIMEOUT_MS = 60_000
"""Far more than anything takes on a busy machine."""
TEST_TIMEOUT_S = 300
"""A browser and a network in the fixtures, and several pages at once, on a machine that does other things, too."""
DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
VIEWS = ("", "topics", "waiting", "clients", "delivery", "events", "router")
MAX_COLOURS = 256
Colour: TypeAlias = tuple[int, int, int]


@asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
    """Debian's chromium, without a window."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def looking_at(
    browser: Any,
    url: str,
    *,
    phone: bool = False,
    dark: bool = False,
    expect_errors: bool = False,
    login: tuple[str, str] | None = None,
) -> AsyncIterator[Any]:
    """The page at an address, as Playwright's Page.

    At the end the browser must have had nothing to complain about, and must have asked nobody but this router.

    Args:
        browser: from `chromium`.
        url: a router's HTTP address.
        phone: 390 pixels wide, with touch; else 1440.
        dark: what the system asks for.
        expect_errors: the router goes away, and the browser complains of that.
        login: user and password, given when a login is asked for; the browser then keeps it as for a person.
    """
    context = await browser.new_context(
        viewport=PHONE if phone else DESKTOP,
        color_scheme="dark" if dark else "light",
        is_mobile=phone,
        has_touch=phone,
        locale="en-GB",
        timezone_id="UTC",
        http_credentials=login and {"username": login[0], "password": login[1]},
    )
    context.set_default_timeout(TIMEOUT_MS)
    page = await context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    # News of the router are always on their way, so only the address is waited for.
    host = urlsplit(url).netloc
    page.on("request", lambda asked: complaints.append(asked.url) if urlsplit(asked.url).netloc != host else None)
    try:
        await page.goto(url, wait_until="load")
        yield page
        assert expect_errors or not complaints, complaints
    finally:
        await context.close()


async def go(page: Any, place: str) -> None:
    """Show a view: "topics/orders", "" for the first."""
    await page.evaluate("place => { location.hash = '#/' + place }", place)


async def until_text(page: Any, text: str, within: str = "body") -> None:
    """Wait until an element shows this text."""
    await page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.innerText.includes(text)", arg=[within, text]
    )


async def until_live(page: Any) -> None:
    """Wait for the first news of the router."""
    await page.wait_for_selector("#feed[data-state=live]")


async def table_of(page: Any, caption: str) -> list[list[str]]:
    """The cells of a table as they are read, row by row; waits for its first row."""
    shown = await page.wait_for_function(
        """caption => {
            const table = [...document.querySelectorAll("table")].find(t => t.caption.textContent.startsWith(caption));
            const rows = [...(table?.tBodies[0]?.rows ?? [])];
            return rows.length && rows.map(row => [...row.cells].map(cell => cell.innerText.trim()));
        }""",
        arg=caption,
    )
    rows: list[list[str]] = await shown.json_value()
    return rows


async def columns_of(page: Any, caption: str, *heads: str) -> dict[str, list[str]]:
    """The cells under these heads, in this order, by the first cell of their row; waits for its first row."""
    rows = await table_of(page, caption)
    shown: list[str] = await page.evaluate(
        """caption => {
            const table = [...document.querySelectorAll("table")].find(t => t.caption.textContent.startsWith(caption));
            return [...table.tHead.rows[0].cells].map(cell => cell.textContent.trim());
        }""",
        caption,
    )
    places = [next(place for place, name in enumerate(shown) if name.startswith(head)) for head in heads]
    return {row[0]: [row[place] for place in places] for row in rows}


async def accessibility_faults(page: Any, *, only_colours: bool = False) -> list[str]:
    """What axe-core says against the page as it stands: WCAG A and AA, and best practices; or its contrasts only."""
    if not await page.evaluate("Boolean(window.axe)"):
        # Through the debugger, which the page's security policy does not bind.
        await page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = await page.evaluate(
        "async only => (await axe.run(only ? {runOnly: ['color-contrast']} : {})).violations", only_colours
    )
    return [f"{each['id']}: {each['help']}: {[node['target'] for node in each['nodes']]}" for each in found]


async def is_too_wide(page: Any) -> bool:
    """Whether the page must be pushed sideways to be read."""
    wide: bool = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
    return wide


def pictures_are_wanted() -> bool:
    """Whether this run is `make screenshots`."""
    return SCREENSHOTS_VARIABLE in os.environ


async def take_pictures(browser: Any, url: str, name: str, place: str, text: str, *, whole: bool = False) -> None:
    """Desktop and phone, light and dark, into the folder that the variable names; without it nothing is done.

    Args:
        browser: from `chromium`.
        url: a router's HTTP address.
        name: of the files.
        place: the view.
        text: what it shows when it is complete.
        whole: the whole page, not what fits on the screen.
    """
    if not pictures_are_wanted():
        return
    for phone in (False, True):
        for dark in (False, True):
            async with looking_at(browser, f"{url}/#/{place}", phone=phone, dark=dark) as page:
                await until_live(page)
                await until_text(page, text)
                await picture(page, name, phone=phone, dark=dark, whole=whole)


async def picture(page: Any, name: str, *, phone: bool, dark: bool, whole: bool = False) -> None:
    """What the page looks like now."""
    if not pictures_are_wanted():
        return
    await page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    kind = f"{'phone' if phone else 'desktop'}-{'dark' if dark else 'light'}"
    file = Path(os.environ[SCREENSHOTS_VARIABLE]) / f"{name}-{kind}.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(_small(await page.screenshot(full_page=whole)))


def _small(png: bytes) -> bytes:
    """With 256 colours, where Pillow is there (it comes with matplotlib)."""
    try:
        from PIL import Image
    except ImportError:
        return png
    packed = io.BytesIO()
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    # The commonest colours stay as they are: areas are flat, and only the edges of letters have others. Those become
    # the nearest of them by an exact search; Pillow's own is coarse, and showed brown warnings in red.
    found = [colour for _, colour in sorted(picture.getcolors(picture.width * picture.height), reverse=True)]
    kept = found[:MAX_COLOURS]
    places = {colour: _nearest(kept, colour) for colour in found}
    raw = picture.tobytes()
    pixels = zip(raw[::3], raw[1::3], raw[2::3], strict=True)
    small = Image.frombytes("P", picture.size, bytes(places[pixel] for pixel in pixels))
    small.putpalette([part for colour in kept for part in colour])
    small.save(packed, "PNG", optimize=True)
    return packed.getvalue()


def _nearest(colours: list[Colour], wanted: Colour) -> int:
    """The place of the colour that is most like another one."""
    distances = [sum((a - b) ** 2 for a, b in zip(colour, wanted, strict=True)) for colour in colours]
    return distances.index(min(distances))
