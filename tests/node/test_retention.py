"""J-14, J-15: a subscription whose query is gone stops no topic for ever, and one that somebody ended stays ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bridges.cli import bridge
from bridges.node.embedded import EmbeddedNode
from bridges.node.interface import Node
from bridges.node.journal import Arrival, JournalControl, ReceiverJournal
from bridges.node.model import NodeSettings
from bridges.node.retention import NOTE_S, Attention
from oncewire.client import Client, NotAccepted, Publisher, SqliteJournal, connect
from tests.client.shell_helpers import LONG
from tests.node.node_process import NodeProcess, running_node
from tests.router.management_calls import call as ask
from tests.router.management_calls import entity
from tests.router.processes import RouterProcess

SMALL = 'defaults.max_journal_bytes = "64 KiB"\n'
CONFIGURED = '[[subscription]]\nname = "flights"\ntopics = ["orders"]\n'
BODY = bytes(4096)
MESSAGES = 64
"""More than SMALL holds."""


async def call(function: Any, *arguments: Any, **more: Any) -> Any:
    """A node's calls block; the test's own client needs the loop meanwhile."""
    return await asyncio.wait_for(asyncio.to_thread(function, *arguments, **more), LONG)


async def subscriptions(router: RouterProcess) -> list[dict[str, Any]]:
    """What the network knows of the node."""
    found = (await router.state())["subscriptions"]
    return [row for row in found if row["name"].startswith("node.")]


async def delete(router: RouterProcess) -> None:
    """As `oncewire manage delete subscription` does."""
    (row,) = await subscriptions(router)
    status, answer = await ask(router.http, "DELETE", entity("subscription", row["name"]), {"epoch": row["epoch"]})
    assert status == 200, answer


async def is_unheard(client: Client) -> bool:
    """Whether the topic has no subscription: a message that requires one goes to nobody."""
    publisher = await client.publisher("orders", require=1)
    try:
        await publisher.send(b"is anybody there", timeout=LONG)
    except NotAccepted:
        return True
    finally:
        await publisher.close()
    return False


async def status_with(remote: Node, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The node's state, once it fulfils a condition."""
    async with asyncio.timeout(LONG):
        while True:
            state: dict[str, Any] = await call(remote.status)
            if condition(state):
                return state
            await asyncio.sleep(0.02)


async def until_ended(remote: Node, name: str = "flights") -> str:
    """Why the subscription has ended, once it has."""
    return str((await status_with(remote, lambda state: name in state["ended"]))["ended"][name])


async def fill(publisher: Publisher, remote: Node) -> None:
    """More than the journal takes."""
    for _ in range(MESSAGES):
        _ = await publisher.submit(BODY)
    await status_with(remote, lambda state: state["subscriptions"]["flights"]["is_full"])
    _ = await publisher.submit(BODY)


async def run(node: NodeProcess, *words: str) -> dict[str, Any]:
    """`oncewire bridge ... --json`."""
    place = [node.announced["tcp"], "--secret-file", node.announced["secret"]]

    def shown() -> dict[str, Any]:
        done = CliRunner().invoke(bridge, [words[0], *place, *words[1:], "--json"])
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.output)
        return found

    return await call(shown)  # type: ignore[no-any-return]


async def test_a_subscription_that_an_operator_deletes_stays_deleted_and_a_query_that_asks_again_has_a_new_one(
    router: RouterProcess, tmp_path: Path
) -> None:
    with running_node(tmp_path / "node", [router.url]) as node:
        async with connect(router.url, container_id="test") as client:
            with node.connect() as remote:
                await call(remote.subscribe, "flights", ["orders"])
                publisher = await client.publisher("orders")
                await publisher.send(b"kept", timeout=LONG)
                await delete(router)
                assert "deleted in the network" in await until_ended(remote)
                assert await is_unheard(client)
                found = await call(remote.offsets, "flights")
                assert (found.last, "deleted in the network" in found.ended) == (1, True)
            await call(node.restart)
            with node.connect() as remote:
                assert "deleted in the network" in await until_ended(remote)
                assert await is_unheard(client)
                await call(remote.subscribe, "flights", ["orders"])
                await publisher.send(b"again", timeout=LONG)
                found = await call(remote.offsets, "flights", 0)
                assert (found.last, found.ended) == (2, "")
                assert [gap.position for gap in found.gaps] == [1]  # J-8


async def test_a_subscription_that_was_deleted_while_the_node_was_down_is_not_made_again_for_nobody(
    router: RouterProcess, tmp_path: Path
) -> None:
    with running_node(tmp_path / "node", [router.url]) as node:
        with node.connect() as remote:
            await call(remote.subscribe, "flights", ["orders"])
        node.end()
        await delete(router)
        await call(node.start)
        with node.connect() as remote:
            assert "no query has asked for it since" in await until_ended(remote)
        async with connect(router.url, container_id="test") as client:
            assert await is_unheard(client)


async def test_a_subscription_of_the_settings_that_an_operator_deletes_comes_back_when_the_node_is_started_again(
    router: RouterProcess, tmp_path: Path
) -> None:
    with running_node(tmp_path / "node", [router.url], CONFIGURED) as node:
        with node.connect() as remote:
            await call(remote.subscribe, "flights", ["orders"])
            await delete(router)
            await until_ended(remote)
            assert "deleted in the network" in "".join((await call(remote.status))["waiting_for"])
        await call(node.restart)
        with node.connect() as remote:
            await call(remote.subscribe, "flights", ["orders"])
            assert (await call(remote.status))["ended"] == {}


async def test_a_released_subscription_lets_the_publishers_go_that_its_full_journal_held_back(
    router: RouterProcess, tmp_path: Path
) -> None:
    with running_node(tmp_path / "node", [router.url], SMALL) as node:
        with node.connect() as remote:
            await call(remote.subscribe, "flights", ["orders"])
        async with connect(router.url, container_id="test") as client:
            publisher = await client.publisher("orders")
            with node.connect() as remote:
                await fill(publisher, remote)
            assert publisher.unfinished
            assert await run(node, "release", "flights") == {
                "subscription": "flights",
                "released": True,
                "ended": True,
                "deleted": True,
            }
            await publisher.flush(LONG)
            await call(node.restart)
            with node.connect() as remote:
                assert "oncewire bridge release" in await until_ended(remote)
            assert await is_unheard(client)


async def test_a_subscription_that_is_kept_or_configured_is_only_taken_from_its_query(
    router: RouterProcess, tmp_path: Path
) -> None:
    with running_node(tmp_path / "node", [router.url], CONFIGURED) as node, node.connect() as remote:
        await call(remote.subscribe, "flights", ["orders"])
        await call(remote.subscribe, "trains", ["trains"])
        for words in (("flights",), ("trains", "--keep")):
            assert not (await run(node, "release", *words))["ended"]
        assert len(await subscriptions(router)) == 2


@pytest.mark.parametrize("is_receiving", [True, False])
async def test_an_embedded_node_ends_what_it_released_though_it_was_not_receiving(
    router: RouterProcess, tmp_path: Path, is_receiving: bool
) -> None:
    settings = NodeSettings("node", tmp_path / "node", (router.url,))
    with EmbeddedNode(settings) as node:
        await call(node.subscribe, "flights", ["orders"])
        if is_receiving:
            assert await call(node.release, "flights", ends=True)
    if not is_receiving:
        with EmbeddedNode(settings) as node:
            assert await call(node.release, "flights", ends=True)
    assert await subscriptions(router) == []


async def test_a_subscription_that_a_query_made_ends_when_no_query_asks_for_it(
    router: RouterProcess, tmp_path: Path
) -> None:
    with running_node(tmp_path / "node", [router.url], f"expire_unread_s = 1\n{CONFIGURED}") as node:
        async with connect(router.url, container_id="test") as client:
            with node.connect() as remote:
                await call(remote.subscribe, "trains", ["trains"])
                assert "no query has asked for it within 1 s" in await until_ended(remote, "trains")
                assert list((await call(remote.status))["subscriptions"]) == ["flights"]
                assert not await is_unheard(client)


async def test_messages_that_no_query_processes_hold_publishers_back_for_a_limited_time(
    router: RouterProcess, tmp_path: Path
) -> None:
    more = f"{SMALL}defaults.drop_unread_s = 0.1\n"
    with running_node(tmp_path / "node", [router.url], more) as node, node.connect() as remote:
        await call(remote.subscribe, "flights", ["orders"])
        async with connect(router.url, container_id="test") as client:
            publisher = await client.publisher("orders")
            for _ in range(2):
                for _ in range(MESSAGES):
                    _ = await publisher.submit(BODY)
                await publisher.flush(LONG)
        state = (await call(remote.status))["subscriptions"]["flights"]
        assert state["dropped"] > 0
        assert state["last"] == 2 * MESSAGES


def journal_of(path: Path, arrived_s: list[int]) -> None:
    """One message at each of these times."""
    client = SqliteJournal(path)
    journal = ReceiverJournal(client.connection, path, "flights")
    source = journal.source_id("orders")
    for at in arrived_s:
        client.begin()
        journal.append([Arrival(source, b"x")], at * 1_000_000)
        client.commit()
    client.close()


@pytest.mark.parametrize("retention_s", [0.0, 1000.0])
def test_what_is_dropped_is_what_is_old_and_was_not_processed(tmp_path: Path, retention_s: float) -> None:
    path = tmp_path / "flights.db"
    journal_of(path, [10, 20, 30, 40])
    control = JournalControl(path, retention_s)
    control.trim(1, 50.0)
    assert control.drop_unread(19.0) == 0
    assert control.drop_unread(30.0) == 2
    assert control.drop_unread(30.0) == 0
    control.delete_expired(50.0)
    marks = control.marks()
    assert (marks.trimmed, marks.deleted, marks.last) == (3, 3, 4)
    control.close()


def test_time_counts_from_the_last_request_and_is_stored_now_and_then() -> None:
    attention = Attention(5.0)
    assert attention.is_unasked
    assert not attention.passed(NOTE_S - 1)
    assert attention.passed(1.0)
    attention.noted()
    assert attention.unread_s == NOTE_S + 5
    attention.asked()
    assert (attention.unread_s, attention.is_unasked) == (0.0, False)
    assert attention.passed(1.0)  # the file still says otherwise
    attention.lost()
    assert attention.is_unasked


def test_the_time_without_a_reader_outlives_the_node_and_ends_with_the_subscription(tmp_path: Path) -> None:
    path = tmp_path / "flights.db"
    journal_of(path, [1])
    control = JournalControl(path)
    control.note_unread(77.0)
    client = SqliteJournal(path)
    journal = ReceiverJournal(client.connection, path, "flights")
    assert journal.begin_receiving().unread_s == 77.0
    journal.end_receiving("because")
    assert control.ended() == "because"
    assert journal.begin_receiving().unread_s == 0.0
    assert control.ended() == ""
    client.close()
    control.close()


def test_a_new_query_misses_nothing_where_the_released_one_has_left_nothing(tmp_path: Path) -> None:
    path = tmp_path / "flights.db"
    client = SqliteJournal(path)
    journal = ReceiverJournal(client.connection, path, "flights")
    source = journal.source_id("orders")

    def begin(incarnation: int) -> bool:
        client.begin()
        try:
            return journal.begin_incarnation(source, incarnation, 0)
        finally:
            client.commit()

    assert not begin(7)
    journal.end_receiving("released")
    journal.begin_receiving()
    assert not begin(8)
    client.begin()
    journal.append([Arrival(source, b"x", None, 8)], 0)
    client.commit()
    journal.end_receiving("released")
    journal.begin_receiving()
    assert begin(9)
    client.close()
