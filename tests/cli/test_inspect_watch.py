"""`oncewire inspect --watch`: a line for each change into a pipe, a screen on a terminal, until Ctrl-C or its end."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys

import pytest

from tests.router.processes import RouterProcess
from tests.router.raw_client import RawClient
from tests.support.commands import MAIN, start

DEADLINE_S = 60.0


pytestmark = pytest.mark.router("--id=alpha")


async def test_into_a_pipe_each_change_is_one_line_of_json_until_ctrl_c(router: RouterProcess) -> None:
    process = await start("inspect", "subscriptions", "--watch", "--json", "--url", router.http)
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        assert json.loads(await process.stdout.readline())["subscriptions"] == []
        await (await RawClient.connect(router.port, "box")).subscriber("orders", "all")
        assert [row["name"] for row in json.loads(await process.stdout.readline())["subscriptions"]] == ["box/all"]
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert (process.returncode, err.strip()) == (130, b"")


async def test_on_a_terminal_the_screen_follows_and_is_left_as_it_was(router: RouterProcess) -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-c",
        MAIN,
        "inspect",
        "--watch",
        "--url",
        router.http,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"},
    )
    os.close(theirs)
    shown = bytearray()
    loop = asyncio.get_running_loop()

    async def until(words: bytes) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while words not in shown:
                shown.extend(await loop.run_in_executor(None, os.read, ours, 65_536))

    try:
        await until(b"no publisher waits")
        box = await RawClient.connect(router.port, "box")
        await box.subscriber("orders", "all")
        publisher = await box.publisher("orders")
        publisher.send(b"t1", b"body")
        await until(b"waits for box/all at alpha")
        process.send_signal(signal.SIGINT)
        await until(b"\x1b[?1049l")  # the terminal's own screen comes back
        assert await asyncio.wait_for(process.wait(), DEADLINE_S) == 130
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)
    assert b"Traceback" not in shown


async def test_the_end_of_the_router_is_said(router: RouterProcess) -> None:
    process = await start("inspect", "routers", "--watch", "--url", router.http)
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        assert b"router" in await process.stdout.readline()
        await router.stop()
        _, err = await process.communicate()
    assert process.returncode == 2
    assert b"has ended the connection" in err
