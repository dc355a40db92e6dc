"""docs/journals.md, done as it says: its edge, its shell session, its programs."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import pytest

from tests.docs.code_blocks import ROOT, blocks_of
from tests.edge.edge_process import LONG_S, ONCEWIRE, EdgeProcess, running_edge
from tests.router.processes import RouterProcess

PAGE = ROOT / "docs" / "journals.md"
SETTINGS, SHELL, PYTHON, CONSUMER, PROTON, CURL = (
    block.text for block in blocks_of(PAGE) if block.run_by == "tests/journal/test_page.py"
)
ROUTER = "amqp://127.0.0.1:5672"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def url(router: RouterProcess, tmp_path: Path) -> AsyncIterator[str]:
    """Of a router that the edge of the page serves."""
    async with page_edge(router, tmp_path):
        yield router.url


def page_edge(router: RouterProcess, folder: Path) -> AbstractAsyncContextManager[EdgeProcess]:
    """The edge of the page, with its store in a folder."""
    text = SETTINGS.replace(ROUTER, router.url).replace("sqlite:///", f"sqlite:///{folder}/")
    return running_edge(folder / "edge.toml", text)


async def run(folder: Path, url: str, *command: str) -> str:
    """What a command prints; the file `oncewire` of the folder is on its path."""
    program = folder / "oncewire"
    program.write_text(f"#!/bin/sh\nexec {ONCEWIRE[0]} {ONCEWIRE[1]} {ONCEWIRE[2]} '{ONCEWIRE[3]}' \"$@\"\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "ONCEWIRE_URL": url}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), LONG_S)
    assert process.returncode == 0, err.decode()
    return out.decode()


async def publish(folder: Path, url: str) -> None:
    done = await run(folder, url, "sh", "-e", "-c", SHELL.splitlines()[0])
    assert done == "published 3, accepted 3: stored, and not processed yet\n"


async def test_the_shell_session_prints_what_the_page_says(url: str, tmp_path: Path) -> None:
    lines = (await run(tmp_path, url, "sh", "-e", "-c", SHELL)).splitlines()
    messages = ["two coffees", "one tea", "a cake"]
    assert lines[:7] == ["published 3, accepted 3: stored, and not processed yet", *messages, *messages]
    assert lines[7].startswith("position: 3 ")
    assert lines[7].endswith("payload: a cake  encoding: text")
    assert "next: 4  unread: 0" in lines[8]
    assert len(lines) == 9


async def test_the_program_reads_the_journal_and_goes_on_behind_it(url: str, tmp_path: Path) -> None:
    await publish(tmp_path, url)
    program = PYTHON.replace(ROUTER, url)
    assert await run(tmp_path, url, sys.executable, "-c", program) == (
        "1 orders.# two coffees\n2 orders.# one tea\n3 orders.# a cake\n"
    )
    await publish(tmp_path, url)
    assert await run(tmp_path, url, sys.executable, "-c", program.replace("== 3", "== 5")) == (
        "4 orders.# two coffees\n5 orders.# one tea\n"
    )


@pytest.mark.needs("curl")
async def test_the_requests_of_the_page_read_the_journal_over_http(router: RouterProcess, tmp_path: Path) -> None:
    async with page_edge(router, tmp_path) as edge:
        await publish(tmp_path, router.url)
        printed = await run(tmp_path, router.url, "sh", "-e", "-c", CURL.replace("http://127.0.0.1:7074", edge.url))
    decoder = json.JSONDecoder()
    listed, end = decoder.raw_decode(printed)
    found, end = decoder.raw_decode(printed, end)
    body, waited = printed[end:].split("{", 1)
    assert (listed["journals"][0]["journal"], listed["journals"][0]["messages"]) == ("orders", 3)
    assert [each["payload"] for each in found["messages"]] == ["two coffees", "one tea"]
    assert body == "a cake"
    assert json.loads("{" + waited)["next"] == 4


async def test_the_consumer_has_each_message_in_its_table_and_goes_on_behind_it(url: str, tmp_path: Path) -> None:
    program = CONSUMER.replace(ROUTER, url)
    messages = ["two coffees", "one tea", "a cake"]
    for last in (3, 6):
        await publish(tmp_path, url)
        assert await run(tmp_path, url, sys.executable, "-c", program.replace("== 3", f"== {last}")) == ""
    with closing(sqlite3.connect(tmp_path / "stock.db")) as database:
        assert database.execute("SELECT * FROM sold").fetchall() == list(enumerate(messages * 2, 1))


@pytest.mark.needs("proton")
async def test_the_program_with_proton_reads_the_journal_and_has_a_cursor(url: str, tmp_path: Path) -> None:
    await publish(tmp_path, url)
    program = PROTON.replace(ROUTER, url)
    assert await run(tmp_path, url, sys.executable, "-c", program) == "1 two coffees\n2 one tea\n3 a cake\n"
    await publish(tmp_path, url)
    again = await run(tmp_path, url, sys.executable, "-c", program.replace("== 3", "== 6"))
    assert again.splitlines()[-3:] == ["4 two coffees", "5 one tea", "6 a cake"]
    assert set(again.splitlines()[:-3]) <= {"3 a cake"}, "at least once: the last outcome may not have arrived"
    with closing(sqlite3.connect(tmp_path / "edge.db")) as database:
        assert database.execute("SELECT reader FROM oncewire_journal_cursors").fetchall() == [("|till|till",)]
