"""A bridge node as a part of an edge: the same doors and journals as in a process of its own, beside other parts."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bridges.edge.settings_loading import load
from bridges.node.client import RemoteNode, read_secret
from oncewire.cli.errors import CliError
from oncewire.client import connect
from tests.client.store_world import Database
from tests.edge.edge_process import EdgeProcess, running_edge, settings
from tests.router.processes import RouterProcess
from tests.support.waiting import eventually

PARTS = '[[queue]]\nname = "orders"\n[[spark]]\nconfig = "{}"\n'


def node_file(folder: Path, router: RouterProcess | None = None, more: str = "") -> Path:
    file = folder / "node.toml"
    url = "amqp://127.0.0.1:1" if router is None else router.url
    file.write_text(
        f'name = "node"\nfolder = "{folder}/node"\nrouters = {json.dumps([url])}\n'
        f'listen.host = ""\nlisten.unix = "{folder}/n.sock"\nhttp.host = ""\n{more}'
    )
    return file


@asynccontextmanager
async def edge_with_node(folder: Path, store: str, router: RouterProcess) -> AsyncIterator[EdgeProcess]:
    text = settings(store, [router.url], PARTS.format(node_file(folder, router)))
    async with running_edge(folder / "edge.toml", text) as edge:
        yield edge


def pipeline(folder: Path) -> RemoteNode:
    return RemoteNode(f"unix://{folder}/n.sock", read_secret(folder / "node" / "secret"), patience_s=30.0)


async def test_what_a_query_reads_goes_on_when_the_edge_is_killed_and_when_it_drains(
    tmp_path: Path, sqlite: Database, router: RouterProcess
) -> None:
    async with edge_with_node(tmp_path, sqlite.url, router) as edge:
        with pipeline(tmp_path) as node:
            journal = await asyncio.to_thread(node.subscribe, "flights", ["orders.#"])
            async with connect(router.url) as client:
                publisher = await client.publisher("orders.new")
                for count, number in ((1, signal.SIGKILL), (2, signal.SIGTERM), (3, None)):
                    assert (await publisher.send(f"order {count}")).is_accepted
                    found = await asyncio.to_thread(node.offsets, "flights", 0)
                    assert (found.journal, found.last) == (journal, count)
                    if number is not None:
                        assert await edge.end(number) == (0 if number is signal.SIGTERM else -number)
                        await edge.start()
        assert (await edge.part("spark"))["state"] == "owner"


async def test_a_reload_sees_what_has_changed_in_the_file_of_the_node(
    tmp_path: Path, sqlite: Database, router: RouterProcess
) -> None:
    async with edge_with_node(tmp_path, sqlite.url, router) as edge:
        status, done = await edge.ask("/api/v1/reload", "POST")
        assert (status, done["changed"]) == (200, [])
        await asyncio.to_thread(node_file, tmp_path, router, "outbox.inflight = 7\n")
        status, done = await edge.ask("/api/v1/reload", "POST")
        assert (status, done["changed"]) == (200, ["spark node"])
        await asyncio.to_thread(node_file, tmp_path, router, 'listen.prot = "7072"\n')
        status, refused = await edge.ask("/api/v1/reload", "POST")
        assert (status, "listen.prot" in refused["error"]) == (409, True)
        with pipeline(tmp_path) as node:
            assert (await asyncio.to_thread(node.status))["name"] == "node"


async def test_a_node_that_cannot_start_is_a_part_that_failed_and_others_run(
    tmp_path: Path, sqlite: Database, router: RouterProcess
) -> None:
    (tmp_path / "node").write_text("a file where the folder should be")
    text = settings(sqlite.url, [router.url], PARTS.format(node_file(tmp_path, router)))
    async with running_edge(tmp_path / "edge.toml", text, is_ready=False) as edge:
        await edge.logged("part_failed", kind="spark", part="node")

        async def waits_for_the_node_alone() -> bool:
            status, found = await edge.ask("/readyz")
            return status == 503 and [str(tmp_path / "node") in each for each in found["waiting_for"]] == [True]

        await eventually(waits_for_the_node_alone, "the queue is served, the node is not")


async def test_a_journal_of_the_node_that_cannot_be_read_is_no_fault_of_the_edge(
    tmp_path: Path, sqlite: Database, router: RouterProcess
) -> None:
    (tmp_path / "node" / "journals").mkdir(parents=True)
    (tmp_path / "node" / "journals" / "flights.db").write_bytes(b"no database" * 1000)
    received = '[[subscription]]\nname = "flights"\ntopics = ["orders"]\n'
    text = settings(sqlite.url, [router.url], PARTS.format(node_file(tmp_path, router, received)))
    async with running_edge(tmp_path / "edge.toml", text, is_ready=False) as edge:  # logs no internal error
        await edge.logged("part_failed", kind="spark", part="node")
        failed = next(line for line in edge.log if line["event"] == "part_failed")
        assert "flights.db" in failed["why"]


def test_a_wrong_file_of_the_node_is_one_clear_error(tmp_path: Path) -> None:
    edge = tmp_path / "edge.toml"
    edge.write_text(settings("sqlite:///e.db", ["amqp://r1"], '[[spark]]\nconfig = "/nowhere/node.toml"\n'))
    with pytest.raises(CliError, match=r"/nowhere/node\.toml"):
        load(str(edge), {}, {})
    edge.write_text(settings("sqlite:///e.db", ["amqp://r1"], PARTS.format(node_file(tmp_path)) * 2))
    with pytest.raises(CliError, match=r"\[\[queue\]\] in"):
        load(str(edge), {}, {})
