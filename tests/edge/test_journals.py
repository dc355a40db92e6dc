"""Journals in edge processes: killed, taken over, full, with what operators see (J-16, J-24, J-25, J-28)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncewire.client import Client, Outcome, connect
from tests.edge.edge_process import EdgeProcess, running_edge, settings
from tests.router.processes import RouterProcess
from tests.store.conftest import SQL
from tests.store.databases import Servers, SqlDatabase, new_address
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(400)
JOURNAL = '[[journal]]\nname = "orders"\ntopics = ["orders.#"]\n'
DEADLINE_S = 60.0


@pytest.fixture
def url(router: RouterProcess) -> str:
    return router.url


@pytest.fixture(params=SQL)
def sql_database(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> SqlDatabase:
    return SqlDatabase(request.param, new_address(request.param, tmp_path, servers))


async def publish(client: Client, first: int, count: int) -> None:
    async with client.publisher("orders.new", name="shop") as publisher:
        for number in range(first, first + count):
            assert (await publisher.send(f"order {number}")).is_accepted


async def read(client: Client, count: int) -> list[object]:
    async with client.subscriber("journal://orders", name="audit") as reader:
        found = []
        for _ in range(count):
            delivery = await reader.receive(DEADLINE_S)
            await delivery.accept()
            found.append(delivery.body)
        await reader.suspend()
        return found


def orders(first: int, count: int) -> list[object]:
    return [f"order {number}" for number in range(first, first + count)]


async def test_a_journal_and_its_reader_go_on_over_kills_of_the_edge(
    url: str, sql_database: SqlDatabase, tmp_path: Path
) -> None:
    text = settings(sql_database.url, [url], JOURNAL)
    async with (
        running_edge(tmp_path / "edge.toml", text) as edge,
        connect(url, container_id="shop", journal=tmp_path / "shop.db") as shop,
        connect(url, container_id="audit", journal=tmp_path / "audit.db") as audit,
    ):
        assert await read(audit, 0) == []  # its cursor begins here
        await publish(shop, 0, 5)
        assert await read(audit, 3) == orders(0, 3)
        await edge.end()
        await edge.start("--http-port=0")
        await publish(shop, 5, 5)
        assert await read(audit, 7) == orders(3, 7)
        row = await edge.part("journal")
        assert (row["name"], row["depth"], row["state"]) == ("orders", 10, "owner")
        await eventually(lambda: _gauge(edge, "oncewire_edge_part_reader_lag", 0.0), "the reader's lag is 0")


async def _gauge(edge: EdgeProcess, name: str, value: float) -> bool:
    _, text = await edge.ask("/metrics")
    return f'{name}{{kind="journal",name="orders"}} {value}' in text


@pytest.mark.needs("postgresql")
@pytest.mark.parametrize("sql_database", ["postgresql"], indirect=True)
async def test_another_edge_takes_over_the_journal_of_a_killed_one(
    url: str, sql_database: SqlDatabase, tmp_path: Path
) -> None:
    lease = "lease = 2"
    first_text = settings(sql_database.url, [url], JOURNAL, "edge1", lease)
    second_text = settings(sql_database.url, [url], JOURNAL, "edge2", lease)
    async with (
        running_edge(tmp_path / "edge1.toml", first_text) as first,
        running_edge(tmp_path / "edge2.toml", second_text) as second,
        connect(url, container_id="shop", journal=tmp_path / "shop.db") as shop,
        connect(url, container_id="audit", journal=tmp_path / "audit.db") as audit,
    ):
        assert await read(audit, 0) == []
        await publish(shop, 0, 5)
        assert (await second.part("journal"))["state"] == "stands by"
        await eventually(lambda: _is_owned(second, "edge1"), "the first edge is known as the owner")
        await first.end()
        await publish(shop, 5, 5)
        assert (await second.part("journal"))["state"] == "owner"
        assert await read(audit, 10) == orders(0, 10)
        await eventually(lambda: _is_owned(second, "edge2"), "the second edge is known as the owner")


async def _is_owned(edge: EdgeProcess, owner: str) -> bool:
    return bool((await edge.ask("/api/v1/journals"))[1]["journals"][0]["owner"] == owner)


async def test_a_full_journal_holds_publishers_back_until_its_limit_is_raised(url: str, tmp_path: Path) -> None:
    file, store = tmp_path / "edge.toml", f"sqlite:///{tmp_path}/edge.db"
    async with (
        running_edge(file, settings(store, [url], f'{JOURNAL}max_bytes = "1KiB"\n')) as edge,
        connect(url, container_id="shop", journal=tmp_path / "shop.db") as shop,
        shop.publisher("orders.new", name="big") as publisher,
    ):
        sendings = [await publisher.submit(bytes(300)) for _ in range(4)]
        await eventually(lambda: _gauge(edge, "oncewire_edge_part_full", 1.0), "the journal is full")
        waiting: asyncio.Future[Outcome] = asyncio.ensure_future(sendings[-1])
        await asyncio.wait([waiting], timeout=0.2)
        assert not waiting.done()
        file.write_text(settings(store, [url], f'{JOURNAL}max_bytes = "1MiB"\n'))
        status, _ = await edge.ask("/api/v1/reload", "POST")
        assert status == 200
        assert (await waiting).is_accepted
        for sending in sendings:
            assert (await sending).is_accepted
