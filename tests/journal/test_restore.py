"""A journal restored from a backup as docs/how-to/recover.md says: what is lost, what comes again, what goes on."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from oncewire.client import Client, connect
from tests.docs.code_blocks import ROOT, blocks_of
from tests.edge.edge_process import LONG_S, ONCEWIRE, running_edge, settings
from tests.router.processes import RouterProcess
from tests.store.databases import SqlDatabase
from tests.support.postgres import find_postgresql
from tests.support.waiting import eventually

SQLITE_BACKUP, BACKUP, SQLITE_RESTORE, RESTORE = (
    block.text
    for block in blocks_of(ROOT / "docs/how-to/recover.md")
    if block.run_by == "tests/journal/test_restore.py"
)
COMMANDS = {"sqlite": (SQLITE_BACKUP, SQLITE_RESTORE), "postgresql": (BACKUP, RESTORE)}
DATABASE = "postgresql://edge@db/edge"
JOURNAL = '[[journal]]\nname = "orders"\ntopics = ["orders.#"]\n'
pytestmark = pytest.mark.timeout(300)


async def shell(folder: Path, database: SqlDatabase, text: str) -> str:
    """What the commands of the page print, in a folder where the store has the name that it has on the page."""
    for name, command in (("oncewire", ONCEWIRE), ("python3", [sys.executable])):
        program = folder / name
        quoted = " ".join(f"'{word}'" for word in command)
        program.write_text(f'#!/bin/sh\nexec {quoted} "$@"\n')
        program.chmod(0o755)
    text = text.replace(DATABASE, f"'{database.url}'").replace("edge.db", Path(database.address).name)
    programs = find_postgresql()
    environment = {**os.environ, "PATH": f"{folder}:{programs}:{os.environ['PATH']}"}
    process = await asyncio.create_subprocess_exec(
        *("sh", "-e", "-c", text), cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await asyncio.wait_for(process.communicate(), LONG_S)
    assert process.returncode == 0
    return printed.decode()


async def publish(url: str, folder: Path, *bodies: str) -> None:
    async with (
        connect(url, container_id="shop", journal=folder / "shop.db") as client,
        client.publisher("orders.new", name="shop") as publisher,
    ):
        for body in bodies:
            assert (await publisher.send(body, timeout=LONG_S)).is_accepted


async def read(client: Client, count: int) -> list[tuple[int | None, object]]:
    """Positions and bodies that the reader with a cursor and a map gets; all are accepted at the end."""
    async with client.journal("orders", start="first", name="bar") as reader:
        found = []
        for _ in range(count):
            delivery = await reader.receive(LONG_S)
            await delivery.accept()
            found.append((delivery.position, delivery.body))
        await reader.suspend()
        return found


async def test_a_restored_journal_lacks_what_came_since_and_readers_get_all_that_comes_then(
    router: RouterProcess, sql_database: SqlDatabase, tmp_path: Path
) -> None:
    url, text = router.url, settings(sql_database.url, [router.url], JOURNAL)
    backup, restore = COMMANDS[sql_database.kind]

    async def unread() -> int:
        _, shown = await edge.ask("/api/v1/journals/orders")
        return int(shown["readers"][0]["unread"])

    async with (
        running_edge(tmp_path / "edge.toml", text) as edge,
        connect(url, container_id="bar", journal=tmp_path / "bar.db") as bar,
    ):
        await publish(url, tmp_path, "1", "2", "3", "4")
        assert await read(bar, 3) == [(1, "1"), (2, "2"), (3, "3")]
        await eventually(lambda: _is(unread, 1), "the cursor that is backed up knows what was read")
        await shell(tmp_path, sql_database, backup)
        _, before = await edge.ask("/api/v1/journals/orders")
        await publish(url, tmp_path, "5", "6")
        assert await read(bar, 3) == [(4, "4"), (5, "5"), (6, "6")]
        await edge.end()
        assert "orders" in await shell(tmp_path, sql_database, restore)
        await edge.start("--http-port=0")
        await publish(url, tmp_path, "7", "8")
        _, answer = await edge.ask("/api/v1/journals/orders/messages")
        assert [each["payload"] for each in answer["messages"]] == [1, 2, 3, 4, 7, 8], "5 and 6 came after the backup"
        assert answer["id"] != before["id"]
        # 4 was read after the backup, and its cursor is that of the backup.
        assert await read(bar, 3) == [(4, "4"), (5, "7"), (6, "8")]
        await eventually(lambda: _is(unread, 0), "everything is read")


async def _is(number: Callable[[], Awaitable[int]], expected: int) -> bool:
    return await number() == expected
