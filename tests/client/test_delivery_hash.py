"""The delivery hash, and the example that makes side effects idempotent with it."""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from oncewire.client import connect
from oncewire.client.delivery_hash import delivery_hash
from tests.client.shell_helpers import until
from tests.client.store_world import Database, new_postgres_database
from tests.client.wire_server import Network, WireServer

PROJECT = Path(__file__).resolve().parents[2]
EXAMPLE = PROJECT / "examples" / "idempotent_effects.py"
PAYMENTS = 200
KILLS = 3


def test_it_depends_on_processor_and_positions_alone_and_never_changes() -> None:
    known = "f5c4ad2b101f50864979d84b2ec95698b2b71d82d8ca043ab5e800ab3d66ac22"
    assert delivery_hash("p", {"orders": 7}) == known
    assert delivery_hash("p", {"a": 1, "b": 2}) == delivery_hash("p", {"b": 2, "a": 1})


def test_different_deliveries_have_different_hashes() -> None:
    hashes = [
        delivery_hash("p", {"orders": 7}),
        delivery_hash("q", {"orders": 7}),
        delivery_hash("p", {"payments": 7}),
        delivery_hash("p", {"orders": 8}),
        delivery_hash("p", {"orders": "7"}),
        delivery_hash("p", {"orders": b"7"}),
        delivery_hash("p", {"orders": "37"}),
        delivery_hash("p", {"orders": 7, "payments": 7}),
    ]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize(
    ("processor", "positions"), [("", {"a": 1}), ("p", {}), ("p", {"a": True}), ("p", {"a": 1.5}), ("p", {"a": None})]
)
def test_what_could_not_be_reported_apart_is_refused(processor: str, positions: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="position"):
        delivery_hash(processor, positions)


async def killed_again_and_again(network: Network, database: Path, *more: str) -> None:
    """The example, killed several times while payments come in, until it has added all of them up."""

    def added() -> int:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as reader:
            found: int = reader.execute("SELECT count(*) FROM payments").fetchone()[0]
            return found

    async with WireServer(network) as server:
        arguments = ["--url", server.url, "--sqlite", str(database), *more]

        async def start() -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                str(EXAMPLE),
                *arguments,
                stdout=asyncio.subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

        example = await start()
        await until(lambda: network.topic("payments").subscriptions)
        async with connect([server.url], container_id="till") as client:
            publisher = await client.publisher("payments", name="till")
            await publisher.submit_many([b"%d" % amount for amount in range(PAYMENTS)])
            for kill in range(1, KILLS + 1):
                await until(lambda kill=kill: added() > kill * PAYMENTS // (KILLS + 2))  # type: ignore[misc]
                example.send_signal(signal.SIGKILL)
                await example.wait()
                example = await start()
            await publisher.flush()
        example.kill()
        await example.wait()


def check(database: Database) -> None:
    """Every payment once, and the sum is right."""
    rows = database.rows("SELECT amount FROM payments ORDER BY amount")
    assert [amount for (amount,) in rows] == list(range(PAYMENTS))
    assert database.rows("SELECT amount FROM total") == [(sum(range(PAYMENTS)),)]


def test_the_effects_of_the_example_happen_once_for_each_hash(database: Database) -> None:
    example = runpy.run_path(str(EXAMPLE))
    for is_first in (True, False):
        connection = database.connect()
        if database.kind == "sqlite":
            connection.close()
            ledger = example["SqliteLedger"](database.address)
            connection = ledger.database
        else:
            ledger = example["PostgresLedger"](connection)
        keys = [delivery_hash("p", {"payments": place}) for place in (1, 2)]
        assert [ledger.add(key, 5) for key in keys + keys] == [is_first, is_first, False, False]
        connection.close()
    assert database.rows("SELECT amount FROM total") == [(10,)]


async def test_the_example_adds_each_payment_once_in_sqlite(network: Network, tmp_path: Path) -> None:
    file = tmp_path / "totals.db"
    await killed_again_and_again(network, file)
    check(Database("sqlite", str(file)))


@pytest.mark.needs("postgresql")
async def test_the_example_adds_each_payment_once_in_both_databases(
    network: Network, tmp_path: Path, postgresql: str
) -> None:
    file = tmp_path / "totals.db"
    postgres = new_postgres_database(postgresql)
    await killed_again_and_again(network, file, "--postgres", postgres.address)
    check(Database("sqlite", str(file)))
    check(postgres)
