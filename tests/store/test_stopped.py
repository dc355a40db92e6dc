"""A process that stops in a transaction holds nothing for long, and is fenced off when it goes on (W-23, W-26)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from oncewire.store.claims import CLAIMS, look
from oncewire.store.contents import Contents
from oncewire.store.owners import make_way, take_over
from tests.store.databases import Servers, SqlDatabase, new_address
from tests.store.killing import command
from tests.store.test_stores import NOTES, note
from tests.support.waiting import wait_until

pytestmark = pytest.mark.needs("postgresql")
SOON = "options='-c idle_in_transaction_session_timeout=300'"
"""A time of the address's own counts."""


def run_worker(database: SqlDatabase, words: str, how: str, take: Callable[[], None]) -> list[str]:
    """What a worker says that has stopped, when another process has taken over meanwhile."""
    worker = subprocess.Popen(
        command("tests.store.stopped_worker", f"{database.address}{words}", how), stdout=subprocess.PIPE, text=True
    )
    try:
        assert os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT) is not None
        take()
    finally:
        worker.send_signal(signal.SIGCONT)
        said, _ = worker.communicate(timeout=60)
    return said.split()


@pytest.mark.parametrize("how", ["waited", "sent"])
def test_a_process_that_stops_in_a_transaction_loses_it_and_what_it_owns(
    tmp_path: Path, servers: Servers, how: str
) -> None:
    database = SqlDatabase("postgresql", new_address("postgresql", tmp_path, servers))
    with closing(database.open_with(Contents([NOTES]))) as store:

        def take() -> None:
            # The row is locked: this waits until the server has ended the transaction.
            (owner,), _ = store.transact([lambda do: take_over(do, "it")])
            store.transact([owner.check, note(1, "next")])

        assert run_worker(database, f" {SOON}", how, take) == ["StoreUnreachable", "TakenOver"]
    assert database.rows("SELECT number, note FROM notes") == [(1, "next")]


@pytest.mark.parametrize("how", ["waited", "sent", "begun"])
def test_whoever_stands_by_ends_the_transaction_of_an_owner_that_stopped(
    tmp_path: Path, servers: Servers, how: str
) -> None:
    """Wherever it stopped: the server's own time begins at a synchronisation."""
    database = SqlDatabase("postgresql", new_address("postgresql", tmp_path, servers))
    with closing(database.open_with(Contents([NOTES]))) as store:

        def take() -> None:
            wait_until(lambda: store.transact([lambda do: make_way(do, "it")])[0] == [0.0], "the row is free")
            (owner,), _ = store.transact([lambda do: take_over(do, "it")])
            store.transact([owner.check, note(1, "next")])

        assert run_worker(database, "", how, take) == ["StoreUnreachable", "TakenOver"]
    assert database.rows("SELECT number, note FROM notes") == [(1, "next")]


@pytest.mark.parametrize("how", ["waited", "begun"])
def test_whoever_asks_for_the_same_ends_the_transaction_of_an_owner_that_stopped(
    tmp_path: Path, servers: Servers, how: str
) -> None:
    """CO-11: a look waits for no row that has been left locked."""
    database = SqlDatabase("postgresql", new_address("postgresql", tmp_path, servers))
    with closing(database.open_with(Contents([NOTES, CLAIMS]))) as store:

        def take() -> None:
            wait_until(lambda: "it" in store.transact([lambda do: look(do, "me", {"it": None}, 5.0)])[0][0].owned, "it")

        assert run_worker(database, "", how, take) == ["StoreUnreachable", "TakenOver"]


def test_the_server_has_a_time_for_stopped_processes_where_nobody_set_one(tmp_path: Path, servers: Servers) -> None:
    address = new_address("postgresql", tmp_path, servers)
    for words, expected in (("", "5s"), (f" {SOON}", "300ms")):
        with closing(SqlDatabase("postgresql", address + words).open_with()) as store:
            (rows,), _ = store.transact([lambda do: do.execute("SHOW idle_in_transaction_session_timeout")])
        assert rows == [(expected,)]
