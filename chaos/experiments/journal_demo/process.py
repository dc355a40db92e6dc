"""One process of the demo: ``python -m chaos.experiments.journal_demo.process ROLE ARGUMENTS``.

`edge FILE` is `oncewire edge serve`; `reader NAME FOLDER ROUTERS JOURNAL` and `replay FOLDER ROUTERS JOURNAL LAST`
read. Each prints a line when it is at work, and ends when its standard input does: the demo has ended.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from bridges.edge.cli import edge
from chaos.experiments.child_process import end_with_parent, say_ready
from oncewire.client import Delivery, connect

REPLAY = "replay"
PASSES = (1, 2)
"""Of the reader that replays."""
BATCH = 100
PAUSE_S = 0.05
"""Behind each batch: a reader that catches up takes seconds for it, so that a kill finds it at work."""
CONNECT_S = 120.0
"""How long a router and the journal may take to answer, on a slow machine."""
_TABLE = "CREATE TABLE IF NOT EXISTS seen (pass INTEGER NOT NULL, position INTEGER NOT NULL, body BLOB NOT NULL)"
_LAST = "SELECT coalesce(max(position), 0) FROM seen WHERE pass = ?"
_MARKS = "ONCEWIRE_EDGE_"
"""Settings that the user has for an edge of his own are not meant for these."""


def database_of(folder: Path, reader: str) -> Path:
    """The file of a reader: what it has seen, and the journal of its client."""
    return folder / f"{reader}.db"


def seen_by(folder: Path, reader: str, number: int = 1) -> list[bytes]:
    """What a reader has read in one pass, in order."""
    return [body for (body,) in _ask(folder, reader, "SELECT body FROM seen WHERE pass = ? ORDER BY rowid", number)]


def count_seen(folder: Path, reader: str, number: int = 1) -> int:
    """How many messages a reader has read in one pass."""
    return sum(count for (count,) in _ask(folder, reader, "SELECT count(*) FROM seen WHERE pass = ?", number))


def _ask(folder: Path, reader: str, question: str, number: int) -> list[tuple[Any]]:
    path = database_of(folder, reader)
    if not path.exists():
        return []
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        try:
            return database.execute(question, [number]).fetchall()
        except sqlite3.OperationalError:  # it has no tables yet, or is being made
            return []


def keep(database: sqlite3.Connection, number: int, batch: Sequence[Delivery]) -> None:
    """Write messages down in the transaction that is open."""
    database.execute(_TABLE)
    rows = [(number, delivery.position, delivery.body) for delivery in batch]
    database.executemany("INSERT INTO seen VALUES (?, ?, ?)", rows)


async def read(name: str, folder: Path, routers: Sequence[str], journal: str) -> None:
    """From the first message on, with a cursor: what is read and its acceptance become durable together."""
    async with (
        connect(routers, container_id=name, timeout=CONNECT_S) as client,
        client.journal(journal, start="first", name=name, journal=database_of(folder, name)) as reader,
    ):
        say_ready()
        while True:
            batch = await reader.receive_many(BATCH)
            async with reader.transaction(*batch) as database:
                keep(database, 1, batch)
            await asyncio.sleep(PAUSE_S)


async def replay(folder: Path, routers: Sequence[str], journal: str, last: int) -> None:
    """Twice from the first message to the last, without a cursor: it keeps its position with what it has read."""
    with closing(sqlite3.connect(database_of(folder, REPLAY))) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(_TABLE)
        async with connect(routers, timeout=CONNECT_S) as client:
            say_ready()
            for number in PASSES:
                ((position,),) = database.execute(_LAST, [number]).fetchall()
                async with client.journal(journal, start=position + 1, settled=True) as reader:
                    while position < last:
                        batch = await reader.receive_many(BATCH)
                        with database:
                            keep(database, number, batch)
                        position = batch[-1].position or last
                        await reader.finish(batch)
                        await asyncio.sleep(PAUSE_S)
            await asyncio.Event().wait()  # what it ended with would be taken for a fault


def main(role: str, *arguments: str) -> None:
    """Run a role until it is killed."""
    if role == "edge":
        for name in [name for name in os.environ if name.startswith(_MARKS)]:
            del os.environ[name]
        edge(["serve", "--announce", "--config", *arguments], prog_name="oncewire edge")
    elif role == REPLAY:
        folder, routers, journal, last = arguments
        asyncio.run(replay(Path(folder), routers.split(","), journal, int(last)))
    else:
        name, folder, routers, journal = arguments
        asyncio.run(read(name, Path(folder), routers.split(","), journal))


if __name__ == "__main__":
    end_with_parent()
    main(*sys.argv[1:])
