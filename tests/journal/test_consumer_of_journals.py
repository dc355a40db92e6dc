"""Consumers that read journals: own positions, kills at every crash point, what cannot go on (CO-8, CO-9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from bridges.journal import cursors, log
from bridges.journal.model import Cursor, JournalSettings, NewMessage
from oncewire.client.errors import JournalUnreachable, LinkRefused, StoreFenced, UsageError
from oncewire.client.source_terms import Start
from oncewire.client.transactions import (
    Consumer,
    CrashPoint,
    Producer,
    ProducerId,
    ReceivedMessage,
    Transaction,
    journal_inputs,
)
from oncewire.wire import Message, encode_data_message, encode_message
from router.commands.local_network import LocalNetwork
from tests.client.conftest import database, postgresql
from tests.client.output_readers import OutputReaders, until
from tests.client.store_world import Database
from tests.journal.consumer_child import JOURNALS
from tests.journal.network_world import DEADLINE_S, Edge, edge
from tests.store.killing import KILLED, command

__all__ = ["database", "postgresql"]
pytestmark = [pytest.mark.routers(1), pytest.mark.timeout(400)]
POINTS = [point for point in CrashPoint if point not in (CrashPoint.RELEASED, CrashPoint.ENDED)]
QUICK = [CrashPoint.RECORDING, CrashPoint.RECORDED, CrashPoint.COMMITTED]


def url_of(network: LocalNetwork) -> str:
    return network.routers["r1"].url


async def make(found: Edge, journal: str) -> None:
    await found.store.transact(lambda do: log.configure(do, journal, JournalSettings()))


async def cursors_of(found: Edge, journal: str) -> dict[str, Cursor]:
    return await found.store.transact(lambda do: cursors.cursors(do, log.state(do, journal)))


async def append(found: Edge, journal: str, *bodies: object) -> None:
    messages = [NewMessage(encode_data_message(f"{body}".encode())) for body in bodies]
    await found.store.transact(lambda do: log.append(do, journal, messages))


async def append_to_both(found: Edge) -> None:
    for number in count():
        await append(found, JOURNALS[number % 2], *range(10 * number, 10 * number + 3))
        await asyncio.sleep(0.05)


@asynccontextmanager
async def appending(found: Edge) -> AsyncIterator[None]:
    """Numbers come to both journals for the time of the block."""
    task = asyncio.create_task(append_to_both(found))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def last_positions(found: Edge) -> dict[str, int]:
    return {each.name: each.last for each in await found.store.transact(log.journals)}


async def die(database: Database, network: LocalNetwork, point: str, note: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *command("tests.journal.consumer_child", database.url, url_of(network), point, str(note))
    )
    try:
        assert await asyncio.wait_for(process.wait(), DEADLINE_S) == KILLED, point
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def finish(database: Database, network: LocalNetwork, output: OutputReaders, total: int) -> None:
    process = await asyncio.create_subprocess_exec(
        *command("tests.journal.consumer_child", database.url, url_of(network), "-", "-")
    )
    try:
        await until(
            lambda: output.have(2 * total) and database.rows("SELECT number FROM oncewire_store_intents") == [],
            lambda: ({kind: len(found) for kind, found in output.by_kind.items()}, total),
        )
    finally:
        process.kill()
        await process.wait()


def judge(database: Database, output: OutputReaders, counts: dict[str, int]) -> None:
    """Each message of each journal once and in order, and all that was published for it once."""
    for journal, total in counts.items():
        query = f"SELECT position FROM seen WHERE journal = 'journal://{journal}' ORDER BY place"
        assert [position for (position,) in database.rows(query)] == list(range(1, total + 1))
    effects = database.rows("SELECT attempt, message FROM effects")
    assert database.rows("SELECT total FROM sums") == [(sum(int(message) for _, message in effects),)]
    output.check([f"{message}>{part}#{attempt}" for attempt, message in effects for part in "xy"])
    positions = database.rows("SELECT journal, position FROM oncewire_store_journal_positions")
    assert dict(positions) == counts


async def kill_at(points: Sequence[CrashPoint], database: Database, network: LocalNetwork, folder: Path) -> None:
    output = OutputReaders()
    url = url_of(network)
    async with edge(f"sqlite:///{folder}/edge.db", url) as found, output.reading([url], "totals"):
        await make(found, "returns")
        async with appending(found):
            for point in points:
                await die(database, network, point.name, folder / "note")
        positions = await last_positions(found)
        await finish(database, network, output, sum(positions.values()))
        judge(database, output, positions)
        for journal in JOURNALS:
            assert await cursors_of(found, journal) == {}


async def test_a_consumer_that_is_killed_goes_on_at_its_position_once_and_in_order(
    network: LocalNetwork, tmp_path: Path
) -> None:
    await kill_at(QUICK, Database("sqlite", str(tmp_path / "store.db")), network, tmp_path)


@pytest.mark.slow
async def test_a_consumer_killed_at_any_point_processes_each_message_of_its_journals_once(
    network: LocalNetwork, database: Database, tmp_path: Path
) -> None:
    await kill_at(POINTS, database, network, tmp_path)


class Reading:
    """Consumers of one store's database, by name."""

    def __init__(self, network: LocalNetwork, folder: Path) -> None:
        self._network = network
        self._store = f"sqlite:///{folder}/consumers.db"
        self.database = Database("sqlite", f"{folder}/consumers.db")

    def consumer(self, name: str, journals: object = ("orders",), start: Start = "first") -> Consumer:
        return Consumer(url_of(self._network), store=self._store, name=name, journals=journals, start=start)  # type: ignore[arg-type]

    async def read(self, name: str, wanted: int, journals: object = ("orders",), start: Start = "first") -> list[str]:
        """What it processes until it has got so many."""
        got: list[str] = []
        async with asyncio.timeout(DEADLINE_S), self.consumer(name, journals, start) as consumer:

            def process(_tx: Transaction, message: ReceivedMessage) -> None:
                got.append(message.body.decode())
                if len(got) == wanted:
                    consumer.stop()

            await consumer.run(process)
        return got


@pytest.fixture
def reading(network: LocalNetwork, tmp_path: Path) -> Reading:
    return Reading(network, tmp_path)


async def test_a_new_consumer_starts_where_it_says_and_a_known_one_at_its_own_position(
    network: LocalNetwork, reading: Reading, tmp_path: Path
) -> None:
    async with edge(f"sqlite:///{tmp_path}/edge.db", url_of(network)) as found:
        await make(found, "returns")
        await append(found, "orders", *range(1, 4))
        await append(found, "returns", 100)
        assert await reading.read("all", 3) == ["1", "2", "3"]
        after = datetime.now() + timedelta(hours=1)  # noqa: DTZ005  # without a zone it is UTC, so an hour may be past
        for name, start, expected in (("last", "last", ["3"]), ("second", 2, ["2", "3"])):
            assert await reading.read(name, len(expected), start=start) == expected
        async with reading.consumer("next", start="next"), reading.consumer("later", start=after.astimezone()):
            pass  # each has its position now, whatever comes
        await append(found, "orders", 4, 5)
        for name, expected in (("all", ["4", "5"]), ("next", ["4", "5"]), ("later", ["4", "5"])):
            assert await reading.read(name, 2, start="last") == expected
        both = await reading.read("both", 3, {"orders": 4, "returns": "first"})
        assert sorted(both) == ["100", "4", "5"]
        assert await reading.read("replay", 5) == ["1", "2", "3", "4", "5"]


async def test_a_transaction_of_a_producer_is_processed_when_it_commits_though_the_journal_has_trimmed_it(
    network: LocalNetwork, reading: Reading, tmp_path: Path
) -> None:
    """What is pending is the consumer's own, so that an edge may let it go."""
    producer = Producer(ProducerId("billing", 1))
    async with edge(f"sqlite:///{tmp_path}/edge.db", url_of(network)) as found:
        pending = [
            NewMessage(encode_message(Message(body, annotations=producer.pending().annotations())))
            for body in (b"1", b"2")
        ]
        await found.store.transact(lambda do: log.append(do, "orders", pending))
        await append(found, "orders", 3)
        assert await reading.read("totals", 1) == ["3"]
        await found.store.transact(lambda do: log.trim(do, "orders", 3))
        ack = NewMessage(encode_message(Message(b"", annotations=producer.ack().annotations())))
        await found.store.transact(lambda do: log.append(do, "orders", [ack]))
        assert await reading.read("totals", 2) == ["1", "2"]


async def test_a_position_that_was_trimmed_ends_the_consumer_and_its_error_says_what_to_do(
    network: LocalNetwork, reading: Reading, tmp_path: Path
) -> None:
    async with edge(f"sqlite:///{tmp_path}/edge.db", url_of(network)) as found:
        await append(found, "orders", 1, 2)
        assert await reading.read("all", 2) == ["1", "2"]
        await append(found, "orders", 3, 4)
        await found.store.transact(lambda do: log.trim(do, "orders", 3))
        with pytest.raises(LinkRefused, match="that position was trimmed; it keeps 4 to 4") as refused:
            await reading.read("all", 1)
        assert refused.value.what == "the consumer 'all' cannot go on in journal 'orders'"
        table, where = "oncewire_store_journal_positions", "store = 'all' AND journal = 'orders'"
        assert f"delete the consumer's row of {table} (store 'all', journal 'orders')" in refused.value.fix
        reading.database.run(f"DELETE FROM {table} WHERE {where}")
        assert await reading.read("all", 1) == ["4"]


async def test_a_journal_that_was_made_again_or_is_deleted_under_a_consumer_ends_it(
    network: LocalNetwork, reading: Reading, tmp_path: Path
) -> None:
    async with edge(f"sqlite:///{tmp_path}/edge.db", url_of(network)) as found:
        await append(found, "orders", 1, 2)
        assert await reading.read("all", 2) == ["1", "2"]
        async with reading.consumer("all") as consumer:
            running = asyncio.create_task(consumer.run(lambda _tx, _message: None))
            await found.store.transact(lambda do: log.delete(do, "orders"))
            with pytest.raises(LinkRefused, match="'all' cannot go on in journal 'orders'"):
                await asyncio.wait_for(running, DEADLINE_S)
        await make(found, "orders")
        await append(found, "orders", 7, 8, 9)
        with pytest.raises(LinkRefused, match="deleted and made again, so position 2 is of another journal"):
            await reading.read("all", 1)


async def test_an_edge_that_cannot_be_reached_is_one_error_and_one_that_comes_back_is_waited_for(
    network: LocalNetwork, reading: Reading, tmp_path: Path
) -> None:
    got: list[str] = []
    async with edge(f"sqlite:///{tmp_path}/edge.db", url_of(network)) as found:
        await append(found, "orders", 1)
        with pytest.raises(LinkRefused, match="there is no journal 'ordres'"):
            await reading.read("all", 1, ["ordres"])
        consumer = await reading.consumer("all").__aenter__()
        running = asyncio.create_task(consumer.run(lambda _tx, message: got.append(message.body.decode())))
        await until(lambda: got == ["1"], lambda: got)
    with pytest.raises(JournalUnreachable, match="journal 'orders' cannot be reached") as error:
        await reading.read("another", 1)
    assert "start the edge that keeps it" in error.value.fix
    async with edge(f"sqlite:///{tmp_path}/edge.db", url_of(network)) as found:
        await append(found, "orders", 2)
        await until(lambda: got == ["1", "2"] or running.done(), lambda: got)
        consumer.stop()
        await running
        await consumer.__aexit__(None, None, None)
    assert got == ["1", "2"]


async def test_an_owner_that_reads_journals_notices_a_later_one_though_nothing_comes(
    network: LocalNetwork, reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no link that the later one would take, and commits nothing."""
    monkeypatch.setattr(journal_inputs, "FENCE_S", 0.1)
    async with edge(f"sqlite:///{tmp_path}/edge.db", url_of(network)), reading.consumer("all") as older:
        running = asyncio.create_task(older.run(lambda _tx, _message: None))
        async with reading.consumer("all"):
            with pytest.raises(StoreFenced, match="a later owner has opened it"):
                await asyncio.wait_for(running, DEADLINE_S)


def test_a_consumer_of_nothing_and_a_start_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for arguments in ({}, {"journals": "orders"}, {"journals": ["orders"], "start": 0}, {"journals": {"o": "begin"}}):
        with pytest.raises(UsageError):
            Consumer("amqp://localhost", store=f"sqlite:///{tmp_path}/s.db", name="x", **arguments)
