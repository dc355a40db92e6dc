"""get-started.md, done step by step as the page says: a router is killed, and the programs print what it promises."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.code_blocks import ROOT, Block, blocks_of
from tests.support.terminal import on_terminal
from topology.etcd.server import free_port

RUN_S = 120.0
BLOCKS = [block for block in blocks_of(ROOT / "docs" / "get-started.md") if block.run_by]
PAGE_PORTS = ("5672", "5673", "5674")


def start(program: Block, name: str, folder: Path, ports: list[str]) -> subprocess.Popen[str]:
    source = program.text
    for on_page, here in zip(PAGE_PORTS, ports, strict=True):
        source = source.replace(f":{on_page}", f":{here}")
    (folder / name).write_text(source)
    command = [sys.executable, name]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_reader_who_does_what_the_page_says_sees_what_it_says(tmp_path: Path) -> None:
    network, table, kitchen, shop, *commands, cooked, sold = BLOCKS
    assert network.text == "oncewire local\n"
    assert [block.text for block in commands] == ["python kitchen.py\n", "python shop.py\n", "kill -9 PID\n"]
    arguments = ("local", "--port", str(free_port()), "--http-port", str(free_port()))
    with on_terminal("local=router.commands.cli:local", *arguments) as local:
        text = local.wait_for("Ctrl-C stops it.")
        rows = re.findall(r"(r\d) +amqp://127.0.0.1:(\d+) +http://127.0.0.1:\d+ +(\d+)", text)
        assert [row[0] for row in rows] == re.findall(r"^r\d", table.text, re.MULTILINE)
        assert re.findall(r"amqp://127.0.0.1:(\d+)", table.text) == list(PAGE_PORTS)
        ports = [row[1] for row in rows]
        eats = start(kitchen, "kitchen.py", tmp_path, ports)
        sells = None
        try:
            assert eats.stdout is not None
            assert eats.stdout.readline() == cooked.text.splitlines(keepends=True)[0]
            sells = start(shop, "shop.py", tmp_path, ports)
            assert sells.stdout is not None
            assert sells.stdout.readline() == sold.text.splitlines(keepends=True)[0]
            os.kill(int(rows[0][2]), signal.SIGKILL)
            assert sells.communicate(timeout=RUN_S)[0] == "".join(sold.text.splitlines(keepends=True)[1:])
            assert eats.communicate(timeout=RUN_S)[0] == "".join(cooked.text.splitlines(keepends=True)[1:])
            assert (sells.returncode, eats.returncode) == (0, 0)
        finally:
            for child in (eats, sells):
                if child is not None and child.poll() is None:
                    child.kill()
                    child.communicate()
        local.end()
