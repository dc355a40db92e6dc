"""The asyncio client with a durable journal: one transaction with the application, restarts, full disks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from oncewire.client import (
    ClientEvent,
    DeliveryGivenUp,
    JournalFull,
    JournalOwnerError,
    OutcomeKind,
    SqliteJournal,
    UsageError,
    connect,
)
from tests.client.shell_helpers import LONG, until
from tests.client.wire_server import Network, WireServer


async def test_effect_and_acceptance_are_one_transaction(server: WireServer, tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    journal.connection.execute("CREATE TABLE seen (body BLOB)")
    async with connect(server.url, container_id="c") as client:
        publisher = await client.publisher("t", name="p")
        subscriber = await client.subscriber("t", name="s", journal=journal)
        sendings = [await publisher.submit(body) for body in (b"1", b"2")]
        first = await subscriber.receive(LONG)

        async def fail() -> None:
            async with first.transaction() as database:
                database.execute("INSERT INTO seen VALUES (?)", (first.body,))
                raise RuntimeError("mine")

        with pytest.raises(RuntimeError, match="mine"):
            await fail()
        assert sendings[0].outcome is None
        async with first.transaction() as database:
            database.execute("INSERT INTO seen VALUES (?)", (first.body,))
        assert (await sendings[0]).is_accepted
        second = await subscriber.receive(LONG)
        await second.accept()
        assert (await sendings[1]).is_accepted
    assert journal.connection.execute("SELECT body FROM seen").fetchall() == [(b"1",)]
    journal.close()


async def test_several_deliveries_can_be_accepted_in_one_transaction(server: WireServer, tmp_path: Path) -> None:
    async with connect(server.url, container_id="c") as client:
        publisher = await client.publisher("t", name="p")
        subscriber = await client.subscriber("t", name="s", journal=tmp_path / "j.db")
        sendings = [await publisher.submit(b"%d" % number) for number in range(8)]
        await until(lambda: subscriber.waiting == 8)
        deliveries = await subscriber.receive_many(100, LONG)
        async with subscriber.transaction(*deliveries) as database:
            database.execute("CREATE TABLE mine (x)")
        for sending in sendings:
            assert (await sending).is_accepted


async def test_a_transaction_needs_a_durable_journal(server: WireServer) -> None:
    async with connect(server.url) as client:
        publisher = await client.publisher("t")
        subscriber = await client.subscriber("t")
        _ = await publisher.submit(b"x")
        delivery = await subscriber.receive(LONG)
        with pytest.raises(UsageError, match="no SQLite journal"):
            async with delivery.transaction():
                pass
        with pytest.raises(UsageError, match="no SQLite journal"):
            await publisher.submit_many([b"x"], effect=print)
        await delivery.accept()


async def test_a_publisher_goes_on_from_its_journal_after_it_was_left_in_mid_flight(
    server: WireServer, tmp_path: Path
) -> None:
    path = tmp_path / "j.db"
    async with connect(server.url, container_id="keeper") as keeper:
        subscriber = await keeper.subscriber("t", name="s")
        async with connect(server.url, container_id="c") as client:
            publisher = await client.publisher("t", name="p", journal=path)
            await publisher.submit_many([b"0", b"1", b"2"])
            deliveries = [await subscriber.receive(LONG) for _ in range(3)]
            await publisher.suspend()
        for delivery in deliveries:
            await delivery.accept()
        async with connect(server.url, container_id="c") as client:
            publisher = await client.publisher("t", name="p", journal=path)
            assert [sending.number for sending in publisher.recovered] == [0, 1, 2]
            for sending in publisher.recovered:
                assert (await sending).is_accepted
            assert publisher.next_number == 3
        assert subscriber.waiting == 0
        await subscriber.unsubscribe()


async def test_a_subscriber_goes_on_from_its_journal_and_gets_nothing_twice(
    server: WireServer, network: Network, tmp_path: Path
) -> None:
    path = tmp_path / "j.db"
    async with connect(server.url, container_id="pub") as other:
        publisher = await other.publisher("t", name="p")
        async with connect(server.url, container_id="c") as client:
            subscriber = await client.subscriber("t", name="s", journal=path)
            sendings = [await publisher.submit(b"%d" % number) for number in range(4)]
            for _ in range(2):
                await (await subscriber.receive(LONG)).accept()
        async with connect(server.url, container_id="c") as client:
            subscriber = await client.subscriber("t", name="s", journal=path)
            rest = [await subscriber.receive(LONG) for _ in range(2)]
            assert [delivery.body for delivery in rest] == [b"2", b"3"]
            for delivery in rest:
                await delivery.accept()
            for sending in sendings:
                assert (await sending).is_accepted
            await subscriber.unsubscribe()


async def test_what_was_not_finished_comes_again_though_a_later_delivery_was_committed_with_its_effect(
    server: WireServer, tmp_path: Path
) -> None:
    path = tmp_path / "j.db"
    events: list[ClientEvent] = []
    async with connect(server.url, container_id="pub") as other:
        publisher = await other.publisher("t", name="p")
        async with connect(server.url, container_id="c") as client:
            subscriber = await client.subscriber("t", name="s", journal=path)
            sendings = [await publisher.submit(body) for body in (b"1", b"2")]
            _, second = [await subscriber.receive(LONG) for _ in range(2)]
            async with second.transaction() as database:
                database.execute("CREATE TABLE seen AS SELECT 2 AS number")
        async with connect(server.url, container_id="c", on_event=events.append) as client:
            subscriber = await client.subscriber("t", name="s", journal=path)
            first = await subscriber.receive(LONG)
            assert first.body == b"1"
            assert [sending.outcome for sending in sendings] == [None, None]
            await first.accept()
            for sending in sendings:
                assert (await sending).is_accepted
            assert subscriber.waiting == 0
            await subscriber.unsubscribe()
    assert not any(isinstance(event, DeliveryGivenUp) for event in events)


async def test_an_unfinished_delivery_whose_session_expired_before_the_restart_is_reported_as_given_up(
    server: WireServer, network: Network, tmp_path: Path
) -> None:
    path = tmp_path / "j.db"
    events: list[ClientEvent] = []
    async with connect(server.url, container_id="pub") as other:
        publisher = await other.publisher("t", name="p")
        async with connect(server.url, container_id="c") as client:
            subscriber = await client.subscriber("t", name="s", journal=path)
            sendings = [await publisher.submit(body) for body in (b"1", b"2")]
            first, second = [await subscriber.receive(LONG) for _ in range(2)]
            await second.accept()
        network.topic("t").expire_session()
        server.drop_connections()
        for sending in sendings:
            assert (await sending).kind is OutcomeKind.UNKNOWN
        async with connect(server.url, container_id="c", on_event=events.append) as client:
            subscriber = await client.subscriber("t", name="s", journal=path)
            assert DeliveryGivenUp("s", first.tag) in events
            assert subscriber.waiting == 0
            await subscriber.unsubscribe()


async def test_messages_and_the_place_in_their_source_are_one_transaction(server: WireServer, tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    journal.connection.execute("CREATE TABLE place (next INTEGER)")
    journal.connection.execute("INSERT INTO place VALUES (0)")
    async with connect(server.url, container_id="c") as client:
        publisher = await client.publisher("t", name="p", journal=journal)
        await publisher.submit_many([b"a", b"b"], effect=lambda db: db.execute("UPDATE place SET next = 2"))

        def fail(_: object) -> None:
            raise RuntimeError("mine")

        with pytest.raises(RuntimeError, match="mine"):
            await publisher.submit_many([b"c"], effect=fail)
        assert publisher.next_number == 2
        await publisher.flush(LONG)
        with pytest.raises(UsageError, match="the window holds"):
            await publisher.submit_many([b"x"] * 5000)
    assert journal.connection.execute("SELECT next FROM place").fetchone() == (2,)
    journal.close()


async def test_a_journal_of_another_container_is_refused(server: WireServer, tmp_path: Path) -> None:
    async with connect(server.url, container_id="one") as client:
        await client.publisher("t", name="p", journal=tmp_path / "j.db")
    async with connect(server.url, container_id="two") as client:
        with pytest.raises(JournalOwnerError, match="'one'"):
            await client.publisher("t", name="p", journal=tmp_path / "j.db")


async def test_two_clients_cannot_share_a_journal(server: WireServer, tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    async with connect(server.url, container_id="c") as first, connect(server.url, container_id="c") as second:
        await first.publisher("t", name="p", journal=journal)
        with pytest.raises(JournalOwnerError, match="another client"):
            await second.publisher("t", name="q", journal=journal)
    journal.close()


async def test_a_full_disk_fails_the_publisher_with_its_reason_and_not_the_others(
    server: WireServer, tmp_path: Path
) -> None:
    journal = SqliteJournal(tmp_path / "j.db")
    async with connect(server.url, container_id="c") as client:
        publisher = await client.publisher("t", name="p", journal=journal)
        other = await client.publisher("t2", name="q")
        pages = journal.connection.execute("PRAGMA page_count").fetchone()[0]
        journal.connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        sending = await publisher.submit(bytes(100_000))
        with pytest.raises(JournalFull):
            await sending
        with pytest.raises(JournalFull):
            _ = await publisher.submit(b"x")
        await other.send(b"x", timeout=LONG)
    journal.close()


async def test_durable_links_survive_router_restarts(network: Network, tmp_path: Path) -> None:
    async with WireServer(network) as server, connect(server.url, container_id="c") as client:
        publisher = await client.publisher("t", name="p", journal=tmp_path / "p.db", window=16)
        subscriber = await client.subscriber("t", name="s", journal=tmp_path / "s.db")
        received: list[object] = []

        async def receive() -> None:
            while True:
                deliveries = await subscriber.receive_many(64)
                async with subscriber.transaction(*deliveries):
                    received.extend(delivery.body for delivery in deliveries)

        receiving = asyncio.create_task(receive())
        async with asyncio.timeout(LONG):
            for number in range(300):
                _ = await publisher.submit(b"%d" % number)
                if number % 100 == 50:
                    await server.kill()
                    await server.start()
            await publisher.flush()
        receiving.cancel()
        assert received == [b"%d" % number for number in range(300)]
        assert client.statistics.resumed_links > 0
        await subscriber.unsubscribe()
