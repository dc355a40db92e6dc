"""A database that is cut off in silence, in each step of its use: the step ends in its time, and all works again."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from chaos.network.database_relay import DatabaseRelay, relay_to
from oncewire.store import patience, postgres
from oncewire.store.contents import Contents
from oncewire.store.errors import StoreError, StoreUnreachable
from oncewire.store.open_store import OpenStore, until_set
from oncewire.store.store import Transaction
from tests.store.databases import Servers, SqlDatabase, new_address
from tests.store.test_stores import NOTES, note, numbers

LONG_S = 60.0
pytestmark = [pytest.mark.needs("postgresql"), pytest.mark.timeout(120)]


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "CONNECT_SECONDS", 2)  # psycopg's shortest
    monkeypatch.setattr(postgres, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(patience, "LOOK_S", 0.05)


@pytest.fixture
def database(tmp_path: Path, servers: Servers) -> SqlDatabase:
    return SqlDatabase("postgresql", new_address("postgresql", tmp_path, servers))


@asynccontextmanager
async def relayed(database: SqlDatabase) -> AsyncIterator[DatabaseRelay]:
    with tempfile.TemporaryDirectory(prefix="oncewire-relay-") as name:  # the path of a socket is short
        async with relay_to(database.url, Path(name)) as relay:
            yield relay


def opened(relay: DatabaseRelay) -> AbstractAsyncContextManager[OpenStore[Transaction]]:
    return OpenStore[Transaction].open(relay.url, Contents([NOTES]))


@pytest.mark.parametrize("passes", [False, True], ids=["lost", "answer lost"])
@pytest.mark.parametrize("words", ["SHOW synchronous_commit", "BEGIN", "COMMIT"])
async def test_opening_a_store_whose_database_is_cut_off_ends(database: SqlDatabase, words: str, passes: bool) -> None:
    async with relayed(database) as relay:
        relay.cut_at(words.encode(), passes=passes)
        async with asyncio.timeout(LONG_S):
            with pytest.raises(StoreUnreachable):
                async with opened(relay):
                    pass
        assert relay.is_cut.is_set()
        relay.heal()
        async with asyncio.timeout(LONG_S), opened(relay) as store:
            await store.transact(note(1))
    assert numbers(database) == [1]


@pytest.mark.parametrize("passes", [False, True], ids=["lost", "answer lost"])
@pytest.mark.parametrize("words", ["BEGIN", "INSERT", "COMMIT"])
async def test_a_transaction_whose_database_is_cut_off_fails_and_the_next_one_works(
    database: SqlDatabase, words: str, passes: bool
) -> None:
    async with relayed(database) as relay, asyncio.timeout(LONG_S), opened(relay) as store:
        relay.cut_at(words.encode(), passes=passes)
        with pytest.raises(StoreUnreachable):
            await store.transact(note(1))
        assert relay.is_cut.is_set()
        relay.heal()
        await store.transact(note(3))
        # A commit on its way is one that may have happened.
        assert numbers(database) in ([3], [1, 3] if words == "COMMIT" else [3])


async def test_a_transaction_that_waits_for_the_connect_fails(database: SqlDatabase) -> None:
    async with relayed(database) as relay, asyncio.timeout(LONG_S), opened(relay) as store:
        relay.cut()
        for _ in range(2):  # the second one finds the connection broken
            with pytest.raises(StoreUnreachable):
                await store.transact(note(1))
        relay.heal()
        await store.transact(note(3))
        assert numbers(database) == [3]


async def test_a_job_that_fails_while_its_database_is_cut_off_ends_and_has_changed_nothing(
    database: SqlDatabase,
) -> None:
    def fail(do: Transaction) -> None:
        note(1)(do)
        raise LookupError("a job's own")

    async with relayed(database) as relay, asyncio.timeout(LONG_S), opened(relay) as store:
        relay.cut_at(b"ROLLBACK", passes=False)
        with pytest.raises(LookupError):
            await store.transact(fail)
        assert relay.is_cut.is_set()
        relay.heal()
        await store.transact(note(2))
        assert numbers(database) == [2]


@pytest.mark.parametrize("words", [b"SHOW synchronous_commit", b"LISTEN"])
async def test_whoever_begins_to_wait_for_notices_while_its_database_is_cut_off_is_refused(
    database: SqlDatabase, words: bytes
) -> None:
    async with relayed(database) as relay, asyncio.timeout(LONG_S), opened(relay) as store, opened(relay) as other:
        relay.cut_at(words, passes=True)
        with pytest.raises(StoreError):
            await store.listen()
        relay.heal()
        await store.listen()
        with store.waiting("it") as changed:
            await other.transact(lambda do: do.touched.add("it"))
            await until_set(changed, LONG_S)
            assert changed.is_set()


async def test_notices_of_a_time_in_which_the_database_was_cut_off_come_when_it_answers_again(
    database: SqlDatabase,
) -> None:
    async with relayed(database) as relay, asyncio.timeout(LONG_S), opened(relay) as store:
        await store.listen()
        relay.cut()
        with store.waiting("it") as changed:
            with pytest.raises(StoreUnreachable):
                await store.transact_within(0.1, note(1))
            async with OpenStore[Transaction].open(database.url, Contents([NOTES])) as other:
                await other.transact(lambda do: do.touched.add("it"))
            assert not changed.is_set()
            relay.heal()
            await until_set(changed, LONG_S)
            assert changed.is_set()


async def test_a_store_is_closed_though_its_database_is_cut_off(database: SqlDatabase) -> None:
    async with relayed(database) as relay, asyncio.timeout(LONG_S), opened(relay) as store:
        await store.listen()
        relay.cut_at(b"INSERT", passes=True)
        last = store.start(note(1))
        await relay.is_cut.wait()
        await store.close()
        assert isinstance(last.exception(), StoreUnreachable)
