"""The client without what only Unix has, and without what only routers need: it works, and its journal still locks."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.router.processes import running_router

CHILD = Path(__file__).with_name("windows_child.py")
LIMIT_S = 60.0
# What is imported already cannot be hidden.
pytestmark = pytest.mark.cold


def start(*arguments: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, CHILD, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, text=True)


async def answer_of(*arguments: str, text: str = "") -> str:
    out, err = await asyncio.to_thread(start(*arguments).communicate, text, LIMIT_S)
    assert "Traceback" not in err, err
    return out


async def test_a_program_publishes_and_subscribes_with_a_journal(tmp_path: Path) -> None:
    async with running_router("--standalone") as router:
        answer = await answer_of("use", router.url, str(tmp_path))
    need_an_extra = ["oncewire.cli.json_web_tokens", "oncewire.client.metrics", "oncewire.transport.websocket"]
    assert json.loads(answer) == {"in_order": True, "not_importable": need_an_extra}


def test_an_address_of_a_websocket_is_refused_with_what_it_needs_where_that_is_missing() -> None:
    with start("pub", "orders", "one", "--url", "ws://127.0.0.1:1") as process:
        assert process.stderr is not None
        assert process.stderr.read().splitlines() == [
            "error: 'ws://127.0.0.1:1' cannot be used",
            "why: AMQP over WebSocket needs aiohttp, which is not installed",
            'what to do: pip install "oncewire[websocket]"',
        ]


async def test_the_commands_pub_and_sub_work() -> None:
    async with running_router("--standalone") as router:
        subscribing = start("sub", "orders", "--url", router.url, "--count", "2")
        assert subscribing.stderr is not None
        assert "subscribed" in await asyncio.to_thread(subscribing.stderr.readline)
        report = await answer_of("pub", "orders", "one", "two", "--url", router.url, "--json")
        received, _ = await asyncio.to_thread(subscribing.communicate, None, LIMIT_S)
    assert json.loads(report)["accepted"] == 2
    assert received == "one\ntwo\n"


async def test_lines_of_the_standard_input_are_read_where_no_loop_can_wait_for_them() -> None:
    many = [f"line {number}" for number in range(1000)]
    assert json.loads(await answer_of("lines", text="\n".join(many))) == many


def held(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    document: dict[str, Any] = json.loads(process.stdout.readline())
    return document


def test_a_journal_is_one_processs_until_it_is_killed_where_there_is_no_flock(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    owner = start("hold", path)
    try:
        assert held(owner) == {"held": True}, "and it cannot open the journal twice itself"
        with start("hold", path) as second:
            assert held(second) == {"held": False, "why": "another process is using it"}
    finally:
        owner.kill()
        owner.communicate()
    with start("hold", path) as third:
        assert held(third) == {"held": True}
        third.kill()
    assert (tmp_path / "shop.db.lock").stat().st_mode & 0o077 == 0
