"""`Client.journal` at real routers: late, from a time or position, with a cursor or without, killed (J-19 to J-24)."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bridges.journal import cursors, log
from bridges.journal.model import JournalSettings, NewMessage
from oncewire.client import LinkInterrupted, LinkRefused, NewIncarnation, Subscriber, UsageError, connect, sync
from oncewire.wire import encode_data_message
from router.commands.local_network import LocalNetwork
from tests.journal.network_world import COUNT, DEADLINE_S, Edge, edge, publish
from tests.store.killing import command
from tests.support.waiting import eventually

pytestmark = [pytest.mark.routers(1), pytest.mark.timeout(400)]
CHILD = command("tests.journal.reader_child")


async def bodies(reader: Subscriber, count: int) -> list[object]:
    found = []
    for _ in range(count):
        delivery = await reader.receive(DEADLINE_S)
        body = delivery.body
        found.append(body.decode() if isinstance(body, bytes) else body)
        await delivery.accept()
    return found


def orders(first: int, end: int = COUNT) -> list[object]:
    return [f"order {number}" for number in range(first, end)]


@pytest.mark.parametrize("settled", [False, True], ids=["with a cursor", "settled"])
async def test_a_late_reader_starts_where_it_says_and_learns_position_time_and_topic(
    network: LocalNetwork, tmp_path: Path, settled: bool
) -> None:
    url = network.routers["r1"].url
    begin = datetime.now(UTC) - timedelta(seconds=1)
    async with edge(f"sqlite:///{tmp_path}/edge.db", url), connect(url) as client:
        await publish(client)
        async with client.journal("orders", settled=settled) as reader:
            first = await reader.receive(DEADLINE_S)
            assert (first.body, first.position, first.topic) == ("order 0", 1, "orders.#")
            assert first.stored_at is not None
            assert begin < first.stored_at < datetime.now(UTC) + timedelta(seconds=1)
            await first.accept()
            assert await bodies(reader, COUNT - 1) == orders(1)
        assert await bodies(await client.journal("orders", start=6, settled=settled), 15) == orders(5)
        assert await bodies(await client.journal("orders", start="last", settled=settled), 1) == orders(19)
        for time in (begin, begin.replace(tzinfo=None)):
            assert await bodies(await client.journal("orders", start=time, settled=settled), 1) == orders(0, 1)
        following = await client.journal("orders", start="latest", settled=settled)
        await publish(client, 20, 1)
        assert await bodies(following, 1) == orders(20, 21)


async def test_a_cursor_with_a_name_is_continued_and_one_without_ends(network: LocalNetwork, tmp_path: Path) -> None:
    url = network.routers["r1"].url
    async with edge(f"sqlite:///{tmp_path}/edge.db", url) as found, connect(url) as shop:
        await publish(shop)
        for begin in (0, 8):
            async with (
                connect(url, journal=tmp_path / "reader.db") as client,
                client.journal("orders", name="reports") as reader,
            ):
                assert await bodies(reader, 8) == orders(begin, begin + 8)
        reader = await shop.journal("orders")
        assert await bodies(reader, 1) == orders(0, 1)
        await reader.close()

        assert await readers(found) == 1


async def readers(found: Edge) -> int:
    """How many have a cursor."""
    journal = await found.store.transact(lambda do: log.state(do, "orders"))
    return len(await found.store.transact(lambda do: cursors.cursors(do, journal)))


async def test_a_reader_that_is_closed_while_no_edge_is_there_ends_its_cursor_when_one_is(
    network: LocalNetwork, tmp_path: Path
) -> None:
    url, store = network.routers["r1"].url, f"sqlite:///{tmp_path}/edge.db"
    interrupted: list[object] = []
    async with connect(url, on_event=interrupted.append) as client:
        async with edge(store, url):
            reader = await client.journal("orders")
        await eventually(lambda: any(isinstance(each, LinkInterrupted) for each in interrupted))
        closing_it = asyncio.create_task(reader.unsubscribe())
        await asyncio.wait([closing_it], timeout=0.3)
        assert not closing_it.done()
        async with edge(store, url) as found:
            await closing_it
            assert await readers(found) == 0


@pytest.mark.parametrize("start", ["first", "next"])
async def test_a_settled_reader_neither_loses_nor_doubles_when_its_router_is_killed(tmp_path: Path, start: str) -> None:
    async with LocalNetwork(2, log_folder=tmp_path) as network:
        urls = [router.url for router in network.routers.values()]
        async with (
            edge(f"sqlite:///{tmp_path}/edge.db", *urls[::-1]) as found,
            connect(urls) as client,
            client.journal("orders", start=start, settled=True, prefetch=4) as reader,
        ):
            got = []
            if start == "first":
                await append(found, 0, COUNT)
                got += await bodies(reader, 7)
            await network.kill("r1")
            if start == "next":
                await append(found, 0, COUNT)  # behind the start, and before the reader is connected anew
            await append(found, COUNT, 5)
            got += await bodies(reader, COUNT + 5 - len(got))
            assert got == orders(0, COUNT + 5)
            with pytest.raises(TimeoutError):
                await reader.receive(0.5)
            assert client.statistics.connections == 2


async def append(found: Edge, first: int, count: int) -> None:
    messages = [NewMessage(encode_data_message(f"order {number}".encode())) for number in range(first, first + count)]
    await found.store.transact(lambda do: log.append(do, "orders", messages))


async def test_a_start_that_cannot_be_and_a_journal_that_is_not_there_are_refused_with_what_to_do(
    network: LocalNetwork, tmp_path: Path
) -> None:
    url = network.routers["r1"].url
    async with edge(f"sqlite:///{tmp_path}/edge.db", url) as found, connect(url) as client:
        await append(found, 0, COUNT)
        await found.store.transact(lambda do: log.trim(do, "orders", 5))
        with pytest.raises(LinkRefused, match='position was trimmed; it keeps 6 to 20; start at "first"'):
            await client.journal("orders", start=5)
        with pytest.raises(LinkRefused, match="its next message gets position 21") as ahead:
            await client.journal("orders", start=22, settled=True)
        assert '"first" is the oldest message' in ahead.value.fix
        with pytest.raises(LinkRefused, match=r"there is no journal 'ordres'.*see `oncewire journal list`"):
            await client.journal("ordres")
        for wrong in ("begin", 0, -1, True, 1.5):
            with pytest.raises(UsageError, match="cannot be read from"):
                client.journal("orders", start=wrong)  # type: ignore[arg-type, unused-awaitable]
        with pytest.raises(UsageError, match="settled cannot have a journal"):
            client.journal("orders", settled=True, name="x", journal=tmp_path / "x.db")  # type: ignore[unused-awaitable]


@pytest.mark.parametrize("settled", [False, True], ids=["with a cursor", "settled"])
async def test_a_reader_of_a_journal_that_is_deleted_or_trimmed_fails_and_says_so(
    network: LocalNetwork, tmp_path: Path, settled: bool
) -> None:
    url = network.routers["r1"].url
    async with edge(f"sqlite:///{tmp_path}/edge.db", url) as found, connect(url) as client:
        await append(found, 0, COUNT)
        late = await client.journal("orders", settled=settled, prefetch=1)
        reader = await client.journal("orders", settled=settled)
        assert await bodies(reader, COUNT) == orders(0)
        await found.store.transact(lambda do: log.trim(do, "orders", 10))
        with pytest.raises(LinkRefused, match="it keeps 11 to 20"):
            await bodies(late, COUNT)
        await found.store.transact(lambda do: log.delete(do, "orders"))
        with pytest.raises(LinkRefused, match="journal 'orders' cannot be read") as caught:
            await reader.receive(DEADLINE_S)
        assert caught.value.condition == "amqp:resource-deleted"


async def test_a_journal_that_is_made_again_is_another_one_to_who_keeps_a_position_or_a_cursor(
    network: LocalNetwork, tmp_path: Path
) -> None:
    url = network.routers["r1"].url
    store = f"sqlite:///{tmp_path}/edge.db"
    events: list[object] = []
    async with connect(url, container_id="reader", on_event=events.append) as client, edge(store, url) as found:
        await append(found, 0, 2)
        keeps_position = await client.journal("orders", settled=True)
        has_cursor = await client.journal("orders", name="reports", journal=None)
        assert await bodies(keeps_position, 2) == await bodies(has_cursor, 2) == orders(0, 2)
        before = has_cursor.incarnation
        await network.kill("r1")
        await found.store.transact(lambda do: log.delete(do, "orders"))
        await found.store.transact(lambda do: log.configure(do, "orders", JournalSettings()))
        await append(found, 5, 3)
        await network.restart("r1")
        with pytest.raises(LinkRefused, match="deleted and made again"):
            await keeps_position.receive(DEADLINE_S)
        assert await bodies(has_cursor, 3) == orders(5, 8)
        assert NewIncarnation("reports", before, has_cursor.incarnation) in events


@pytest.mark.parametrize("settled", [False, True], ids=["with a cursor", "settled"])
async def test_a_reader_waits_for_an_edge_that_is_started_again(
    network: LocalNetwork, tmp_path: Path, settled: bool
) -> None:
    url = network.routers["r1"].url
    interrupted: list[object] = []
    async with connect(url, on_event=interrupted.append) as client:
        async with edge(f"sqlite:///{tmp_path}/edge.db", url) as found:
            await append(found, 0, 5)
            reader = await client.journal("orders", settled=settled)
            assert await bodies(reader, 5) == orders(0, 5)
        await eventually(lambda: any(isinstance(each, LinkInterrupted) for each in interrupted))
        async with edge(f"sqlite:///{tmp_path}/edge.db", url) as found:
            await append(found, 5, 5)
            assert await bodies(reader, 5) == orders(5, 10)


async def test_a_reader_that_is_killed_and_started_again_processes_each_message_once(
    network: LocalNetwork, tmp_path: Path
) -> None:
    url = network.routers["r1"].url
    async with edge(f"sqlite:///{tmp_path}/edge.db", url) as found:
        await append(found, 0, 400)
        file = tmp_path / "reader.db"
        for kill_at in (60, 150, 280, 400):
            process = await asyncio.create_subprocess_exec(*CHILD, url, str(file))
            try:
                await eventually(lambda kill_at=kill_at: len(processed(file)) >= kill_at)
            finally:
                process.send_signal(signal.SIGKILL)
                await process.wait()
        assert processed(file) == list(range(400))


def processed(file: Path) -> list[int]:
    """What the reader's process has stored."""
    with closing(sqlite3.connect(file)) as database:
        if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'seen'").fetchall():
            return []
        return [number for (number,) in database.execute("SELECT number FROM seen ORDER BY place")]


async def test_the_client_without_an_event_loop_reads_a_journal(network: LocalNetwork, tmp_path: Path) -> None:
    url = network.routers["r1"].url

    def program() -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        with sync.connect(url) as client, client.journal("orders", start=3) as reader:
            for delivery in reader:
                assert delivery.stored_at is not None
                found.append((delivery.position, delivery.body, delivery.topic))
                delivery.accept()
                if len(found) == 2:
                    break
        return found

    async with edge(f"sqlite:///{tmp_path}/edge.db", url) as found:
        await append(found, 0, 4)
        read = await asyncio.wait_for(asyncio.to_thread(program), DEADLINE_S)
        assert read == [(3, b"order 2", None), (4, b"order 3", None)]
