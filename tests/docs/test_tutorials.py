"""The tutorials, done as they say: fastapi.md and jms.md. Their programs are the pages' own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.docs.code_blocks import ROOT, blocks_of
from tests.router.processes import RouterProcess, running_router
from tests.support.requirements import TOOLS
from topology.etcd.server import free_port

STEP_S = 120.0
"""Far more than a step takes on a busy machine."""


def texts_of(page: str) -> list[str]:
    blocks = blocks_of(ROOT / "docs" / "tutorials" / page)
    return [block.text for block in blocks if block.run_by == "tests/docs/test_tutorials.py"]


@contextlib.asynccontextmanager
async def running(folder: Path, *command: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        assert process.stdout is not None
        sys.stderr.write((await process.stdout.read()).decode())  # pytest shows it when the test has failed
        await process.wait()


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), STEP_S)).decode()


async def answer(method: str, url: str) -> tuple[int, object]:
    async with aiohttp.ClientSession() as session, session.request(method, url) as found:
        return found.status, await found.json()


async def until_it_answers(url: str) -> None:
    async with asyncio.timeout(STEP_S):
        while True:
            try:
                await answer("GET", url)
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.1)
            else:
                return


async def until_cooked(url: str, dishes: list[str]) -> None:
    async with asyncio.timeout(STEP_S):
        while True:
            _, shown = await answer("GET", f"{url}/dishes")
            if shown == [{"dish": dish} for dish in dishes]:
                return
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.needs("fastapi")
async def test_the_fastapi_service_does_what_its_page_says(tmp_path: Path) -> None:
    shop, kitchen = texts_of("fastapi.md")
    (tmp_path / "shop.py").write_text(shop)
    (tmp_path / "kitchen.py").write_text(kitchen)
    port = str(free_port())
    url = f"http://127.0.0.1:{port}"
    uvicorn = (sys.executable, "-m", "uvicorn", "shop:app", "--port", port, "--log-level", "warning")
    async with running_router("--standalone") as router, running(tmp_path, *uvicorn, ROUTERS=router.url):
        await until_it_answers(f"{url}/dishes")
        async with running(tmp_path, sys.executable, "kitchen.py", ROUTERS=router.url) as cooks:
            assert await line_of(cooks) == "the kitchen is open\n"
            assert await answer("POST", f"{url}/orders?dish=soup") == (202, {"dish": "soup", "state": "will be cooked"})
            assert await answer("POST", f"{url}/orders/now?dish=cake") == (200, {"dish": "cake", "state": "cooked"})
            await until_cooked(url, ["soup", "cake"])
        # Without the kitchen: one order is taken, the reply to the other one states who does not answer.
        assert (await answer("POST", f"{url}/orders?dish=tea"))[0] == 202
        status, body = await answer("POST", f"{url}/orders/now?dish=bread")
        assert status == 503
        assert "kitchen" in json.dumps(body)
        async with running(tmp_path, sys.executable, "kitchen.py", ROUTERS=router.url):
            await until_cooked(url, ["soup", "cake", "tea", "bread"])


async def jms_and_python(folder: Path, router: RouterProcess) -> tuple[str, str]:
    java, python, java_command, python_command, *_ = texts_of("jms.md")
    (folder / "Kitchen.java").write_text(java)
    (folder / "both.py").write_text(python)
    (folder / ".tools").symlink_to(TOOLS)
    assert python_command == "python both.py\n"
    async with running(folder, *shlex.split(java_command), ROUTERS=router.url) as cooks:
        opened = await line_of(cooks)
        while opened.startswith("SLF4J"):
            opened = await line_of(cooks)
        async with running(folder, sys.executable, "both.py", ROUTERS=router.url) as both:
            said = (await asyncio.wait_for(both.communicate(), STEP_S))[0].decode()
        return opened + (await asyncio.wait_for(cooks.communicate(), STEP_S))[0].decode(), said


@pytest.mark.slow
@pytest.mark.needs("jdk", "qpid-jms")
async def test_java_and_python_get_the_same_orders(tmp_path: Path) -> None:
    *_, by_java, by_python = texts_of("jms.md")
    async with running_router("--standalone") as router:
        assert await jms_and_python(tmp_path, router) == (by_java, by_python)
