"""Who may read a journal, and append to it: the rules of access of docs/rights.md, at a real router."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridges.journal import cursors, log
from bridges.store import serving
from oncewire.client import Client, LinkRefused, connect
from oncewire.store.store import Transaction
from oncewire.wire import ACCEPTED, SaslClient, Source
from tests.docs.code_blocks import ROOT, blocks_of
from tests.journal.network_world import DEADLINE_S, Edge, edge
from tests.router.anonymous_links import anonymous, outcome, send, to
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient

(RULES,) = [
    block.text for block in blocks_of(ROOT / "docs/rights.md") if block.run_by == "tests/journal/test_rights.py"
]
USERS = ("edge", "shop", "olga", "bar-1", "import", "eve")
SETTINGS = (
    f"standalone = true\nusers = {{{', '.join(f'{user!r} = {user!r}' for user in USERS)}}}\n"
    'listen.allow_anonymous = "never"\nlisten.idle_timeout_s = 300\nroles = {edge = "operator"}\n'
    'groups = {support = ["olga"]}\n'
)
REFUSED = "amqp:unauthorized-access"


@dataclass
class World:
    """A router with the rules of the page, and a journal behind it."""

    router: RouterProcess
    file: Path
    edge: Edge

    def client(self, user: str) -> Client:
        return connect(f"amqp://{user}:{user}@127.0.0.1:{self.router.port}", container_id="app")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    file = tmp_path / "router.toml"
    file.write_text(SETTINGS + RULES)
    async with running_router(f"--config={file}") as router:
        url = f"amqp://edge:edge@127.0.0.1:{router.port}"
        async with edge(f"sqlite:///{tmp_path}/edge.db", url) as running:
            yield World(router, file, running)


async def until_read(running: Edge, position: int) -> None:
    """Wait until the only cursor is there."""

    def lows(do: Transaction) -> list[int]:
        return [each.low for each in cursors.cursors(do, log.state(do, "orders")).values()]

    async with asyncio.timeout(DEADLINE_S):
        while await running.store.transact(lows) != [position]:  # noqa: ASYNC110  # no event says it
            await asyncio.sleep(0.02)


async def test_rules_of_access_say_who_reads_a_journal_and_who_appends_to_it(world: World) -> None:
    async with world.client("shop") as shop, world.client("import") as importer, world.client("olga") as olga:
        assert (await (await shop.publisher("orders.new")).send("published")).is_accepted
        assert (await (await importer.publisher("journal://orders", exactly_once=False)).send("appended")).is_accepted
        async with olga.journal("orders", start="first") as reader:
            assert [(await reader.receive(DEADLINE_S)).body for _ in range(2)] == ["published", "appended"]
        for attach in (
            shop.journal("orders"),
            shop.publisher("journal://orders", exactly_once=False),
            importer.journal("orders"),
            olga.publisher("journal://orders", exactly_once=False),
            olga.journal("orders.eu"),
            olga.subscriber("orders.new"),
        ):
            with pytest.raises(LinkRefused) as refused:
                await attach
            assert refused.value.condition == REFUSED
        log = await world.router.stop()
    # Of refusals of one address the first is written out, the others are counted.
    assert "no rule of access.rules lets shop subscribe to journal://orders" in log


async def test_a_reader_whose_right_is_taken_is_detached_and_goes_on_when_it_has_it_again(world: World) -> None:
    async with world.client("import") as importer, world.client("bar-1") as bar, world.client("olga") as olga:
        publisher = await importer.publisher("journal://orders", exactly_once=False)
        reader = await bar.journal("orders", start="first", name="bar")
        await publisher.send("one")
        await (await reader.receive(DEADLINE_S)).accept()
        await until_read(world.edge, 1)
        world.file.write_text(SETTINGS + RULES.replace("bar-*", "pub-*"))
        world.router.process.send_signal(signal.SIGHUP)
        with pytest.raises(LinkRefused):
            await reader.receive(DEADLINE_S)
        world.file.write_text(SETTINGS + RULES)
        await publisher.send("two")
        world.router.process.send_signal(signal.SIGHUP)
        async with olga.journal("orders", start="first", name="bar") as other:  # the user is in a cursor's name
            assert (await other.receive(DEADLINE_S)).body == "one"
        async with world.client("bar-1") as again, again.journal("orders", start="first", name="bar") as reader:
            assert (await reader.receive(DEADLINE_S)).body == "two"


async def test_a_sender_whose_right_is_taken_is_detached_whichever_link_it_uses(world: World) -> None:
    taken = SETTINGS + RULES.replace('publish = ["journal://orders"]', 'publish = ["orders.*"]')
    async with world.client("import") as client:
        direct = await client.publisher("journal://orders", exactly_once=False)
        await direct.send("one")
        raw = await RawClient.connect(world.router.port, sasl=SaslClient("PLAIN", "import", "import"))
        relay = await anonymous(raw)
        await send(raw, relay, b"1", to("journal://orders"))
        assert (await outcome(raw, relay, b"1")).state == ACCEPTED
        world.file.write_text(taken)
        world.router.process.send_signal(signal.SIGHUP)
        error = (await raw.detached(relay)).error
        assert error is not None
        assert error.condition == REFUSED
        with pytest.raises(LinkRefused):
            await direct.send("two")


async def test_a_user_has_so_many_links_to_a_process_and_others_have_theirs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MAX_LINKS_OF_USER", 2)
    async with world.client("olga") as olga, world.client("bar-1") as bar:
        first = await olga.journal("orders", start="first")
        await olga.journal("orders", start="first")
        raw = await RawClient.connect(world.router.port, sasl=SaslClient("PLAIN", "olga", "olga"))
        third = raw.session.attach_receiver("third", source=Source(address="journal://orders"))
        raw.flush()
        error = (await raw.detached(third)).error
        assert error is not None
        assert error.condition == "amqp:resource-limit-exceeded"
        assert "this user has 2 links" in (error.description or "")
        await bar.journal("orders", start="first")
        await first.close()
        await olga.journal("orders", start="first")
