"""100 routers and 10,000 subscriptions: pages stay small, watchers hear of what they watch, and of changes only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from tests.inspector.large_network import (
    DEADLINE_S,
    ROUTERS,
    SUBSCRIPTIONS,
    LargeNetwork,
    Watcher,
    large_network,
    topic_of,
)
from topology.inspector import watching as watching_module
from topology.inspector.changes_core import ShownAttachments
from topology.inspector.watching import PERIOD_S

MOVED = 4_242
MOVING = 500
"""As many as a snapshot has."""
MAX_CHANGE_BYTES = 20_000


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def network() -> AsyncIterator[LargeNetwork]:
    async with large_network() as running:
        running.link()
        yield running


async def watching(stack: AsyncExitStack, network: LargeNetwork, **wish: object) -> Watcher:
    web_socket = await stack.enter_async_context(
        network.session.ws_connect(f"{network.http}/api/v1/watch", max_msg_size=0)
    )
    watcher = Watcher(web_socket)
    await web_socket.send_json(wish)
    return watcher


async def snapshots(watcher: Watcher, count: int) -> list[dict[str, Any]]:
    return [(await watcher.take("snapshot"))[0] for _ in range(count)]


async def change(watcher: Watcher, where: Callable[[dict[str, Any]], bool]) -> tuple[dict[str, Any], int]:
    """The first changes that say so."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            message, size = await watcher.take("changes")
            if where(message["tables"]):
                return message["tables"], size


async def test_pages_have_at_most_500_rows_and_together_name_every_subscription_once(network: LargeNetwork) -> None:
    names: list[str] = []
    cursor = ""
    while True:
        page = await network.get(f"/api/v1/subscriptions?limit=500{cursor}")
        assert len(page["items"]) <= 500
        assert len(json.dumps(page)) < 300_000
        assert page["total"] == SUBSCRIPTIONS
        names += [row["name"] for row in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert names == sorted(set(names))
    assert len(names) == SUBSCRIPTIONS
    of_topic = await network.get(f"/api/v1/subscriptions?limit=500&topic={topic_of(MOVED)}")
    assert of_topic["total"] == SUBSCRIPTIONS / 50
    of_router = await network.get("/api/v1/subscriptions?limit=500&router=r007&q=WAREHOUSE-00")
    assert all(row["router"] == "r007" and row["state"] == "elsewhere" for row in of_router["items"])
    assert 0 < of_router["total"] < 20


async def test_a_moved_subscription_is_reported_to_who_watches_its_topic_in_under_20_kb(network: LargeNetwork) -> None:
    async with AsyncExitStack() as stack:
        tables = ["overview", "routers", "links", "topics", "events"]
        of_topic = await watching(stack, network, tables=tables, topic=topic_of(MOVED))
        of_other = await watching(stack, network, tables=tables, topic=topic_of(MOVED + 1))
        of_routers = await watching(stack, network, tables=["routers"])
        of_all = await watching(stack, network, tables=["subscriptions"])
        await snapshots(of_topic, 8)
        await snapshots(of_other, 8)
        await snapshots(of_routers, 1)
        (first,) = await snapshots(of_all, 1)
        assert (len(first["items"]), first["total"]) == (500, SUBSCRIPTIONS)
        network.put(MOVED, 99)
        name = f"warehouse-{MOVED:05}.rotterdam.example/all-orders"
        reported, size = await change(of_topic, lambda tables: "subscriptions" in tables)
        assert size <= MAX_CHANGE_BYTES
        assert [(row["name"], row["router"]) for row in reported["subscriptions"]["put"]] == [(name, "r099")]
        assert {row["id"] for row in reported["routers"]["put"]} == {"r085", "r099"}
        assert reported.keys() <= {"overview", "routers", "subscriptions", "topics", "events"}
        reported, size = await change(of_all, lambda tables: True)
        assert size <= MAX_CHANGE_BYTES
        assert [row["name"] for row in reported["subscriptions"]["put"]] == [name]
        reported, size = await change(of_other, lambda tables: "routers" in tables)
        assert "subscriptions" not in reported
        reported, size = await change(of_routers, lambda tables: True)
        assert reported.keys() == {"routers"}
        assert {row["id"] for row in reported["routers"]["put"]} == {"r085", "r099"}
        assert size < 1_000


async def test_a_link_whose_cost_changes_is_two_rows_of_ten_thousand(network: LargeNetwork) -> None:
    page = await network.get("/api/v1/links?limit=500")
    assert page["total"] == ROUTERS * (ROUTERS - 1)
    assert sum(row["on_best_path"] for row in page["items"]) > 0
    async with AsyncExitStack() as stack:
        watcher = await watching(stack, network, tables=["links"])
        await snapshots(watcher, 1)
        network.link(cost=5)
        reported, size = await change(watcher, lambda tables: "links" in tables)
        assert {(row["from"], row["to"], row["cost"]) for row in reported["links"]["put"]} == {
            ("r007", "r008", 5),
            ("r008", "r007", 5),
        }
        assert size < MAX_CHANGE_BYTES


async def test_nothing_is_noted_while_nobody_watches(network: LargeNetwork) -> None:
    def is_observed() -> bool:
        return network.node.operator.inspection._observer is not None

    assert not is_observed()
    async with AsyncExitStack() as stack:
        await snapshots(await watching(stack, network, tables=["subscriptions"]), 1)
        assert is_observed()
    ends_at = time.monotonic() + DEADLINE_S
    while network.node.operator.inspector.watchers.count:
        assert time.monotonic() < ends_at
        await asyncio.sleep(0.01)
    assert not is_observed()


@pytest.mark.slow
async def test_a_slow_reader_gets_summed_up_changes_and_ends_with_the_truth(network: LargeNetwork) -> None:
    target = moves = 0

    async def move() -> None:
        nonlocal target, moves
        target += 1
        for number in range(MOVING):
            network.put(number, target)
        moves += MOVING
        await network.until_applied()

    async with AsyncExitStack() as stack:
        watcher = await watching(stack, network, tables=["subscriptions"])
        await snapshots(watcher, 1)
        (watched,) = network.node.operator.inspector.watchers._watchers
        shown = watched._shown["subscriptions"]
        assert isinstance(shown, ShownAttachments)
        connection = watcher.socket._response.connection
        assert connection is not None
        assert connection.transport is not None
        connection.transport.pause_reading()
        # Small buffers in the kernel: else many seconds of changes have room there.
        server = watched.socket._req.transport  # type: ignore[union-attr]
        assert server is not None
        server.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        ends_at = time.monotonic() + DEADLINE_S
        while len(shown._marks) < MOVING:  # until what is sent has no place any more, and the router waits
            assert time.monotonic() < ends_at
            await move()
            await asyncio.sleep(3 * PERIOD_S)
        for _ in range(20):
            await move()
            assert len(shown._marks) == MOVING
        connection.transport.resume_reading()
        async with asyncio.timeout(DEADLINE_S):
            while {row["router"] for row in watcher.tables["subscriptions"].values()} != {f"r{target:03}"}:
                await watcher.take("changes")
        assert watcher.reported <= moves - 19 * MOVING


async def test_one_that_reads_nothing_is_disconnected_even_if_it_goes_on_wishing(
    network: LargeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching_module, "SEND_TIMEOUT_S", 0.5)
    watchers = network.node.operator.inspector.watchers
    async with AsyncExitStack() as stack:
        watcher = await watching(stack, network, tables=["subscriptions", "links"])
        connection = watcher.socket._response.connection
        assert connection is not None
        assert connection.transport is not None
        connection.transport.pause_reading()
        ends_at = time.monotonic() + DEADLINE_S
        with contextlib.suppress(ConnectionError):
            while not watchers.count or not connection.transport.is_closing():
                assert time.monotonic() < ends_at
                await watcher.socket.send_json({"tables": ["subscriptions", "links"]})
                await asyncio.sleep(0.01)
        while watchers.count:
            assert time.monotonic() < ends_at
            await asyncio.sleep(0.01)


async def test_wishes_are_not_answered_faster_than_changes_are_reported(network: LargeNetwork) -> None:
    async with AsyncExitStack() as stack:
        watcher = await watching(stack, network, tables=["overview"])
        await snapshots(watcher, 1)
        began = time.monotonic()
        for number in range(200):
            await watcher.socket.send_json({"tables": ["overview"], "id": str(number)})
            await asyncio.sleep(0.005)  # so that each could be answered
        answers = 0
        while (await watcher.take("snapshot"))[0]["id"] != "199":
            answers += 1
        assert answers <= (time.monotonic() - began) / PERIOD_S + 1


async def test_a_reader_that_fell_too_far_behind_gets_new_snapshots(network: LargeNetwork) -> None:
    async with AsyncExitStack() as stack:
        watcher = await watching(stack, network, tables=["subscriptions", "routers"])
        await snapshots(watcher, 2)
        (watched,) = network.node.operator.inspector.watchers._watchers
        watched.is_stale = True
        found = await snapshots(watcher, 2)
        assert {each["table"] for each in found} == {"subscriptions", "routers"}
