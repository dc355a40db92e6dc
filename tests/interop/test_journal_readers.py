"""Journals with stock clients: from the first message or a position, and by the cursor of a durable source (J-19)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridges.journal import cursors, log
from oncewire.client import connect
from tests.journal.network_world import edge, publish
from tests.router.processes import RouterProcess
from tests.support.java import java_command
from tests.support.requirements import TOOLS, go_amqp

HERE = Path(__file__).parent
STEP_S = 90.0
"""Far more than a client takes on a busy machine."""
COUNT = 6
CLIENTS = [
    pytest.param("rhea", marks=pytest.mark.needs("node", "rhea")),
    pytest.param("go-amqp", marks=pytest.mark.needs("go-amqp")),
]


def command_of(client: str) -> list[str]:
    if client == "rhea":
        return ["node", str(HERE / "rhea_journal.js"), str(TOOLS / "node_modules" / "rhea")]
    return [str(go_amqp("journal"))]


async def said_by(*command: str) -> list[str]:
    """What a program prints up to its end."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), STEP_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return out.decode().splitlines()


def orders(first: int, end: int) -> list[str]:
    return [f"{position} order {position - 1}" for position in range(first, end + 1)]


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_stock_client_reads_a_journal_from_where_its_filter_says(
    client: str, router: RouterProcess, tmp_path: Path
) -> None:
    async with edge(f"sqlite:///{tmp_path}/edge.db", router.url), connect(router.url) as shop:
        await publish(shop, 0, COUNT)
        for start, first in (("first", 1), ("4", 4), ("last", COUNT)):
            words = (router.url, "journal://orders", start, str(COUNT - first + 1))
            assert await said_by(*command_of(client), *words) == orders(first, COUNT)


@pytest.mark.slow
@pytest.mark.needs("jdk", "qpid-jms")
async def test_jms_goes_on_with_the_cursor_of_its_durable_subscription_which_an_operator_moves(
    router: RouterProcess, tmp_path: Path
) -> None:
    """JMS has no word for a filter: a new subscription begins at the next message."""
    program = java_command(HERE / "JournalReading.java")
    async with edge(f"sqlite:///{tmp_path}/edge.db", router.url) as found, connect(router.url) as shop:

        async def read(count: int) -> list[str]:
            return await said_by(*program, router.url, "journal://orders", str(count))

        assert await read(0) == []
        await publish(shop, 0, COUNT)
        assert await read(2) == orders(1, 2)
        assert await read(COUNT - 2) == orders(3, COUNT)
        journal = await found.store.transact(lambda do: log.state(do, "orders"))
        (reader,) = await found.store.transact(lambda do: cursors.cursors(do, journal))
        await found.store.transact(lambda do: cursors.seek(do, "orders", reader, 4))
        assert await read(COUNT - 3) == orders(4, COUNT)
