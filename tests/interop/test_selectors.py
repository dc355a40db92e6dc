"""Selectors of stock clients, as their libraries send them (E-9): Qpid JMS, rhea, python-qpid-proton, go-amqp."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from oncewire.client import Message, connect
from tests.router.processes import RouterProcess, running_router
from tests.support.java import java_command
from tests.support.requirements import TOOLS, go_amqp

HERE = Path(__file__).parent
STEP_S = 90.0
"""Far more than a step takes on a busy machine."""
COLORS = ("red", "blue", "red", "red", "blue")


def command_of(client: str, router: RouterProcess) -> list[str]:
    url = router.url
    if client == "proton":
        return [sys.executable, str(HERE / "proton_selector.py"), url, "orders", "2"]
    if client == "rhea":
        rhea = str(TOOLS / "node_modules" / "rhea")
        return ["node", str(HERE / "rhea_selector.js"), rhea, url.removeprefix("amqp://"), "orders", "2"]
    if client == "go-amqp":
        return [str(go_amqp("selector")), url, "orders", "2"]
    return [*java_command(HERE / "Selecting.java"), url, "orders", "2"]


async def lines_until(process: asyncio.subprocess.Process, last: str) -> list[str]:
    """What it prints up to a line."""
    assert process.stdout is not None
    found: list[str] = []
    while last not in found:
        line = await asyncio.wait_for(process.stdout.readline(), STEP_S)
        assert line, found
        found.append(line.decode().strip())
    return found


async def run(client: str, router: RouterProcess) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        *command_of(client, router), stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        said = await lines_until(process, "ready")
        async with connect(router.url) as ours, ours.publisher("orders") as publisher:
            properties = [{"color": color, "number": number} for number, color in enumerate(COLORS)]
            sendings = [await publisher.submit(Message(b"x", application_properties=each)) for each in properties]
            assert len(sendings) == len(COLORS)
            rest = (await asyncio.wait_for(process.communicate(), STEP_S))[0].decode().split("\n")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return [line for line in (*said, *rest) if line.partition(" ")[0] in {"chosen", "foreign", "refused"}]


@pytest.mark.parametrize(
    "client",
    [
        pytest.param("proton", marks=pytest.mark.needs("proton")),
        pytest.param("rhea", marks=pytest.mark.needs("node", "rhea")),
        pytest.param("go-amqp", marks=pytest.mark.needs("go-amqp")),
    ],
)
async def test_a_stock_client_gets_what_its_selector_chooses(client: str) -> None:
    async with running_router("--standalone") as router:
        assert await run(client, router) == ["chosen 2", "chosen 3"]


@pytest.mark.slow
@pytest.mark.needs("jdk", "qpid-jms")
async def test_jms_has_its_selectors_and_no_local() -> None:
    async with running_router("--standalone") as router:
        said = await run("jms", router)
        assert said == ["chosen red", "chosen 2", "chosen 3", "foreign 0", "refused"]
