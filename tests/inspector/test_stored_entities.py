"""Queues and journals of an edge's store as entities: at `$management`, over HTTP, and on the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from bridges.journal import cursors, log
from bridges.journal.contents import JOURNALS
from bridges.journal.model import JournalSettings, NewMessage, Place
from bridges.workqueue import Queue
from oncewire.cli.run import run
from oncewire.store.contents import Contents
from oncewire.store.open_store import OpenStore
from oncewire.store.store import Transaction
from router.commands.manage import manage
from router.operator.schema import TYPES
from tests.router.management_calls import PREFIX, call, entity
from tests.router.management_client import ManagementClient
from tests.router.processes import RouterProcess, running_router
from topology.cli import inspect

STORED = sorted(name for name, each in TYPES.items() if each.is_stored)


async def fill(url: str) -> None:
    """Two queues and a journal with a reader that has one message to read."""
    for name, count in (("mails", 2), ("jobs", 0)):
        async with Queue.open(url, name) as queue:
            for number in range(count):
                await queue.push(number)
    async with OpenStore[Transaction].open(url, Contents([JOURNALS])) as store:
        await store.transact(lambda do: log.configure(do, "orders", JournalSettings(keep_s=60)))
        await store.transact(lambda do: log.append(do, "orders", [NewMessage(b"body")]))
        await store.transact(lambda do: cursors.seek(do, "orders", "|store|reader", Place.FIRST))
        await store.transact(lambda do: log.note_owner(do, "orders", "edge-1"))


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[RouterProcess]:
    url = f"sqlite:///{tmp_path / 'edge.db'}"
    await fill(url)
    async with running_router("--standalone", "--id=alpha", f"--queue-store={url}") as found:
        yield found


async def oncewire(*arguments: str) -> tuple[int, str]:
    """A command in this process: its exit code, and what it prints."""
    group = click.Group("oncewire", commands={"inspect": inspect, "manage": manage})
    result = await asyncio.to_thread(CliRunner().invoke, group, list(arguments))
    return result.exit_code, result.output + str(result.exception or "")


async def test_the_management_node_reads_and_queries_them_by_name(router: RouterProcess) -> None:
    client = await ManagementClient.connect(router.port)
    assert {f"oncewire.{name}" for name in STORED} <= (await client.ask("GET-TYPES")).body.keys()
    journal = (await client.ask("READ", type="oncewire.journal", name="orders")).body
    assert (journal["type"], journal["identity"], journal["name"]) == ("oncewire.journal", "orders", "orders")
    assert (journal["owner"], journal["messages"], journal["reader_lag"], journal["keep_s"]) == ("edge-1", 1, 1, 60)
    assert set(journal) == {each.name for each in TYPES["journal"].attributes} | {"type", "identity", "name"}
    queues = await client.ask("QUERY", {"attributeNames": ["name", "depth"]}, entityType="oncewire.queue")
    assert queues.body["results"] == [["jobs", 0], ["mails", 2]]
    page = await client.ask("QUERY", {"attributeNames": ["name"]}, entityType="queue", offset=1, count=1)
    assert page.body["results"] == [["mails"]]
    everything = await client.ask("QUERY", {"attributeNames": ["type", "name"]})
    stored = [each for each in everything.body["results"] if each[0] in ("oncewire.queue", "oncewire.journal")]
    assert [name for _, name in stored] == ["jobs", "mails", "orders"]


async def test_what_is_not_there_or_cannot_be_done_with_them_is_one_clear_answer(router: RouterProcess) -> None:
    client = await ManagementClient.connect(router.port)
    assert (await client.ask("READ", type="oncewire.queue", name="nobody")).status == 404
    assert (await client.ask("DELETE", type="oncewire.journal", name="orders")).status == 405
    assert (await client.ask("UPDATE", {"keep_s": 1}, type="oncewire.journal", name="orders")).status == 405
    status, answer = await call(router.http, "GET", entity("queue", "nobody"))
    assert (status, "oncewire manage list queue" in answer["fix"]) == (404, True)


async def test_http_and_manage_have_the_attributes_of_the_schema(router: RouterProcess) -> None:
    for name, count in (("queue", 2), ("journal", 1)):
        status, answer = await call(router.http, "GET", f"{PREFIX}/{name}")
        assert (status, answer["total"]) == (200, count)
        assert set(answer["items"][0]) == {each.name for each in TYPES[name].attributes}
    code, out = await oncewire("manage", "show", "journal", "orders", f"--url={router.http}", "--json")
    assert (code, json.loads(out)["owner"]) == (0, "edge-1")


async def test_inspect_shows_them_as_tables_and_as_json(router: RouterProcess) -> None:
    code, out = await oncewire("inspect", "queues", f"--url={router.http}")
    assert (code, [line.split()[:2] for line in out.splitlines()]) == (
        0,
        [["queue", "depth"], ["jobs", "0"], ["mails", "2"]],
    )
    code, out = await oncewire("inspect", "journals", f"--url={router.http}")
    head, row = (line.split() for line in out.splitlines())
    assert code == 0
    assert dict(zip(head, row, strict=False))["journal"] == "orders"
    code, out = await oncewire("inspect", "queues", f"--url={router.http}", "--match=mail", "--json")
    found = json.loads(out)
    assert ([each["queue"] for each in found["queues"]], found["total"]) == (["mails"], 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--network",), "leave --network out"),
        (("--router=r1",), "leave --router out"),
        (("--topic=t",), "--topic is for"),
    ],
)
async def test_inspect_refuses_what_means_nothing_for_a_store(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await asyncio.to_thread(
        run, ["inspect", "journals", *arguments], click.Group("oncewire", commands={"inspect": inspect})
    )
    assert (code, said in capsys.readouterr().err) == (2, True)


@pytest.mark.parametrize("name", STORED)
async def test_a_router_without_a_store_names_the_setting(name: str) -> None:
    async with running_router("--standalone", "--id=alpha") as alone:
        client = await ManagementClient.connect(alone.port)
        assert f"oncewire.{name}" not in (await client.ask("GET-TYPES")).body
        answer: Any = await client.ask("QUERY", entityType=f"oncewire.{name}")
        assert (answer.status, "queue_store" in answer.description) == (404, True)
        assert (await client.ask("QUERY", {"attributeNames": ["name"]})).status == 200


async def test_a_store_that_cannot_be_read_is_an_answer(tmp_path: Path) -> None:
    async with running_router("--standalone", f"--queue-store=sqlite:///{tmp_path}/nowhere/edge.db") as router:
        client = await ManagementClient.connect(router.port)
        assert (await client.ask("QUERY", entityType="oncewire.journal")).status == 503
        assert (await client.ask("QUERY", entityType="oncewire.topic")).status == 200
