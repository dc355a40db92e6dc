"""From an address to a store: what is refused and how, who may read it, and what crashed processes left."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from oncewire.store import sqlite
from oncewire.store.errors import InvalidRequest, PartMissing, StoreBusy, StoreCorrupt, StoreUnreachable
from oncewire.store.open_store import until_set
from oncewire.store.opening import open_store
from oncewire.store.owners import take_over

OPEN_AND_CLOSE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT COUNT(*) FROM oncewire_owners").fetchall()
connection.close()
"""


@pytest.mark.parametrize(
    "url",
    [
        "",
        "store.db",
        "sqlite://store.db",
        "sqlite:///",
        "mysql://h/d",
        "sqlite:///s.db?max_bytes=x",
        "sqlite:///s.db?x=1",
    ],
)
def test_an_address_that_means_no_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        open_store(url)


def test_a_password_is_not_shown_when_an_address_is_refused() -> None:
    with pytest.raises(InvalidRequest) as refused:
        open_store("mysql://me:secret@host/db")
    assert "secret" not in str(refused.value)


def test_a_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/s.db").close()
    assert stat.S_IMODE((tmp_path / "s.db").stat().st_mode) == 0o600


def test_a_file_that_this_process_opens_twice_loses_nothing_when_another_process_closes_it(tmp_path: Path) -> None:
    """Closing a descriptor of a file lets go of all locks that a process has on it, those of SQLite's too."""
    file = tmp_path / "s.db"
    first, second = (open_store(f"sqlite:///{file}") for _ in range(2))
    subprocess.run([sys.executable, "-c", OPEN_AND_CLOSE, file], check=True)
    owner, _ = first.transact([lambda do: take_over(do, "a")])
    second.transact([owner[0].check])
    with closing(sqlite3.connect(file)) as other:
        assert other.execute("SELECT name FROM oncewire_owners").fetchall() == [("a",)]
    first.close()
    second.close()


def test_a_folder_that_does_not_exist_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable):
        open_store(f"sqlite:///{tmp_path}/none/s.db")


def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"something else, and long enough to be looked at" * 100)
    with pytest.raises(StoreCorrupt):
        open_store(f"sqlite:///{tmp_path}/s.db")


def test_a_server_that_does_not_answer_is_unreachable(tmp_path: Path) -> None:
    url = f"postgresql:///store?host={tmp_path}"
    with pytest.raises((StoreUnreachable, PartMissing)):
        open_store(url)


def test_without_psycopg_a_postgresql_store_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(PartMissing, match="pip install"):
        open_store("postgresql:///store")


def test_a_store_that_another_program_locks_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.1)
    with closing(open_store(f"sqlite:///{tmp_path}/s.db")) as store:
        other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy):
            store.transact([lambda do: do.now])
        other.close()
        store.transact([lambda do: do.now])


def test_pipes_of_processes_that_crashed_are_deleted(tmp_path: Path) -> None:
    with closing(open_store(f"sqlite:///{tmp_path}/s.db")) as store:
        folder = tmp_path / "s.db-waiters"
        folder.mkdir()
        os.mkfifo(folder / "4711-dead")
        store.announce(frozenset({"work"}))
        assert list(folder.iterdir()) == []


async def test_a_waiter_that_is_cancelled_as_a_notice_comes_waits_no_longer() -> None:
    notice = asyncio.Event()
    waiting = asyncio.create_task(until_set(notice, 60.0))
    await asyncio.sleep(0)
    notice.set()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
