"""The tutorials, done as they say: fastapi.md and jms.md. Their programs are the pages' own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.docs.code_blocks import ROOT, blocks_of
from tests.router.processes import RouterProcess, running_router
from tests.support.requirements import TOOLS
from tests.support.waiting import eventually
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


async def until_shown(url: str, dishes: list[str]) -> None:
    async with asyncio.timeout(STEP_S):
        while True:
            _, shown = await answer("GET", f"{url}/dishes")
            if shown == dishes:
                return
            await asyncio.sleep(0.05)


def rows(file: Path, table: str) -> list[int]:
    with contextlib.closing(sqlite3.connect(file)) as database:
        return [number for (number,) in database.execute(f"SELECT number FROM {table} ORDER BY number")]


async def ordered(url: str, number: int, dish: str) -> None:
    """An order is taken, and taken again without an effect."""
    taken = (202, {"number": number, "state": "will be cooked"})
    for _ in range(2):
        assert await answer("POST", f"{url}/orders?number={number}&dish={dish}") == taken


@pytest.mark.slow
@pytest.mark.needs("fastapi")
async def test_the_fastapi_service_and_those_behind_it_do_each_order_once_though_each_is_killed(tmp_path: Path) -> None:
    for name, text in zip(("shop", "kitchen", "courier"), texts_of("fastapi.md"), strict=True):
        (tmp_path / f"{name}.py").write_text(text)
    port = str(free_port())
    url = f"http://127.0.0.1:{port}"
    uvicorn = (sys.executable, "-m", "uvicorn", "shop:app", "--port", port, "--log-level", "warning")
    kitchen, courier = (sys.executable, "kitchen.py"), (sys.executable, "courier.py")
    async with running_router("--standalone") as router:
        environment = {"ROUTERS": router.url}
        async with running(tmp_path, *uvicorn, **environment):
            await until_it_answers(f"{url}/dishes")
            async with running(tmp_path, *kitchen, **environment) as cooks:
                async with running(tmp_path, *courier, **environment) as brings:
                    assert await line_of(cooks) == "the kitchen is open\n"
                    assert await line_of(brings) == "the courier is here\n"
                    await ordered(url, 1, "soup")
                    await ordered(url, 2, "cake")
                    await until_shown(url, ["soup", "cake"])
                await ordered(url, 3, "tea")  # without a courier
                await until_shown(url, ["soup", "cake", "tea"])
            await ordered(url, 4, "bread")  # without a kitchen
        async with running(tmp_path, *uvicorn, **environment):  # the service was killed, too
            await until_it_answers(f"{url}/dishes")
            async with running(tmp_path, *kitchen, **environment), running(tmp_path, *courier, **environment):
                await until_shown(url, ["soup", "cake", "tea", "bread"])
                await eventually(lambda: len(rows(tmp_path / "courier.db", "brought")) >= 4, "all are brought")
    assert rows(tmp_path / "kitchen.db", "cooked") == rows(tmp_path / "courier.db", "brought") == [1, 2, 3, 4]


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
