"""What a journal has stored is not what an application has processed (I-3g): real routers and an edge."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oncewire.client import OutcomeKind, Subscriber, Subscriptions, connect
from router.commands.local_network import LocalNetwork
from tests.docs.code_blocks import ROOT, blocks_of
from tests.edge.edge_process import ONCEWIRE
from tests.journal.network_world import DEADLINE_S, edge

pytestmark = pytest.mark.timeout(300)
[COMMANDS] = [each.text for each in blocks_of(ROOT / "docs" / "command-line.md") if "--require-processed" in each.text]


@pytest.fixture
async def urls(tmp_path: Path) -> AsyncIterator[list[str]]:
    """Of two routers, with an edge whose journal keeps `orders.#` at the second one."""
    async with LocalNetwork(2, log_folder=tmp_path) as network:
        found = [router.url for router in network.routers.values()]
        async with edge(f"sqlite:///{tmp_path}/edge.db", found[1]):
            yield found


async def oncewire(url: str, *words: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(*ONCEWIRE, *words, "--url", url, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    return process.returncode, out.decode()


async def accept_all(subscriber: Subscriber) -> None:
    async for delivery in subscriber:
        await delivery.accept()


async def test_a_publisher_is_told_who_stores_its_message_and_who_has_processed_it(urls: list[str]) -> None:
    async with connect(urls[0], container_id="shop") as shop, connect(urls[0], container_id="bar") as bar:
        publisher = await shop.publisher("orders.new", require=1, require_processed=1)
        released = await (await publisher.submit("tea"))
        assert (released.kind, released.condition) == (OutcomeKind.RELEASED, "oncewire:too-few-subscriptions")
        assert "fewer than 1 subscription, or than 1 subscription that processes" in released.description
        subscriber = await bar.subscriber("orders.*", name="screen")
        accepting = asyncio.create_task(accept_all(subscriber))
        outcome = await publisher.send("tea")
        assert outcome.is_accepted
        assert outcome.processed_by == Subscriptions(1, ("bar/screen",))
        assert outcome.stored_by is not None
        [journal] = outcome.stored_by.names
        assert journal.endswith("/journal")
        assert outcome.subscriptions is not None
        assert set(outcome.subscriptions.names) == {journal, "bar/screen"}
        accepting.cancel()


async def test_pub_says_what_is_only_stored_and_requires_that_somebody_processes(urls: list[str]) -> None:
    for line in COMMANDS.splitlines():
        command, _, said = line.partition("#")
        text, _, code = said.strip().partition("; exit code ")
        assert await oncewire(urls[0], *shlex.split(command)[1:]) == (int(code or 0), text + "\n")
    _, out = await oncewire(urls[0], "pub", "orders.new", "tea", "--json")
    report = json.loads(out)
    assert (report["accepted"], report["accepted_stored"], report["accepted_by_none"]) == (1, 1, 0)
